//! What is known of each byte of memory: who wrote it last, who read it since, and whether whoever comes
//! next knows of it.
//!
//! VectorClock is a vector clock. An *agent* is a thread, or something that works beside the threads: the
//! asynchronous copies of a thread, the products of a warpgroup, the phases of a barrier in memory. An
//! *epoch* is an agent and a number; a thread knows an epoch if the number its clock has for the agent
//! is at least that. Threads learn from each other where they meet, in barriers; of a copy's bytes
//! they learn by the wait for it. An access that meets an epoch its thread does not know is a race,
//! whatever order it happened to run in.
//!
//! ```text
//! thread 0: st.shared [0]     epoch (0, 1)      thread 0's clock [1, 0]
//! both:     bar.sync          they learn all    thread 1's clock [1, 1]
//! thread 1: ld.shared [0]     knows (0, 1): no race
//! ```
//!
//! The copy engine and the tensor cores read shared memory by another way than threads (the *async
//! proxy*). They see what a thread wrote only after a proxy fence of that thread, so each thread has a
//! second clock of what is fenced.

use std::ops::Range;
use std::rc::Rc;

/// Numbers by agent; missing ones are 0.
pub(super) type Vector = Rc<Vec<u32>>;

/// A moment of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Epoch {
    pub(super) agent: u32,
    pub(super) number: u32,
}

/// What a thread knows.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) agent: u32,
    /// The thread's own number, from 1.
    own: u32,
    base: Vector,
    own_fenced: u32,
    fenced: Vector,
}

/// The join of several threads' clocks.
#[derive(Clone, Debug, Default)]
pub(super) struct VectorClock {
    pub(super) all: Vector,
    pub(super) fenced: Vector,
}

fn at(vector: &[u32], agent: u32) -> u32 {
    vector.get(agent as usize).copied().unwrap_or(0)
}

fn raise(vector: &mut Vec<u32>, agent: u32, number: u32) {
    if vector.len() <= agent as usize {
        vector.resize(agent as usize + 1, 0);
    }
    let slot = &mut vector[agent as usize];
    *slot = (*slot).max(number);
}

/// Adds what another vector has.
fn join(vector: &mut Vector, other: &Vector) {
    if Rc::ptr_eq(vector, other) || other.is_empty() {
        return;
    }
    if vector.is_empty() {
        *vector = Rc::clone(other);
        return;
    }
    let is_known = other.iter().enumerate().all(|(agent, &n)| at(vector, agent as u32) >= n);
    if is_known {
        return;
    }
    let own = Rc::make_mut(vector);
    for (agent, &number) in (0..).zip(other.iter()) {
        raise(own, agent, number);
    }
}

impl VectorClock {
    pub(super) fn join(&mut self, other: &VectorClock) {
        join(&mut self.all, &other.all);
        join(&mut self.fenced, &other.fenced);
    }

    /// Adds what a thread knows, itself included.
    pub(super) fn learn_from(&mut self, clock: &Clock) {
        join(&mut self.all, &clock.base);
        join(&mut self.fenced, &clock.fenced);
        raise(Rc::make_mut(&mut self.all), clock.agent, clock.own);
        raise(Rc::make_mut(&mut self.fenced), clock.agent, clock.own_fenced);
    }

    pub(super) fn add(&mut self, epoch: Epoch) {
        raise(Rc::make_mut(&mut self.all), epoch.agent, epoch.number);
    }

    pub(super) fn knows(&self, epoch: Epoch) -> bool {
        at(&self.all, epoch.agent) >= epoch.number
    }
}

impl Clock {
    pub(super) fn new(agent: u32) -> Clock {
        Clock { agent, own: 1, base: Vector::default(), own_fenced: 0, fenced: Vector::default() }
    }

    pub(super) fn now(&self) -> Epoch {
        Epoch { agent: self.agent, number: self.own }
    }

    pub(super) fn knows(&self, epoch: Epoch) -> bool {
        epoch.agent == self.agent || at(&self.base, epoch.agent) >= epoch.number
    }

    /// Whether an epoch of a thread is visible to the async proxy.
    pub(super) fn has_fenced(&self, epoch: Epoch) -> bool {
        let own = if epoch.agent == self.agent { self.own_fenced } else { 0 };
        own.max(at(&self.fenced, epoch.agent)) >= epoch.number
    }

