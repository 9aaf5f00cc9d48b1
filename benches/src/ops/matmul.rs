//! Products of matrices, plain and as layers use them.

use genesis::ops::ScaledMatmul;
use genesis::{DType, MatmulPrecision, Tensor, set_matmul_precision};

use super::elementwise::gelu;
use super::{Op, Prepared, Setup, column, distance, row, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![
        Op { name: "matmul", work: square, prepare: matmul },
        Op { name: "linear", work: tall, prepare: linear },
        Op { name: "matmul_bias_gelu", work: square, prepare: matmul_bias_gelu },
    ]
}

/// `[m, n, k]` of a name with one extent for all, or three.
fn extents(name: &CaseName) -> (usize, usize, usize) {
    match name.dims[..] {
        [m, n, k] => (m, n, k),
        [m, n] => (m, n, n),
        _ => (name.dims[0], name.dims[0], name.dims[0]),
    }
}

fn square(name: &CaseName) -> Work {
    let (m, n, k) = extents(name);
    Work::product(name, m, n, k)
}

fn tall(name: &CaseName) -> Work {
    match name.dims[..] {
        [m, k, n] => Work::product(name, m, n, k),
        _ => Work::default(),
    }
}

/// `nn`, `nt` and `tn`: which operand is a view of its transpose; `nt/fast` adds 8-bit floats by tensor cores
/// alone. Products of i8 are i32.
fn matmul(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let precision = match setup.name.precision.as_str() {
        "tf32" => MatmulPrecision::Tf32,
        _ => MatmulPrecision::Ieee,
    };
    let (m, n, k) = extents(setup.name);
    let variant = setup.name.variant.as_str();
    let (order, fast) =
        variant.strip_suffix("/fast").map_or((variant, false), |order| (order, true));
    let (turn_a, turn_b) = match order {
        "" | "nn" => (false, false),
        "nt" => (false, true),
        "tn" => (true, false),
        "tt" => (true, true),
        other => anyhow::bail!("there are nn, nt, tn and tt, not {other}"),
    };
    let made = |rows: usize, columns: usize, turn: bool| {
        if turn { setup.randn(&[columns, rows])?.t() } else { setup.randn(&[rows, columns]) }
    };
    let sets = setup.each(|| Ok((made(m, k, turn_a)?, made(k, n, turn_b)?)))?;
    if setup.name.dtype().is_f8() {
        let one = Tensor::ones(&[1], setup.device)?;
        let options = ScaledMatmul { fast, ..ScaledMatmul::default() };
        let op = move |(a, b): &(Tensor, Tensor)| a.scaled_matmul(b, &one, &one, options);
        return Prepared::new(sets, op, |(a, b), c| check(a, b, c, |_, dot| dot));
    }
    if setup.name.dtype() == DType::I8 {
        return Prepared::new(sets, |(a, b)| a.int_mm(b), |(a, b), c| check(a, b, c, |_, dot| dot));
    }
    let op = move |(a, b): &(Tensor, Tensor)| {
        set_matmul_precision(precision);
        let product = a.matmul(b);
        set_matmul_precision(MatmulPrecision::Ieee);
        product
    };
    Prepared::new(sets, op, |(a, b), c| check(a, b, c, |_, dot| dot))
}

/// `x w^T`, with the weight as layers keep it: `[n, k]`.
fn linear(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, k, n) = setup.three()?;
    let sets = setup.each(|| Ok((setup.randn(&[m, k])?, setup.randn(&[n, k])?)))?;
    let op = |(x, w): &(Tensor, Tensor)| x.matmul(&w.t()?);
    Prepared::new(sets, op, |(x, w), y| check(x, &w.t()?, y, |_, dot| dot))
}

fn matmul_bias_gelu(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, n, k) = extents(setup.name);
    let bias = setup.randn(&[n])?;
    let values = bias.to_f64_vec()?;
    let sets = setup.each(|| Ok((setup.randn(&[m, k])?, setup.randn(&[k, n])?)))?;
    let op = move |(a, b): &(Tensor, Tensor)| a.matmul_bias_gelu(b, &bias);
    Prepared::new(sets, op, |(a, b), c| check(a, b, c, |j, dot| gelu(dot + values[j])))
}

/// Elements where sampled rows and columns cross; `finish` is what follows the product.
fn check(
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    finish: impl Fn(usize, f64) -> f64,
) -> anyhow::Result<f64> {
    let (m, n, k) = (a.shape()[0], b.shape()[1], a.shape()[1]);
    let columns: Vec<(usize, Vec<f64>)> = sample(n, 24)
        .into_iter()
        .map(|j| Ok((j, column(b, j)?)))
        .collect::<genesis::Result<_>>()?;
    let mut worst = 0.0f64;
    for i in sample(m, 24) {
        let (x, got) = (row(a, i)?, row(c, i)?);
        for (j, y) in &columns {
            let dot: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
            worst = worst.max(distance(&got[*j..=*j], &[finish(*j, dot)], (k as f64).sqrt()));
        }
    }
    Ok(worst)
}
