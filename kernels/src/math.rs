//! Elementwise functions of one and of two operands, for any strides.
//!
//! Each is made of the language's own functions. Launches compute 16-bit floats and f32 in f64, so that
//! the steps of a formula leave no trace in the result; formulas are chosen so that f64 itself loses no
//! more than a few bits: where a difference would cancel stands a series.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::corner;

/// `atan(t)` for `0 <= t <= 1`: the argument is halved twice, then a series.
///
/// `atan(t) = 2 atan(t / (1 + sqrt(1 + t^2)))`, so that `|t| <= 0.199` and twelve terms do.
#[device]
pub fn atan_unit<A: Float, S: Shape>(t: Tile<A, S>) -> Tile<A, S> {
    let h = t / (A::ONE + sqrt(A::ONE + t * t));
    let h = h / (A::ONE + sqrt(A::ONE + h * h));
    let z = -(h * h);
    let p = z * A::from(0.043478260869565216) + A::from(0.047619047619047616);
    let p = p * z + A::from(0.05263157894736842);
    let p = p * z + A::from(0.058823529411764705);
    let p = p * z + A::from(0.06666666666666667);
    let p = p * z + A::from(0.07692307692307693);
    let p = p * z + A::from(0.09090909090909091);
    let p = p * z + A::from(0.1111111111111111);
    let p = p * z + A::from(0.14285714285714285);
    let p = p * z + A::from(0.2);
    let p = p * z + A::from(0.3333333333333333);
    h * (p * z + A::ONE) * A::from(4.0)
}

/// The arc tangent.
#[device]
pub fn atan_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let is_far = size > A::ONE;
    let near = atan_unit(where_(is_far, A::ONE / size, size));
    let angle = where_(is_far, A::from(1.5707963267948966) - near, near);
    where_(x < A::ZERO, -angle, where_(x == A::ZERO, x, angle))
}

/// Whether the sign bit is set, of zeros too.
#[device]
pub fn is_negative<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<bool, S> {
    (x < A::ZERO) | ((x == A::ZERO) & (A::ONE / x < A::ZERO))
}

/// The angle of the point `(x, y)`.
#[device]
pub fn atan2_of<A: Float, S: Shape>(y: Tile<A, S>, x: Tile<A, S>) -> Tile<A, S> {
    let (up, across) = (abs(y), abs(x));
    let is_steep = up > across;
    let (small, large) = (where_(is_steep, across, up), where_(is_steep, up, across));
    let ratio = where_(is_inf(small), A::ONE, small / large);
    let ratio = where_(large == A::ZERO, large, ratio);
    let near = atan_unit(ratio);
    let angle = where_(is_steep, A::from(1.5707963267948966) - near, near);
    let angle = where_(is_negative(x), A::from(3.141592653589793) - angle, angle);
    let angle = where_(is_negative(y), -angle, angle);
    where_(is_nan(x) | is_nan(y), x + y, angle)
}

/// `exp(x) - 1`, by the series near 0.
#[device]
pub fn expm1_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let p = x * A::from(7.647163731819816e-13) + A::from(1.1470745597729725e-11);
    let p = p * x + A::from(1.6059043836821613e-10);
    let p = p * x + A::from(2.08767569878681e-9);
    let p = p * x + A::from(2.505210838544172e-8);
    let p = p * x + A::from(2.755731922398589e-7);
    let p = p * x + A::from(2.7557319223985893e-6);
    let p = p * x + A::from(2.48015873015873e-5);
    let p = p * x + A::from(1.984126984126984e-4);
    let p = p * x + A::from(1.388888888888889e-3);
    let p = p * x + A::from(8.333333333333333e-3);
    let p = p * x + A::from(4.1666666666666664e-2);
    let p = p * x + A::from(1.6666666666666666e-1);
    let p = p * x + A::from(0.5);
    let near = p * x * x + x;
    where_(abs(x) < A::from(0.5), near, exp(x) - A::ONE)
}

/// `log(1 + x)`: what rounding `1 + x` lost is put back as a factor.
#[device]
pub fn log1p_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let u = x + A::ONE;
    let exact = log(u) * (x / (u - A::ONE));
    where_(u == A::ONE, x, where_(is_inf(u), u, exact))
}