    /// After this, later accesses of the thread are later than what it told.
    pub(super) fn tick(&mut self) {
        self.own += 1;
    }

    pub(super) fn learn(&mut self, clock: &VectorClock) {
        join(&mut self.base, &clock.all);
        join(&mut self.fenced, &clock.fenced);
    }

    /// Learns what is known to include all that the thread knows.
    pub(super) fn learn_all(&mut self, clock: &VectorClock) {
        self.base = Rc::clone(&clock.all);
        self.fenced = Rc::clone(&clock.fenced);
    }

    /// Learns of something that worked beside the thread.
    pub(super) fn add(&mut self, epoch: Epoch) {
        raise(Rc::make_mut(&mut self.base), epoch.agent, epoch.number);
    }

    pub(super) fn fence_proxy(&mut self) {
        self.own_fenced = self.own;
        self.own += 1;
    }
}

/// How an access goes to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By a thread.
    Thread,
    /// By a thread, as an atomic.
    Atomic,
    /// By a barrier's own instructions.
    Barrier,
    /// By an asynchronous copy of a thread.
    Copy,
    /// By the copy engine or the tensor cores.
    Async,
}

/// An access, for the next ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access {
    pub(super) epoch: Epoch,
    pub(super) way: Way,
    /// The instruction.
    pub(super) at: u32,
}

/// Two accesses that nothing orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Conflict {
    /// With an earlier one at this instruction, which wrote or only read.
    Race { earlier: u32, wrote: bool },
    /// What this instruction wrote is not fenced for the async proxy.
    Unfenced { earlier: u32 },
    /// Nobody wrote the byte.
    Unwritten,
    /// A barrier lies there.
    Barrier { earlier: u32 },
}

/// Bytes of a granule, of which one cell knows as long as accesses take all of it: of a vector of 16 bytes 4 cells are
/// looked at, not 16.
const GRANULE: usize = 4;

/// Some bytes side by side.
#[derive(Clone, Debug, Default)]
struct Granule {
    /// The run that it was touched in; what earlier ones did is over.
    run: u32,
    /// What is known of all of it, unless it is in parts.
    whole: Cell,
    /// Whether its bytes have cells of their own, which count instead.
    in_parts: bool,
    /// The number of those among all parts, from 1; 0 where there are none yet.
    parts: u32,
}

/// What is known of a granule, or of a byte of one that is in parts.
#[derive(Clone, Debug, Default)]
struct Cell {
    write: Option<Access>,
    /// The reads since, one or two of an agent: mostly there is only the first, which needs no allocation.
    first_read: Option<Access>,
    more_reads: Vec<Access>,
}

/// The bytes of a memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadow {
    granules: Vec<Granule>,
    /// The bytes of granules of which some access took a part.
    parts: Vec<[Cell; GRANULE]>,
    bytes: usize,
    /// Whether bytes that nobody wrote may be read.
    starts_written: bool,
    run: u32,
}

/// The first byte of an access that meets a conflict.
pub(super) type At = (usize, Conflict);

impl Shadow {
    pub(super) fn new(bytes: usize, starts_written: bool) -> Shadow {
        let granules = vec![Granule::default(); bytes.div_ceil(GRANULE)];
        Shadow { granules, parts: Vec::new(), bytes, starts_written, run: 0 }
    }

    /// Forgets everything where this is another run than the last one.
    pub(super) fn enter(&mut self, run: u32) {
        self.run = run;
    }

    /// Shows `see` each cell of the bytes, granules first to last. What is outside of the memory has none.
    fn each(
        &mut self,
        range: Range<usize>,
        mut see: impl FnMut(&mut Cell) -> Result<(), Conflict>,
    ) -> Result<(), At> {
        let Range { mut start, end } = range;
        let end = end.min(self.bytes);
        while start < end {
            let number = start / GRANULE;
            let first = number * GRANULE;
            let own = first..(first + GRANULE).min(self.bytes);
            let part = start..own.end.min(end);
            start = part.end;
            let granule = &mut self.granules[number];
            if granule.run != self.run {
                granule.run = self.run;
                granule.in_parts = false;
                granule.whole.forget();
            }
            if part == own && !granule.in_parts {
                see(&mut granule.whole).map_err(|conflict| (first, conflict))?;
                continue;
            }
            let parts = granule.split(&mut self.parts);
            for byte in part.clone() {
                see(&mut parts[byte - first]).map_err(|conflict| (byte, conflict))?;
            }
            if part == own {
                granule.join(parts);
            }
        }
        Ok(())
    }

