//! Sine and cosine of large arguments, by the bits of 2/pi that matter (Payne and Hanek).
//!
//! Of `x = m 2^k` with an integer `m` only `x 2/pi` modulo 4 counts, and bits of 2/pi whose product with
//! `m 2^k` is a multiple of 4 need not be looked at. The next 192 bits leave the quarter turn and, even for
//! the f64 that is nearest to a multiple of pi/2, 64 right bits of what is left.
//!
//! The algorithm is written once, over [`Steps`]: the interpreter computes with numbers, code generation
//! with values of LLVM, and both get the same bits.

use super::DType;
use std::ops::Div;

/// Larger magnitudes of f64 are far.
pub(crate) const FAR: f64 = (1u64 << 45) as f64;

/// Larger magnitudes of f32 are.
pub(crate) const FAR_SINGLE: f64 = (3u64 << 15) as f64;

/// The largest magnitude of this dtype that is not far.
pub(crate) fn limit(dtype: DType) -> f64 {
    if dtype == DType::F64 { FAR } else { FAR_SINGLE }
}

/// `sin r = r + r t P(t)`, `t = r^2`, for `|r| <= 0.8`: 2^-57.6.
pub(crate) const SIN: &[f64] = &[
    -0.1666666666666662,
    0.008333333333319759,
    -0.0001984126982767859,
    2.7557312951118133e-06,
    -2.5050641793790318e-08,
    1.5890036490086252e-10,
];

/// `cos r = 1 - t/2 + t^2 P(t)` for the same `r`: 2^-63.5.
pub(crate) const COS: &[f64] = &[
    0.041666666666666574,
    -0.0013888888888869777,
    2.4801587286788738e-05,
    -2.75573135797237e-07,
    2.0875618946430443e-09,
    -1.1354280223221573e-11,
];

/// Zeros, since the first bits wanted may stand before the point, then the bits of 2/pi.
const TWO_OVER_PI: [u64; 20] = [
    0,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
];

/// pi/2 times 2^63.
const HALF_PI: u64 = 0xc90fdaa22168c234;

/// What the algorithm is written with: words of 64 bits, f64 and conditions.
pub(crate) trait Steps {
    /// A word.
    type Word: Copy;
    /// An f64.
    type Float: Copy;
    /// A condition.
    type Cond: Copy;

