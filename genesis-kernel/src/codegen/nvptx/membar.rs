//! Shared-memory allocation and membar analysis: where each op's scratch lies, and which barriers its reuse
//! and accesses to global memory need.
//!
//! Scratch is live during one op, which may be a loop with all that is in it: threads write it, a barrier, threads
//! read it. Small scratch buffers get offsets of their own, so that their reuse needs no barrier; large ones whose live
//! ranges are disjoint share bytes, the largest allocated first. A barrier stands before a write only where something
//! since the last barrier may still read those bytes.
//!
//! ```text
//! reduce   write 0..32, barrier, read 0..32
//! reduce   write 32..64, barrier, read 32..64     no barrier before: other bytes
//! convert  write 64..4160, barrier, read
//! convert  barrier, write 64..4160, barrier, read
//! ```
//!
//! Tile IR runs a program's accesses in order, but threads run at their own pace: a load of what
//! another thread stored needs a barrier too. Accesses through different parameters never alias, since
//! writable parameters are exclusive; those through one pointer value by the same threads stay in
//! order by themselves.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ir::{Func, Op, Value};

/// Scratch up to this many bytes gets an offset of its own.
pub(super) const SMALL_BYTES: u32 = 1024;
/// All scratch starts at a multiple of this many bytes.
const ALIGNMENT: u32 = 128;

/// Where the scratch of each op lies in shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SharedAllocation {
    allocation: BTreeMap<Op, Range<u32>>,
    /// Where they end, in bytes.
    pub(super) end: u32,
}

impl SharedAllocation {
    /// Allocates each op's scratch, in bytes, at `start` or after it.
    pub(super) fn after(func: &Func, start: u32, wanted: &[(Op, u32)]) -> SharedAllocation {
        let mut allocation = BTreeMap::new();
        let mut top = start;
        for &(op, bytes) in wanted.iter().filter(|&&(_, bytes)| bytes <= SMALL_BYTES) {
            let start = top;
            top = start + bytes.next_multiple_of(16);
            allocation.insert(op, start..top);
        }
        let floor = top.next_multiple_of(ALIGNMENT);
        let mut large: Vec<Live> = wanted
            .iter()
            .filter(|&&(_, bytes)| bytes > SMALL_BYTES)
            .map(|&(op, bytes)| Live { op, bytes, during: lifetime(func, op) })
            .collect();
        // The largest first; where several are as large, in program order.
        large.sort_by_key(|live| (u32::MAX - live.bytes, live.during.start));
        let mut placed: Vec<(Range<usize>, Range<u32>)> = Vec::new();
        for live in large {
            let start = first_fit(&live, floor, &placed);
            let bytes = start..start + live.bytes;
            top = top.max(bytes.end);
            allocation.insert(live.op, bytes.clone());
            placed.push((live.during, bytes));
        }
        SharedAllocation { allocation, end: top }
    }

    /// The bytes of an op's scratch.
    pub(super) fn of(&self, op: Op) -> Option<Range<u32>> {
        self.allocation.get(&op).cloned()
    }
}

/// A large scratch and when it lives, in numbers of ops.
struct Live {
    op: Op,
    bytes: u32,
    during: Range<usize>,
}

/// The ops from an op to the end of its regions, by their numbers in program order.
fn lifetime(func: &Func, op: Op) -> Range<usize> {
    let walk = func.walk();
    let start = walk.iter().position(|&other| other == op).unwrap_or(0);
    let mut regions = func.op(op).regions.clone();
    let mut inside = 0;
    while let Some(region) = regions.pop() {
        let ops = &func.region(region).ops;
        inside += ops.len();
        regions.extend(ops.iter().flat_map(|&inner| func.op(inner).regions.clone()));
    }
    start..start + 1 + inside
}

/// The lowest place above `floor` that nothing takes that lives at the same time.
fn first_fit(live: &Live, floor: u32, placed: &[(Range<usize>, Range<u32>)]) -> u32 {
    let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    let mut taken: Vec<&Range<u32>> =
        placed.iter().filter(|(during, _)| overlap(during, &live.during)).map(|(_, b)| b).collect();
    taken.sort_by_key(|bytes| bytes.start);
    let mut start = floor;
    for bytes in taken {
        if start + live.bytes <= bytes.start {
            break;
        }
        start = start.max(bytes.end.next_multiple_of(ALIGNMENT));
    }
    start
}

/// Where an access to global memory goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// The parameter behind the pointer; none where it is not known.
    pub(super) param: Option<u32>,
    /// The pointers, where each thread accesses only elements no other thread accesses through them.
    pub(super) own: Option<Value>,
}

impl Target {
    pub(super) fn may_alias(self, other: Target) -> bool {
        let apart = matches!((self.param, other.param), (Some(a), Some(b)) if a != b);
        let same_thread = self.own.is_some() && self.own == other.own;
        !apart && !same_thread
    }
}

/// An access to global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlobalAccess {
    pub(super) target: Target,
    pub(super) writes: bool,
}

