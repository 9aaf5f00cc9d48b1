//! The file that the ranks of a communicator share.
//!
//! A rank has a board, which all others read, and a pipe to each other rank. A piece is written, its
//! number posted, and nobody writes the next one before all readers said that they took it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::MmapRaw;

/// Bytes of a board.
pub(crate) const BOARD: usize = 256 << 10;
/// Bytes of a pipe.
pub(crate) const PIPE: usize = 64 << 10;
/// Bytes of the counters of one writer.
const COUNTERS: usize = 64;
/// Another process is looked for this often.
const POLL: Duration = Duration::from_micros(20);

/// The shared file, as one rank sees it.
#[derive(Debug)]
pub(crate) struct Channel {
    memory: MmapRaw,
    path: PathBuf,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Whether waits end at once.
    aborted: AtomicBool,
}

/// Where a writer's counters and bytes are.
#[derive(Clone, Copy)]
struct Place {
    counters: usize,
    bytes: usize,
}

impl Channel {
    /// Opens the file, or makes it: whichever rank comes first.
    pub(crate) fn open(path: &Path, rank: usize, size: usize) -> io::Result<Channel> {
        let file: File =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // Each rank gives it the same length; what was never written is 0.
        file.set_len(length(size) as u64)?;
        let (memory, aborted) = (MmapRaw::map_raw(&file)?, AtomicBool::new(false));
        let channel = Channel { memory, path: path.to_owned(), rank, size, aborted };
        channel.counter(0).fetch_add(1, Ordering::AcqRel);
        Ok(channel)
    }

    /// Whether all ranks have come; the first of them then takes the file's name away.
    pub(crate) fn is_complete(&self) -> bool {
        let is_complete = self.counter(0).load(Ordering::Acquire) >= self.size as u64;
        if is_complete && self.rank == 0 {
            // It may be gone already.
            let _ = std::fs::remove_file(&self.path);
        }
        is_complete
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Shows a piece to all ranks, waits for theirs, and takes them; each rank shows one, maybe of no
    /// bytes. `take` is called with each rank and its piece, in the order of ranks.
    pub(crate) fn show(&self, number: u64, piece: &[u8], mut take: impl FnMut(usize, &[u8])) {
        let own = self.board(self.rank);
        // All have taken the piece before.
        self.wait(|| (0..self.size).all(|r| self.taken(self.board(r)) + 1 >= number));
        self.write(own, piece);
        self.posted_counter(own).store(number, Ordering::Release);
        self.wait(|| (0..self.size).all(|r| self.posted(self.board(r)) >= number));
        for rank in 0..self.size {
            take(rank, self.read(self.board(rank), BOARD));
        }
        self.taken_counter(own).store(number, Ordering::Release);
    }

    /// Puts a piece into the pipe to a rank, if the piece before was taken.
    pub(crate) fn try_put(&self, to: usize, piece: &[u8]) -> bool {
        let pipe = self.pipe(self.rank, to);
        let number = self.posted(pipe);
        if self.taken(pipe) < number {
            return false;
        }
        self.write(pipe, piece);
        self.posted_counter(pipe).store(number + 1, Ordering::Release);
        true
    }

    /// Takes a piece out of the pipe from a rank, if there is one.
    pub(crate) fn try_take(&self, from: usize, take: impl FnOnce(&[u8])) -> bool {
        let pipe = self.pipe(from, self.rank);
        let number = self.taken(pipe);
        if self.posted(pipe) == number {
            return false;
        }
        take(self.read(pipe, PIPE));
        self.taken_counter(pipe).store(number + 1, Ordering::Release);
        true
    }

    /// Waits until something is so, or the communicator is aborted.
    pub(crate) fn wait(&self, is_so: impl Fn() -> bool) {
        while !is_so() && !self.is_aborted() {
            std::thread::sleep(POLL);
        }
    }

    fn board(&self, rank: usize) -> Place {
        let counters = COUNTERS * (1 + rank);
        Place { counters, bytes: boards_start(self.size) + rank * BOARD }
    }

    fn pipe(&self, from: usize, to: usize) -> Place {
        let index = from * self.size + to;
        let counters = COUNTERS * (1 + self.size + index);
        let start = boards_start(self.size) + self.size * BOARD;
        Place { counters, bytes: start + index * PIPE }
    }

    fn posted(&self, place: Place) -> u64 {
        self.posted_counter(place).load(Ordering::Acquire)
    }

    fn taken(&self, place: Place) -> u64 {
        self.taken_counter(place).load(Ordering::Acquire)
    }

    fn posted_counter(&self, place: Place) -> &AtomicU64 {
        self.counter(place.counters)
    }

    fn taken_counter(&self, place: Place) -> &AtomicU64 {
        self.counter(place.counters + 8)
    }

    /// The length in front of the bytes of a piece is a counter too.
    fn length_counter(&self, place: Place) -> &AtomicU64 {
        self.counter(place.counters + 16)
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset is that of a counter, inside the mapping and aligned; all processes use it as an
        // atomic.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().add(offset).cast()) }
    }

    fn write(&self, place: Place, piece: &[u8]) {
        self.length_counter(place).store(piece.len() as u64, Ordering::Release);
        // SAFETY: the place has room for a piece, and nobody reads it before its number is posted.
        unsafe {
            let to = self.memory.as_mut_ptr().add(place.bytes);
            std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
        }
    }

    fn read(&self, place: Place, most: usize) -> &[u8] {
        let length = (self.length_counter(place).load(Ordering::Acquire) as usize).min(most);
        // SAFETY: the piece was posted, and nobody writes the place before it was taken.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(place.bytes), length) }
    }
}

fn boards_start(size: usize) -> usize {
    (COUNTERS * (1 + size + size * size)).next_multiple_of(4096)
}

fn length(size: usize) -> usize {
    boards_start(size) + size * BOARD + size * size * PIPE
}
