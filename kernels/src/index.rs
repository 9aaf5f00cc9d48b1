//! Elements by place: reading, writing and adding at places of a dense tensor.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&take::KERNEL, &last_write::KERNEL, &put::KERNEL, &add_at::KERNEL];

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