impl GlobalAccess {
    /// Notes the parameters of two accesses that may alias, of which one writes; all of them where it is not
    /// known which.
    pub(super) fn note_aliasing(&self, other: &GlobalAccess, params: &mut [bool]) {
        if !(self.writes || other.writes) || !self.target.may_alias(other.target) {
            return;
        }
        for target in [self.target, other.target] {
            match target.param {
                Some(param) => params[param as usize] = true,
                None => params.fill(true),
            }
        }
    }
}

/// Membar analysis: the accesses since the last barrier that a later one may have to wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Membar {
    shared_reads: Vec<Range<u32>>,
    /// Bytes of shared memory that were used since the last barrier of the cluster.
    shared_uses: Vec<Range<u32>>,
    loads: Vec<Target>,
    stores: Vec<Target>,
    atomics: Vec<Target>,
}

impl Membar {
    /// Forgets everything: a barrier of the whole program stands here.
    pub(super) fn clear(&mut self) {
        *self = Membar::default();
    }

    /// Forgets what only this block does: its own barrier stands here.
    pub(super) fn clear_block(&mut self) {
        self.shared_reads.clear();
    }

    /// Whether other blocks must wait before they write to these bytes of this one's shared memory.
    pub(super) fn blocks_dsmem_store(&self, bytes: &Range<u32>) -> bool {
        self.shared_uses.iter().any(|used| used.start < bytes.end && bytes.start < used.end)
    }

    /// Whether writing these bytes of shared memory must wait.
    pub(super) fn blocks_shared_write(&self, bytes: &Range<u32>) -> bool {
        self.shared_reads.iter().any(|read| read.start < bytes.end && bytes.start < read.end)
    }

    /// Notes a read of shared memory.
    pub(super) fn read_shared(&mut self, bytes: Range<u32>) {
        self.shared_uses.push(bytes.clone());
        self.shared_reads.push(bytes);
    }

    /// Whether a load must wait.
    pub(super) fn blocks_load(&self, target: Target) -> bool {
        let mut writes = self.stores.iter().chain(&self.atomics);
        writes.any(|write| write.may_alias(target))
    }

    /// Whether a store must wait.
    pub(super) fn blocks_store(&self, target: Target) -> bool {
        self.blocks_load(target) || self.loads.iter().any(|load| load.may_alias(target))
    }

    /// Whether an atomic must wait; atomics do not wait for each other.
    pub(super) fn blocks_atomic(&self, target: Target) -> bool {
        self.loads.iter().chain(&self.stores).any(|access| access.may_alias(target))
    }

    /// Whether anything that others may see was read or written.
    pub(super) fn has_accesses(&self) -> bool {
        !(self.loads.is_empty() && self.stores.is_empty() && self.atomics.is_empty())
    }

    /// Notes a load.
    pub(super) fn load(&mut self, target: Target) {
        if !self.loads.contains(&target) {
            self.loads.push(target);
        }
    }

    /// Notes a store.
    pub(super) fn store(&mut self, target: Target) {
        if !self.stores.contains(&target) {
            self.stores.push(target);
        }
    }

    /// Notes an atomic.
    pub(super) fn atomic(&mut self, target: Target) {
        if !self.atomics.contains(&target) {
            self.atomics.push(target);
        }
    }

    /// Joins the state of another predecessor.
    pub(super) fn join(&mut self, other: Membar) {
        self.shared_reads.extend(other.shared_reads);
        self.shared_uses.extend(other.shared_uses);
        other.loads.into_iter().for_each(|target| self.load(target));
        other.stores.into_iter().for_each(|target| self.store(target));
        other.atomics.into_iter().for_each(|target| self.atomic(target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_scratch_shares_bytes_unless_live_ranges_overlap() {
        let text = "
kernel scratch(%n: i64) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  for %2 = %0 to %n step %1 {
    %3 = add %2, %1 : i64
    yield
  }
  return
}
";
        let func = crate::ir::parse(text).unwrap();
        let [first, second, ring, inside] = func.walk()[..4] else { panic!("four ops") };
        let wanted = [(first, 4096), (second, 32), (ring, 8192), (inside, 2048)];
        let allocation = SharedAllocation::after(&func, 0, &wanted);
        assert_eq!(allocation.of(second), Some(0..32));
        assert_eq!(allocation.of(ring), Some(128..8320));
        assert_eq!(allocation.of(first), Some(128..4224));
        assert_eq!(allocation.of(inside), Some(8320..10368));
        assert_eq!(allocation.end, 10368);
    }

    #[test]
    fn only_accesses_that_may_alias_wait() {
        let at = |param, own| Target { param: Some(param), own };
        let mut membar = Membar::default();
        membar.load(at(0, Some(Value(7))));
        assert!(!membar.blocks_store(at(0, Some(Value(7)))));
        assert!(membar.blocks_store(at(0, Some(Value(8)))));
        assert!(membar.blocks_store(at(0, None)));
        assert!(!membar.blocks_store(at(1, None)));
        assert!(membar.blocks_store(Target { param: None, own: None }));
        assert!(!membar.blocks_load(at(0, None)));
        membar.store(at(0, None));
        assert!(membar.blocks_load(at(0, Some(Value(7)))));
        membar.clear();
        assert!(!membar.blocks_load(at(0, None)));
    }
}
