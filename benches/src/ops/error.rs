//! How far a result is from f64.

use genesis::Tensor;

/// The largest distance between two lists, relative to what is wanted or to `scale`, whichever is
/// larger. What is no number is infinitely far.
pub(crate) fn distance(got: &[f64], want: &[f64], scale: f64) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    let one = |(g, w): (&f64, &f64)| {
        let distance = (g - w).abs() / w.abs().max(scale).max(f64::MIN_POSITIVE);
        if g == w {
            0.0
        } else if distance.is_nan() {
            f64::INFINITY
        } else {
            distance
        }
    };
    got.iter().zip(want).map(one).fold(0.0, f64::max)
}

/// The largest distance that is not an error, given what the result is rounded to.
pub(crate) fn tolerance(precision: &str) -> f64 {
    match precision {
        "bf16" => 1e-2,
        "f16" => 2e-3,
        "tf32" => 4e-3,
        // Rounded to bf16, after sums of 13 bits.
        "f8e4m3" | "f8e5m2" => 2e-2,
        "f64" => 1e-12,
        _ => 2e-5,
    }
}

/// Up to `count` indices below `n`, the first and the last among them, spread unevenly so that they
/// fall on different lanes and tiles.
pub(crate) fn sample(n: usize, count: usize) -> Vec<usize> {
    if n <= count {
        return (0..n).collect();
    }
    let mut picked: Vec<usize> = (0..count).map(|i| (i * n / count + i * 37) % n).collect();
    picked.push(n - 1);
    picked.sort_unstable();
    picked.dedup();
    picked
}

/// Row `index` of a matrix as f64.
pub(crate) fn row(t: &Tensor, index: usize) -> genesis::Result<Vec<f64>> {
    t.narrow(0, index, 1)?.to_f64_vec()
}

/// Column `index` of a matrix as f64.
pub(crate) fn column(t: &Tensor, index: usize) -> genesis::Result<Vec<f64>> {
    t.narrow(1, index, 1)?.to_f64_vec()
}

/// The largest distance over sampled rows of a result; `want` makes a row.
pub(crate) fn check_rows(
    got: &Tensor,
    scale: f64,
    want: impl Fn(usize) -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<f64> {
    let mut worst = 0.0f64;
    for index in sample(got.shape()[0], 12) {
        worst = worst.max(distance(&row(got, index)?, &want(index)?, scale));
    }
    Ok(worst)
}
