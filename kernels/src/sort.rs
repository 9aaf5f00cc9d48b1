//! Sorting of rows by a network: every step compares pairs at one distance and is one launch.
//!
//! A row has a power of two of places, those past its end last in order. With its values go their
//! positions, which decide between equals, so that the sort is stable and its result is one only.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&sort_begin::KERNEL, &sort_step::KERNEL];

/// Copies rows of `n` values to rows of `places` and numbers the places.
///
/// Past the end stands position `i64::MAX`, which comes after every other.
#[kernel]
pub fn sort_begin<T: Number, const BLOCK: usize>(
    x: View<T, 2>,
    keys: PtrMut<T>,
    at: PtrMut<i64>,
    places: i64,
) {
    let row = program_id(1);
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    let v = x.load::<1, BLOCK>([row, program_id(0) * BLOCK]).squeeze(0);
    store(keys + (row * places + i), v, i < places);
    store(at + (row * places + i), where_(i < x.dim(1), i, i64::MAX), i < places);
}

/// Orders each pair of places that are `distance` apart, up or down by the bit `run` of the place.
///
/// Of two pairs (value, position) the one with the smaller value comes first, NaN after all numbers;
/// with `descending` the larger, NaN before all numbers. The smaller position comes first among equals.
#[kernel]
pub fn sort_step<T: Number, const BLOCK: usize>(
    keys: PtrMut<T>,
    at: PtrMut<i64>,
    pairs: i64,
    run: i64,
    distance: i64,
    descending: i64,
) {
    let pair = program_id(0) * BLOCK + arange::<BLOCK>();
    let inside = pair < pairs;
    let low = (pair / distance) * distance * 2 + pair % distance;
    let high = low + distance;
    let (a, b) = (load(keys + low, inside), load(keys + high, inside));
    let (i, j) = (load(at + low, inside, 0), load(at + high, inside, 0));
    let before =
        where_(descending != 0, (b > a) | ((b != b) & (a == a)), (b < a) | ((a != a) & (b == b)));
    let is_same = (a == b) | ((a != a) & (b != b));
    let ends = (i == i64::MAX) | (j == i64::MAX);
    let swap = where_(ends | is_same, j < i, before);
    let is_up = (low & run) == 0;
    let swap = inside & (swap == is_up) & (i != j);
    store(keys + low, b, swap);
    store(keys + high, a, swap);
    store(at + low, j, swap);
    store(at + high, i, swap);
}
