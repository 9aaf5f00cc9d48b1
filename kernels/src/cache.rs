//! Writes of keys and values to a paged KV cache.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&write_slots::KERNEL];

/// `cache[slot / size, slot % size, .., ..] = rows[i, .., ..]` with `slot = slots[i]`, for each row of `g * d`
/// elements of a dense cache `[pages, size, g, d]`, `ROWS` of them a program.
///
/// A slot that the cache does not have is skipped: that is where padding goes.
#[kernel]
pub fn write_slots<T: Element, const ROWS: usize, const COLS: usize>(
    rows: View<T, 3>,
    slots: View<i64, 1>,
    cache: ViewMut<T, 4>,
) {
    let (first, j) = (program_id(0) * ROWS, program_id(1) * COLS);
    let (i, c) = (first + arange::<ROWS>(), j + arange::<COLS>());
    let d = cache.dim(3);
    let slot = slots.load::<ROWS>([first]);
    let is_there = (i < slots.dim(0)) & (slot >= 0) & (slot < cache.dim(0) * cache.dim(1));
    let (group, channel) = (c / d, c % d);
    let mask = is_there.col() & (c < cache.dim(2) * d).row();
    let from = group * rows.stride(1) + channel * rows.stride(2);
    let row = load(rows.ptr() + ((i * rows.stride(0)).col() + from.row()), mask);
    let (page, offset) = (slot / cache.dim(1), slot % cache.dim(1));
    let to = group * cache.stride(2) + channel * cache.stride(3);
    let place = page * cache.stride(0) + offset * cache.stride(1);
    store(cache.ptr() + (place.col() + to.row()), row, mask);
}