    pub(super) fn read(
        &mut self,
        range: Range<usize>,
        clock: &Clock,
        access: Access,
    ) -> Result<(), At> {
        let starts_written = self.starts_written;
        self.each(range, |cell| {
            match cell.write {
                None if starts_written => {}
                None => return Err(Conflict::Unwritten),
                Some(write) => cell.check_write(write, clock, access)?,
            }
            cell.add_read(access);
            Ok(())
        })
    }

    pub(super) fn write(
        &mut self,
        range: Range<usize>,
        clock: &Clock,
        access: Access,
    ) -> Result<(), At> {
        self.each(range, |cell| {
            if let Some(write) = cell.write {
                cell.check_write(write, clock, access)?;
            }
            let mut reads = cell.first_read.iter().chain(&cell.more_reads);
            if let Some(read) = reads.find(|read| !clock.knows(read.epoch)) {
                return Err(Conflict::Race { earlier: read.at, wrote: false });
            }
            cell.forget();
            cell.write = Some(access);
            Ok(())
        })
    }

    /// Takes a barrier away.
    pub(super) fn forget(&mut self, range: Range<usize>) {
        let forgotten = self.each(range, |cell| {
            cell.forget();
            Ok(())
        });
        debug_assert!(forgotten.is_ok(), "to forget is no conflict");
    }
}

impl Granule {
    /// Its bytes, which start as what is known of all of it.
    fn split<'p>(&mut self, all: &'p mut Vec<[Cell; GRANULE]>) -> &'p mut [Cell; GRANULE] {
        if self.parts == 0 {
            all.push(Default::default());
            self.parts = all.len() as u32;
        }
        let parts = &mut all[self.parts as usize - 1];
        if !self.in_parts {
            self.in_parts = true;
            parts.iter_mut().for_each(|part| part.clone_from(&self.whole));
        }
        parts
    }

    /// It is whole again where the same is known of all its bytes: somebody wrote all of them.
    fn join(&mut self, parts: &[Cell; GRANULE]) {
        let is_new = |part: &Cell| part.first_read.is_none() && part.more_reads.is_empty();
        if parts.iter().all(|part| is_new(part) && part.write == parts[0].write) {
            self.in_parts = false;
            self.whole.clone_from(&parts[0]);
        }
    }
}

impl Cell {
    /// As if nobody had touched it.
    fn forget(&mut self) {
        (self.write, self.first_read) = (None, None);
        self.more_reads.clear();
    }

    /// An agent's read takes the place of one of its last.
    fn add_read(&mut self, access: Access) {
        let Some(first) = &mut self.first_read else {
            self.first_read = Some(access);
            return;
        };
        let is_same = |read: &&mut Access| read.epoch.agent == access.epoch.agent;
        let last = self.more_reads.iter_mut().rev().take(2);
        if let Some(read) = last.chain([first]).find(is_same) {
            *read = access;
        } else {
            self.more_reads.push(access);
        }
    }

