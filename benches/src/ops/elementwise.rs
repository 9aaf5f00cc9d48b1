//! Sums, activations, broadcasts and the copy of a transpose.

use genesis::{Result, Tensor, fuse};

use super::{Op, Prepared, Setup, check_rows, distance, row};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![
        Op { name: "add", work: |name| Work::elements(name, 3 * name.numel()), prepare: add },
        Op { name: "gelu", work: copy, prepare: |s| unary(s, Tensor::gelu, gelu) },
        Op { name: "silu", work: copy, prepare: |s| unary(s, Tensor::silu, silu) },
        Op { name: "exp", work: copy, prepare: |s| unary(s, Tensor::exp, f64::exp) },
        Op { name: "add_row", work: copy, prepare: |s| broadcast(s, true) },
        Op { name: "add_column", work: copy, prepare: |s| broadcast(s, false) },
        Op { name: "transpose", work: copy, prepare: transpose },
        Op {
            name: "fused_chain",
            work: |name| Work::elements(name, 3 * name.numel()),
            prepare: fused_chain,
        },
    ]
}

/// Each element read and written once.
fn copy(name: &CaseName) -> Work {
    Work::elements(name, 2 * name.numel())
}

fn add(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let sets = setup.each(|| Ok((setup.randn(&[m, n])?, setup.randn(&[m, n])?)))?;
    let op = |(x, y): &(Tensor, Tensor)| x.add(y);
    Prepared::new(sets, op, |(x, y), z| {
        check_rows(z, 1.0, |i| Ok(row(x, i)?.iter().zip(row(y, i)?).map(|(x, y)| x + y).collect()))
    })
}

fn unary(
    setup: &Setup<'_>,
    op: fn(&Tensor) -> Result<Tensor>,
    exact: fn(f64) -> f64,
) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let sets = setup.each(|| setup.randn(&[m, n]))?;
    Prepared::new(sets, op, |x, y| {
        check_rows(y, 1.0, |i| Ok(row(x, i)?.into_iter().map(exact).collect()))
    })
}

fn broadcast(setup: &Setup<'_>, along_row: bool) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let other = setup.randn(&if along_row { [1, n] } else { [m, 1] })?;
    let values = other.to_f64_vec()?;
    let sets = setup.each(|| setup.randn(&[m, n]))?;
    let op = move |x: &Tensor| x.add(&other);
    Prepared::new(sets, op, |x, y| {
        check_rows(y, 1.0, |i| {
            let value = |j: usize| values[if along_row { j } else { i }];
            Ok(row(x, i)?.iter().enumerate().map(|(j, x)| x + value(j)).collect())
        })
    })
}

fn transpose(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let sets = setup.each(|| setup.randn(&[m, n]))?;
    let op = |x: &Tensor| x.t()?.contiguous();
    Prepared::new(sets, op, |x, y| {
        // The host turns what it reads, so that the check does not use what it checks.
        let values = x.to_f64_vec()?;
        check_rows(y, 1.0, |j| Ok((0..m).map(|i| values[i * n + j]).collect()))
    })
}

/// Ten elementwise ops of two operands in one kernel.
fn fused_chain(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let n = setup.name.numel();
    let sets = setup.each(|| Ok((setup.randn(&[n])?, setup.randn(&[n])?)))?;
    let chain = fuse(|args| {
        let (x, y) = (&args[0], &args[1]);
        let gate = x.mul_scalar(1.5)?.add(y)?.sigmoid()?.mul(x)?;
        gate.sub_scalar(0.5)?.tanh()?.mul(y)?.add(x)?.relu()?.mul_scalar(0.25)
    });
    let op = move |(x, y): &(Tensor, Tensor)| chain.call(&[x, y]);
    Prepared::new(sets, op, |(x, y), z| {
        let exact = |x: f64, y: f64| {
            let gate = x / (1.0 + (-(1.5 * x + y)).exp());
            0.25 * ((gate - 0.5).tanh() * y + x).max(0.0)
        };
        // The ends and the middle.
        let mut worst = 0.0f64;
        for start in [0, n / 2, n.saturating_sub(500)] {
            let part = |t: &Tensor| t.narrow(0, start, 500.min(n - start))?.to_f64_vec();
            let want: Vec<f64> =
                part(x)?.into_iter().zip(part(y)?).map(|(x, y)| exact(x, y)).collect();
            worst = worst.max(distance(&part(z)?, &want, 1.0));
        }
        Ok(worst)
    })
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The exact form, by the error function.
pub(super) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// The error function by its Taylor series, exact to 1e-8 as far as it is used.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.2 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_right() {
        for (x, want) in
            [(0.5, 0.5204998778130465), (2.0, 0.9953222650189527), (-3.0, -0.9999779095030014)]
        {
            assert!((erf(x) - want).abs() < 1e-9, "{x}");
        }
    }
}
