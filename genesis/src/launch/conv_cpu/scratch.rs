//! Memory of a thread for copies, kept from one convolution to the next.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};

/// A line of the cache.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct CacheLine {
    _bytes: [u8; 64],
}

/// Bytes that a thread keeps, at most.
const KEPT: usize = 16 << 20;

thread_local! {
    static MEMORY: RefCell<Vec<CacheLine>> = const { RefCell::new(Vec::new()) };
}

/// Gives `body` a thread's memory as two slices of numbers, each aligned to 64 bytes, whose contents are
/// arbitrary numbers.
pub(super) fn with<T: Pod, R>(
    lengths: [usize; 2],
    body: impl FnOnce(&mut [T], &mut [T]) -> R,
) -> R {
    let lines = lengths.map(|n| (n * size_of::<T>()).div_ceil(64));
    // Taken out while it is used: what else runs on this thread meanwhile gets its own.
    let mut memory = MEMORY.with(|memory| std::mem::take(&mut *memory.borrow_mut()));
    if memory.len() < lines[0] + lines[1] {
        memory = vec![CacheLine { _bytes: [0; 64] }; lines[0] + lines[1]];
    }
    let (first, second) = memory.split_at_mut(lines[0]);
    let first = &mut bytemuck::cast_slice_mut(first)[..lengths[0]];
    let second = &mut bytemuck::cast_slice_mut(second)[..lengths[1]];
    let result = body(first, second);
    if memory.len() * 64 <= KEPT {
        MEMORY.with(|kept| *kept.borrow_mut() = memory);
    }
    result
}
