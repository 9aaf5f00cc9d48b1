//! Comparisons of two tensors of one dtype; the result is bool.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;

macro_rules! compare {
    ($($(#[$doc:meta])* $name:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {
        /// Every kernel of this file.
        pub static KERNELS: &[&KernelDef] = &[$(&$name::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $name<T: Number, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: View<T, 4>, z: ViewMut<bool, 4>) {
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]);
                let $y = y.load::<1, 1, ROWS, COLS>([a, b, i, j]);
                z.store([a, b, i, j], $($body)*);
            }
        )*
    };
}

compare! {
    /// `x == y`
    eq = |u, v| { u == v }
    /// `x != y`
    ne = |u, v| { u != v }
    /// `x < y`
    lt = |u, v| { u < v }
    /// `x <= y`
    le = |u, v| { u <= v }
    /// `x > y`
    gt = |u, v| { u > v }
    /// `x >= y`
    ge = |u, v| { u >= v }
}
