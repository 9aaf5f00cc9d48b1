//! Softmax, norms and cross entropy: ops along the rows of a matrix.

use genesis::autograd::BackwardOptions;
use genesis::ops::Reduction;
use genesis::{DType, Tensor};
use rayon::prelude::*;

use super::{Op, Prepared, Setup, check_rows, column, distance, row, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    let twice = |name: &CaseName| Work::elements(name, 2 * name.numel());
    let thrice = |name: &CaseName| Work::elements(name, 3 * name.numel());
    let losses = |name: &CaseName| {
        Work::elements(name, if name.variant == "fwd" { 1 } else { 3 } * name.numel())
    };
    vec![
        Op { name: "softmax", work: twice, prepare: softmax },
        Op { name: "layer_norm", work: twice, prepare: |s| norm(s, Norm::Layer) },
        Op { name: "rms_norm", work: twice, prepare: |s| norm(s, Norm::Rms) },
        Op { name: "layer_norm_bwd", work: thrice, prepare: |s| norm_bwd(s, Norm::Layer) },
        Op { name: "rms_norm_bwd", work: thrice, prepare: |s| norm_bwd(s, Norm::Rms) },
        Op { name: "cross_entropy", work: losses, prepare: cross_entropy },
    ]
}

/// A backward that may run again on the same graph.
const AGAIN: BackwardOptions = BackwardOptions { retain_graph: true, create_graph: false };

const EPS: f64 = 1e-5;

fn softmax(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let sets = setup.each(|| setup.randn(&[m, n]))?;
    let op = |x: &Tensor| x.softmax(-1);
    Prepared::new(sets, op, |x, y| check_rows(y, 0.0, |i| Ok(softmax_of(&row(x, i)?))))
}

fn softmax_of(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = row.iter().map(|x| (x - top).exp()).sum();
    row.iter().map(|x| (x - top).exp() / total).collect()
}

/// Which norm.
#[derive(Clone, Copy, PartialEq)]
enum Norm {
    Layer,
    Rms,
}

/// The mean that is taken off a row, and what it is multiplied by.
fn statistics(norm: Norm, row: &[f64]) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = if norm == Norm::Layer { row.iter().sum::<f64>() / n } else { 0.0 };
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (variance + EPS).sqrt())
}

/// Weight and bias of a norm; RMS norm uses only the weight.
#[derive(Clone)]
struct Params {
    norm: Norm,
    weight: Tensor,
    bias: Tensor,
}

impl Params {
    fn new(setup: &Setup<'_>, norm: Norm, n: usize) -> genesis::Result<Params> {
        Ok(Params { norm, weight: setup.randn(&[n])?, bias: setup.randn(&[n])? })
    }

    fn with_grad(self) -> genesis::Result<Params> {
        let (weight, bias) = (self.weight.requires_grad_(true)?, self.bias.requires_grad_(true)?);
        Ok(Params { norm: self.norm, weight, bias })
    }

    fn apply(&self, x: &Tensor) -> genesis::Result<Tensor> {
        match self.norm {
            Norm::Layer => x.layer_norm(&self.weight, &self.bias, EPS),
            Norm::Rms => x.rms_norm(&self.weight, EPS),
        }
    }
}

fn norm(setup: &Setup<'_>, norm: Norm) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let params = Params::new(setup, norm, n)?;
    let (weight, mut bias) = (params.weight.to_f64_vec()?, params.bias.to_f64_vec()?);
    if norm == Norm::Rms {
        bias.fill(0.0);
    }
    let sets = setup.each(|| setup.randn(&[m, n]))?;
    let op = move |x: &Tensor| params.apply(x);
    Prepared::new(sets, op, |x, y| {
        check_rows(y, 1.0, |i| {
            let x = row(x, i)?;
            let (mean, scale) = statistics(norm, &x);
            let one = |(j, x): (usize, &f64)| (x - mean) * scale * weight[j] + bias[j];
            Ok(x.iter().enumerate().map(one).collect())
        })
    })
}

/// A set of a norm's backward: input, result with its history, and the gradient that comes in.
struct NormBwd {
    x: Tensor,
    y: Tensor,
    dy: Tensor,
}

