//! Comparisons of two tensors of one dtype, and of a tensor and a number; the result is bool.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;

macro_rules! compare {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident, $flat:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {
        /// Every kernel of this file.
        pub static KERNELS: &[&KernelDef] =
            &[$(&$name::KERNEL, &$scalar::KERNEL, &$flat::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $name<T: Number, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: View<T, 4>, z: ViewMut<bool, 4>) {
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]);
                let $y = y.load::<1, 1, ROWS, COLS>([a, b, i, j]);
                z.store([a, b, i, j], $($body)*);
            }

            $(#[$doc])*
            ///
            /// The second operand is a number.
            #[kernel]
            pub fn $scalar<T: Number, A: Number, const ROWS: usize, const COLS: usize>(x: View<T, 4>, z: ViewMut<bool, 4>, $y: A) {
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                let $y = full::<A, 1, 1, ROWS, COLS>($y);
                z.store([a, b, i, j], $($body)*);
            }

            $(#[$doc])*
            ///
            /// The second operand is a number; the first is dense.
            #[kernel]
            pub fn $flat<T: Number, A: Number, const BLOCK: usize>(x: View<T, 1>, z: ViewMut<bool, 1>, $y: A) {
                let at = program_id(0) * BLOCK;
                let $x = x.load::<BLOCK>([at]).to::<A>();
                let $y = full::<A, BLOCK>($y);
                z.store([at], $($body)*);
            }
        )*
    };
}

compare! {
    /// `x == y`
    eq, eq_scalar, eq_scalar_flat = |u, v| { u == v }
    /// `x != y`
    ne, ne_scalar, ne_scalar_flat = |u, v| { u != v }
    /// `x < y`
    lt, lt_scalar, lt_scalar_flat = |u, v| { u < v }
    /// `x <= y`
    le, le_scalar, le_scalar_flat = |u, v| { u <= v }
    /// `x > y`
    gt, gt_scalar, gt_scalar_flat = |u, v| { u > v }
    /// `x >= y`
    ge, ge_scalar, ge_scalar_flat = |u, v| { u >= v }
}
