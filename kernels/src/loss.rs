//! Losses of rows against class indices: cross entropy of logits, the likelihood of log-probabilities.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::matrix_tile_origin;
use crate::softmax::online;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &cross_entropy::KERNEL,
    &cross_entropy_bwd::KERNEL,
    &nll_loss::KERNEL,
    &nll_loss_bwd::KERNEL,
    &multi_margin::KERNEL,
    &multi_margin_bwd::KERNEL,
];

/// `loss[i] = log(sum(exp(x[i, ..]))) - x[i, target[i]]`, and that logarithm for the backward.
///
/// A row whose target is `ignore` has loss 0; another that no column has is left in `flag` as by
/// `index::resolve`. The logits are read once, with a running maximum.
#[kernel]
pub fn cross_entropy<
    T: Float,
    A: Float,
    const COLS: usize,
    const LANES: usize,
    const WIDTH: usize,
>(
    x: View<T, 2>,
    target: View<i64, 1>,
    loss: ViewMut<A, 1>,
    lse: ViewMut<A, 1>,
    ignore: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let t = sum(target.load::<1>([i]), 0);
    if (t != ignore) & ((t < 0) | (t >= n)) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), t);
    }
    let at_target = x.load::<1, 1>([i, t]).squeeze(0).to::<A>();
    let mut tops = full::<A, LANES>(A::MIN);
    let mut totals = zeros::<A, LANES>();
    for j in range(0, n, COLS) {
        let inside = (j + arange::<COLS>()).row() < n;
        let v = where_(inside, x.load::<1, COLS>([i, j]).to::<A>(), A::NEG_INFINITY);
        let (top, total) = online(tops, totals, v.reshape::<LANES, WIDTH>());
        tops = top;
        totals = total;
    }
    let top = max(tops, 0);
    let logsum = top + log(sum(totals * exp(tops - top), 0));
    loss.store([i], where_(t == ignore, A::ZERO, logsum - at_target));
    lse.store([i], full::<A, 1>(logsum));
}

/// `dx[i, j] = (exp(x[i, j] - lse[i]) - [j == target[i]]) * dy[i]`, 0 in ignored rows.
#[kernel]
pub fn cross_entropy_bwd<T: Float, A: Float, const COLS: usize>(
    x: View<T, 2>,
    target: View<i64, 1>,
    lse: View<A, 1>,
    dy: View<A, 1>,
    dx: ViewMut<T, 2>,
    ignore: i64,
) {
    let i = program_id(0);
    let j = program_id(1) * COLS;
    let v = x.load::<1, COLS>([i, j]).to::<A>();
    let t = target.load::<1>([i]);
    let scale = where_(t == ignore, A::ZERO, dy.load::<1>([i]));
    let p = exp(v - lse.load::<1>([i]).col());
    // The place of the target in this block, if it is there.
    let own = (t - j).to::<i32>();
    let is_target = arange::<COLS>().to::<i32>().row() == own.col();
    let d = p - where_(is_target, A::ONE, A::ZERO);
    dx.store([i, j], (d * scale.col()).to::<T>());
}

/// `loss = sum(-w[t] x[i, t])` of the targets `t` of all rows, with `MEAN` over `total = sum(w[t])`; `w` is 1 unless
/// `WEIGHED`.
///
/// A target that is `ignore` counts for nothing; another that no column has is left in `flag` as by `index::resolve`. Each
/// program sums some of the rows into a column of `partial`; the last to finish adds those up, always in the same order, and
/// leaves a zero in `done` as it found one.
#[kernel]
pub unsafe fn nll_loss<
    T: Float,
    A: Float,
    U: Float,
    const MEAN: bool,
    const WEIGHED: bool,
    const BLOCK: usize,
    const PARTS: usize,
