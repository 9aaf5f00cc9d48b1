//! Scans along the last axis: `cumsum`, `cummax` and their kind.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::log_add::log_add_of;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &cumsum_rows::KERNEL,
    &cumsum_rows_reverse::KERNEL,
    &sum_parts::KERNEL,
    &cumsum_parts::KERNEL,
    &cumsum_parts_reverse::KERNEL,
    &cummax_rows::KERNEL,
    &cummin_rows::KERNEL,
    &running_extreme_bwd::KERNEL,
    &logcumsumexp_rows::KERNEL,
    &exclusive_rows::KERNEL,
];

/// `y[i, j] = sum(x[i, ..=j])`, of `x: [m, n]`.
#[kernel]
pub fn cumsum_rows<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let mut before = zeros::<A, ROWS>();
    for j in range(0, x.dim(1), COLS) {
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        y.store([i, j], (cumsum(v, 1) + before.col()).to::<T>());
        before = before + sum(v, 1);
    }
}

/// `y[i, j] = sum(x[i, j..])`, of `x: [m, n]`.
#[kernel]
pub fn cumsum_rows_reverse<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let chunks = cdiv(x.dim(1), COLS);
    let mut after = zeros::<A, ROWS>();
    for k in range(0, chunks, 1) {
        let j = (chunks - 1 - k) * COLS;
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        y.store([i, j], (cumsum(v, 1, true) + after.col()).to::<T>());
        after = after + sum(v, 1);
    }
}

/// The row of a program, which of its parts it has, and where that part begins and ends.
#[device]
fn share_of(n: i64, part: i64) -> (i64, i64, i64, i64) {
    let parts = cdiv(n, part);
    let own = program_id(0) % parts;
    (program_id(0) / parts, own, own * part, minimum(own * part + part, n))
}

/// The sum of each part of each row of `x: [m, n]`; a part is a multiple of `COLS` elements.
#[kernel]
pub fn sum_parts<T: Number, A: Number, const COLS: usize>(
    x: View<T, 2>,
    sums: PtrMut<A>,
    part: i64,
) {
    let (i, _, begin, end) = share_of(x.dim(1), part);
    let mut acc = zeros::<A, 1, COLS>();
    for j in range(begin, end, COLS) {
        acc = acc + x.load::<1, COLS>([i, j]).to::<A>();
    }
    store(sums + program_id(0), sum(sum(acc, 1), 0));
}

/// [`cumsum_rows`] of long rows, a program a part; `sums` are the running sums of [`sum_parts`].
#[kernel]
pub fn cumsum_parts<T: Number, A: Number, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
    sums: Ptr<A>,
    part: i64,
) {
    let (i, own, begin, end) = share_of(x.dim(1), part);
    let mut before = zeros::<A, 1>() + load(sums + (program_id(0) - 1), own > 0);
    for j in range(begin, end, COLS) {
        let v = x.load::<1, COLS>([i, j]).to::<A>();
        y.store([i, j], (cumsum(v, 1) + before.col()).to::<T>());
        before = before + sum(v, 1);
    }
}

/// [`cumsum_rows_reverse`] of long rows, a program a part; `sums` are running sums from the end.
#[kernel]
pub fn cumsum_parts_reverse<T: Number, A: Number, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
    sums: Ptr<A>,
    part: i64,
) {
    let (i, _, begin, end) = share_of(x.dim(1), part);
    let chunks = cdiv(end - begin, COLS);
    let mut after = zeros::<A, 1>() + load(sums + (program_id(0) + 1), end < x.dim(1));
    for k in range(0, chunks, 1) {
        let j = begin + (chunks - 1 - k) * COLS;
        let v = x.load::<1, COLS>([i, j]).to::<A>();
        y.store([i, j], (cumsum(v, 1, true) + after.col()).to::<T>());
        after = after + sum(v, 1);
    }
}

#[device]
fn larger<T: Number>(a: T, b: T) -> T {
    maximum(a, b)
}

#[device]
fn smaller<T: Number>(a: T, b: T) -> T {
    minimum(a, b)
}

