//! Initial values that are computed on the host: truncated normals, orthogonal and sparse matrices.

use super::{put, wants};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Fills with normal values of this mean and standard deviation, those outside of `[low, high]` drawn
/// again.
///
/// PyTorch's defaults are 0, 1, -2 and 2; bounds are values, not numbers of deviations.
///
/// # Errors
/// If the dtype is not a float, `std` is not positive or `low` is over `high`.
pub fn trunc_normal_(t: &Tensor, mean: f64, std: f64, [low, high]: [f64; 2]) -> Result<()> {
    if std.is_nan() || std <= 0.0 || low.is_nan() || high.is_nan() || low > high {
        let message = format!("can't draw from [{low}, {high}] with a deviation of {std}");
        return Err(Error::op("trunc_normal_", message));
    }
    // The inverse of the distribution, of values uniform between those of the bounds.
    let (from, to) = (normal_cdf((low - mean) / std), normal_cdf((high - mean) / std));
    let uniform = Tensor::rand(t.shape(), t.device())?.to_f64_vec()?;
    let value = |u: f64| (mean + std * normal_quantile(from + u * (to - from))).clamp(low, high);
    let values: Vec<f64> = uniform.into_iter().map(value).collect();
    put(t, |at| Tensor::from_f64(&values, t.shape(), at))
}

/// The share of a standard normal distribution below x.
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
    // Integrating the density by Simpson's rule over the part that counts is exact enough here: 2^-50.
    let (end, steps) = (z.min(6.5), 4096);
    let h = end / f64::from(steps);
    let density = |i: i32| (-(h * f64::from(i)).powi(2)).exp();
    let inner: f64 = (1..steps).map(|i| if i % 2 == 1 { 4.0 } else { 2.0 } * density(i)).sum();
    let erf = std::f64::consts::FRAC_2_SQRT_PI * h / 3.0 * (density(0) + inner + density(steps));
    if x < 0.0 { 0.5 * (1.0 - erf) } else { 0.5 * (1.0 + erf) }
}

/// The value below which this share of a standard normal distribution lies.
///
/// Source: Wichura, "Algorithm AS 241", Applied Statistics 37 (1988).
fn normal_quantile(p: f64) -> f64 {
    let rational = |x: f64, above: &[f64; 8], below: &[f64; 8]| {
        let horner = |c: &[f64; 8]| c.iter().rev().fold(0.0, |sum, &c| sum * x + c);
        horner(above) / horner(below)
    };
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        return q * rational(0.180625 - q * q, &CENTER[0], &CENTER[1]);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    let r = (-tail.max(f64::MIN_POSITIVE).ln()).sqrt();
    let value = match r <= 5.0 {
        true => rational(r - 1.6, &MIDDLE[0], &MIDDLE[1]),
        false => rational(r - 5.0, &TAIL[0], &TAIL[1]),
    };
    if q < 0.0 { -value } else { value }
}

/// Numerator and denominator near one half.
const CENTER: [[f64; 8]; 2] = [
    [
        3.387_132_872_796_366_6,
        1.331_416_678_917_843_8e2,
        1.971_590_950_306_551_4e3,
        1.373_169_376_550_946e4,
        4.592_195_393_154_987e4,
        6.726_577_092_700_87e4,
        3.343_057_558_358_813e4,
        2.509_080_928_730_122_7e3,
    ],
    [
        1.0,
        4.231_333_070_160_091e1,
        6.871_870_074_920_579e2,
        5.394_196_021_424_751e3,
        2.121_379_430_158_659_6e4,
        3.930_789_580_009_271e4,
        2.872_908_573_572_194_3e4,
        5.226_495_278_852_854e3,
    ],
];
/// Numerator and denominator away from one half.
const MIDDLE: [[f64; 8]; 2] = [
    [
        1.423_437_110_749_683_6,
        4.630_337_846_156_545,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        2.417_807_251_774_506e-1,
        2.272_384_498_926_918_5e-2,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        6.897_673_349_851e-1,
        1.481_039_764_274_800_8e-1,
        1.519_866_656_361_645_7e-2,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_8e-9,
    ],
];
/// Numerator and denominator far away.
const TAIL: [[f64; 8]; 2] = [
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        2.965_605_718_285_048_7e-1,
        2.653_218_952_657_612_4e-2,
        1.242_660_947_388_078_4e-3,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        5.998_322_065_558_88e-1,
        1.369_298_809_227_358e-1,
        1.487_536_129_085_061_5e-2,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_8e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
];

/// Fills with a matrix, the axes behind the first joined, whose rows are orthonormal, or its columns
/// where it is higher than wide, times `gain`.
///
/// # Errors
/// If the rank is below 2.
/// # Source
/// arXiv:1312.6120.
pub fn orthogonal_(t: &Tensor, gain: f64) -> Result<()> {
    if t.rank() < 2 {
        return Err(wants("orthogonal_", "at least 2 dimension(s)", t));
    }
    let rows = t.shape()[0];
    let cols = t.numel().checked_div(rows).unwrap_or(0);
    let (count, length) = (rows.min(cols), rows.max(cols));
    let random = Tensor::randn(&[count, length], (t.dtype(), t.device()))?.to_f64_vec()?;
    let mut vectors: Vec<Vec<f64>> = random.chunks(length.max(1)).map(<[f64]>::to_vec).collect();
    for index in 0..count {
        // Twice is enough for what rounding leaves over.
        for _ in 0..2 {
            let (done, rest) = vectors.split_at_mut(index);
            for other in done.iter() {
                let dot: f64 = other.iter().zip(&rest[0]).map(|(a, b)| a * b).sum();
                rest[0].iter_mut().zip(other).for_each(|(v, o)| *v -= dot * o);
            }
            let norm = rest[0].iter().map(|v| v * v).sum::<f64>().sqrt();
            rest[0].iter_mut().for_each(|v| *v /= norm);
        }
    }
    let at = |row: usize, col: usize| match rows <= cols {
        true => gain * vectors[row][col],
        false => gain * vectors[col][row],
    };
    let values: Vec<f64> = (0..rows * cols).map(|i| at(i / cols, i % cols)).collect();
    put(t, |at| Tensor::from_f64(&values, t.shape(), at))
}

/// Fills a matrix with normal values, in each column this share of them zero.
///
/// # Errors
/// If it is not a matrix or the share is not in `[0, 1]`.
pub fn sparse_(t: &Tensor, sparsity: f64, std: f64) -> Result<()> {
    let &[rows, _] = t.shape() else { return Err(wants("sparse_", "a matrix", t)) };
    if !(0.0..=1.0).contains(&sparsity) {
        return Err(Error::op("sparse_", format!("the share must be in [0, 1], got {sparsity}")));
    }
    let zeros = (sparsity * rows as f64).ceil();
    put(t, |at| {
        // The order of random numbers is a random permutation of each column.
        let order = Tensor::rand(t.shape(), t.device())?.argsort(0, false)?;
        Tensor::normal(t.shape(), 0.0, std, at)?.masked_fill(&order.lt_scalar(zeros)?, 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_is_the_inverse_of_the_distribution() {
        assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-14);
        assert!((normal_quantile(1e-10) + 6.361_340_902_404_056).abs() < 1e-13);
        for x in [-5.0, -3.0, -1.2, -0.3, 0.0, 0.7, 2.5, 4.0] {
            assert!((normal_quantile(normal_cdf(x)) - x).abs() < 1e-7, "{x}");
        }
    }
}