>(
    x: View<T, 2>,
    target: View<i64, 1>,
    weight: Ptr<A>,
    partial: ViewMut<A, 2>,
    done: PtrMut<i32>,
    loss: PtrMut<U>,
    total: PtrMut<A>,
    ignore: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (part, parts, n) = (program_id(0), num_programs(0), x.dim(1));
    let mut losses = zeros::<A, BLOCK>();
    let mut weights = zeros::<A, BLOCK>();
    for i in range(part * BLOCK, x.dim(0), parts * BLOCK) {
        let row = i + arange::<BLOCK>();
        let t = target.load::<BLOCK>([i]);
        let counts = (t != ignore) & (row < x.dim(0));
        let is_there = (t >= 0) & (t < n);
        if any(counts & !is_there, 0) {
            atomic_max(flag, code);
            let wrong = max(where_(counts & !is_there, t, i64::MIN), 0);
            atomic_max(flag + (((code >> 4) & 1023) + 1), wrong);
        }
        let mask = counts & is_there;
        let v = load(x.ptr() + (row * x.stride(0) + t * x.stride(1)), mask).to::<A>();
        let mut w = where_(mask, A::ONE, A::ZERO);
        if WEIGHED {
            w = load(weight + t, mask);
        }
        losses += -v * w;
        weights += w;
    }
    partial.store([0, part], sum(losses, 0).broadcast_to::<1, 1>());
    partial.store([1, part], sum(weights, 0).broadcast_to::<1, 1>());
    if atomic_add(done, 1).to::<i64>() == parts - 1 {
        let of_losses = sum(sum(partial.load::<1, PARTS>([0, 0]), 1), 0);
        let of_weights = sum(sum(partial.load::<1, PARTS>([1, 0]), 1), 0);
        store(total, of_weights);
        let result = if MEAN { of_losses / of_weights } else { of_losses };
        store(loss, result.to::<U>());
        atomic_xchg(done, 0);
    }
}

/// `dx[i, j] = -w[j] dy` where `j` is the target of row `i`, with `MEAN` of `dy / total`; 0 elsewhere.
#[kernel]
pub unsafe fn nll_loss_bwd<
    T: Float,
    A: Float,
    U: Float,
    const MEAN: bool,
    const WEIGHED: bool,
    const ROWS: usize,
    const COLS: usize,
>(
    target: View<i64, 1>,
    weight: Ptr<A>,
    total: Ptr<A>,
    dy: Ptr<U>,
    dx: ViewMut<T, 2>,
    ignore: i64,
) {
    let (i, j) = matrix_tile_origin::<ROWS, COLS>(dx.dim(1));
    let t = target.load::<ROWS>([i]);
    let mask = (t != ignore) & (t >= 0) & (t < dx.dim(1)) & (i + arange::<ROWS>() < dx.dim(0));
    let mut slope = load(dy).to::<A>();
    if MEAN {
        slope = slope / load(total);
    }
    let mut w = where_(mask, A::ONE, A::ZERO);
    if WEIGHED {
        w = load(weight + t, mask);
    }
    let at_target = where_(mask, -(w * slope), A::ZERO);
    // The place of the target among these columns, if it is there.
    let own = (t - j).to::<i32>();
    let is_target = arange::<COLS>().to::<i32>().row() == own.col();
    dx.store([i, j], where_(is_target, at_target.col(), A::ZERO).to::<T>());
}

/// `losses[i] = w[t] mean(max(0, margin - x[i, t] + x[i, j]))` over the `j` that are not the target `t`, of squares with
/// `SQUARE`, and `loss` their sum, with `MEAN` over the rows; `w` is 1 unless `WEIGHED`. `slopes[i]` is how fast what the
/// columns of a row lack grows together.
///
/// A program has a row; with `SUM` the last to finish adds the rows up, always in the same order, and leaves a zero in
/// `done` as it found one. A target that no column has is left in `flag` as by `index::resolve`.
#[kernel]
pub unsafe fn multi_margin<
    T: Float,
    A: Float,
    U: Float,
    const SQUARE: bool,
    const WEIGHED: bool,
    const SUM: bool,
    const MEAN: bool,
    const COLS: usize,
