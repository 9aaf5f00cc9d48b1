//! Mean and variance along the middle axis of a tensor seen as `[outer, n, inner]`, which is read once.
//!
//! Each place of a tile keeps the mean and the squared deviations of its own elements as they come (Welford, 1962);
//! the places, and the programs that share a result, are joined by their means (Chan, Golub, LeVeque, 1979). Never
//! `E[x^2] - mean^2`, which cancels.
//!
//! A program takes every `parts`-th block of elements, so that what a part has follows from the extents.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &var_rows::KERNEL,
    &var_cols::KERNEL,
    &var_rows_shared::KERNEL,
    &var_cols_shared::KERNEL,
    &join_moments::KERNEL,
    &slope_sums::KERNEL,
];

/// How many of `n` elements each of `BLOCK` places of a part sees, where blocks begin at `first`, `step` apart.
#[device]
fn seen<A: Float, const BLOCK: usize>(n: i64, first: i64, step: i64) -> Tile1<A, BLOCK> {
    cdiv(maximum(n - first - arange::<BLOCK>(), 0), step).to::<A>()
}

/// How many of `n` elements the parts of these numbers see, in blocks of `block`.
#[device]
fn of_part<A: Float, const PARTS: usize>(
    part: Tile1<i64, PARTS>,
    n: i64,
    parts: i64,
    block: i64,
) -> Tile1<A, PARTS> {
    let rounds = n / (parts * block);
    let left = clamp(n - rounds * parts * block - part * block, 0, block);
    where_(part < parts, rounds * block + left, 0).to::<A>()
}

/// Of rows of `x: [m, n]`: `var[i] = sum((x[i, ..] - mean[i])^2) / divisor`, with `ROOT` its square root.
#[kernel]
pub fn var_rows<
    T: Float,
    A: Float,
    U: Float,
    const ROWS: usize,
    const COLS: usize,
    const ROOT: bool,
>(
    x: View<T, 2>,
    var: ViewMut<U, 1>,
    mean: ViewMut<U, 1>,
    divisor: A,
) {
    let (i, n) = (program_id(0) * ROWS, x.dim(1));
    let mut own = zeros::<A, ROWS, COLS>();
    let mut squares = zeros::<A, ROWS, COLS>();
    for j in range(0, n, COLS) {
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        let d = where_((j + arange::<COLS>()).row() < n, v - own, A::ZERO);
        own = own + d * (A::ONE / A::from(j / COLS + 1));
        squares = squares + d * (v - own);
    }
    let count = seen::<A, COLS>(n, 0, COLS).row();
    let center = sum(own * count, 1) / A::from(n);
    let d = own - center.col();
    let total = sum(squares + d * d * count, 1);
    mean.store([i], center.to::<U>());
    let v = total / divisor;
    let v = if ROOT { sqrt(v) } else { v };
    var.store([i], v.to::<U>());
}

/// [`mod@var_rows`] of the columns of `x: [outer, n, inner]`.
#[kernel]
pub fn var_cols<
    T: Float,
    A: Float,
    U: Float,
    const ROWS: usize,
    const COLS: usize,
    const ROOT: bool,
>(
    x: View<T, 3>,
    var: ViewMut<U, 2>,
    mean: ViewMut<U, 2>,
    divisor: A,
) {
    let (o, j, n) = (program_id(1), program_id(0) * COLS, x.dim(1));
    let mut own = zeros::<A, ROWS, COLS>();
    let mut squares = zeros::<A, ROWS, COLS>();
    for i in range(0, n, ROWS) {
        let v = x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0).to::<A>();
        let d = where_((i + arange::<ROWS>()).col() < n, v - own, A::ZERO);
        own = own + d * (A::ONE / A::from(i / ROWS + 1));
        squares = squares + d * (v - own);
    }
    let count = seen::<A, ROWS>(n, 0, ROWS).col();
    let center = sum(own * count, 0) / A::from(n);
    let d = own - center.row();
    let total = sum(squares + d * d * count, 0);
    mean.store([o, j], center.to::<U>().row());
    let v = total / divisor;
    let v = if ROOT { sqrt(v) } else { v };
    var.store([o, j], v.to::<U>().row());
}

