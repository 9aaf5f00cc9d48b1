//! The cross entropy of a linear layer, whose logits are never all in memory.

use genesis::ops::{Classes, LinearCrossEntropy, Reduction};
use genesis::{DType, Tensor};

use super::{Op, Prepared, Setup, distance, row, sample};
use crate::name::CaseName;
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![Op { name: "linear_cross_entropy", work, prepare }]
}

/// One product, or three with gradients; logits need not be moved.
fn work(name: &CaseName) -> Work {
    let [m, k, n] = name.dims[..] else { return Work::default() };
    let times = if name.variant == "fwd" { 1 } else { 3 };
    let flops = times as f64 * Work::product(name, m, n, k).flops;
    Work { flops, ..Work::elements(name, (m * k + k * n) * times.min(2)) }
}

fn prepare(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (m, k, n) = setup.three()?;
    let has_backward = match setup.name.variant.as_str() {
        "fwd" => false,
        "fwd+bwd" => true,
        other => anyhow::bail!("there are fwd and fwd+bwd, not {other}"),
    };
    let target = Tensor::randint(0, n as i64, &[m], (DType::I64, setup.device))?;
    let sets = setup.each(|| {
        let weight = setup.randn(&[n, k])?.mul_scalar((k as f64).powf(-0.5))?;
        let [x, weight] = [setup.randn(&[m, k])?, weight.detach()];
        Ok([x.requires_grad_(has_backward)?, weight.requires_grad_(has_backward)?])
    })?;
    let labels = target.clone();
    let op = move |[x, weight]: &[Tensor; 2]| {
        let options = LinearCrossEntropy::default();
        let loss = x.linear_cross_entropy(weight, None, &labels, &options)?;
        if has_backward {
            loss.backward()?;
        }
        let dx = x.grad();
        [x, weight].into_iter().for_each(Tensor::zero_grad);
        Ok((loss.detach(), dx))
    };
    Prepared::new(sets, op, |[x, weight], (loss, dx)| {
        let (x, weight) = (x.detach(), weight.detach());
        let classes = Classes { reduction: Reduction::None, ..Classes::default() };
        let options = LinearCrossEntropy { classes, ..LinearCrossEntropy::default() };
        let losses = x.linear_cross_entropy(&weight, None, &target, &options)?.to_f64_vec()?;
        let mean = losses.iter().sum::<f64>() / m as f64;
        let (weights, targets) = (weight.to_f64_vec()?, target.to_vec::<i64>()?);
        let mut worst = distance(&[loss.item()?], &[mean], 0.0);
        for i in sample(m, 4) {
            let (own, class) = (row(&x, i)?, targets[i] as usize);
            let dot = |of: &[f64]| of.iter().zip(&own).map(|(w, x)| w * x).sum::<f64>();
            let logits: Vec<f64> = weights.chunks_exact(k).map(dot).collect();
            let logsum = logits.iter().map(|v| v.exp()).sum::<f64>().ln();
            worst = worst.max(distance(&losses[i..=i], &[logsum - logits[class]], 0.0));
            let Some(dx) = dx else { continue };
            let mut want = vec![0.0; k];
            for (c, (v, of)) in logits.iter().zip(weights.chunks_exact(k)).enumerate() {
                let slope = ((v - logsum).exp() - f64::from(u8::from(c == class))) / m as f64;
                want.iter_mut().zip(of).for_each(|(sum, w)| *sum += slope * w);
            }
            let largest = want.iter().fold(0.0f64, |most, v| most.max(v.abs()));
            worst = worst.max(distance(&row(dx, i)?, &want, largest));
        }
        Ok(worst)
    })
}
