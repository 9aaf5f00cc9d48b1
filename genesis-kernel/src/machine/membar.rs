//! Membar analysis: barriers where an access may meet one of another thread.
//!
//! Going through the code in order, the pass keeps what was accessed since the last barrier. Before an instruction that may
//! meet any of it, it inserts a barrier: of the block where only the block's shared memory is at stake, of the cluster
//! where other blocks take part. Around a loop it goes until the state at its head no longer grows.
//!
//! ```text
//! store.shared 7.0 0..64                       store.shared 7.0 0..64
//!                                              barrier                   read after write
//! load.shared 7.0 0..64                        load.shared 7.0 0..64
//! store.shared 9.0 0..64             ->        barrier                   write after read
//!                                              store.shared 9.0 0..64
//! exec 10          load %p                     exec 10
//! exec 12          store %p, other threads     barrier                   global memory, by alias analysis
//!                                              exec 12
//! ```
//!
//! Copies into a multistage buffer are kept apart from its readers by the wait and barrier of its loop, which `expand`
//! places; here they are writes that must wait for earlier readers of those bytes.

use std::ops::Range;

use super::alias::{MemoryLocation, PointsTo};
use super::{Block, Code, For, Inst, SharedMemory};
use crate::ir::{Op, OpKind};
use crate::layout::LayoutIr;

/// Inserts the barriers of a function.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, memory: &SharedMemory) {
    let pass = Membar { lir, points_to: PointsTo::new(lir), uses: lir.func.count_uses() };
    pass.block(&mut code.body, &mut State::default());
    if crate::knobs::get().all_barriers {
        add_all(&mut code.body, memory);
    }
}

/// For debugging: a barrier before each write of scratch, and after each op that has some.
fn add_all(block: &mut Block, memory: &SharedMemory) {
    let mut all = Block::new();
    for mut inst in std::mem::take(block) {
        if matches!(inst, Inst::StoreShared(_) | Inst::StoreCluster(_)) {
            all.push(Inst::Barrier);
        }
        inst.blocks_mut().into_iter().for_each(|block| add_all(block, memory));
        let ends = matches!(&inst, Inst::Exec { op, .. } if memory.scratch(*op).is_some());
        all.push(inst);
        if ends {
            all.push(Inst::Barrier);
        }
    }
    *block = all;
}

struct Membar<'a> {
    lir: &'a LayoutIr,
    points_to: PointsTo<'a>,
    /// How often each value is used.
    uses: Vec<u32>,
}

/// How an access touches global memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    Load,
    Store,
    /// Atomics do not wait for each other. One that releases waits for the whole program, and the whole program for one
    /// that acquires.
    Atomic {
        releases: bool,
        acquires: bool,
    },
}

