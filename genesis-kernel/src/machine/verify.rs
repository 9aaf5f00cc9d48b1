//! The protocol of shared memory, checked: no two threads meet in it.
//!
//! Replays what the code does with shared memory, loops a few times round, and reports two accesses to the same bytes, one
//! of them a write, that no barrier or wait keeps apart. It does not trust the rules by which barriers were inserted, so it
//! catches a mistake in them without a GPU; debug builds replay every kernel they compile.
//!
//! ```text
//! store 0..64, barrier, load 0..64                      fine
//! loop { store 0..64, barrier, load 0..64 }             the second store meets the first load
//! copy 0..64, commit, wait 0, load 0..64                a wait is for a thread's own copies: a race
//! copy 0..64, commit, wait 0, barrier, load 0..64       fine
//! ```
//!
//! In a cluster blocks also write to each other's memory. Such a DSMEM store needs a cluster barrier on either side: what a
//! block does with those bytes is known to the others only there, and before the first of them the others may not even
//! run.
//!
//! ```text
//! barrier.cluster, store.cluster 0..64, barrier.cluster, load 0..64               fine
//! barrier.cluster, store.cluster 0..64, barrier, load 0..64                       another block's store may come later
//! loop { store.cluster 0..64, barrier.cluster, load 0..64, barrier }              races with the other block's load
//! store.cluster 0..64, await.cluster 0..64, load 0..64                            fine: mbarrier wait
//! ```
//!
//! Threads that touch bytes of their own within one access are taken to meet with those of the next access to the same
//! bytes: what only one warp shares needs no block barrier, and is no instruction of its own.

use std::ops::Range;

use super::{Block, Bytes, Inst};
use crate::ir::Op;

/// Two accesses between which a barrier or a wait is missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Race {
    /// The op of the earlier access.
    pub earlier: Op,
    /// The op of the later one.
    pub later: Op,
    /// The first byte that both touch.
    pub byte: u32,
}

/// Replays the code.
///
/// # Errors
/// The first race, by the ops' numbers.
pub fn verify(code: &Block) -> Result<(), Race> {
    let mut replay = Replay { has_dsmem_stores: has_dsmem_stores(code), ..Replay::default() };
    replay.run(code, 0);
    replay.races.into_iter().min().map_or(Ok(()), Err)
}

fn has_dsmem_stores(code: &Block) -> bool {
    let inside = |inst: &Inst| inst.blocks().into_iter().any(has_dsmem_stores);
    code.iter().any(|inst| matches!(inst, Inst::StoreCluster(_)) || inside(inst))
}

