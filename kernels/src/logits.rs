//! Losses of rows of logits, in whose place their gradients are written.
//!
//! ```text
//! y = cap tanh(x / cap)                    CAP: the soft cap, else y = x
//! L = log(sum(exp(y)))
//! hard = w[t] (L - y[t])                   WEIGH: a weight for each class, else w = 1
//! soft = sum(w (L - y)) / n                SMOOTH
//! loss = (1 - s) hard + s soft + z L^2
//!
//! dy[j] = exp(y[j] - L) ((1 - s) w[t] + s / n sum(w) + 2 z L) - [j == t] (1 - s) w[t] - s / n w[j]
//! dx = dy (1 - (y / cap)^2)
//! ```
//!
//! A row that fits the registers of a block, or of a cluster of blocks, is read once. A longer one is read twice, the second
//! time from its end, where the cache still has it.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::softmax::online;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&logit_losses::KERNEL, &logit_losses_kept::KERNEL, &scale_by::KERNEL];

/// A target that no column has is left in `flag`, as by `index::resolve`.
#[device]
pub fn note_target(t: i64, ignore: i64, n: i64, flag: PtrMut<i64>, code: i64) {
    if (t != ignore) & ((t < 0) | (t >= n)) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), t);
    }
}

/// `cap tanh(x / cap)` where `CAP`.
#[device]
pub fn soft_capped<A: Float, const N: usize, const CAP: usize>(
    x: Tile1<A, N>,
    cap: A,
) -> Tile1<A, N> {
    if CAP == 1 { tanh(x / cap) * cap } else { x }
}

/// The losses of rows of `x: [m, n]`, any `n`; with `GRAD` their gradients times `slope: [m]` take the place of `x`.
///
/// A row whose target is `ignore` has loss 0 and no gradient. `weight: [n]` counts where `WEIGH`.
#[kernel]
pub fn logit_losses<
    T: Float,
    A: Float,
    const COLS: usize,
    const LANES: usize,
    const WIDTH: usize,
    const GRAD: usize,
    const CAP: usize,
    const WEIGH: usize,
    const SMOOTH: usize,
>(
    x: ViewMut<T, 2>,
    target: View<i64, 1>,
    slope: View<A, 1>,
    weight: View<A, 1>,
    loss: ViewMut<A, 1>,
    ignore: i64,
    smoothing: A,
    z: A,
    cap: A,
    flag: PtrMut<i64>,
    code: i64,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let t = sum(target.load::<1>([i]), 0);
    note_target(t, ignore, n, flag, code);
    let mut at_target = sum(x.load::<1, 1>([i, t]).squeeze(0).to::<A>(), 0);
    if CAP == 1 {
        at_target = tanh(at_target / cap) * cap;
    }
    let mut tops = full::<A, LANES>(A::MIN);
    let mut totals = zeros::<A, LANES>();
    let mut weights = zeros::<A, LANES>();
    let mut spreads = zeros::<A, LANES>();
    for j in range(0, n, COLS) {
        let inside = j + arange::<COLS>() < n;
        let values = x.load::<1, COLS>([i, j]).squeeze(0).to::<A>();
        let y = soft_capped::<A, COLS, CAP>(values, cap);
        let v = where_(inside, y, A::NEG_INFINITY).reshape::<LANES, WIDTH>();
        let (top, total) = online(tops, totals, v);
        tops = top;
        totals = total;
        if SMOOTH == 1 {
            let of_class = weight.load::<COLS>([j]);
            let each = where_(inside, y, A::ZERO) * of_class;
            weights = weights + sum(of_class.reshape::<LANES, WIDTH>(), 1);
            spreads = spreads + sum(each.reshape::<LANES, WIDTH>(), 1);
        }
    }
    let top = max(tops, 0);
    let logsum = top + log(sum(totals * fast::exp(tops - top), 0));
    let mut hard = A::ONE - smoothing;
    if WEIGH == 1 {
        hard = hard * sum(weight.load::<1>([t]), 0);
    }
    let mut all = hard * (logsum - at_target) + z * logsum * logsum;
    let mut factor = hard + z * logsum * A::from(2.0);
    let share = smoothing / n.to::<A>();
    if SMOOTH == 1 {
        let of_classes = sum(weights, 0);
        all = all + (of_classes * logsum - sum(spreads, 0)) * share;
        factor = factor + of_classes * share;
    }
    loss.store([i], full::<A, 1>(where_(t == ignore, A::ZERO, all)));
    if GRAD == 1 {
        let scale = sum(slope.load::<1>([i]), 0);
        let pieces = cdiv(n, COLS);
        for k in range(0, pieces, 1) {
            let j = (pieces - 1 - k) * COLS;
            let values = x.load::<1, COLS>([i, j]).squeeze(0).to::<A>();
            let y = soft_capped::<A, COLS, CAP>(values, cap);
            // The place of the target in this piece, if it is there.
            let is_target = arange::<COLS>().to::<i32>() == (t - j).to::<i32>();
            let mut d = fast::exp(y - logsum) * factor - where_(is_target, hard, A::ZERO);
            if SMOOTH == 1 {
                d = d - weight.load::<COLS>([j]) * share;
            }
            if CAP == 1 {
                let part = y / cap;
                d = d * (A::ONE - part * part);
            }
            let dx = where_(t == ignore, A::ZERO, d * scale).to::<T>();
            x.store([i, j], dx.expand_dims(0));
        }
    }
}

/// [`logit_losses`] with gradients of rows of `n <= COLS` logits, `ROWS` of them a program, each read once: without a cap,
/// weights and smoothing.
#[kernel]
pub fn logit_losses_kept<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: ViewMut<T, 2>,
    target: View<i64, 1>,
    slope: View<A, 1>,
    loss: ViewMut<A, 1>,
    ignore: i64,
    z: A,
    flag: PtrMut<i64>,
    code: i64,
) {
    let i = program_id(0) * ROWS;
    let n = x.dim(1);
    let t = target.load::<ROWS>([i]);
    let there = (i + arange::<ROWS>()) < x.dim(0);
    let is_wrong = there & (t != ignore) & ((t < 0) | (t >= n));
    if any(is_wrong, 0) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(where_(is_wrong, t, i64::MIN), 0));
    }
    let columns = arange::<COLS>();
    let v = where_((columns < n).row(), x.load::<ROWS, COLS>([i, 0]), T::NEG_INFINITY).to::<A>();
    let is_target = columns.to::<i32>().row() == t.to::<i32>().col();
    let at_target = sum(where_(is_target, v, A::ZERO), 1);
    let top = max(v, 1);
    let logsum = top + log(sum(fast::exp(v - top.col()), 1));
    let counts = t != ignore;
    loss.store([i], where_(counts, logsum - at_target + z * logsum * logsum, A::ZERO));
    let factor = z * logsum * A::from(2.0) + A::ONE;
    let d = fast::exp(v - logsum.col()) * factor.col() - where_(is_target, A::ONE, A::ZERO);
    let dx = where_(counts.col(), d * slope.load::<ROWS>([i]).col(), A::ZERO);
    x.store([i, 0], dx.to::<T>());
}

/// `x = x * by[0]`
#[kernel]
pub fn scale_by<T: Float, A: Float, const BLOCK: usize>(x: ViewMut<T, 1>, by: View<A, 1>) {
    let i = program_id(0) * BLOCK;
    let factor = sum(by.load::<1>([0]), 0);
    x.store([i], (x.load::<BLOCK>([i]).to::<A>() * factor).to::<T>());
}
