//! f64 references that std has no function for.

/// The error function in f64: a series near 0, a continued fraction far away.
pub(in crate::ops) fn erf(x: f64) -> f64 {
    let z = x.abs();
    if x.is_nan() {
        return x;
    }
    if z > 6.0 {
        return x.signum();
    }
    if z < 2.5 {
        // Every term is positive: nothing cancels.
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term > sum * 1e-18 {
            n += 1.0;
            term *= 2.0 * z * z / (2.0 * n + 1.0);
            sum += term;
        }
        // The rounding of z * z would come back z * z times in the exponential.
        let square = z * z;
        let rest = z.mul_add(z, -square);
        return x.signum()
            * sum
            * (-square).exp()
            * (1.0 - rest)
            * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..=300).rev().fold(z, |f, k| z + f64::from(k) / 2.0 / f);
    x.signum() * (1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt()))
}

/// The complement of the error function: one minus a series near 0, a continued fraction far away.
pub(in crate::ops) fn erfc(x: f64) -> f64 {
    if x < 1.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-18 {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        return 1.0 - sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..=300).rev().fold(x, |f, k| x + f64::from(k) / 2.0 / f);
    (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
}

/// The rest that has the sign of the divisor.
pub(in crate::ops) fn remainder(x: f64, y: f64) -> f64 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

pub(in crate::ops) fn gcd(x: i64, y: i64) -> i64 {
    if y == 0 { x } else { gcd(y, x % y) }
}

/// By the recurrence down to `1..2`, where Lanczos' sum is the gamma function itself.
pub(in crate::ops) fn lgamma(x: f64) -> f64 {
    const SUM: [f64; 8] = [
        676.5203681218851,
        -1259.1392167224028,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507343278686905,
        -0.13857109526572012,
        9.984_369_578_019_572e-6,
        1.5056327351493116e-7,
    ];
    let (mut low, mut product) = (x, 1.0);
    while low >= 2.0 {
        low -= 1.0;
        product *= low;
    }
    let z = low - 1.0;
    let terms = SUM.iter().enumerate().map(|(i, c)| c / (z + i as f64 + 1.0));
    let sum = 0.999_999_999_999_809_9 + terms.sum::<f64>();
    let t = z + 7.5;
    let gamma = (2.0 * std::f64::consts::PI).sqrt() * t.powf(z + 0.5) * (-t).exp() * sum;
    (gamma * product).ln()
}

pub(in crate::ops) fn digamma(x: f64) -> f64 {
    let steps: f64 = (0..40).map(|k| 1.0 / (x + f64::from(k))).sum();
    let s = x + 40.0;
    let tail = 1.0 / (12.0 * s.powi(2)) - 1.0 / (120.0 * s.powi(4)) + 1.0 / (252.0 * s.powi(6));
    s.ln() - 0.5 / s - tail - steps
}

/// By halving: the error function grows.
pub(in crate::ops) fn erfinv(x: f64) -> f64 {
    let (mut low, mut high) = (-6.0, 6.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if erf(middle) < x { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}