impl Membar<'_> {
    /// Inserts the barriers of a block; says whether control comes to its end.
    fn block(&self, block: &mut Block, state: &mut State) -> bool {
        let mut done = Block::new();
        let mut falls_through = true;
        for mut inst in std::mem::take(block) {
            if let Some(barrier) = self.barrier_before(&inst, state) {
                state.pass(&barrier, self.lir.num_blocks);
                done.push(barrier);
            }
            falls_through = self.step(&mut inst, state);
            done.push(inst);
        }
        *block = done;
        falls_through
    }

    /// The barrier that an instruction needs before it.
    fn barrier_before(&self, inst: &Inst, state: &State) -> Option<Inst> {
        let program = || match self.lir.num_blocks {
            1 => Inst::Barrier,
            _ => Inst::ClusterBarrier,
        };
        match inst {
            Inst::Exec { op, reads } => {
                if self.global(*op).is_some_and(|access| self.waits(state, access)) {
                    return Some(program());
                }
                let meets = reads.iter().any(|bytes| meet(&state.writes, &bytes.span()));
                meets.then_some(Inst::Barrier)
            }
            Inst::Mma(mma) => {
                let meets = mma.reads.iter().any(|bytes| meet(&state.writes, &bytes.span()));
                meets.then_some(Inst::Barrier)
            }
            Inst::StoreShared(part) => {
                let meets = meet(&state.reads, &part.bytes) || meet(&state.writes, &part.bytes);
                meets.then_some(Inst::Barrier)
            }
            Inst::StoreCluster(part) => meet(&state.uses, &part.bytes).then(program),
            Inst::LoadShared(part) if meet(&state.cluster_writes, &part.bytes) => Some(program()),
            Inst::LoadShared(part) => meet(&state.writes, &part.bytes).then_some(Inst::Barrier),
            Inst::Copy { load, bytes, .. } => {
                let meets = meet(&state.reads, &bytes.span()) || meet(&state.writes, &bytes.span());
                let waits = self.global(*load).is_some_and(|access| self.waits(state, access));
                (meets || waits).then(program)
            }
            Inst::LoadIndices { of, .. } => {
                let waits = self.index_loads(*of).any(|access| self.waits(state, access));
                waits.then(program)
            }
            // The first copies of a loop wait before it.
            Inst::For(inner) => {
                let copies = inner.prologue.iter();
                copies.filter_map(|inst| self.barrier_before(inst, state)).next()
            }
            _ => None,
        }
    }

    /// Goes through an instruction; says whether control comes to its end.
    fn step(&self, inst: &mut Inst, state: &mut State) -> bool {
        match inst {
            Inst::Exec { op, reads } => {
                reads.iter().for_each(|bytes| state.read(bytes.span()));
                self.touch(self.global(*op), state);
            }
            Inst::Mma(mma) => mma.reads.iter().for_each(|bytes| state.read(bytes.span())),
            Inst::StoreShared(part) => state.write(part.bytes.clone()),
            Inst::StoreCluster(part) => state.cluster_writes.push(part.bytes.clone()),
            Inst::AwaitCluster(part) => {
                state.cluster_writes.retain(|bytes| *bytes != part.bytes);
            }
            Inst::LoadShared(part) => state.read(part.bytes.clone()),
            Inst::Copy { load, .. } => self.touch(self.global(*load), state),
            Inst::LoadIndices { of, .. } => {
                self.index_loads(*of).for_each(|access| self.touch(Some(access), state));
            }
            Inst::Barrier | Inst::ClusterBarrier => state.pass(inst, self.lir.num_blocks),
            Inst::For(inner) => self.for_loop(inner, state),
            Inst::While { condition, body, .. } => self.while_loop(condition, body, state),
            Inst::If { then, otherwise, .. } => return self.either([then, otherwise], state),
            Inst::Return(_) => return false,
            _ => {}
        }
        true
    }

    fn for_loop(&self, inner: &mut For, state: &mut State) {
        self.block(&mut inner.prologue, state);
        let entered = state.clone();
        loop {
            let mut body = inner.body.clone();
            let mut end = state.clone();
            let goes_on = self.block(&mut body, &mut end);
            let mut head = state.clone();
            if goes_on {
                head.join(&end.in_next_iteration());
            }
            if head == *state {
                inner.body = body;
                // It may have no iteration.
                if goes_on {
                    end.join(&entered);
                    *state = end;
                } else {
                    *state = entered;
                }
                return;
            }
            *state = head;
        }
    }

    fn while_loop(&self, condition: &mut Block, body: &mut Block, state: &mut State) {
        loop {
            let (mut first, mut second) = (condition.clone(), body.clone());
            let mut left = state.clone();
            self.block(&mut first, &mut left);
            let mut end = left.clone();
            let goes_on = self.block(&mut second, &mut end);
            let mut head = state.clone();
            if goes_on {
                head.join(&end.in_next_iteration());
            }
            if head == *state {
                (*condition, *body, *state) = (first, second, left);
                return;
            }
            *state = head;
        }
    }

    fn either(&self, ways: [&mut Block; 2], state: &mut State) -> bool {
        let entered = std::mem::take(state);
        let mut goes_on = false;
        for way in ways {
            let mut end = entered.clone();
            if self.block(way, &mut end) {
                state.join(&end);
                goes_on = true;
            }
        }
        goes_on
    }

    /// How an op touches global memory. Nobody waits for loads of memory that is only read.
    fn global(&self, op: Op) -> Option<(Access, MemoryLocation)> {
        let data = self.lir.func.op(op);
        let access = match data.kind {
            OpKind::Load => Access::Load,
            OpKind::Store => Access::Store,
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => {
                let ordering = data.kind.ordering().unwrap_or_default();
                let is_used = self.uses[data.results[0].index()] > 0;
                let (releases, acquires) = (ordering.releases(is_used), ordering.acquires(is_used));
                Access::Atomic { releases, acquires }
            }
            _ => return None,
        };
        Some((access, self.points_to.location(data.operands[0])))
    }

    /// The loads that the addresses of a loop's copies follow from.
    fn index_loads(&self, of: Op) -> impl Iterator<Item = (Access, MemoryLocation)> {
        let slice = self.lir.multistage.get(&of).map_or(&[][..], |buffer| &buffer.slice);
        slice.iter().filter_map(|&op| self.global(op))
    }

    /// Whether nothing writes the memory during the launch.
    fn is_constant(&self, at: MemoryLocation) -> bool {
        at.param.is_some_and(|param| self.lir.func.params[param as usize].attrs.readonly)
    }

    /// Whether an access of global memory must wait for others.
    fn waits(&self, state: &State, (access, at): (Access, MemoryLocation)) -> bool {
        let is_constant = access == Access::Load && self.is_constant(at);
        state.acquired && !is_constant || state.blocks(access, at)
    }

    fn touch(&self, access: Option<(Access, MemoryLocation)>, state: &mut State) {
        let Some((access, at)) = access else { return };
        let all = match access {
            Access::Load if self.is_constant(at) => return,
            Access::Load => &mut state.loads,
            Access::Store => &mut state.stores,
            Access::Atomic { acquires, .. } => {
                state.acquired |= acquires;
                &mut state.atomics
            }
        };
        if !all.contains(&at) {
            all.push(at);
        }
    }
}