/// The hyperbolic sine.
#[device]
pub fn sinh_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let e = expm1_of(abs(x));
    let near = (e + e / (e + A::ONE)) * A::from(0.5);
    let h = exp(abs(x) * A::from(0.5));
    let size = where_(abs(x) > A::from(20.0), h * A::from(0.5) * h, near);
    where_(x < A::ZERO, -size, where_(x == A::ZERO, x, size))
}

/// The hyperbolic cosine.
#[device]
pub fn cosh_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let h = exp(abs(x) * A::from(0.5));
    h * A::from(0.5) * h + A::from(0.5) / h / h
}

/// `1 - erf(x)`; far out by a continued fraction, where the difference would cancel: 110 terms are f64's
/// precision from 1.25 on.
#[device]
pub fn erfc_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let far = maximum(x, A::from(1.25));
    let mut fraction = far;
    for k in range(0, 110, 1) {
        let half = A::from(110 - k) * A::from(0.5);
        fraction = far + full_like(far, half) / fraction;
    }
    let tail = exp(-(far * far)) / fraction * A::from(0.5641895835477563);
    where_(x > A::from(1.25), tail, A::ONE - erf(x))
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = |$x:ident| { $($body:tt)* })*) => {
        /// The kernels of one operand.
        pub static UNARY: &[&KernelDef] = &[$(&$name::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $name<T: Float, A: Float, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: ViewMut<T, 4>) {
                let (a, b, i, j) = corner::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                y.store([a, b, i, j], ($($body)*).to::<T>());
            }
        )*
    };
}

unary! {
    /// The integer next to 0.
    trunc = |v| { trunc(v) }
    /// What `trunc` takes away.
    frac = |v| { v - trunc(v) }
    /// One over x.
    reciprocal = |v| { A::ONE / v }
    /// 2 to the power of x.
    exp2 = |v| { exp2(v) }
    /// `exp(x) - 1`
    expm1 = |v| { expm1_of(v) }
    /// The logarithm to base 2.
    log2 = |v| { log2(v) }
    /// The logarithm to base 10.
    log10 = |v| { log(v) * A::from(0.4342944819032518) }
    /// `log(1 + x)`
    log1p = |v| { log1p_of(v) }
    /// The tangent.
    tan = |v| { sin(v) / cos(v) }
    /// The arc sine.
    asin = |v| { atan_of(v / sqrt((A::ONE - v) * (A::ONE + v))) }
    /// The arc cosine.
    acos = |v| { atan_of(sqrt((A::ONE - v) / (A::ONE + v))) * A::from(2.0) }
    /// The arc tangent.
    atan = |v| { atan_of(v) }
    /// The hyperbolic sine.
    sinh = |v| { sinh_of(v) }
    /// The hyperbolic cosine.
    cosh = |v| { cosh_of(v) }
    /// `1 - erf(x)`
    erfc = |v| { erfc_of(v) }
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {
        /// The kernels of two operands.
        pub static BINARY: &[&KernelDef] = &[$(&$name::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $name<T: $bound, A: $bound, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: View<T, 4>, z: ViewMut<T, 4>) {
                let (a, b, i, j) = corner::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                let $y = y.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                z.store([a, b, i, j], ($($body)*).to::<T>());
            }
        )*
    };
}

/// `x` to the power of `y` for floats: by logarithms of the magnitude, with the sign of whole powers.
#[device]
pub fn pow_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let size = exp2(y * log2(abs(x)));
    let is_whole = floor(y) == y;
    let half = y * A::from(0.5);
    let is_odd = is_whole & (floor(half) != half);
    let signed = where_(is_odd & is_negative(x), -size, size);
    // A negative number has only whole powers; an infinite exponent counts as even.
    let signed = where_((x < A::ZERO) & !is_whole & !is_inf(x), (x - x) / (x - x), signed);
    let signed = where_((abs(x) == A::ONE) & is_inf(y), A::ONE + x - x, signed);
    where_((y == A::ZERO) | (x == A::ONE), A::ONE, where_(y == A::ONE, x, signed))
}

/// The rest of a truncated division, exact: each step takes away a multiple of the divisor without
/// rounding, and makes what is left smaller by the precision of a quotient.
#[device]
pub fn rest_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let size = abs(y);
    let mut rest = abs(x);
    for _ in range(0, 5, 1) {
        let next = fma(-trunc(rest / size), size, rest);
        let next = where_(next < A::ZERO, next + size, next);
        rest = where_(next >= size, next - size, next);
    }
    let rest = where_(is_inf(y) & is_finite(x), abs(x), rest);
    where_(is_negative(x), -rest, rest)
}