    /// Whether an access may come after the last write.
    fn check_write(&self, write: Access, clock: &Clock, access: Access) -> Result<(), Conflict> {
        let both = |way| write.way == way && access.way == way;
        if both(Way::Atomic) {
            return Ok(());
        }
        if (write.way == Way::Barrier) != (access.way == Way::Barrier) {
            return Err(Conflict::Barrier { earlier: write.at });
        }
        if !clock.knows(write.epoch) {
            return Err(Conflict::Race { earlier: write.at, wrote: true });
        }
        let by_thread = matches!(write.way, Way::Thread | Way::Atomic);
        if access.way == Way::Async && by_thread && !clock.has_fenced(write.epoch) {
            return Err(Conflict::Unfenced { earlier: write.at });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(clock: &Clock, way: Way) -> Access {
        Access { epoch: clock.now(), way, at: clock.agent }
    }

    fn synchronize(clocks: &mut [Clock]) {
        let mut all = VectorClock::default();
        clocks.iter().for_each(|clock| all.learn_from(clock));
        for clock in clocks {
            clock.learn(&all);
            clock.tick();
        }
    }

    #[test]
    fn a_barrier_orders_what_was_before_it() {
        let mut clocks = [Clock::new(0), Clock::new(1)];
        let mut shadow = Shadow::new(4, false);
        shadow.write(0..1, &clocks[0], thread(&clocks[0], Way::Thread)).unwrap();
        let race = Conflict::Race { earlier: 0, wrote: true };
        assert_eq!(shadow.read(0..1, &clocks[1], thread(&clocks[1], Way::Thread)), Err((0, race)));
        synchronize(&mut clocks);
        shadow.read(0..1, &clocks[1], thread(&clocks[1], Way::Thread)).unwrap();
        let race = Conflict::Race { earlier: 1, wrote: false };
        assert_eq!(shadow.write(0..1, &clocks[0], thread(&clocks[0], Way::Thread)), Err((0, race)));
        synchronize(&mut clocks);
        shadow.write(0..1, &clocks[0], thread(&clocks[0], Way::Thread)).unwrap();
        assert_eq!(
            shadow.read(1..2, &clocks[0], thread(&clocks[0], Way::Thread)),
            Err((1, Conflict::Unwritten))
        );
    }

    #[test]
    fn the_async_proxy_needs_a_fence_after_the_write() {
        let mut clocks = [Clock::new(0), Clock::new(1)];
        let mut shadow = Shadow::new(1, false);
        clocks[0].fence_proxy();
        shadow.write(0..1, &clocks[0], thread(&clocks[0], Way::Thread)).unwrap();
        synchronize(&mut clocks);
        let read = thread(&clocks[1], Way::Async);
        assert_eq!(
            shadow.read(0..1, &clocks[1], read),
            Err((0, Conflict::Unfenced { earlier: 0 }))
        );
        clocks[0].fence_proxy();
        synchronize(&mut clocks);
        shadow.read(0..1, &clocks[1], read).unwrap();
    }

    #[test]
    fn atomics_do_not_race_with_each_other() {
        let clocks = [Clock::new(0), Clock::new(1)];
        let mut shadow = Shadow::new(1, true);
        for clock in &clocks {
            shadow.write(0..1, clock, thread(clock, Way::Atomic)).unwrap();
        }
        let plain = thread(&clocks[0], Way::Thread);
        assert!(shadow.read(0..1, &clocks[0], plain).is_err());
    }

    #[test]
    fn bytes_of_a_granule_are_known_apart() {
        let mut clocks = [Clock::new(0), Clock::new(1)];
        let mut shadow = Shadow::new(10, false);
        let [left, right] = [0, 1].map(|i| thread(&clocks[i], Way::Thread));
        // Two threads write halves of a granule, and one the end of the memory.
        shadow.write(0..6, &clocks[0], left).unwrap();
        shadow.write(6..8, &clocks[1], right).unwrap();
        shadow.write(8..10, &clocks[1], right).unwrap();
        let race = |earlier| Conflict::Race { earlier, wrote: true };
        assert_eq!(shadow.read(0..8, &clocks[0], left), Err((6, race(1))));
        assert_eq!(shadow.read(4..10, &clocks[1], right), Err((4, race(0))));
        synchronize(&mut clocks);
        shadow.read(0..10, &clocks[1], thread(&clocks[1], Way::Thread)).unwrap();
        synchronize(&mut clocks);
        let left = thread(&clocks[0], Way::Thread);
        // Written by one, the granule is whole again, and in parts at the next access of a byte.
        shadow.write(4..8, &clocks[0], left).unwrap();
        assert!(!shadow.granules[1].in_parts);
        shadow.read(7..8, &clocks[0], left).unwrap();
        assert!(shadow.granules[1].in_parts);
        assert_eq!(shadow.write(7..8, &clocks[1], right), Err((7, race(0))));
        // Another run knows of nothing.
        shadow.enter(1);
        assert_eq!(shadow.read(4..8, &clocks[0], left), Err((4, Conflict::Unwritten)));
    }
}