/// [`mod@var_rows`] of few rows, each by `num_programs(0)` programs; `done` holds a zero for each row, before and after.
#[kernel]
pub fn var_rows_shared<
    T: Float,
    A: Float,
    U: Float,
    const COLS: usize,
    const PARTS: usize,
    const ROOT: bool,
>(
    x: View<T, 2>,
    means: ViewMut<A, 2>,
    deviations: ViewMut<A, 2>,
    done: PtrMut<i32>,
    var: ViewMut<U, 1>,
    mean: ViewMut<U, 1>,
    divisor: A,
) {
    let (part, i, n) = (program_id(0), program_id(1), x.dim(1));
    let parts = num_programs(0);
    let (first, step) = (part * COLS, parts * COLS);
    let mut own = zeros::<A, 1, COLS>();
    let mut squares = zeros::<A, 1, COLS>();
    for j in range(first, n, step) {
        let v = x.load::<1, COLS>([i, j]).to::<A>();
        let d = where_((j + arange::<COLS>()).row() < n, v - own, A::ZERO);
        own = own + d * (A::ONE / A::from((j - first) / step + 1));
        squares = squares + d * (v - own);
    }
    let count = seen::<A, COLS>(n, first, step).row();
    let center = sum(own * count, 1) / sum(count, 1);
    let d = own - center.col();
    means.store([i, part], center.col());
    deviations.store([i, part], sum(squares + d * d * count, 1).col());
    if atomic_add(done + i, 1).to::<i64>() == parts - 1 {
        let count = of_part::<A, PARTS>(arange::<PARTS>(), n, parts, COLS).row();
        let own = means.load::<1, PARTS>([i, 0]);
        let center = sum(own * count, 1) / A::from(n);
        let d = own - center.col();
        let total = sum(deviations.load::<1, PARTS>([i, 0]) + d * d * count, 1);
        mean.store([i], center.to::<U>());
        let v = total / divisor;
        let v = if ROOT { sqrt(v) } else { v };
        var.store([i], v.to::<U>());
        atomic_xchg(done + i, 0);
    }
}

/// [`mod@var_cols`] of few columns, shared as in [`mod@var_rows_shared`]; parts are joined `ROWS` at a time.
#[kernel]
pub fn var_cols_shared<
    T: Float,
    A: Float,
    U: Float,
    const ROWS: usize,
    const COLS: usize,
    const ROOT: bool,
>(
    x: View<T, 3>,
    means: ViewMut<A, 3>,
    deviations: ViewMut<A, 3>,
    done: PtrMut<i32>,
    var: ViewMut<U, 2>,
    mean: ViewMut<U, 2>,
    divisor: A,
) {
    let (o, part, j) = (program_id(1), program_id(2), program_id(0) * COLS);
    let (n, parts) = (x.dim(1), num_programs(2));
    let (first, step) = (part * ROWS, parts * ROWS);
    let mut own = zeros::<A, ROWS, COLS>();
    let mut squares = zeros::<A, ROWS, COLS>();
    for i in range(first, n, step) {
        let v = x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0).to::<A>();
        let d = where_((i + arange::<ROWS>()).col() < n, v - own, A::ZERO);
        own = own + d * (A::ONE / A::from((i - first) / step + 1));
        squares = squares + d * (v - own);
    }
    let count = seen::<A, ROWS>(n, first, step).col();
    let center = sum(own * count, 0) / sum(count, 0);
    let d = own - center.row();
    means.store([o, part, j], center.row().expand_dims(0));
    deviations.store([o, part, j], sum(squares + d * d * count, 0).row().expand_dims(0));
    let mine = o * num_programs(0) + program_id(0);
    if atomic_add(done + mine, 1).to::<i64>() == parts - 1 {
        let mut weighed = zeros::<A, ROWS, COLS>();
        for p in range(0, parts, ROWS) {
            let count = of_part::<A, ROWS>(p + arange::<ROWS>(), n, parts, ROWS).col();
            weighed = weighed + means.load::<1, ROWS, COLS>([o, p, j]).squeeze(0) * count;
        }
        let center = sum(weighed, 0) / A::from(n);
        let mut total = zeros::<A, ROWS, COLS>();
        for p in range(0, parts, ROWS) {
            let count = of_part::<A, ROWS>(p + arange::<ROWS>(), n, parts, ROWS).col();
            let d = means.load::<1, ROWS, COLS>([o, p, j]).squeeze(0) - center.row();
            total = total + deviations.load::<1, ROWS, COLS>([o, p, j]).squeeze(0) + d * d * count;
        }
        mean.store([o, j], center.to::<U>().row());
        let v = sum(total, 0) / divisor;
        let v = if ROOT { sqrt(v) } else { v };
        var.store([o, j], v.to::<U>().row());
        atomic_xchg(done + mine, 0);
    }
}