fn norm_bwd(setup: &Setup<'_>, norm: Norm) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let params = Params::new(setup, norm, n)?.with_grad()?;
    let sets = setup.each(|| {
        let x = setup.randn(&[m, n])?.requires_grad_(true)?;
        let y = params.apply(&x)?;
        Ok(NormBwd { x, y, dy: setup.randn(&[m, n])? })
    })?;
    let kept = params.clone();
    let op = move |set: &NormBwd| {
        set.y.backward_with(Some(&set.dy), AGAIN)?;
        let grads = [set.x.grad(), params.weight.grad(), params.bias.grad()];
        // The next run makes them anew and adds nothing up.
        set.x.zero_grad();
        params.weight.zero_grad();
        params.bias.zero_grad();
        Ok(grads)
    };
    Prepared::new(sets, op, move |set, grads| check_norm_bwd(&kept, set, grads))
}

/// Rows of `dx`, and columns of the parameters' gradients, which need every row's statistics.
fn check_norm_bwd(
    params: &Params,
    set: &NormBwd,
    grads: &[Option<Tensor>; 3],
) -> anyhow::Result<f64> {
    let weight = params.weight.to_f64_vec()?;
    let (n, norm) = (weight.len(), params.norm);
    let [Some(dx), Some(dw), db] = grads else { anyhow::bail!("a gradient is missing") };
    let mut worst = check_rows(dx, 1.0, |i| {
        let (x, dy) = (row(&set.x, i)?, row(&set.dy, i)?);
        let (mean, scale) = statistics(norm, &x);
        let hat: Vec<f64> = x.iter().map(|x| (x - mean) * scale).collect();
        let g: Vec<f64> = dy.iter().zip(&weight).map(|(dy, w)| dy * w).collect();
        let along = g.iter().zip(&hat).map(|(g, h)| g * h).sum::<f64>() / n as f64;
        let level = if norm == Norm::Layer { g.iter().sum::<f64>() / n as f64 } else { 0.0 };
        Ok(g.iter().zip(&hat).map(|(g, h)| scale * (g - level - h * along)).collect())
    })?;
    let values = set.x.to_f64_vec()?;
    let stats: Vec<(f64, f64)> = values.par_chunks(n).map(|row| statistics(norm, row)).collect();
    let size = (stats.len() as f64).sqrt();
    let dw = dw.to_f64_vec()?;
    let db = db.as_ref().map(Tensor::to_f64_vec).transpose()?;
    for j in sample(n, 6) {
        let dy = column(&set.dy, j)?;
        let hat = |i: usize| (values[i * n + j] - stats[i].0) * stats[i].1;
        let want: f64 = dy.iter().enumerate().map(|(i, dy)| dy * hat(i)).sum();
        worst = worst.max(distance(&dw[j..=j], &[want], size));
        if let Some(db) = &db {
            worst = worst.max(distance(&db[j..=j], &[dy.iter().sum()], size));
        }
    }
    Ok(worst)
}

/// The mean loss of rows of logits; `fwd`, or `fwd+bwd` with the gradient of the logits.
fn cross_entropy(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, n) = setup.matrix()?;
    let has_backward = match setup.name.variant.as_str() {
        "fwd" => false,
        "fwd+bwd" => true,
        other => anyhow::bail!("there are fwd and fwd+bwd, not {other}"),
    };
    let target = Tensor::randint(0, n as i64, &[m], (DType::I64, setup.device))?;
    let wanted = target.to_vec::<i64>()?;
    let sets = setup.each(|| setup.randn(&[m, n])?.requires_grad_(has_backward))?;
    let labels = target.clone();
    let op = move |x: &Tensor| {
        let loss = x.cross_entropy(&labels, Reduction::Mean)?;
        if has_backward {
            loss.backward()?;
        }
        let dx = x.grad();
        x.zero_grad();
        Ok((loss.detach(), dx))
    };
    Prepared::new(sets, op, |x, (loss, dx)| {
        let losses = x.detach().cross_entropy(&target, Reduction::None)?.to_f64_vec()?;
        let mean = losses.iter().sum::<f64>() / m as f64;
        let mut worst = distance(&[loss.item()?], &[mean], 0.0);
        for i in sample(m, 8) {
            let x = row(x, i)?;
            let total: f64 = x.iter().map(|x| x.exp()).sum();
            let want = total.ln() - x[wanted[i] as usize];
            worst = worst.max(distance(&losses[i..=i], &[want], 0.0));
        }
        let Some(dx) = dx else { return Ok(worst) };
        let of_dx = check_rows(dx, 0.0, |i| {
            let mut want = softmax_of(&row(x, i)?);
            want[wanted[i] as usize] -= 1.0;
            want.iter_mut().for_each(|v| *v /= m as f64);
            Ok(want)
        })?;
        Ok(worst.max(of_dx))
    })
}