/// How often a loop is replayed: until every stage of its buffer came round.
fn iterations(body: &Block) -> u32 {
    let stages = |inst: &Inst| match inst {
        Inst::Copy { bytes, .. } => bytes.stage.map_or(1, |stage| stage.count),
        Inst::Exec { reads, .. } => {
            reads.iter().filter_map(|bytes| bytes.stage).map(|s| s.count).max().unwrap_or(1)
        }
        _ => 1,
    };
    body.iter().map(stages).max().unwrap_or(1) + 2
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Access {
    op: Op,
    bytes: Range<u32>,
    writes: bool,
    /// To the memory of the other blocks.
    stores_dsmem: bool,
}

/// Accesses since the last barrier, those since the last one of the cluster, and whether there was one.
type End = (Vec<Access>, Vec<Access>, bool);

/// What happened since the last barrier, and copies in flight.
#[derive(Clone, Default, Debug)]
struct Replay {
    since: Vec<Access>,
    /// Whether any block writes to another's memory: only then the next two count.
    has_dsmem_stores: bool,
    /// What happened since the last barrier of the cluster.
    since_cluster: Vec<Access>,
    /// Whether there was such a barrier, so that all blocks run.
    peers_run: bool,
    /// Commit groups, the oldest first.
    groups: Vec<Vec<Access>>,
    uncommitted: Vec<Access>,
    races: Vec<Race>,
}

impl Replay {
    fn run(&mut self, code: &Block, iteration: u32) {
        code.iter().for_each(|inst| self.step(inst, iteration));
    }

    fn step(&mut self, inst: &Inst, iteration: u32) {
        match inst {
            Inst::Exec { op, reads } => {
                let at = |bytes: &Bytes| bytes.at(iteration);
                reads.iter().map(at).for_each(|bytes| self.access(*op, bytes, [false, false]));
            }
            Inst::Mma(mma) => {
                let at = |bytes: &Bytes| bytes.at(iteration);
                mma.reads.iter().map(at).for_each(|bytes| self.access(mma.op, bytes, [false; 2]));
            }
            Inst::LoadShared(part) => self.access(part.op, part.bytes.clone(), [false, false]),
            Inst::StoreShared(part) => self.access(part.op, part.bytes.clone(), [true, false]),
            Inst::StoreCluster(part) => self.access(part.op, part.bytes.clone(), [true, true]),
            Inst::Copy { load, bytes, .. } => {
                let bytes = bytes.at(iteration);
                let copy = Access { op: *load, bytes, writes: true, stores_dsmem: false };
                self.check(&copy);
                self.uncommitted.push(copy);
            }
            Inst::CommitCopies => {
                let group = std::mem::take(&mut self.uncommitted);
                self.groups.push(group);
            }
            Inst::WaitCopies(left) => {
                let done = self.groups.len().saturating_sub(*left as usize);
                // Each thread sees its own copies; the others see them after a barrier.
                let arrived: Vec<Access> = self.groups.drain(..done).flatten().collect();
                self.since.extend(arrived);
            }
            Inst::Barrier => self.since.clear(),
            Inst::ClusterBarrier | Inst::ClusterWait => {
                self.since.clear();
                self.since_cluster.clear();
                self.peers_run = true;
            }
            Inst::AwaitCluster(part) => {
                let is_other = |access: &Access| !access.stores_dsmem || access.bytes != part.bytes;
                self.since.retain(is_other);
                self.since_cluster.retain(is_other);
            }
            Inst::For(inner) => {
                self.run(&inner.prologue, iteration);
                self.repeat(&[&inner.body]);
                // Copies that are still in flight are of iterations that the loop does not have.
                self.groups.clear();
                self.uncommitted.clear();
            }
            Inst::While { condition, body, .. } => self.repeat(&[condition, body]),
            Inst::If { then, otherwise, .. } => self.either([then, otherwise], iteration),
            _ => {}
        }
    }

    /// A loop, which may end after any iteration, or have none.
    fn repeat(&mut self, parts: &[&Block]) {
        let mut ends = vec![self.end()];
        for iteration in 0..parts.iter().map(|part| iterations(part)).max().unwrap_or(0) {
            parts.iter().for_each(|part| self.run(part, iteration));
            ends.push(self.end());
        }
        ends.into_iter().for_each(|end| self.join(end));
    }

    fn either(&mut self, ways: [&Block; 2], iteration: u32) {
        let before = self.clone();
        for (i, way) in ways.into_iter().enumerate() {
            let mut taken = before.clone();
            taken.races.clear();
            taken.run(way, iteration);
            if i == 0 {
                self.since.clear();
                self.since_cluster.clear();
                self.peers_run = true;
            }
            self.join(taken.end());
            self.races.extend(taken.races);
        }
    }

    /// What is to be known of one way to here.
    fn end(&self) -> End {
        (self.since.clone(), self.since_cluster.clone(), self.peers_run)
    }

    fn join(&mut self, (since, since_cluster, peers_run): End) {
        let add = |all: &mut Vec<Access>, more: Vec<Access>| {
            for access in more {
                if !all.contains(&access) {
                    all.push(access);
                }
            }
        };
        add(&mut self.since, since);
        add(&mut self.since_cluster, since_cluster);
        self.peers_run &= peers_run;
    }

    fn access(&mut self, op: Op, bytes: Range<u32>, [writes, stores_dsmem]: [bool; 2]) {
        let access = Access { op, bytes, writes, stores_dsmem };
        self.check(&access);
        let in_cluster = if self.has_dsmem_stores { vec![access.clone()] } else { Vec::new() };
        self.join((vec![access], in_cluster, true));
    }

    fn check(&mut self, later: &Access) {
        if later.stores_dsmem && !self.peers_run {
            let (op, byte) = (later.op, later.bytes.start);
            self.races.push(Race { earlier: op, later: op, byte });
        }
        let uncomplete = self.groups.iter().flatten().chain(&self.uncommitted);
        let of_others =
            self.since_cluster.iter().filter(|earlier| earlier.stores_dsmem || later.stores_dsmem);
        for earlier in self.since.iter().chain(uncomplete).chain(of_others) {
            let start = earlier.bytes.start.max(later.bytes.start);
            let meets = start < earlier.bytes.end.min(later.bytes.end);
            if meets && (earlier.writes || later.writes) {
                self.races.push(Race { earlier: earlier.op, later: later.op, byte: start });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::parse;

    /// The race of code in the text form, of ops numbered as they stand.
    fn race(text: &str) -> Option<Race> {
        let ops: Vec<Op> = (0..64).map(Op).collect();
        verify(&parse(text, &ops).unwrap()).err()
    }

    fn races(text: &str) -> bool {
        race(text).is_some()
    }

    #[test]
    fn a_barrier_stands_between_a_write_and_a_read() {
        assert!(!races("store.shared 0.0 0..64\nbarrier\nload.shared 1.0 0..64"));
        let found = race("store.shared 0.0 0..64\nload.shared 1.0 32..96");
        assert_eq!(found, Some(Race { earlier: Op(0), later: Op(1), byte: 32 }));
        assert!(!races("store.shared 0.0 0..64\nload.shared 1.0 64..96\nload.shared 1.0 64..96"));
    }

    #[test]
    fn a_loop_meets_itself() {
        let body = "store.shared 0.0 0..64\nbarrier\nload.shared 1.0 0..64\n";
        assert!(races(&format!("for 9 {{\n{body}}}")));
        assert!(!races(&format!("for 9 {{\n{body}barrier\n}}")));
        // What stands before the loop is still there if it runs no iteration.
        assert!(races("load.shared 1.0 0..4\nfor 9 {\nbarrier\n}\nstore.shared 0.0 0..4"));
    }

    #[test]
    fn a_dsmem_store_stands_between_barriers_of_the_cluster() {
        let exchange = "store.cluster 0.0 0..64\nbarrier.cluster\nload.shared 1.0 0..64\n";
        assert!(races(exchange), "the other blocks may not run yet");
        let begun = |text: &str| format!("barrier.cluster\n{text}");
        assert!(!races(&begun(exchange)));
        assert!(races(&begun("store.cluster 0.0 0..64\nbarrier\nload.shared 1.0 0..64")));
        let again = |end: &str| begun(&format!("for 9 {{\n{exchange}{end}\n}}"));
        assert!(races(&again("barrier")), "the other block may still read");
        assert!(!races(&again("barrier.cluster")));
        // A block's own use of the bytes.
        assert!(races(&begun("store.shared 0.0 0..4\nbarrier\nstore.cluster 0.0 0..64")));
        assert!(!races(&begun("store.shared 0.0 0..4\nbarrier.cluster\nstore.cluster 0.0 0..64")));
        let counted = "store.cluster 0.0 0..64\nawait.cluster 0.0 0..64\nload.shared 0.0 0..64";
        assert!(!races(&begun(counted)));
        // There must be a barrier on every way.
        assert!(races("if 8 {\nbarrier.cluster\n} else {\n}\nstore.cluster 0.0 0..64"));
    }

    #[test]
    fn each_way_of_a_branch_counts() {
        let ways = "if 8 {\nload.shared 1.0 0..4\n} else {\nbarrier\n}\n";
        assert!(races(&format!("{ways}store.shared 0.0 0..4")));
        assert!(!races(&format!("{ways}barrier\nstore.shared 0.0 0..4")));
    }

    /// A buffer of three stages with these instructions before the body's reads.
    fn buffer(head: &str) -> String {
        format!(
            "for 9 {{\n\
             prologue {{\ncopy 0+0 0..64\ncommit\ncopy 0+1 64..128\ncommit\n}}\n\
             {head}\
             copy 0+2 0..64 stage 2 of 3 by 64\ncommit\n\
             exec 1 reads 0..64 stage 0 of 3 by 64\n}}\n"
        )
    }

    #[test]
    fn a_multistage_buffer_waits_then_meets_once_an_iteration() {
        assert!(!races(&buffer("wait.copies 1\nbarrier\n")));
        assert!(races(&buffer("wait.copies 1\n")), "without its barrier");
        assert!(races(&buffer("barrier\n")), "without its wait");
        assert!(races(&buffer("wait.copies 2\nbarrier\n")), "with too short a wait");
        assert!(races(&buffer("barrier\nwait.copies 1\n")), "in the wrong order");
    }

    #[test]
    fn a_multistage_buffer_in_a_loop_begins_anew() {
        let buffer = buffer("wait.copies 1\nbarrier\n");
        assert!(!races(&format!("for 8 {{\nbarrier\n{buffer}}}")));
        assert!(races(&format!("for 8 {{\n{buffer}}}")), "without a barrier between");
    }
}
