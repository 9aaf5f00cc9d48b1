//! Elements by place: reading, writing and adding at places of a dense tensor.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &take::KERNEL,
    &last_write::KERNEL,
    &put::KERNEL,
    &add_at::KERNEL,
    &resolve::KERNEL,
    &prod_at::KERNEL,
    &count::KERNEL,
];

/// `y[i] = x[at[i]]`; zero where there is no such place.
#[kernel]
pub fn take<T: Element, const BLOCK: usize>(x: Ptr<T>, at: View<i64, 1>, y: ViewMut<T, 1>, n: i64) {
    let first = program_id(0) * BLOCK;
    let place = at.load::<BLOCK>([first]);
    y.store([first], load(x + place, (place >= 0) & (place < n)));
}

/// `winner[at[i]] = max(i)`: which of several writes to one place stays.
#[kernel]
pub fn last_write<const BLOCK: usize>(at: View<i64, 1>, winner: PtrMut<i64>, n: i64) {
    let first = program_id(0) * BLOCK;
    let i = first + arange::<BLOCK>();
    let place = at.load::<BLOCK>([first]);
    atomic_max(winner + place, i, (i < at.dim(0)) & (place >= 0) & (place < n));
}

/// `y[p] = values[winner[p]]` where some write went to `p`, else `x[p]`.
#[kernel]
pub fn put<T: Element, const BLOCK: usize>(
    x: View<T, 1>,
    winner: View<i64, 1>,
    values: Ptr<T>,
    y: ViewMut<T, 1>,
) {
    let first = program_id(0) * BLOCK;
    let from = winner.load::<BLOCK>([first]);
    let inside = first + arange::<BLOCK>() < x.dim(0);
    let old = x.load::<BLOCK>([first]);
    y.store([first], where_(from >= 0, load(values + from, (from >= 0) & inside), old));
}

/// `y[at[i]] += values[i]`, of integers, whose order of additions does not matter.
#[kernel]
pub fn add_at<T: Int, const BLOCK: usize>(
    at: View<i64, 1>,
    values: View<T, 1>,
    y: PtrMut<T>,
    n: i64,
) {
    let first = program_id(0) * BLOCK;
    let place = at.load::<BLOCK>([first]);
    let inside = (first + arange::<BLOCK>() < at.dim(0)) & (place >= 0) & (place < n);
    atomic_add(y + place, values.load::<BLOCK>([first]), inside);
}

/// `y = step * index`, where an index below 0 counts from `n`.
///
/// One that is not in `low..n` becomes a place so far below 0 that no other axis brings it back. It is
/// left in `flag` for who reads from the device next: the first word says which launch found one, by
/// `code`, of which the first launch has the largest; the word of the launch says the index.
#[kernel]
pub fn resolve<const ROWS: usize, const COLS: usize>(
    index: View<i64, 4>,
    y: ViewMut<i64, 4>,
    n: i64,
    low: i64,
    step: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    let at = index.load::<1, 1, ROWS, COLS>([a, b, i, j]);
    let is_there = (at >= low) & (at < n);
    let place = where_(at < 0, at + n, at) * step;
    y.store([a, b, i, j], where_(is_there, place, -0x2000_0000_0000_0000));
    let wrong = (!is_there).to::<i32>().squeeze(0).squeeze(0);
    if max(max(wrong, 1), 0) > 0 {
        let seen = where_(is_there, i64::MIN, at).squeeze(0).squeeze(0);
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(seen, 1), 0));
    }
}

/// `y[v] = product of values[t] over the t with index[t] == v`, of places sorted as for the gradient of
/// an embedding: `keys` are `index * scale + t` in order, `starts` where those of each place begin.
#[kernel]
pub fn prod_at<T: Number, A: Number, const BLOCK: usize>(
    keys: Ptr<i64>,
    starts: Ptr<i64>,
    values: Ptr<T>,
    y: ViewMut<T, 1>,
    scale: i64,
) {
    let first = program_id(0) * BLOCK;
    let v = first + arange::<BLOCK>();
    let start = load(starts + v, v < y.dim(0));
    let end = load(starts + (v + 1), v < y.dim(0));
    let mut acc = ones::<A, BLOCK>();
    for step in range(0, max(end - start, 0), 1) {
        let is_own = start + step < end;
        let t = load(keys + (start + step), is_own) & (scale - 1);
        acc = acc * load(values + t, is_own, T::ONE).to::<A>();
    }
    y.store([first], acc.to::<T>());
}

/// `y[i] = i * step`
#[kernel]
pub fn count<const BLOCK: usize>(y: ViewMut<i64, 1>, step: i64) {
    let first = program_id(0) * BLOCK;
    y.store([first], (first + arange::<BLOCK>()) * step);
}
