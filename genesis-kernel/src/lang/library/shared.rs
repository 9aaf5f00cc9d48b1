//! What formulas for f32 and those for f64 are both made of.

use genesis_macros::device;

use super::super::Tile;

/// Whether the sign bit is set, of zeros too.
#[device]
pub fn is_negative<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<bool, S> {
    (x < A::ZERO) | ((x == A::ZERO) & (A::ONE / x < A::ZERO))
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
pub fn erfc_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
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
