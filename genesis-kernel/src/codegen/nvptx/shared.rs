//! Shared memory: where each op's scratch lies, and which barriers its reuse and that of global
//! memory need.
//!
//! Scratch lives during one op: threads write it, a barrier, threads read it. Small scratches lie side
//! by side, so that none waits for another; the large ones share one place. A barrier stands before a
//! write only where something since the last barrier may still read those bytes.
//!
//! ```text
//! reduce   write 0..32, barrier, read 0..32
//! reduce   write 32..64, barrier, read 32..64     no barrier before: other bytes
//! convert  write 64..4160, barrier, read
//! convert  barrier, write 64..4160, barrier, read
//! ```
//!
//! Tile IR runs a program's accesses in order, but threads run at their own pace: a load of what
//! another thread stored needs a barrier too. Accesses through different parameters never meet, since
//! writable parameters are exclusive; those through one pointer value by the same threads stay in
//! order by themselves.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ir::{Op, Value};

/// Scratch up to this many bytes gets a place of its own.
const SMALL_BYTES: u32 = 1024;
/// All scratch starts at a multiple of this many bytes.
const ALIGNMENT: u32 = 128;

/// The places of scratch memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    places: BTreeMap<Op, Range<u32>>,
    /// Where they end, in bytes.
    pub(super) end: u32,
}

impl Places {
    /// Gives each op's scratch, in bytes, a place at `start` or after it.
    pub(super) fn after(start: u32, wanted: &[(Op, u32)]) -> Places {
        let mut places = BTreeMap::new();
        let mut top = start;
        for &(op, bytes) in wanted.iter().filter(|&&(_, bytes)| bytes <= SMALL_BYTES) {
            let start = top;
            top = start + bytes.next_multiple_of(16);
            places.insert(op, start..top);
        }
        let start = top.next_multiple_of(ALIGNMENT);
        for &(op, bytes) in wanted.iter().filter(|&&(_, bytes)| bytes > SMALL_BYTES) {
            places.insert(op, start..start + bytes);
            top = top.max(start + bytes);
        }
        Places { places, end: top }
    }

    /// The bytes of an op's scratch.
    pub(super) fn of(&self, op: Op) -> Option<Range<u32>> {
        self.places.get(&op).cloned()
    }
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
    fn may_meet(self, other: Target) -> bool {
        let apart = matches!((self.param, other.param), (Some(a), Some(b)) if a != b);
        let same_thread = self.own.is_some() && self.own == other.own;
        !apart && !same_thread
    }
}

/// What happened since the last barrier that a later access may have to wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    shared_reads: Vec<Range<u32>>,
    loads: Vec<Target>,
    stores: Vec<Target>,
    atomics: Vec<Target>,
}

impl Pending {
    /// Forgets everything: a barrier stands here.
    pub(super) fn clear(&mut self) {
        *self = Pending::default();
    }

    /// Whether writing these bytes of shared memory must wait.
    pub(super) fn blocks_shared_write(&self, bytes: &Range<u32>) -> bool {
        self.shared_reads.iter().any(|read| read.start < bytes.end && bytes.start < read.end)
    }

    /// Notes a read of shared memory.
    pub(super) fn read_shared(&mut self, bytes: Range<u32>) {
        self.shared_reads.push(bytes);
    }

    /// Whether a load must wait.
    pub(super) fn blocks_load(&self, target: Target) -> bool {
        let mut writes = self.stores.iter().chain(&self.atomics);
        writes.any(|write| write.may_meet(target))
    }

    /// Whether a store must wait.
    pub(super) fn blocks_store(&self, target: Target) -> bool {
        self.blocks_load(target) || self.loads.iter().any(|load| load.may_meet(target))
    }

    /// Whether an atomic must wait; atomics do not wait for each other.
    pub(super) fn blocks_atomic(&self, target: Target) -> bool {
        self.loads.iter().chain(&self.stores).any(|access| access.may_meet(target))
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

    /// Adds what may have happened on another way to here.
    pub(super) fn join(&mut self, other: Pending) {
        self.shared_reads.extend(other.shared_reads);
        other.loads.into_iter().for_each(|target| self.load(target));
        other.stores.into_iter().for_each(|target| self.store(target));
        other.atomics.into_iter().for_each(|target| self.atomic(target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_scratch_shares_a_place() {
        let places = Places::after(0, &[(Op(0), 32), (Op(1), 4096), (Op(2), 20), (Op(3), 8192)]);
        assert_eq!(places.of(Op(0)), Some(0..32));
        assert_eq!(places.of(Op(2)), Some(32..64));
        assert_eq!(places.of(Op(1)), Some(128..4224));
        assert_eq!(places.of(Op(3)), Some(128..8320));
        assert_eq!(places.end, 8320);
    }

    #[test]
    fn only_accesses_that_may_meet_wait() {
        let at = |param, own| Target { param: Some(param), own };
        let mut pending = Pending::default();
        pending.load(at(0, Some(Value(7))));
        assert!(!pending.blocks_store(at(0, Some(Value(7)))));
        assert!(pending.blocks_store(at(0, Some(Value(8)))));
        assert!(pending.blocks_store(at(0, None)));
        assert!(!pending.blocks_store(at(1, None)));
        assert!(pending.blocks_store(Target { param: None, own: None }));
        assert!(!pending.blocks_load(at(0, None)));
        pending.store(at(0, None));
        assert!(pending.blocks_load(at(0, Some(Value(7)))));
        pending.clear();
        assert!(!pending.blocks_load(at(0, None)));
    }
}