/// The rest of a division whose quotient is rounded down: it has the sign of the divisor.
#[device]
pub fn remainder_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let rest = rest_of(x, y);
    where_((rest != A::ZERO) & ((rest < A::ZERO) != (y < A::ZERO)), rest + y, rest)
}

/// The quotient rounded down, such that `x = quotient * y + remainder`.
#[device]
pub fn floor_divide_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let rest = rest_of(x, y);
    let quotient = (x - rest) / y;
    let is_over = (rest != A::ZERO) & ((rest < A::ZERO) != (y < A::ZERO));
    let quotient = where_(is_over, quotient - A::ONE, quotient);
    let down = floor(quotient);
    let down = where_(quotient - down > A::from(0.5), down + A::ONE, down);
    where_(y == A::ZERO, x / y, where_(quotient == A::ZERO, x / y * A::ZERO, down))
}

/// An integer to the power of another by squaring; of a negative power what truncation leaves.
#[device]
pub fn int_pow_of<T: Int, S: Shape>(x: Tile<T, S>, y: Tile<T, S>) -> Tile<T, S> {
    let mut result = full_like(x, T::ONE);
    let mut base = x;
    let mut left = y;
    for _ in range(0, 6, 1) {
        result = where_((left & T::ONE) == T::ONE, result * base, result);
        base = base * base;
        left = left / (T::ONE + T::ONE);
    }
    let is_odd = (y & T::ONE) == T::ONE;
    let minus_one = T::ZERO - T::ONE;
    let unit =
        where_(x == T::ONE, x, where_(x == minus_one, where_(is_odd, x, T::ZERO - x), x - x));
    where_(y < T::ZERO, unit, result)
}

binary! {
    /// `x` to the power of `y`.
    pow: Float = |u, v| { pow_of(u, v) }
    /// The angle of the point `(y, x)`.
    atan2: Float = |u, v| { atan2_of(u, v) }
    /// The rest of a truncated division; it has the sign of the dividend.
    fmod: Float = |u, v| { rest_of(u, v) }
    /// The rest of a division rounded down.
    remainder: Float = |u, v| { remainder_of(u, v) }
    /// The quotient rounded down.
    floor_divide: Float = |u, v| { floor_divide_of(u, v) }
    /// The quotient without its fraction.
    trunc_divide: Float = |u, v| { trunc(u / v) }
}

/// The kernels of integers and bools.
pub static INT: &[&KernelDef] = &[
    &int_pow::KERNEL,
    &int_fmod::KERNEL,
    &int_remainder::KERNEL,
    &int_floor_divide::KERNEL,
    &int_trunc_divide::KERNEL,
    &bit_and::KERNEL,
    &bit_or::KERNEL,
    &bit_xor::KERNEL,
];

macro_rules! int {
    ($($(#[$doc:meta])* $name:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Int, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: View<T, 4>, z: ViewMut<T, 4>) {
            let (a, b, i, j) = corner::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
            let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]);
            let $y = y.load::<1, 1, ROWS, COLS>([a, b, i, j]);
            z.store([a, b, i, j], $($body)*);
        }
    )*};
}

int! {
    /// `x` to the power of `y`.
    int_pow = |u, v| { int_pow_of(u, v) }
    /// The rest of a truncated division.
    int_fmod = |u, v| { u % v }
    /// The rest of a division rounded down.
    int_remainder = |u, v| {
        where_((u % v != T::ZERO) & ((u % v < T::ZERO) != (v < T::ZERO)), u % v + v, u % v)
    }
    /// The quotient rounded down.
    int_floor_divide = |u, v| {
        where_((u % v != T::ZERO) & ((u % v < T::ZERO) != (v < T::ZERO)), u / v - T::ONE, u / v)
    }
    /// The quotient without its fraction.
    int_trunc_divide = |u, v| { u / v }
    /// Bit by bit: both.
    bit_and = |u, v| { u & v }
    /// Bit by bit: either.
    bit_or = |u, v| { u | v }
    /// Bit by bit: one of the two.
    bit_xor = |u, v| { u ^ v }
}
