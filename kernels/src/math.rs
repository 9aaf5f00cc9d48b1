//! Elementwise functions of one and of two operands, for any strides.
//!
//! Each is made of the language's own functions. `A` is what a launch computes in: f32 where that keeps
//! the result within 4 ULP, else f64, in which the steps of a formula leave no trace in an f32. Formulas
//! are chosen so that they lose no more than a few bits: where a difference would cancel stands a series.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;

/// `atan(t)` for `t >= 0`: by a difference of angles the argument comes below `tan(pi / 8)`, where a
/// series of 21 terms is exact for f64.
///
/// `atan(t) = pi / 4 + atan((t - 1) / (t + 1)) = pi / 2 - atan(1 / t)`
#[device]
pub fn atan_size<A: Float, S: Shape>(t: Tile<A, S>) -> Tile<A, S> {
    let is_far = t > A::from(2.414213562373095);
    let is_middle = t > A::from(0.4142135623730951);
    let small = where_(is_middle, (t - A::ONE) / (t + A::ONE), t);
    let small = where_(is_far, A::ZERO - A::ONE / t, small);
    let turn = where_(is_middle, A::from(0.7853981633974483), A::ZERO);
    let turn = where_(is_far, A::from(1.5707963267948966), turn);
    let z = -(small * small);
    let p = z * A::from(0.024390243902439025) + A::from(0.02564102564102564);
    let p = p * z + A::from(0.027027027027027029);
    let p = p * z + A::from(0.028571428571428571);
    let p = p * z + A::from(0.030303030303030304);
    let p = p * z + A::from(0.032258064516129031);
    let p = p * z + A::from(0.034482758620689655);
    let p = p * z + A::from(0.037037037037037035);
    let p = p * z + A::from(0.040000000000000001);
    let p = p * z + A::from(0.043478260869565216);
    let p = p * z + A::from(0.047619047619047616);
    let p = p * z + A::from(0.052631578947368418);
    let p = p * z + A::from(0.058823529411764705);
    let p = p * z + A::from(0.066666666666666666);
    let p = p * z + A::from(0.076923076923076927);
    let p = p * z + A::from(0.090909090909090912);
    let p = p * z + A::from(0.1111111111111111);
    let p = p * z + A::from(0.14285714285714285);
    let p = p * z + A::from(0.20000000000000001);
    let p = p * z + A::from(0.33333333333333331);
    turn + (p * z * small + small)
}

/// The arc tangent.
#[device]
pub fn atan_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let angle = atan_size(abs(x));
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
    let near = atan_size(ratio);
    let angle = where_(is_steep, A::from(1.5707963267948966) - near, near);
    let angle = where_(is_negative(x), A::from(3.141592653589793) - angle, angle);
    let angle = where_(is_negative(y), -angle, angle);
    where_(is_nan(x) | is_nan(y), x + y, angle)
}

/// `exp(x) - 1`, by the series where the difference would have fewer digits than the exponential.
#[device]
pub fn expm1_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let p = x * A::from(4.1103176233121648e-19) + A::from(8.2206352466243295e-18);
    let p = p * x + A::from(1.5619206968586225e-16);
    let p = p * x + A::from(2.8114572543455206e-15);
    let p = p * x + A::from(4.7794773323873853e-14);
    let p = p * x + A::from(7.6471637318198164e-13);
    let p = p * x + A::from(1.1470745597729725e-11);
    let p = p * x + A::from(1.6059043836821613e-10);
    let p = p * x + A::from(2.08767569878681e-09);
    let p = p * x + A::from(2.505210838544172e-08);
    let p = p * x + A::from(2.7557319223985888e-07);
    let p = p * x + A::from(2.7557319223985893e-06);
    let p = p * x + A::from(2.4801587301587302e-05);
    let p = p * x + A::from(0.00019841269841269841);
    let p = p * x + A::from(0.0013888888888888889);
    let p = p * x + A::from(0.0083333333333333332);
    let p = p * x + A::from(0.041666666666666664);
    let p = p * x + A::from(0.16666666666666666);
    let p = p * x + A::from(0.5);
    let near = p * x * x + x;
    let is_near = (x > A::from(-0.7)) & (x < A::from(1.1));
    // The sum loses the sign of a zero.
    where_(x == A::ZERO, x, where_(is_near, near, exp(x) - A::ONE))
}

/// `log(1 + x)`: what rounding `1 + x` lost is put back as a factor.
#[device]
pub fn log1p_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let u = x + A::ONE;
    let exact = log(u) * (x / (u - A::ONE));
    where_(u == A::ONE, x, where_(is_inf(u) & (u > A::ZERO), u, exact))
}