/// What was accessed since the last barrier.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct State {
    /// Bytes of shared memory that threads of this block read.
    reads: Vec<Range<u32>>,
    /// Bytes that they wrote.
    writes: Vec<Range<u32>>,
    /// Bytes that they read since the last barrier of the cluster.
    uses: Vec<Range<u32>>,
    /// Bytes that other blocks write.
    cluster_writes: Vec<Range<u32>>,
    loads: Vec<MemoryLocation>,
    stores: Vec<MemoryLocation>,
    atomics: Vec<MemoryLocation>,
    /// Whether an atomic has acquired what other programs wrote.
    acquired: bool,
}

/// Whether some of these share bytes with others.
fn meet(all: &[Range<u32>], bytes: &Range<u32>) -> bool {
    all.iter().any(|other| other.start < bytes.end && bytes.start < other.end)
}

impl State {
    /// Passes a barrier.
    fn pass(&mut self, barrier: &Inst, num_blocks: u32) {
        if num_blocks == 1 || *barrier == Inst::ClusterBarrier {
            *self = State::default();
        } else {
            self.reads.clear();
            self.writes.clear();
        }
    }

    fn read(&mut self, bytes: Range<u32>) {
        for all in [&mut self.reads, &mut self.uses] {
            if !all.contains(&bytes) {
                all.push(bytes.clone());
            }
        }
    }

    fn write(&mut self, bytes: Range<u32>) {
        if !self.writes.contains(&bytes) {
            self.writes.push(bytes);
        }
    }

    /// Whether an access of global memory must wait.
    fn blocks(&self, access: Access, at: MemoryLocation) -> bool {
        let meets = |all: &[MemoryLocation]| all.iter().any(|other| other.may_alias(at));
        match access {
            Access::Load => meets(&self.stores) || meets(&self.atomics),
            Access::Store => meets(&self.stores) || meets(&self.atomics) || meets(&self.loads),
            Access::Atomic { releases, .. } => {
                let any = [&self.loads, &self.stores, &self.atomics];
                let any = releases && any.iter().any(|all| !all.is_empty());
                any || meets(&self.loads) || meets(&self.stores)
            }
        }
    }

    /// Joins the state of another way to the same place.
    fn join(&mut self, other: &State) {
        fn add<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
            for one in more {
                if !all.contains(one) {
                    all.push(one.clone());
                }
            }
        }
        add(&mut self.reads, &other.reads);
        add(&mut self.writes, &other.writes);
        add(&mut self.uses, &other.uses);
        add(&mut self.cluster_writes, &other.cluster_writes);
        add(&mut self.loads, &other.loads);
        add(&mut self.stores, &other.stores);
        add(&mut self.atomics, &other.atomics);
        self.acquired |= other.acquired;
    }

    /// What the next iteration sees of it: pointers are others there, so that each thread's own elements may be another
    /// thread's.
    fn in_next_iteration(&self) -> State {
        let mut next = self.clone();
        for all in [&mut next.loads, &mut next.stores, &mut next.atomics] {
            let mut anew = Vec::new();
            for at in all.iter().map(|&at| MemoryLocation { own: None, ..at }) {
                if !anew.contains(&at) {
                    anew.push(at);
                }
            }
            *all = anew;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{changes, in_cluster, row_sum};

    #[test]
    fn what_is_read_was_written_before_a_barrier() {
        let lir = row_sum(256, None);
        expect![[r#"
              ..
              store.shared 4.0 0..16                  // reduce
            + barrier
              load.shared 4.0 0..16                   // reduce
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "membar"));
    }

    #[test]
    fn blocks_of_a_cluster_count_stores_in_place_of_a_barrier() {
        let lir = in_cluster();
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "membar"));
    }
}