    /// A constant.
    fn word(&self, value: u64) -> Self::Word;
    /// A constant.
    fn float(&self, value: f64) -> Self::Float;
    /// The sum, wrapped.
    fn add(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// The difference, wrapped.
    fn sub(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// The lower half of the product.
    fn mul(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// The upper half of the product.
    fn mul_hi(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// Bits that are in both.
    fn and(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// Bits that are in either.
    fn or(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// Bits that are in one of the two.
    fn xor(&self, a: Self::Word, b: Self::Word) -> Self::Word;
    /// Shifted up by less than 64.
    fn shl(&self, a: Self::Word, by: Self::Word) -> Self::Word;
    /// Shifted down by less than 64.
    fn shr(&self, a: Self::Word, by: Self::Word) -> Self::Word;
    /// How many of the highest bits are zero.
    fn leading_zeros(&self, a: Self::Word) -> Self::Word;
    /// Whether `a < b`, without signs.
    fn less(&self, a: Self::Word, b: Self::Word) -> Self::Cond;
    /// One of two words.
    fn choose(&self, cond: Self::Cond, a: Self::Word, b: Self::Word) -> Self::Word;
    /// The nearest f64 to a word without a sign.
    fn rounded(&self, a: Self::Word) -> Self::Float;
    /// The f64 of these bits.
    fn of_bits(&self, a: Self::Word) -> Self::Float;
    /// The bits of an f64.
    fn bits(&self, a: Self::Float) -> Self::Word;
    /// The rounded product.
    fn times(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a b + c`, rounded once.
    fn fma(&self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
}

/// The sine of an f64 beyond [`FAR`], after as many more quarter turns; NaN of an infinity. Of others the
/// result is some number.
pub(crate) fn sine<S: Steps>(s: &S, x: S::Float, quarters: u64) -> S::Float {
    let bits = s.bits(x);
    let exponent = s.and(s.shr(bits, s.word(52)), s.word(0x7ff));
    let (fraction, one) = (s.word((1 << 52) - 1), s.word(1 << 52));
    let m = s.or(s.and(bits, fraction), one);
    // `x = m 2^k` with `k = exponent - 1075`: the first `k - 2` bits of 2/pi give multiples of 4, and 64
    // zeros stand before them.
    let skipped = s.sub(exponent, s.word(1075 + 2 - 64));
    let [w0, w1, w2] = window(s, skipped);
    let p2 = s.mul(m, w2);
    let low = s.mul(m, w1);
    let p1 = s.add(low, s.mul_hi(m, w2));
    let carry = s.choose(s.less(p1, low), s.word(1), s.word(0));
    let p0 = s.add(s.add(s.mul(m, w0), s.mul_hi(m, w1)), carry);

    // Two bits of quarter turns, then the part of one; the nearest multiple goes.
    let quarter = s.shr(p0, s.word(62));
    let up = |high, low| s.or(s.shl(high, s.word(2)), s.shr(low, s.word(62)));
    let (f0, f1) = (up(p0, p1), up(p1, p2));
    let is_over = s.shr(f0, s.word(63));
    let flip = s.sub(s.word(0), is_over);
    let (f0, f1) = (s.xor(f0, flip), s.xor(f1, flip));
    let quarter = s.add(s.add(quarter, is_over), s.word(quarters));

    // No f64 is so near to a multiple of pi/2 that the upper word were zero.
    let zeros = s.and(s.leading_zeros(f0), s.word(63));
    let rest = s.shr(s.shr(f1, s.word(1)), s.sub(s.word(63), zeros));
    let digits = s.or(s.shl(f0, zeros), rest);
    let angle = s.rounded(s.mul_hi(digits, s.word(HALF_PI)));
    let scale = s.shl(s.sub(s.word(1023 - 63), zeros), s.word(52));
    let scale = s.or(scale, s.shl(is_over, s.word(63)));
    let r = s.times(angle, s.of_bits(scale));

    let t = s.times(r, r);
    let sine = s.times(r, s.fma(poly(s, t, SIN), t, s.float(1.0)));
    let inner = s.fma(poly(s, t, COS), t, s.float(-0.5));
    let cosine = s.fma(inner, t, s.float(1.0));
    let is_even = s.less(s.and(quarter, s.word(1)), s.word(1));
    let value = s.choose(is_even, s.bits(sine), s.bits(cosine));
    let sign = s.shl(s.shr(quarter, s.word(1)), s.word(63));
    // The cosine of a negative number is that of the positive one.
    let own = match quarters % 2 {
        0 => s.shl(s.shr(bits, s.word(63)), s.word(63)),
        _ => s.word(0),
    };
    let value = s.xor(s.xor(value, sign), own);
    let is_finite = s.less(exponent, s.word(0x7ff));
    s.of_bits(s.choose(is_finite, value, s.word(f64::NAN.to_bits())))
}

/// 192 bits of 2/pi, behind as many.
fn window<S: Steps>(s: &S, skipped: S::Word) -> [S::Word; 3] {
    let mut words: Vec<S::Word> = TWO_OVER_PI.iter().map(|&word| s.word(word)).collect();
    // Four words from the one where they begin, chosen bit by bit of its number.
    for bit in (0..5).rev() {
        let is_zero = s.less(s.and(skipped, s.word(64 << bit)), s.word(1));
        let kept = 4 + (1 << bit) - 1;
        let later = |i: usize| words.get(i + (1 << bit)).copied().unwrap_or(s.word(0));
        words = (0..kept.min(words.len())).map(|i| s.choose(is_zero, words[i], later(i))).collect();
    }
    let by = s.and(skipped, s.word(63));
    let down = s.sub(s.word(63), by);
    let at = |i: usize| s.or(s.shl(words[i], by), s.shr(s.shr(words[i + 1], s.word(1)), down));
    [at(0), at(1), at(2)]
}

/// `c[0] + c[1] t + c[2] t^2 + ..`, by Horner's rule.
fn poly<S: Steps>(s: &S, t: S::Float, coefficients: &[f64]) -> S::Float {
    let coefficients = coefficients.iter().rev().map(|&c| s.float(c));
    coefficients.reduce(|sum, c| s.fma(sum, t, c)).unwrap_or(t)
}

/// With numbers.
struct Numbers;

impl Steps for Numbers {
    type Word = u64;
    type Float = f64;
    type Cond = bool;

    fn word(&self, value: u64) -> u64 {
        value
    }
    fn float(&self, value: f64) -> f64 {
        value
    }
    fn add(&self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }
    fn sub(&self, a: u64, b: u64) -> u64 {
        a.wrapping_sub(b)
    }
    fn mul(&self, a: u64, b: u64) -> u64 {
        a.wrapping_mul(b)
    }
    fn mul_hi(&self, a: u64, b: u64) -> u64 {
        ((u128::from(a) * u128::from(b)) >> 64) as u64
    }
    fn and(&self, a: u64, b: u64) -> u64 {
        a & b
    }
    fn or(&self, a: u64, b: u64) -> u64 {
        a | b
    }
    fn xor(&self, a: u64, b: u64) -> u64 {
        a ^ b
    }
    fn shl(&self, a: u64, by: u64) -> u64 {
        a << (by & 63)
    }
    fn shr(&self, a: u64, by: u64) -> u64 {
        a >> (by & 63)
    }
    fn leading_zeros(&self, a: u64) -> u64 {
        u64::from(a.leading_zeros())
    }
    fn less(&self, a: u64, b: u64) -> bool {
        a < b
    }
    fn choose(&self, cond: bool, a: u64, b: u64) -> u64 {
        if cond { a } else { b }
    }
    fn rounded(&self, a: u64) -> f64 {
        a as f64
    }
    fn of_bits(&self, a: u64) -> f64 {
        f64::from_bits(a)
    }
    fn bits(&self, a: f64) -> u64 {
        a.to_bits()
    }
    fn times(&self, a: f64, b: f64) -> f64 {
        a * b
    }
    fn fma(&self, a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
}

/// The sine after as many more quarter turns of what is far for the dtype that it came from, else zero.
pub(super) fn sine_of(dtype: DType, x: f64, quarters: u64) -> f64 {
    if x.abs() > limit(dtype) { sine(&Numbers, x, quarters) } else { 0.0 }
}

/// The tangent as the quotient of what [`sine_of`] gives, or zero where both are.
pub(super) fn quotient<T: PartialEq + Default + Div<Output = T>>(sine: T, cosine: T) -> T {
    if cosine == T::default() { T::default() } else { sine / cosine }
}

#[cfg(test)]
mod tests;