/// The hyperbolic sine; far out `e / 2 * exp(|x| - 1)`, which overflows where it has to.
#[device]
pub fn sinh_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let e = expm1_of(abs(x));
    let near = (e + e / (e + A::ONE)) * A::from(0.5);
    let far = exp(abs(x) - A::ONE) * A::from(1.3591409142295225);
    let size = where_(abs(x) > A::from(20.0), far, near);
    where_(x < A::ZERO, -size, where_(x == A::ZERO, x, size))
}

/// The hyperbolic cosine.
#[device]
pub fn cosh_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let e = exp(where_(size < A::from(2.0), size, A::ZERO));
    let near = (e + A::ONE / e) * A::from(0.5);
    let h = exp(size - A::ONE);
    let far = h * A::from(1.3591409142295225) + A::from(0.18393972058572117) / h;
    where_(size < A::from(2.0), near, far)
}

/// The inverse of the hyperbolic sine.
#[device]
pub fn asinh_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let near = log1p_of(size + size * size / (A::ONE + sqrt(A::ONE + size * size)));
    // Where the square would overflow or the one is lost in it.
    let far = log(size) + A::from(0.6931471805599453);
    let result = where_(size > A::from(1e9), far, near);
    where_(x < A::ZERO, -result, where_(x == A::ZERO, x, result))
}

/// The inverse of the hyperbolic cosine; NaN below 1.
#[device]
pub fn acosh_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let t = x - A::ONE;
    let near = log1p_of(t + sqrt(t * (t + A::from(2.0))));
    let far = log(x) + A::from(0.6931471805599453);
    let result = where_(x > A::from(1e9), far, near);
    where_(x < A::ONE, (x - x) / (x - x), result)
}

/// The inverse of the hyperbolic tangent; NaN beyond 1.
#[device]
pub fn atanh_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let result = log1p_of(size * A::from(2.0) / (A::ONE - size)) * A::from(0.5);
    where_(x < A::ZERO, -result, where_(x == A::ZERO, x, result))
}

/// `exp(x^2) erfc(x)` for `0.46875 <= x <= 4`, by the quotient of two polynomials.
///
/// Source: W. J. Cody, Rational Chebyshev approximations for the error function, 1969.
#[device]
pub fn erfc_middle<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let n = x * A::from(2.153115354744038e-8) + A::from(0.5641884969886701);
    let n = fma(n, x, full_like(x, A::from(8.883149794388377)));
    let n = fma(n, x, full_like(x, A::from(66.11919063714163)));
    let n = fma(n, x, full_like(x, A::from(298.6351381974001)));
    let n = fma(n, x, full_like(x, A::from(881.952221241769)));
    let n = fma(n, x, full_like(x, A::from(1712.0476126340707)));
    let n = fma(n, x, full_like(x, A::from(2051.0783778260716)));
    let n = fma(n, x, full_like(x, A::from(1230.3393547979972)));
    let d = x + A::from(15.744926110709835);
    let d = fma(d, x, full_like(x, A::from(117.6939508913125)));
    let d = fma(d, x, full_like(x, A::from(537.18110186201)));
    let d = fma(d, x, full_like(x, A::from(1621.3895745666903)));
    let d = fma(d, x, full_like(x, A::from(3290.7992357334597)));
    let d = fma(d, x, full_like(x, A::from(4362.619090143247)));
    let d = fma(d, x, full_like(x, A::from(3439.3676741437216)));
    let d = fma(d, x, full_like(x, A::from(1230.3393548037495)));
    n / d
}

/// `exp(x^2) erfc(x)` for `x >= 4`, with `z = 1 / x^2`; from the same source.
#[device]
pub fn erfc_far<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let z = A::ONE / (x * x);
    let n = z * A::from(0.016315387137302097) + A::from(0.30532663496123236);
    let n = n * z + A::from(0.36034489994980445);
    let n = n * z + A::from(0.12578172611122926);
    let n = n * z + A::from(0.016083785148742275);
    let n = n * z + A::from(0.0006587491615298378);
    let d = z + A::from(2.568520192289822);
    let d = d * z + A::from(1.8729528499234604);
    let d = d * z + A::from(0.5279051029514285);
    let d = d * z + A::from(0.06051834131244132);
    let d = d * z + A::from(0.0023352049762686918);
    (A::from(0.5641895835477563) - z * n / d) / x
}

