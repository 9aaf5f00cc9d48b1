//! Elementwise functions of one and of two operands: kernels for dense tensors, and for any strides.
//!
//! Each is made of the language's own functions. `A` is what a launch computes in: f32 where that keeps
//! the result within 4 ULP, else f64, in which the steps of a formula leave no trace in an f32.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::lang::library::{off_whole, pow_wide};
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;
use crate::log_add::{log_add_of, log_add2_of};
use crate::special::{digamma_of, trigamma_of};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident, $flat:ident = |$x:ident| { $($body:tt)* })*) => {
        /// The kernels of one operand.
        pub static UNARY: &[&KernelDef] = &[$(&$name::KERNEL, &$flat::KERNEL),*];
        $(
            $(#[$doc])*
            #[kernel]
            pub fn $flat<T: Float, A: Float, const BLOCK: usize>(x: View<T, 1>, y: ViewMut<T, 1>) {
                let at = program_id(0) * BLOCK;
                let $x = x.load::<BLOCK>([at]).to::<A>();
                y.store([at], ($($body)*).to::<T>());
            }

            $(#[$doc])*
            #[kernel]
            pub fn $name<T: Float, A: Float, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: ViewMut<T, 4>) {
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
                let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<A>();
                y.store([a, b, i, j], ($($body)*).to::<T>());
            }
        )*
    };
}

unary! {
    /// The integer next to 0.
    trunc, trunc_flat = |v| { trunc(v) }
    /// What `trunc` takes away.
    frac, frac_flat = |v| { v - trunc(v) }
    /// One over x.
    reciprocal, reciprocal_flat = |v| { A::ONE / v }
    /// 2 to the power of x.
    exp2, exp2_flat = |v| { exp2(v) }
    /// `exp(x) - 1`
    expm1, expm1_flat = |v| { expm1(v) }
    /// The logarithm to base 2.
    log2, log2_flat = |v| { log2(v) }
    /// The logarithm to base 10.
    log10, log10_flat = |v| { log10(v) }
    /// `log(1 + x)`
    log1p, log1p_flat = |v| { log1p(v) }
    /// The tangent.
    tan, tan_flat = |v| { tan(v) }
    /// The arc sine.
    asin, asin_flat = |v| { asin(v) }
    /// The arc cosine.
    acos, acos_flat = |v| { acos(v) }
    /// The arc tangent.
    atan, atan_flat = |v| { atan(v) }
    /// The hyperbolic sine.
    sinh, sinh_flat = |v| { sinh(v) }
    /// The hyperbolic cosine.
    cosh, cosh_flat = |v| { cosh(v) }
    /// The inverse of the hyperbolic sine.
    asinh, asinh_flat = |v| { asinh(v) }
    /// The inverse of the hyperbolic cosine.
    acosh, acosh_flat = |v| { acosh(v) }
    /// The inverse of the hyperbolic tangent.
    atanh, atanh_flat = |v| { atanh(v) }
    /// `1 - erf(x)`
    erfc, erfc_flat = |v| { erfc(v) }
    /// The inverse of the error function.
    erfinv, erfinv_flat = |v| { erfinv(v) }
    /// The logarithm of the magnitude of the gamma function.
    lgamma, lgamma_flat = |v| { lgamma(v) }
    /// The derivative of the logarithm of the gamma function.
    digamma, digamma_flat = |v| { digamma_of(v) }
    /// The derivative of that.
    trigamma, trigamma_flat = |v| { trigamma_of(v) }
    /// The cardinal sine.
    sinc, sinc_flat = |v| { sinc_of(v) }
}

/// `sin(pi x) / (pi x)`
#[device]
pub fn sinc_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let angle = x * A::from(3.141592653589793);
    let sine = sin(off_whole(x) * A::from(3.141592653589793));
    let half = round(x) * A::from(0.5);
    let signed = where_(floor(half) == half, sine, -sine);
    // What a GPU's reciprocal has no normal number for is 1 anyway.
    where_(abs(x) < A::MIN_POSITIVE * A::from(4.0), A::ONE, signed * fast::recip(angle))
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $flat:ident: $bound:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {
        /// The kernels of two operands.
        pub static BINARY: &[&KernelDef] = &[$(&$name::KERNEL, &$flat::KERNEL),*];
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
        )*
    };
}

/// `x` to the power of `y`; where `T` has 16 bits the logarithm of the magnitude has digits enough.
#[device]
pub fn pow_of<T: Float, A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    if T::EPSILON > T::from(1e-5) { pow_wide(x, y, exp2(y * log2(abs(x)))) } else { pow(x, y) }
}

/// The rest of a division whose quotient is rounded down: it has the sign of the divisor.
#[device]
pub fn remainder_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let rest = x % y;
    where_((rest != A::ZERO) & ((rest < A::ZERO) != (y < A::ZERO)), rest + y, rest)
}

/// The quotient rounded down. Rounded to nearest it may have come up to an integer that it is below, which the sign of
/// the rest tells; where it is beside 0 the rest is `x`, also of an infinite divisor.
#[device]
pub fn floor_divide_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let quotient = x / y;
    let down = floor(quotient);
    let rest = where_(down == A::ZERO, x, fma(-down, y, x));
    let is_over = (rest != A::ZERO) & ((rest < A::ZERO) != (y < A::ZERO));
    let down = where_(is_over, down - A::ONE, down);
    where_(y == A::ZERO, quotient, where_(is_nan(rest), rest, down))
}