macro_rules! extreme {
    ($($(#[$doc:meta])* $name:ident = $scan:ident, $pair:ident, $reduce:ident;)*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Number, const ROWS: usize, const COLS: usize>(x: View<T, 2>, y: ViewMut<T, 2>) {
            let i = program_id(0) * ROWS;
            let mut before = x.load::<ROWS, 1>([i, 0]);
            for j in range(0, x.dim(1), COLS) {
                let v = x.load::<ROWS, COLS>([i, j]);
                y.store([i, j], $pair(associative_scan(v, 1, $scan), before));
                let inside = (j + arange::<COLS>()).row() < x.dim(1);
                before = $pair(before, $reduce(where_(inside, v, before), 1).col());
            }
        }
    )*};
}

extreme! {
    /// `y[i, j] = max(x[i, ..=j])`; NaN wins.
    cummax_rows = larger, maximum, max;
    /// `y[i, j] = min(x[i, ..=j])`; NaN wins.
    cummin_rows = smaller, minimum, min;
}

/// Sums that begin anew behind what is the last of its run, from the end.
#[device]
fn run_sum<A: Number>(a: (i32, A), b: (i32, A)) -> (i32, A) {
    (a.0 | b.0, where_(b.0 == 0, a.1 + b.1, b.1))
}

/// The gradient of running extremes, which stand at `at: [m, n]`, rows that never fall: `dx[i, at[i, j]] += dy[i, j]`.
/// What stands at one place is a run, so that a scan from the end adds it up, and no two programs meet. Rows have less
/// than 2^31 elements.
#[kernel]
pub fn running_extreme_bwd<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    dy: View<T, 2>,
    dx: ViewMut<T, 2>,
    at: View<i64, 2>,
) {
    let i = program_id(0) * ROWS;
    let n = dy.dim(1);
    let chunks = cdiv(n, COLS);
    // Of the run that begins before the chunk behind.
    let mut after = zeros::<A, ROWS, 1>();
    for k in range(0, chunks, 1) {
        let j = (chunks - 1 - k) * COLS;
        let place = (j + arange::<COLS>()).to::<i32>().row();
        let own = at.load::<ROWS, COLS>([i, j]).to::<i32>();
        let next = at.load::<ROWS, COLS>([i, j + 1]).to::<i32>();
        let is_last = (next != own) | (place + 1 >= n.to::<i32>());
        let v = dy.load::<ROWS, COLS>([i, j]).to::<A>();
        let (has_last, part) = associative_scan((is_last.to::<i32>(), v), 1, run_sum, true);
        let total = part + where_(has_last == 0, after.broadcast_to::<ROWS, COLS>(), A::ZERO);
        dx.store([i, j], where_(own == place, total, A::ZERO).to::<T>());
        after = sum(where_(place == j.to::<i32>(), total, A::ZERO), 1).col();
    }
}

/// `log(exp(a) + exp(b))`
#[device]
fn log_add<A: Float>(a: A, b: A) -> A {
    let e = exp(-where_(a == b, A::ZERO, abs(a - b)));
    let u = A::ONE + e;
    maximum(a, b) + where_(u == A::ONE, e, log(u) * (e / (u - A::ONE)))
}

/// `y[i, j] = log(sum(exp(x[i, ..=j])))`, of `x: [m, n]`.
#[kernel]
pub fn logcumsumexp_rows<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let mut before = full::<A, ROWS, 1>(A::NEG_INFINITY);
    for j in range(0, x.dim(1), COLS) {
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        let own = associative_scan(v, 1, log_add);
        y.store([i, j], log_add_of::<A, A, _>(own, before.broadcast_to::<ROWS, COLS>()).to::<T>());
        let inside = (j + arange::<COLS>()).row() < x.dim(1);
        let all = reduce(where_(inside, v, A::NEG_INFINITY), 1, log_add).col();
        before = log_add_of::<A, A, _>(all, before);
    }
}

/// In each row of `n` numbers each becomes the sum of those before it, and `totals` the sum of all; a program a row.
#[kernel]
pub fn exclusive_rows<const COLS: usize>(x: PtrMut<i64>, totals: PtrMut<i64>, n: i64) {
    let own = x + program_id(0) * n;
    let mut before = zeros::<i64, 1>();
    for j in range(0, n, COLS) {
        let at = j + arange::<COLS>();
        let v = load(own + at, at < n);
        store(own + at, cumsum(v, 0) - v + before, at < n);
        before = before + sum(v, 0);
    }
    store(totals + program_id(0), sum(before, 0));
}
