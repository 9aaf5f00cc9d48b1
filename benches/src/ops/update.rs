//! The optimizer's step and the gradient of an embedding.

use genesis::autograd::BackwardOptions;
use genesis::optim::{AdamW, AdamWOptions, Optimizer};
use genesis::{DType, Tensor};

use super::{Op, Prepared, Setup, distance, row, sample};
use crate::roofline::Work;

/// The ops of this file.
pub(super) fn ops() -> Vec<Op> {
    vec![
        // Reads weight, gradient and both moments, writes all but the gradient.
        Op { name: "adamw", work: |name| Work::elements(name, 7 * name.numel()), prepare: adamw },
        Op {
            name: "embedding_bwd",
            work: |name| match name.dims[..] {
                [tokens, vocabulary, c] => Work::elements(name, (tokens + vocabulary) * c),
                _ => Work::default(),
            },
            prepare: embedding_bwd,
        },
    ]
}

/// A step of AdamW over one parameter: one launch.
fn adamw(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let n = setup.name.numel();
    let weight = setup.randn(&[n])?.requires_grad_(true)?;
    weight.set_grad(Some(setup.randn(&[n])?));
    let weights = vec![weight];
    let options = AdamWOptions::default();
    let error = check_adamw(&weights, options)?;
    let mut optimizer = AdamW::new(weights, options);
    Ok(Prepared { run: Box::new(move |_| optimizer.step()), error })
}

/// Takes two steps and compares the ends of the first and the last parameter. With a gradient that
/// stays the same both moments, once corrected, are the gradient and its square.
fn check_adamw(weights: &[Tensor], options: AdamWOptions) -> anyhow::Result<f64> {
    let ends = |t: &Tensor| -> genesis::Result<Vec<f64>> {
        let (t, n) = (t.detach(), t.numel());
        let count = n.min(500);
        Ok([t.narrow(0, 0, count)?.to_f64_vec()?, t.narrow(0, n - count, count)?.to_f64_vec()?]
            .concat())
    };
    let picked = [&weights[0], &weights[weights.len() - 1]];
    let before: Vec<Vec<f64>> = picked.iter().map(|w| ends(w)).collect::<genesis::Result<_>>()?;
    let mut optimizer = AdamW::new(weights.to_vec(), options);
    optimizer.step()?;
    optimizer.step()?;
    let mut worst = 0.0f64;
    for (weight, before) in picked.iter().zip(&before) {
        let grad = weight.grad().ok_or_else(|| anyhow::anyhow!("the gradient is gone"))?;
        let step = |w: f64, g: f64| {
            w * (1.0 - options.lr * options.weight_decay) - options.lr * g / (g.abs() + options.eps)
        };
        let want: Vec<f64> =
            before.iter().zip(ends(&grad)?).map(|(&w, g)| step(step(w, g), g)).collect();
        worst = worst.max(distance(&ends(weight)?, &want, 1.0));
    }
    Ok(worst)
}

/// A set of the embedding's backward.
struct Lookup {
    index: Vec<i64>,
    rows: Tensor,
    dy: Tensor,
}

fn embedding_bwd(setup: &Setup<'_>) -> anyhow::Result<Prepared> {
    let (tokens, vocabulary, c) = setup.three()?;
    let table = setup.randn(&[vocabulary, c])?.requires_grad_(true)?;
    let sets = setup.each(|| {
        let index = Tensor::randint(0, vocabulary as i64, &[tokens], (DType::I64, setup.device))?;
        let rows = table.embedding(&index)?;
        Ok(Lookup { index: index.to_vec()?, rows, dy: setup.randn(&[tokens, c])? })
    })?;
    let op = move |set: &Lookup| {
        let options = BackwardOptions { retain_graph: true, create_graph: false };
        set.rows.backward_with(Some(&set.dy), options)?;
        let grad = table.grad();
        table.zero_grad();
        Ok(grad)
    };
    Prepared::new(sets, op, |set, grad| {
        let grad = grad.as_ref().ok_or_else(|| anyhow::anyhow!("the gradient is missing"))?;
        // Rows that were looked up, and rows of which most were not.
        let looked_up = sample(tokens, 12).into_iter().map(|at| set.index[at] as usize);
        let mut worst = 0.0f64;
        for index in looked_up.chain(sample(vocabulary, 12)) {
            let mut want = vec![0.0; c];
            for (at, _) in set.index.iter().enumerate().filter(|(_, i)| **i == index as i64) {
                for (sum, dy) in want.iter_mut().zip(row(&set.dy, at)?) {
                    *sum += dy;
                }
            }
            worst = worst.max(distance(&row(grad, index)?, &want, 1.0));
        }
        Ok(worst)
    })
}