>(
    x: View<T, 2>,
    target: View<i64, 1>,
    weight: Ptr<A>,
    losses: ViewMut<A, 1>,
    slopes: ViewMut<A, 1>,
    done: PtrMut<i32>,
    loss: PtrMut<U>,
    margin: f64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (i, m, n) = (program_id(0), num_programs(0), x.dim(1));
    // Asked for ahead of the target, and of what the target asks for.
    let mut next = x.load::<1, COLS>([i, 0]);
    let t = sum(target.load::<1>([i]), 0);
    if (t < 0) | (t >= n) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), t);
    }
    let room = margin.to::<A>() - x.load::<1, 1>([i, t]).to::<A>();
    let mut total = zeros::<A, 1, COLS>();
    let mut slope = zeros::<A, 1, COLS>();
    for j in range(0, n, COLS) {
        let col = (j + arange::<COLS>()).row();
        let lack = room + next.to::<A>();
        next = x.load::<1, COLS>([i, j + COLS]);
        // What is NaN counts.
        let counts = (col < n) & (col != t) & !(lack <= A::ZERO);
        let lack = where_(counts, lack, A::ZERO);
        total = total + if SQUARE { lack * lack } else { lack };
        slope = slope + if SQUARE { lack + lack } else { where_(counts, A::ONE, A::ZERO) };
    }
    let mut w = A::ONE;
    if WEIGHED {
        w = load(weight + t, (t >= 0) & (t < n));
    }
    losses.store([i], sum(total, 1) * w / n.to::<A>());
    slopes.store([i], sum(slope, 1));
    if SUM {
        if atomic_add(done, 1).to::<i64>() == m - 1 {
            let mut all = zeros::<A, COLS>();
            for k in range(0, m, COLS) {
                all = all + losses.load::<COLS>([k]);
            }
            let result = sum(all, 0);
            store(loss, (if MEAN { result / m.to::<A>() } else { result }).to::<U>());
            atomic_xchg(done, 0);
        }
    }
}

/// The gradient of [`mod@multi_margin`]: of column `j` what it lacks of the margin grows by, of the target `-slopes[i]`, times
/// `scale w[t] dy[i]`.
#[kernel]
pub fn multi_margin_bwd<
    T: Float,
    A: Float,
    U: Float,
    const SQUARE: bool,
    const WEIGHED: bool,
    const ROWS: usize,
    const COLS: usize,
>(
    x: View<T, 2>,
    target: View<i64, 1>,
    weight: Ptr<A>,
    slopes: View<A, 1>,
    dy: View<U, 1>,
    dx: ViewMut<T, 2>,
    margin: f64,
    scale: f64,
) {
    let (i, j) = matrix_tile_origin::<ROWS, COLS>(dx.dim(1));
    let (row, t) = (i + arange::<ROWS>(), target.load::<ROWS>([i]));
    let mask = (t >= 0) & (t < dx.dim(1)) & (row < dx.dim(0));
    let own = load(x.ptr() + (row * x.stride(0) + t * x.stride(1)), mask).to::<A>();
    let mut w = dy.load::<ROWS>([i]).to::<A>() * scale.to::<A>();
    if WEIGHED {
        w = w * load(weight + t, mask);
    }
    let lack = (margin.to::<A>() - own).col() + x.load::<ROWS, COLS>([i, j]).to::<A>();
    let most = if SQUARE { lack + lack } else { full::<A, ROWS, COLS>(A::ONE) };
    let slope = where_(lack <= A::ZERO, A::ZERO, most);
    // The place of the target among these columns, if it is there.
    let is_target = arange::<COLS>().to::<i32>().row() == (t - j).to::<i32>().col();
    let at_target = -slopes.load::<ROWS>([i]);
    dx.store([i, j], (where_(is_target, at_target.col(), slope) * w.col()).to::<T>());
}
