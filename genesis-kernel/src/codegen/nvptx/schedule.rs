//! What a kernel does with shared memory, in order, and a check that no two threads meet in it.
//!
//! Lowering writes down each access by the bytes that all threads together touch, each barrier, each
//! group of asynchronous copies and each wait for one. Replaying that, loops a few times round, finds
//! any bytes that one thread writes while another may still read or write them. It does not trust the
//! rules by which barriers were placed, so it catches a mistake in them without a GPU; debug builds
//! replay every kernel they compile.
//!
//! ```text
//! write 0..64, barrier, read 0..64                      fine
//! loop { write 0..64, barrier, read 0..64 }             the second write meets the first read
//! copy 0..64, commit, wait 0, read 0..64                a wait is for a thread's own copies: a race
//! copy 0..64, commit, wait 0, barrier, read 0..64       fine
//! ```
//!
//! In a cluster blocks also write to each other's memory. Such a DSMEM store needs a cluster barrier on
//! either side: what a block does with those bytes is known to the others only there, and before the
//! first of them the others may not even run.
//!
//! ```text
//! cluster, dsmem 0..64, cluster, read 0..64                 fine
//! cluster, dsmem 0..64, barrier, read 0..64                 another block's store may come later
//! loop { dsmem 0..64, cluster, read 0..64, barrier }        races with the other block's read
//! dsmem 0..64, wait 0..64, read 0..64                       fine: mbarrier wait
//! ```
//!
//! Threads that touch bytes of their own within one access are taken to meet with those of the next
//! access to the same bytes: what only one warp shares needs no block barrier, and is not written down.

use std::ops::Range;

use crate::ir::Op;

/// One thing that all threads of a block do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The threads read these bytes.
    Read(Op, Bytes),
    /// The threads write these bytes.
    Write(Op, Bytes),
    /// The threads of all blocks of the cluster write these bytes of each other's memory.
    DsmemStore(Op, Bytes),
    /// The threads begin to copy to these bytes.
    Copy(Op, Bytes),
    /// The copies since the last commit are a group.
    Commit,
    /// Each thread waits until at most this many of its groups are on their way.
    Wait(usize),
    /// A barrier of the block.
    Barrier,
    /// A barrier of all blocks of the cluster.
    ClusterBarrier,
    /// The DSMEM stores of all blocks to these bytes are complete.
    DsmemWait(Bytes),
    /// The copies on their way are of iterations that the loop before does not have.
    NoCopies,
    /// A loop that may run any number of times.
    Loop(Vec<Step>),
    /// One of several ways.
    Either(Vec<Vec<Step>>),
}

/// Bytes of shared memory; in a ring, those of one slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bytes {
    /// The bytes in slot 0.
    pub(super) range: Range<u32>,
    /// The ring they are in.
    pub(super) slot: Option<Slot>,
}

/// A slot that moves on with the innermost loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// The slot in the loop's first iteration.
    pub(super) first: u32,
    /// Slots of the ring.
    pub(super) stages: u32,
    /// Bytes of a slot.
    pub(super) bytes: u32,
}

impl From<Range<u32>> for Bytes {
    fn from(range: Range<u32>) -> Bytes {
        Bytes { range, slot: None }
    }
}

impl Bytes {
    /// Those of a slot that does not move on, this many bytes after slot 0.
    pub(super) fn moved(self, offset: u32) -> Bytes {
        Bytes { range: self.range.start + offset..self.range.end + offset, slot: None }
    }

    /// The bytes in an iteration of the innermost loop.
    fn at(&self, iteration: u32) -> Range<u32> {
        let offset = self.slot.map_or(0, |s| (s.first + iteration) % s.stages * s.bytes);
        self.range.start + offset..self.range.end + offset
    }
}

/// Two accesses between which a barrier or a wait is missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Race {
    /// The op of the earlier access.
    pub(super) earlier: Op,
    /// The op of the later one.
    pub(super) later: Op,
    /// The first byte that both touch.
    pub(super) byte: u32,
}

/// The steps of a kernel while it is lowered.
#[derive(Debug)]
pub(super) struct Recorder {
    /// The steps of each region that is open, the outermost first.
    open: Vec<Vec<Step>>,
}

impl Recorder {
    pub(super) fn new() -> Recorder {
        Recorder { open: vec![Vec::new()] }
    }