/// `1 - erf(x)`; from one half on by itself, where the difference would cancel.
#[device]
pub fn erfc_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let near = minimum(maximum(x, A::from(0.46875)), A::from(4.0));
    let far = minimum(maximum(x, A::from(4.0)), A::from(30.0));
    let scaled = where_(x > A::from(4.0), erfc_far(far), erfc_middle(near));
    // What rounding the square lost would come back as many times as it is large.
    let size = minimum(maximum(x, A::ZERO), A::from(30.0));
    let square = size * size;
    let rest = fma(size, size, -square);
    let tail = exp(-square) * scaled;
    let tail = tail - tail * rest;
    where_(x > A::from(0.46875), tail, A::ONE - erf(x))
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = |$x:ident| { $($body:tt)* })*) => {
        /// The kernels of one operand.
        pub static UNARY: &[&KernelDef] = &[$(&$name::KERNEL),*];
        $(
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
    /// The inverse of the hyperbolic sine.
    asinh = |v| { asinh_of(v) }
    /// The inverse of the hyperbolic cosine.
    acosh = |v| { acosh_of(v) }
    /// The inverse of the hyperbolic tangent.
    atanh = |v| { atanh_of(v) }
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
                let (a, b, i, j) = tile_origin::<ROWS, COLS>(z.dim(1), z.dim(2), z.dim(3));
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

/// The rest of a division whose quotient is rounded down: it has the sign of the divisor.
#[device]
pub fn remainder_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let rest = x % y;
    where_((rest != A::ZERO) & ((rest < A::ZERO) != (y < A::ZERO)), rest + y, rest)
}

/// The quotient rounded down, such that `x = quotient * y + remainder`.
#[device]
pub fn floor_divide_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let rest = x % y;
    let quotient = (x - rest) / y;
    let is_over = (rest != A::ZERO) & ((rest < A::ZERO) != (y < A::ZERO));
    let quotient = where_(is_over, quotient - A::ONE, quotient);
    let down = floor(quotient);
    let down = where_(quotient - down > A::from(0.5), down + A::ONE, down);
    where_(y == A::ZERO, x / y, where_(quotient == A::ZERO, x / y * A::ZERO, down))
}

/// The length of the vector `(x, y)`, which overflows only where it has to.
#[device]
pub fn hypot_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let (u, v) = (abs(x), abs(y));
    let (large, small) = (maximum_num(u, v), minimum_num(u, v));
    let ratio = where_(large == A::ZERO, large, small / large);
    let length = large * sqrt(A::ONE + ratio * ratio);
    let length = where_(is_nan(x) | is_nan(y), x + y, length);
    where_(is_inf(x), u, where_(is_inf(y), v, length))
}

/// `log(exp(x) + exp(y))`, which does not overflow.
#[device]
pub fn log_add_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let distance = where_(x == y, A::ZERO, abs(x - y));
    maximum(x, y) + log1p_of(exp(-distance))
}

/// `x log(y)`; zero where x is, whatever y but NaN.
#[device]
pub fn xlogy_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    where_((x == A::ZERO) & !is_nan(y), A::ZERO, x * log(y))
}

/// The magnitude of `x` with the sign bit of `y`, that of a zero or of NaN too.
#[device]
pub fn copysign_of<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    where_(bitcast::<i64>(y.to::<f64>()) < 0, -size, size)
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

/// The greatest common divisor, by Euclid: 64 bits take at most 92 steps, those of the numbers of
/// Fibonacci. Most take a tenth of that, so whether any is left is asked every fourth.
#[device]
pub fn gcd_of<T: Int, const ROWS: usize, const COLS: usize>(
    x: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
    y: Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)>,
) -> Tile<T, (One, One, Dim<ROWS>, Dim<COLS>)> {
    let mut a = x;
    let mut b = y;
    for _ in range(0, 23, 1) {
        let is_left = (b != T::ZERO).squeeze(0).squeeze(0);
        if any(any(is_left, 1), 0) {
            for _ in range(0, 4, 1) {
                let rest = where_(b == T::ZERO, b, a % b);
                a = where_(b == T::ZERO, a, b);
                b = rest;
            }
        }
    }
    abs(a)
}

binary! {
    /// `x` to the power of `y`.
    pow: Float = |u, v| { pow_of(u, v) }
    /// The angle of the point `(y, x)`.
    atan2: Float = |u, v| { atan2_of(u, v) }
    /// The rest of a truncated division; it has the sign of the dividend.
    fmod: Float = |u, v| { u % v }
    /// The rest of a division rounded down.
    remainder: Float = |u, v| { remainder_of(u, v) }
    /// The quotient rounded down.
    floor_divide: Float = |u, v| { floor_divide_of(u, v) }
    /// The quotient without its fraction.
    trunc_divide: Float = |u, v| { trunc(u / v) }
    /// The length of a vector.
    hypot: Float = |u, v| { hypot_of(u, v) }
    /// The logarithm of a sum of exponentials.
    logaddexp: Float = |u, v| { log_add_of(u, v) }
    /// `x log(y)`
    xlogy: Float = |u, v| { xlogy_of(u, v) }
    /// The magnitude of one with the sign of the other.
    copysign: Float = |u, v| { copysign_of(u, v) }
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
    int_lcm = |u, v| { abs(u / gcd_of(u, v) * v) }
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
