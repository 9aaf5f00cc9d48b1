//! Softmax and its logarithm along the last axis.
//!
//! Statistics are in `A` (f32 for 16-bit dtypes). A row that fits one block is read once; a longer
//! one is read twice: first for the running maximum and sum, then for the result.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&softmax::KERNEL, &softmax_long::KERNEL, &log_softmax::KERNEL, &log_softmax_long::KERNEL];

/// Softmax of each row of `x: [m, n]` with `n <= COLS`.
#[kernel]
pub fn softmax<T: Float, A: Float, const COLS: usize>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let i = program_id(0);
    let inside = arange::<COLS>().row() < x.dim(1);
    let v = where_(inside, x.load::<1, COLS>([i, 0]).to::<A>(), A::NEG_INFINITY);
    let e = exp(v - max(v, 1).col());
    // One division a row, not one an element.
    let scale = full::<A, 1>(A::ONE) / sum(e, 1);
    y.store([i, 0], (e * scale.col()).to::<T>());
}

/// Log-softmax of each row of `x: [m, n]` with `n <= COLS`.
#[kernel]
pub fn log_softmax<T: Float, A: Float, const COLS: usize>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let i = program_id(0);
    let inside = arange::<COLS>().row() < x.dim(1);
    let v = where_(inside, x.load::<1, COLS>([i, 0]).to::<A>(), A::NEG_INFINITY);
    let d = v - max(v, 1).col();
    y.store([i, 0], (d - log(sum(exp(d), 1)).col()).to::<T>());
}

macro_rules! long {
    ($($(#[$doc:meta])* $name:ident = |$v:ident, $top:ident, $total:ident, $scale:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Float, A: Float, const COLS: usize>(x: View<T, 2>, y: ViewMut<T, 2>) {
            let i = program_id(0);
            let n = x.dim(1);
            let mut m = full::<A, 1, COLS>(A::NEG_INFINITY);
            for j in range(0, n, COLS) {
                let inside = (j + arange::<COLS>()).row() < n;
                m = maximum(m, where_(inside, x.load::<1, COLS>([i, j]).to::<A>(), A::NEG_INFINITY));
            }
            let $top = max(m, 1).col();
            let mut acc = zeros::<A, 1, COLS>();
            for j in range(0, n, COLS) {
                let inside = (j + arange::<COLS>()).row() < n;
                let v = where_(inside, x.load::<1, COLS>([i, j]).to::<A>(), A::NEG_INFINITY);
                acc = acc + exp(v - $top);
            }
            let $total = sum(acc, 1);
            let $scale = (full::<A, 1>(A::ONE) / $total).col();
            let $total = log($total).col();
            for j in range(0, n, COLS) {
                let $v = x.load::<1, COLS>([i, j]).to::<A>();
                y.store([i, j], ($($body)*).to::<T>());
            }
        }
    )*};
}

long! {
    /// Softmax of each row of `x: [m, n]`, any `n`.
    softmax_long = |v, top, _log_total, scale| { exp(v - top) * scale }
    /// Log-softmax of each row of `x: [m, n]`, any `n`.
    log_softmax_long = |v, top, log_total, _scale| { v - top - log_total }
}
