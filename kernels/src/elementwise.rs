//! Elementwise arithmetic: each op's maths is one `#[device]` function or one expression, and gets two
//! kernels, for dense tensors and for any strides; of two operands, the second may also be one row or one
//! column of a matrix, which has kernels of its own.
//!
//! The dense form walks one axis; the strided form walks four (the framework joins axes that lie
//! dense and cuts tensors of more).

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::{matrix_tile_origin, tile_origin};

/// Exact GELU: `x * Phi(x)`.
#[device]
pub fn gelu_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    x * A::from(0.5) * (erf(x * A::from(0.7071067811865476)) + A::ONE)
}

/// The derivative of exact GELU: `Phi(x) + x * phi(x)`.
#[device]
pub fn gelu_slope_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let cdf = (erf(x * A::from(0.7071067811865476)) + A::ONE) * A::from(0.5);
    cdf + x * exp(x * x * A::from(-0.5)) * A::from(0.3989422804014327)
}

/// `x * sigmoid(x)`.
#[device]
pub fn silu_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    x * sigmoid(x)
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident, $flat:ident: $bound:ident = |$x:ident| { $($body:tt)* })*) => {
        /// The kernels of one operand.
        pub static UNARY: &[&KernelDef] = &[$(&$name::KERNEL, &$flat::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $flat<T: $bound, A: $bound, const BLOCK: usize>(x: View<T, 1>, y: ViewMut<T, 1>) {
                let at = program_id(0) * BLOCK;
                let $x = x.load::<BLOCK>([at]).to::<A>();
                y.store([at], ($($body)*).to::<T>());
            }

            $(#[$doc])*
            #[kernel]
            pub fn $name<T: $bound, A: $bound, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: ViewMut<T, 4>) {
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                y.store([a, b, i, j], ($($body)*).to::<T>());
            }
        )*
    };
}