    pub(super) fn push(&mut self, step: Step) {
        if let Some(steps) = self.open.last_mut() {
            steps.push(step);
        }
    }

    /// Begins the steps of a region.
    pub(super) fn enter(&mut self) {
        self.open.push(Vec::new());
    }

    /// Ends the innermost region; gives its steps.
    pub(super) fn leave(&mut self) -> Vec<Step> {
        if self.open.len() > 1 { self.open.pop().unwrap_or_default() } else { Vec::new() }
    }

    /// The steps of the whole kernel.
    pub(super) fn finish(mut self) -> Vec<Step> {
        self.open.pop().unwrap_or_default()
    }
}

/// The first race that replaying the steps finds.
pub(super) fn find_race(steps: &[Step]) -> Option<Race> {
    let mut replay = Replay { has_dsmem_stores: has_dsmem_stores(steps), ..Replay::default() };
    replay.run(steps, 0);
    replay.races.into_iter().min()
}

fn has_dsmem_stores(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::DsmemStore(..) => true,
        Step::Loop(body) => has_dsmem_stores(body),
        Step::Either(ways) => ways.iter().any(|way| has_dsmem_stores(way)),
        _ => false,
    })
}

/// How often a loop is replayed: until every slot of its ring came round.
fn iterations(body: &[Step]) -> u32 {
    let slots = body.iter().filter_map(|step| match step {
        Step::Read(_, bytes)
        | Step::Write(_, bytes)
        | Step::DsmemStore(_, bytes)
        | Step::Copy(_, bytes) => bytes.slot,
        _ => None,
    });
    slots.map(|slot| slot.stages).max().unwrap_or(1) + 2
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

/// What happened since the last barrier, and copies on their way.
#[derive(Clone, Default, Debug)]
struct Replay {
    since: Vec<Access>,
    /// Whether any block writes to another's memory: only then the next two count.
    has_dsmem_stores: bool,
    /// What happened since the last barrier of the cluster.
    since_cluster: Vec<Access>,
    /// Whether there was such a barrier, so that all blocks run.
    peers_run: bool,
    /// Groups of copies, the oldest first.
    groups: Vec<Vec<Access>>,
    uncommitted: Vec<Access>,
    races: Vec<Race>,
}

impl Replay {
    fn run(&mut self, steps: &[Step], iteration: u32) {
        for step in steps {
            match step {
                Step::Read(op, bytes) => self.access(*op, bytes.at(iteration), [false, false]),
                Step::Write(op, bytes) => self.access(*op, bytes.at(iteration), [true, false]),
                Step::DsmemStore(op, bytes) => self.access(*op, bytes.at(iteration), [true, true]),
                Step::Copy(op, bytes) => {
                    let bytes = bytes.at(iteration);
                    let access = Access { op: *op, bytes, writes: true, stores_dsmem: false };
                    self.check(&access);
                    self.uncommitted.push(access);
                }
                Step::Commit => {
                    let group = std::mem::take(&mut self.uncommitted);
                    self.groups.push(group);
                }
                Step::Wait(left) => {
                    let done = self.groups.len().saturating_sub(*left);
                    // Each thread sees its own copies; the others see them after a barrier.
                    let arrived: Vec<Access> = self.groups.drain(..done).flatten().collect();
                    self.since.extend(arrived);
                }
                Step::Barrier => self.since.clear(),
                Step::ClusterBarrier => {
                    self.since.clear();
                    self.since_cluster.clear();
                    self.peers_run = true;
                }
                Step::DsmemWait(bytes) => {
                    let bytes = bytes.at(iteration);
                    let is_other = |access: &Access| !access.stores_dsmem || access.bytes != bytes;
                    self.since.retain(is_other);
                    self.since_cluster.retain(is_other);
                }
                Step::NoCopies => {
                    self.groups.clear();
                    self.uncommitted.clear();
                }
                Step::Loop(body) => {
                    // The loop may end after any iteration, or have none.
                    let mut ends = vec![self.end()];
                    for iteration in 0..iterations(body) {
                        self.run(body, iteration);
                        ends.push(self.end());
                    }
                    ends.into_iter().for_each(|end| self.join(end));
                }
                Step::Either(ways) => {
                    let before = self.clone();
                    for (i, way) in ways.iter().enumerate() {
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
            }
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

    fn read(bytes: Range<u32>) -> Step {
        Step::Read(Op(1), bytes.into())
    }

    fn write(bytes: Range<u32>) -> Step {
        Step::Write(Op(0), bytes.into())
    }

    fn races(steps: &[Step]) -> bool {
        find_race(steps).is_some()
    }

    #[test]
    fn a_barrier_stands_between_a_write_and_a_read() {
        assert!(!races(&[write(0..64), Step::Barrier, read(0..64)]));
        let race = find_race(&[write(0..64), read(32..96)]);
        assert_eq!(race, Some(Race { earlier: Op(0), later: Op(1), byte: 32 }));
        assert!(!races(&[write(0..64), read(64..96), read(64..96)]));
    }

    #[test]
    fn a_loop_meets_itself() {
        let body = vec![write(0..64), Step::Barrier, read(0..64)];
        assert!(races(&[Step::Loop(body.clone())]));
        let ends = [body.clone(), vec![Step::Barrier]].concat();
        assert!(!races(&[Step::Loop(ends)]));
        // What stands before the loop is still there if it runs no iteration.
        assert!(races(&[read(0..4), Step::Loop(vec![Step::Barrier]), write(0..4)]));
    }

    #[test]
    fn a_dsmem_store_stands_between_barriers_of_the_cluster() {
        let dsmem_store = || Step::DsmemStore(Op(0), (0..64).into());
        let exchange = [dsmem_store(), Step::ClusterBarrier, read(0..64)];
        assert!(races(&exchange), "the other blocks may not run yet");
        let begun = |steps: &[Step]| [&[Step::ClusterBarrier], steps].concat();
        assert!(!races(&begun(&exchange)));
        assert!(races(&begun(&[dsmem_store(), Step::Barrier, read(0..64)])));
        let again = |end: Step| begun(&[Step::Loop([&exchange[..], &[end]].concat())]);
        assert!(races(&again(Step::Barrier)), "the other block may still read");
        assert!(!races(&again(Step::ClusterBarrier)));
        // A block's own use of the bytes.
        assert!(races(&begun(&[write(0..4), Step::Barrier, dsmem_store()])));
        assert!(!races(&begun(&[write(0..4), Step::ClusterBarrier, dsmem_store()])));
        // There must be a barrier on every way.
        let ways = Step::Either(vec![vec![Step::ClusterBarrier], vec![]]);
        assert!(races(&[ways, dsmem_store()]));
    }

    #[test]
    fn each_way_of_a_branch_counts() {
        let ways = Step::Either(vec![vec![read(0..4)], vec![Step::Barrier]]);
        assert!(races(&[ways.clone(), write(0..4)]));
        assert!(!races(&[ways, Step::Barrier, write(0..4)]));
    }

    /// A ring of three slots with these steps before the body's reads.
    fn ring(head: &[Step]) -> Vec<Step> {
        let bytes =
            |first| Bytes { range: 0..64, slot: Some(Slot { first, stages: 3, bytes: 64 }) };
        let copy = |first| Step::Copy(Op(0), bytes(first));
        let body = [head, &[copy(2), Step::Commit, Step::Read(Op(1), bytes(0))]].concat();
        let fill = |slot: u32| Step::Copy(Op(0), bytes(0).moved(64 * slot));
        vec![fill(0), Step::Commit, fill(1), Step::Commit, Step::Loop(body)]
    }

    #[test]
    fn a_ring_waits_then_meets_once_an_iteration() {
        assert!(!races(&ring(&[Step::Wait(1), Step::Barrier])));
        assert!(races(&ring(&[Step::Wait(1)])), "without its barrier");
        assert!(races(&ring(&[Step::Barrier])), "without its wait");
        assert!(races(&ring(&[Step::Wait(2), Step::Barrier])), "with too short a wait");
        assert!(races(&ring(&[Step::Barrier, Step::Wait(1)])), "in the wrong order");
    }

    #[test]
    fn a_ring_in_a_loop_begins_anew() {
        let ring = ring(&[Step::Wait(1), Step::Barrier]);
        let apart = [vec![Step::Barrier], ring.clone(), vec![Step::NoCopies]].concat();
        assert!(!races(&[Step::Loop(apart)]));
        let close = [ring, vec![Step::NoCopies]].concat();
        assert!(races(&[Step::Loop(close)]), "without a barrier between");
    }
}
