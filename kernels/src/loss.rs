//! Cross entropy of rows of logits against class indices.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::softmax::online;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&cross_entropy::KERNEL, &cross_entropy_bwd::KERNEL];

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
