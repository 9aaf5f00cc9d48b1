//! Binary search in sorted rows.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&search::KERNEL];

/// How many elements of a row of `sorted` come before each of `values`: those that are less, or with
/// `right` not greater. NaN comes after all numbers.
///
/// `sorted` has one row for each of `values`, or one for all, whose places `I` holds: those of 32 bits are halved twice as fast.
/// A place is found by halving, `steps` times.
#[kernel]
pub fn search<T: Number, I: Int, const BLOCK: usize>(
    sorted: View<T, 2>,
    values: View<T, 2>,
    y: PtrMut<i64>,
    steps: i64,
    right: i64,
) {
    let n = values.dim(1);
    let parts = cdiv(n, BLOCK);
    let row = program_id(0) / parts;
    let first = program_id(0) % parts * BLOCK;
    let at = first + arange::<BLOCK>();
    let value = values.load::<1, BLOCK>([row, first]).squeeze(0);
    let line = sorted.ptr() + row * sorted.stride(0);
    let mut low = zeros::<I, BLOCK>();
    let mut high = low + sorted.dim(1).to::<I>();
    for _ in range(0, steps) {
        let middle = low + ((high - low) >> I::ONE);
        let other = load(line + middle.to::<i64>() * sorted.stride(1), low < high);
        let is_after = where_(right != 0, other > value, other >= value) | (other != other);
        let is_before = where_(value != value, (right != 0) | (other == other), !is_after);
        low = where_(is_before & (low < high), middle + I::ONE, low);
        high = where_(is_before, high, middle);
    }
    store(y + (row * n + at), low.to::<i64>(), at < n);
}