/// Mean and variance of `n` parts of one length, by those of each part, `[n, m]`: the mean of the means, and the mean of the
/// variances and of the squared distances of the means from that.
#[kernel]
pub fn join_moments<A: Float, const ROWS: usize, const COLS: usize>(
    var: View<A, 2>,
    mean: View<A, 2>,
    joint_var: ViewMut<A, 1>,
    joint_mean: ViewMut<A, 1>,
) {
    let (j, n) = (program_id(0) * COLS, var.dim(0));
    let mut means = zeros::<A, ROWS, COLS>();
    for i in range(0, n, ROWS) {
        means = means + mean.load::<ROWS, COLS>([i, j]);
    }
    let center = sum(means, 0) / A::from(n);
    let mut spread = zeros::<A, ROWS, COLS>();
    for i in range(0, n, ROWS) {
        let inside = (i + arange::<ROWS>()).col() < n;
        let d = where_(inside, mean.load::<ROWS, COLS>([i, j]) - center.row(), A::ZERO);
        spread = spread + var.load::<ROWS, COLS>([i, j]) + d * d;
    }
    joint_var.store([j], sum(spread, 0) / A::from(n));
    joint_mean.store([j], center);
}

/// Of rows of `dy` and `x: [m, n]`, what the gradient of a norm is made of: `sums[0, i] = sum(dy[i, ..])` and
/// `sums[1, i] = sum(dy[i, ..] (x[i, ..] - mean[s]) scale[s])`, by statistics of which each serves `per` rows, in turns where
/// there are fewer: `s = i / per % statistics`.
#[kernel]
pub unsafe fn slope_sums<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    dy: View<T, 2>,
    x: View<T, 2>,
    mean: View<A, 1>,
    scale: View<A, 1>,
    sums: ViewMut<A, 2>,
    per: i64,
) {
    let (i, n) = (program_id(0) * ROWS, x.dim(1));
    // Less than 2^31 rows: 64-bit division is slow.
    let (all, each) = (mean.dim(0).to::<u32>(), per.to::<u32>());
    let group = (i + arange::<ROWS>()).to::<u32>() / each;
    let place = (group - group / all * all).to::<i64>();
    let center = load(mean.ptr() + place).col();
    let by = load(scale.ptr() + place).col();
    let mut plain = zeros::<A, ROWS, COLS>();
    let mut along = zeros::<A, ROWS, COLS>();
    for j in range(0, n, COLS) {
        let d = dy.load::<ROWS, COLS>([i, j]).to::<A>();
        let v = x.load::<ROWS, COLS>([i, j]).to::<A>();
        plain = plain + d;
        along = along + d * ((v - center) * by);
    }
    sums.store([0, i], sum(plain, 1).row());
    sums.store([1, i], sum(along, 1).row());
}
