//! Multi-tensor apply: many tensors in one launch.
//!
//! A model has hundreds of parameters, most of them small, and a launch for each costs more than the
//! work. Here one launch serves them all. The tensors lie anywhere in memory, so that no view holds
//! them; a kernel gets, for each of its operands, a pointer to the first tensor's, and from a table how
//! far from there those of the others are:
//!
//! ```text
//! chunks: [programs, 2]     which row of the table a program works on, and its first element
//! rows: [tensors, 8]        elements; then, for each operand, elements from the first tensor's; a number where one is read
//! ```
//!
//! Both are i64 in device memory. The first is a matter of the tensors' sizes and stays from step to
//! step; the second changes where a gradient is somewhere else than before.
//!
//! A pointer may leave the tensor that it was made of in this way only: every program stays inside the
//! operands of its own row, and no two rows share what is written. Who launches promises both, and that
//! distances are multiples of `WIDTH` elements.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&squares::KERNEL, &scale_many::KERNEL, &unscale_many::KERNEL, &average_many::KERNEL];

/// Numbers in a row of the table.
pub const ROW: usize = 8;

/// What this program works on: where the row of its tensor begins in the table, its first element, and
/// the end of its elements.
#[device]
pub fn share<const WIDTH: usize>(chunks: Ptr<i64>, rows: Ptr<i64>, chunk: i64) -> (i64, i64, i64) {
    let at = chunks + program_id(0) * 2;
    let row = load(at) * 8;
    // In bounds that let the compiler know that no index wraps.
    let first = multiple_of(clamp(load(at + 1), 0, 1152921504606846975), WIDTH);
    let end = minimum(first + chunk, load(rows + row));
    (row, first, clamp(end, 0, 1152921504606846975))
}

/// How far operand number `operand` of a row is from that of the first tensor, in elements.
#[device]
pub fn distance<const WIDTH: usize>(rows: Ptr<i64>, row: i64, operand: i64) -> i64 {
    multiple_of(load(rows + (row + operand + 1)), WIDTH)
}

/// The number of a row's tensor, behind the distances of so many operands.
#[device]
pub fn number_of(rows: Ptr<i64>, row: i64, operands: i64) -> i64 {
    load(rows + (row + operands + 1))
}

/// `sums[program]` is the sum of the squares of the program's elements.
#[kernel]
pub fn squares<T: Float, A: Float, const BLOCK: usize, const WIDTH: usize>(
    x: Ptr<T>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    sums: PtrMut<A>,
) {
    let (row, first, end) = share::<WIDTH>(chunks, rows, chunk);
    let xs = x + distance::<WIDTH>(rows, row, 0);
    let mut total = zeros::<A, BLOCK>();
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let v = load(xs + i, i < end).to::<A>();
        total = total + v * v;
    }
    store(sums + program_id(0), sum(total, 0));
}

/// `y = x * factor[0]`
#[kernel]
pub fn scale_many<T: Float, A: Float, const BLOCK: usize, const WIDTH: usize>(
    x: Ptr<T>,
    y: PtrMut<T>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    factor: Ptr<A>,
) {
    let (row, first, end) = share::<WIDTH>(chunks, rows, chunk);
    let xs = x + distance::<WIDTH>(rows, row, 0);
    let ys = y + distance::<WIDTH>(rows, row, 1);
    let by = load(factor);
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        store(ys + i, (load(xs + i, i < end).to::<A>() * by).to::<T>(), i < end);
    }
}

/// `y = x * factor[0]`, and `found[0] = 1` where an element of `x` is infinite or NaN.
#[kernel]
pub fn unscale_many<T: Float, A: Float, const BLOCK: usize, const WIDTH: usize>(
    x: Ptr<T>,
    y: PtrMut<T>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    factor: Ptr<A>,
    found: PtrMut<i32>,
) {
    let (row, first, end) = share::<WIDTH>(chunks, rows, chunk);
    let xs = x + distance::<WIDTH>(rows, row, 0);
    let ys = y + distance::<WIDTH>(rows, row, 1);
    let by = load(factor);
    let mut bad = zeros::<i32, BLOCK>();
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let v = load(xs + i, i < end).to::<A>();
        bad = where_(is_finite(v), bad, 1);
        store(ys + i, (v * by).to::<T>(), i < end);
    }
    if max(bad, 0) != 0 {
        atomic_or(found, 1);
    }
}

/// `average += (w - average) * rest`
#[kernel]
pub fn average_many<T: Float, A: Float, const BLOCK: usize, const WIDTH: usize>(
    average: PtrMut<A>,
    w: Ptr<T>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    rest: A,
) {
    let (row, first, end) = share::<WIDTH>(chunks, rows, chunk);
    let averages = average + distance::<WIDTH>(rows, row, 0);
    let ws = w + distance::<WIDTH>(rows, row, 1);
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let old = load(averages + i, i < end);
        let v = load(ws + i, i < end).to::<A>();
        store(averages + i, old + (v - old) * rest, i < end);
    }
}
