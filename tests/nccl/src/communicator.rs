//! A rank's end of a communicator.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::channel::Channel;

/// What NCCL's handle points to.
#[derive(Debug)]
pub(crate) struct Communicator {
    pub(crate) channel: Channel,
    path: PathBuf,
    /// Pieces that were shown so far.
    pieces: AtomicU64,
    splits: AtomicU64,
    /// When its last call ended on the virtual clock, in ns.
    pub(crate) idle: AtomicU64,
}

impl Communicator {
    pub(crate) fn open(path: &Path, rank: usize, size: usize) -> io::Result<Communicator> {
        let channel = Channel::open(path, rank, size)?;
        let [pieces, splits, idle] = [0; 3].map(AtomicU64::new);
        Ok(Communicator { channel, path: path.to_owned(), pieces, splits, idle })
    }

    /// The number of the next piece.
    pub(crate) fn next_piece(&self) -> u64 {
        self.pieces.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The communicator of the ranks of one color; none without one. All ranks call it, and it waits for them.
    pub(crate) fn split(&self, color: Option<i32>, key: i32) -> io::Result<Option<Communicator>> {
        let number = self.splits.fetch_add(1, Ordering::Relaxed);
        let path = format!("{}.{number}", self.path.display());
        let (rank, size) = (self.channel.rank, self.channel.size);
        let meeting = Channel::open(Path::new(&path), rank, size)?;
        meeting.wait(|| meeting.is_complete() || self.channel.is_aborted());
        let own = [color.unwrap_or(-1).to_ne_bytes(), key.to_ne_bytes()].concat();
        let mut members = Vec::new();
        meeting.show(1, &own, |rank, said| {
            let word = |at: usize| {
                said.get(at..at + 4).map_or(0, |word| {
                    i32::from_ne_bytes(word.try_into().expect("four bytes are four bytes"))
                })
            };
            if Some(word(0)) == color {
                members.push((word(4), rank));
            }
        });
        let Some(color) = color else { return Ok(None) };
        members.sort_unstable();
        let place = members.iter().position(|&(_, member)| member == rank).unwrap_or(0);
        let path = format!("{path}.{color}");
        Communicator::open(Path::new(&path), place, members.len()).map(Some)
    }
}
