//! Cross entropy of rows of logits against class indices.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&cross_entropy::KERNEL, &cross_entropy_bwd::KERNEL];

/// `loss[i] = log(sum(exp(x[i, ..]))) - x[i, target[i]]`, and that logarithm for the backward.
///
/// A row whose target is `ignore` has loss 0.
#[kernel]
pub fn cross_entropy<T: Float, A: Float, const COLS: usize>(
    x: View<T, 2>,
    target: View<i64, 1>,
    loss: ViewMut<A, 1>,
    lse: ViewMut<A, 1>,
    ignore: i64,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let mut m = full::<A, 1, COLS>(A::NEG_INFINITY);
    for j in range(0, n, COLS) {
        let inside = (j + arange::<COLS>()).row() < n;
        m = maximum(m, where_(inside, x.load::<1, COLS>([i, j]).to::<A>(), A::NEG_INFINITY));
    }
    let top = max(m, 1);
    let t = target.load::<1>([i]);
    let mut total = zeros::<A, 1, COLS>();
    let mut at = zeros::<A, 1, COLS>();
    for j in range(0, n, COLS) {
        let col = (j + arange::<COLS>()).row();
        let v = x.load::<1, COLS>([i, j]).to::<A>();
        total = total + where_(col < n, exp(v - top.col()), A::ZERO);
        at = at + where_(col == t.col(), v, A::ZERO);
    }
    let logsum = top + log(sum(total, 1));
    loss.store([i], where_(t == ignore, A::ZERO, logsum - sum(at, 1)));
    lse.store([i], logsum);
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
    let col = (j + arange::<COLS>()).row();
    let t = target.load::<1>([i]);
    let scale = where_(t == ignore, A::ZERO, dy.load::<1>([i]));
    let p = exp(x.load::<1, COLS>([i, j]).to::<A>() - lse.load::<1>([i]).col());
    let d = p - where_(col == t.col(), A::ONE, A::ZERO);
    dx.store([i, j], (d * scale.col()).to::<T>());
}