unary! {
    /// `-x`
    neg, neg_flat: Number = |v| { -v }
    /// `|x|`
    abs, abs_flat: Number = |v| { abs(v) }
    /// The larger of `x` and 0.
    relu, relu_flat: Number = |v| { where_(v < A::ZERO, A::ZERO, v) }
    /// The square root.
    sqrt, sqrt_flat: Float = |v| { sqrt(v) }
    /// One over the square root.
    rsqrt, rsqrt_flat: Float = |v| { rsqrt(v) }
    /// e to the power of x.
    exp, exp_flat: Float = |v| { exp(v) }
    /// The natural logarithm.
    log, log_flat: Float = |v| { log(v) }
    /// The sine.
    sin, sin_flat: Float = |v| { sin(v) }
    /// The cosine.
    cos, cos_flat: Float = |v| { cos(v) }
    /// The hyperbolic tangent.
    tanh, tanh_flat: Float = |v| { tanh(v) }
    /// The error function.
    erf, erf_flat: Float = |v| { erf(v) }
    /// `1 / (1 + exp(-x))`
    sigmoid, sigmoid_flat: Float = |v| { sigmoid(v) }
    /// Exact GELU.
    gelu, gelu_flat: Float = |v| { gelu_of(v) }
    /// The derivative of exact GELU.
    gelu_slope, gelu_slope_flat: Float = |v| { gelu_slope_of(v) }
    /// `x * sigmoid(x)`
    silu, silu_flat: Float = |v| { silu_of(v) }
    /// The largest integer that is not larger.
    floor, floor_flat: Float = |v| { floor(v) }
    /// The smallest integer that is not smaller.
    ceil, ceil_flat: Float = |v| { ceil(v) }
    /// The nearest integer, ties to even.
    round, round_flat: Float = |v| { round(v) }
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $flat:ident, $row:ident, $column:ident: $bound:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {
        /// The kernels of two operands.
        pub static BINARY: &[&KernelDef] =
            &[$(&$name::KERNEL, &$flat::KERNEL, &$row::KERNEL, &$column::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $flat<T: $bound, A: $bound, const BLOCK: usize>(x: View<T, 1>, y: View<T, 1>, z: ViewMut<T, 1>) {
                let at = program_id(0) * BLOCK;
                let $x = x.load::<BLOCK>([at]).to::<A>();
                let $y = y.load::<BLOCK>([at]).to::<A>();
                z.store([at], ($($body)*).to::<T>());
            }

            $(#[$doc])*
            #[kernel]
            pub fn $name<T: $bound, A: $bound, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: View<T, 4>, z: ViewMut<T, 4>) {
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                let $y = y.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                z.store([a, b, i, j], ($($body)*).to::<T>());
            }

            $(#[$doc])*
            ///
            /// The second operand is one row.
            #[kernel]
            pub fn $row<T: $bound, A: $bound, const ROWS: usize, const COLS: usize>(x: View<T, 2>, y: View<T, 1>, z: ViewMut<T, 2>) {
                let (i, j) = matrix_tile_origin::<ROWS, COLS>(z.dim(1));
                let $x = x.load::<ROWS, COLS>([i, j]).to::<A>();
                let $y = y.load::<COLS>([j]).to::<A>().row();
                z.store([i, j], ($($body)*).to::<T>());
            }

            $(#[$doc])*
            ///
            /// The second operand is one column.
            #[kernel]
            pub fn $column<T: $bound, A: $bound, const ROWS: usize, const COLS: usize>(x: View<T, 2>, y: View<T, 1>, z: ViewMut<T, 2>) {
                let (i, j) = matrix_tile_origin::<ROWS, COLS>(z.dim(1));
                let $x = x.load::<ROWS, COLS>([i, j]).to::<A>();
                let $y = y.load::<ROWS>([i]).to::<A>().col();
                z.store([i, j], ($($body)*).to::<T>());
            }
        )*
    };
}

binary! {
    /// `x + y`
    add, add_flat, add_row, add_column: Number = |u, v| { u + v }
    /// `x - y`
    sub, sub_flat, sub_row, sub_column: Number = |u, v| { u - v }
    /// `x * y`
    mul, mul_flat, mul_row, mul_column: Number = |u, v| { u * v }
    /// `x / y`; integers truncate.
    div, div_flat, div_row, div_column: Number = |u, v| { u / v }
    /// The larger; NaN wins.
    maximum, maximum_flat, maximum_row, maximum_column: Number = |u, v| { maximum(u, v) }
    /// The smaller; NaN wins.
    minimum, minimum_flat, minimum_row, minimum_column: Number = |u, v| { minimum(u, v) }
}

macro_rules! scalar {
    ($($(#[$doc:meta])* $name:ident, $flat:ident: $bound:ident = |$x:ident, $c:ident| { $($body:tt)* })*) => {
        /// The kernels of a tensor and a number.
        pub static SCALAR: &[&KernelDef] = &[$(&$name::KERNEL, &$flat::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $flat<T: $bound, A: $bound, const BLOCK: usize>(x: View<T, 1>, y: ViewMut<T, 1>, $c: A) {
                let at = program_id(0) * BLOCK;
                let $x = x.load::<BLOCK>([at]).to::<A>();
                let $c = full::<A, BLOCK>($c);
                y.store([at], ($($body)*).to::<T>());
            }

            $(#[$doc])*
            #[kernel]
            pub fn $name<T: $bound, A: $bound, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: ViewMut<T, 4>, $c: A) {
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                let $c = full::<A, 1, 1, ROWS, COLS>($c);
                y.store([a, b, i, j], ($($body)*).to::<T>());
            }
        )*
    };
}

scalar! {
    /// `x + c`
    add_scalar, add_scalar_flat: Number = |v, c| { v + c }
    /// `x * c`
    mul_scalar, mul_scalar_flat: Number = |v, c| { v * c }
    /// `x / c`
    div_scalar, div_scalar_flat: Number = |v, c| { v / c }
    /// `c / x`
    rdiv_scalar, rdiv_scalar_flat: Number = |v, c| { c / v }
    /// The larger of `x` and `c`; NaN wins.
    maximum_scalar, maximum_scalar_flat: Number = |v, c| { maximum(v, c) }
    /// The smaller of `x` and `c`; NaN wins.
    minimum_scalar, minimum_scalar_flat: Number = |v, c| { minimum(v, c) }
}