/// `x log(y)`; zero where x is, whatever y but NaN.
#[device]
pub fn xlogy_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    where_((x == A::ZERO) & !is_nan(y), A::ZERO, x * log(y))
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

/// Whether any of a tile's numbers holds.
#[device]
fn any_of<const ROWS: usize, const COLS: usize>(
    x: Tile<bool, (One, One, Dim<ROWS>, Dim<COLS>)>,
) -> bool {
    any(any(x.squeeze(0).squeeze(0), 1), 0)
}

/// Whether some of a tile's numbers have more bits than an f32 has digits.
#[device]
fn has_large<T: Int, const ROWS: usize, const COLS: usize>(
    x: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
    y: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
) -> bool {
    let limit = 1 << 24;
    let bits = (x.to::<i64>() + limit) | (y.to::<i64>() + limit);
    any_of((bits >> 25) != 0)
}

/// The greatest common divisor, by Euclid: as long as any of the tile is not found, two steps at a time. Numbers below
/// 2^24 are computed with as f32: a step takes a tenth of the instructions of a division of 64 bits.
#[device]
pub fn gcd_of<T: Int, const ROWS: usize, const COLS: usize>(
    x: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
    y: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
) -> Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)> {
    let mut a = x;
    let mut b = y;
    if has_large(x, y) {
        while any_of(b != T::ZERO) {
            for _ in range(0, 2, 1) {
                let rest = where_(b == T::ZERO, b, a % b);
                a = where_(b == T::ZERO, a, b);
                b = rest;
            }
        }
    } else {
        let mut u = abs(x.to::<i32>().to::<f32>());
        let mut v = abs(y.to::<i32>().to::<f32>());
        while any_of(v != 0.0) {
            for _ in range(0, 2, 1) {
                // To the nearest multiple or one beside it: that has the same divisors.
                let nearest = round(u * fast::recip(v));
                let rest = where_(v == 0.0, v, abs(fma(-nearest, v, u)));
                u = where_(v == 0.0, u, v);
                v = rest;
            }
        }
        a = u.to::<i32>().to::<T>();
    }
    abs(a)
}

/// The least common multiple; the product is divided first, so that it wraps no sooner than it must.
#[device]
pub fn lcm_of<T: Int, const ROWS: usize, const COLS: usize>(
    x: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
    y: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
) -> Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)> {
    let gcd = gcd_of(x, y);
    // The divisor of two zeros is 0.
    let divisor = maximum(gcd.to::<i32>().to::<f32>(), 1.0);
    let mut part = (x.to::<i32>().to::<f32>() / divisor).to::<i32>().to::<T>();
    if has_large(x, y) {
        part = x / gcd;
    }
    abs(part * y)
}

binary! {
    /// `x` to the power of `y`.
    pow, pow_flat: Float = |u, v| { pow_of::<T, A, _>(u, v) }
    /// The angle of the point `(y, x)`.
    atan2, atan2_flat: Float = |u, v| { atan2(u, v) }
    /// The rest of a truncated division; it has the sign of the dividend.
    fmod, fmod_flat: Float = |u, v| { u % v }
    /// The rest of a division rounded down.
    remainder, remainder_flat: Float = |u, v| { remainder_of(u, v) }
    /// The quotient rounded down.
    floor_divide, floor_divide_flat: Float = |u, v| { floor_divide_of(u, v) }
    /// The quotient without its fraction.
    trunc_divide, trunc_divide_flat: Float = |u, v| { trunc(u / v) }
    /// The length of a vector.
    hypot, hypot_flat: Float = |u, v| { hypot(u, v) }
    /// The logarithm of a sum of exponentials.
    logaddexp, logaddexp_flat: Float = |u, v| { log_add_of::<T, A, _>(u, v) }
    /// The logarithm to base 2 of a sum of powers of 2.
    logaddexp2, logaddexp2_flat: Float = |u, v| { log_add2_of::<T, A, _>(u, v) }
    /// `x log(y)`
    xlogy, xlogy_flat: Float = |u, v| { xlogy_of(u, v) }
    /// The magnitude of one with the sign of the other.
    copysign, copysign_flat: Float = |u, v| { copysign(u, v) }
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
    &int_gcd::KERNEL,
    &int_lcm::KERNEL,
    &shift_left::KERNEL,
    &shift_right::KERNEL,
];

macro_rules! int {
    ($($(#[$doc:meta])* $name:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Int, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: View<T, 4>, z: ViewMut<T, 4>) {
            let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
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
    /// The greatest common divisor.
    int_gcd = |u, v| { gcd_of(u, v) }
    /// The least common multiple.
    int_lcm = |u, v| { lcm_of(u, v) }
}

macro_rules! shift {
    ($($(#[$doc:meta])* $name:ident = |$x:ident, $y:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<const ROWS: usize, const COLS: usize>(x: View<i64, 4>, y: View<i64, 4>, z: ViewMut<i64, 4>) {
            let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
            let $x = x.load::<1, 1, ROWS, COLS>([a, b, i, j]);
            let $y = y.load::<1, 1, ROWS, COLS>([a, b, i, j]);
            z.store([a, b, i, j], $($body)*);
        }
    )*};
}

shift! {
    /// Bits moved up; none stays where that is by more than there are.
    shift_left = |u, v| { where_((v < 0) | (v > 63), 0, u << (v & 63)) }
    /// Bits moved down; the sign comes in from above.
    shift_right = |u, v| { u >> where_((v < 0) | (v > 63), 63, v) }
}
