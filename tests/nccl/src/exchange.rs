//! What a group of calls does between the processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::channel::{BOARD, PIPE};
use crate::clock::Clock;
use crate::communicator::Communicator;
use crate::faults;
use crate::kind::Kind;
use crate::link::Load;
use crate::meeting::meet;
use crate::options;
use crate::reduce::reduce;
use crate::staging::Staging;

/// A call with its values on the host.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    /// What was sent; empty for a receive.
    pub(crate) from: Staging,
    /// What came; empty for a send.
    pub(crate) to: Staging,
}

/// A group of calls.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) communicator: Arc<Communicator>,
    pub(crate) tasks: Vec<Task>,
}

impl Job {
    /// Runs the calls, which takes the time of the link on the virtual clock.
    pub(crate) fn run(&self) {
        let communicator = &self.communicator;
        let options = options::get();
        faults::before_collective(&options.faults, communicator.channel.rank);
        let Some(clock) = Clock::get() else { return self.exchange() };
        // A communicator's calls run one after the other, whatever their streams.
        let own = clock.now().max(communicator.idle.load(Ordering::Relaxed));
        let kinds: Vec<Kind> = self.tasks.iter().map(|task| task.kind).collect();
        let start = meet(communicator, &kinds, own);
        self.exchange();
        let (rank, size) = (communicator.channel.rank, communicator.channel.size);
        let call =
            |task: &Task| (task.kind, task.from.as_slice().len().max(task.to.as_slice().len()));
        let calls: Vec<Load> = self.tasks.iter().map(call).collect();
        let end = start + options.link.cost(&calls, rank, size);
        communicator.idle.store(end, Ordering::Relaxed);
        clock.end(end);
    }

    /// Exchanges the values: collectives in order, transfers all at once.
    fn exchange(&self) {
        let mut transfers = Vec::new();
        for task in &self.tasks {
            match task.kind {
                Kind::Send(peer) => transfers.push((task, peer, true, 0)),
                Kind::Receive(peer) => transfers.push((task, peer, false, 0)),
                _ => self.collective(task),
            }
        }
        let channel = &self.communicator.channel;
        while transfers.iter().any(|&(task, _, is_send, done)| done < length(task, is_send)) {
            let mut moved = false;
            // Of one pair and direction, the first that is not done comes first.
            let mut busy = Vec::new();
            for (task, peer, is_send, done) in &mut transfers {
                let way = (*peer, *is_send);
                if *done >= length(task, *is_send) || busy.contains(&way) {
                    continue;
                }
                busy.push(way);
                let piece = *done..length(task, *is_send).min(*done + PIPE);
                let went = match *is_send {
                    true => channel.try_put(*peer, &task.from.as_slice()[piece.clone()]),
                    false => channel.try_take(*peer, |bytes| {
                        let to = &mut task.to.as_mut_slice()[piece.clone()];
                        let length = to.len().min(bytes.len());
                        to[..length].copy_from_slice(&bytes[..length]);
                    }),
                };
                if went {
                    *done = piece.end;
                    moved = true;
                }
            }
            if channel.is_aborted() {
                return;
            }
            if !moved {
                std::thread::yield_now();
            }
        }
    }

    fn collective(&self, task: &Task) {
        let size = self.communicator.channel.size;
        let (from, to) = (task.from.as_slice(), task.to.as_mut_slice());
        match task.kind {
            Kind::AllReduce(dtype, op) => self.pieces(from, |start, parts| {
                reduce(dtype, op, parts, &mut to[start..start + parts[0].len()]);
            }),
            Kind::Reduce(dtype, op, root) => self.pieces(from, |start, parts| {
                if root == self.communicator.channel.rank {
                    reduce(dtype, op, parts, &mut to[start..start + parts[0].len()]);
                }
            }),
            Kind::Broadcast(root) => self.pieces(from, |start, parts| {
                to[start..start + parts[root].len()].copy_from_slice(&parts[root]);
            }),
            Kind::AllGather => self.pieces(from, |start, parts| {
                for (rank, part) in parts.iter().enumerate() {
                    let at = rank * from.len() + start;
                    to[at..at + part.len()].copy_from_slice(part);
                }
            }),
            Kind::ReduceScatter(dtype, op) => {
                let own = self.communicator.channel.rank;
                for (rank, piece) in from.chunks(from.len().div_ceil(size).max(1)).enumerate() {
                    self.pieces(piece, |start, parts| {
                        if rank == own {
                            reduce(dtype, op, parts, &mut to[start..start + parts[0].len()]);
                        }
                    });
                }
            }
            Kind::Send(_) | Kind::Receive(_) => {}
        }
    }

    /// Shows values piece by piece; `take` is given where a piece starts, and that of each rank.
    fn pieces(&self, from: &[u8], mut take: impl FnMut(usize, &[Vec<u8>])) {
        let channel = &self.communicator.channel;
        for (index, piece) in from.chunks(BOARD).enumerate() {
            let mut parts = Vec::with_capacity(channel.size);
            let number = self.communicator.next_piece();
            channel.show(number, piece, |_, part| parts.push(part.to_vec()));
            // Ranks that disagree about lengths wait for each other.
            channel.wait(|| parts.iter().all(|part| part.len() == piece.len()));
            if channel.is_aborted() {
                return;
            }
            take(index * BOARD, &parts);
        }
    }
}

fn length(task: &Task, is_send: bool) -> usize {
    if is_send { task.from.as_slice().len() } else { task.to.as_slice().len() }
}
