//! Rows of the losses of a linear layer's output.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::ops::info::{Dense, Family, OpInfo, cpu, numel, scalar, vector};
use crate::ops::{Classes, LinearCrossEntropy, Reduction};
use crate::tensor::Tensor;

/// The logits of row `i`.
fn logits(x: &Dense, weight: &Dense, i: usize) -> Vec<f64> {
    let product = |c: usize| x.row(i).iter().zip(weight.row(c)).map(|(a, b)| a * b).sum();
    (0..weight.shape[0]).map(product).collect()
}

/// The logarithm of the sum of exponentials.
fn logsum(logits: &[f64]) -> f64 {
    logits.iter().map(|v| v.exp()).sum::<f64>().ln()
}

/// What two rows with their targets have more: a bias before the target.
const OPTIONS: LinearCrossEntropy = LinearCrossEntropy {
    classes: Classes {
        weight: None,
        ignore_index: 1,
        label_smoothing: 0.1,
        reduction: Reduction::None,
    },
    softcap: Some(3.0),
    z_loss: 0.01,
};

/// A loss of two inputs of three channels by a weight of five classes.
fn of_five(target: &Tensor, options: &LinearCrossEntropy) -> Result<Tensor> {
    let weight = cpu(&[5, 3], DType::F32)?;
    cpu(&[2, 3], DType::F32)?.linear_cross_entropy(&weight, None, target, options)
}

fn targets(values: &[i64]) -> Result<Tensor> {
    Tensor::from_slice_on(values, &[values.len()], Device::Cpu)
}

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "linear_cross_entropy",
        Family::Softmax,
        |x| x[0].linear_cross_entropy(&x[1], None, &x[2], &LinearCrossEntropy::default()),
        |x| {
            let loss = |(i, &t): (usize, &f64)| {
                let logits = logits(&x[0], &x[1], i);
                logsum(&logits) - logits[t as usize]
            };
            let losses = x[2].data.iter().enumerate().map(loss);
            scalar(losses.sum::<f64>() / x[2].data.len() as f64)
        },
        &[
            &[&[1, 3], &[7, 3], &[1]],
            &[&[2, 3, 8], &[130, 8], &[2, 3]],
            &[&[5, 4], &[5000, 4], &[5]],
        ],
    )
    .computing(|x, _| 2.0 * numel(&x[0]) * x[1][0] as f64)
    .peer("F.cross_entropy(F.linear(x[0], x[1]).flatten(0, -2), x[2].flatten())")
    .within(-1.0, 1.0)
    .indexed(&[(2, 7)])
    .refusing(&[
        (
            || of_five(&cpu(&[2], DType::F32)?, &LinearCrossEntropy::default()),
            "linear_cross_entropy: the target must be i64, got f32",
        ),
        (
            || of_five(&targets(&[0, 1, 2])?, &LinearCrossEntropy::default()),
            "linear_cross_entropy: inputs are [2, 3], the target [3] must be [2]",
        ),
        (
            || of_five(&targets(&[-100, 5])?, &LinearCrossEntropy::default()),
            "linear_cross_entropy: class 5 is out of range for 5 classes",
        ),
        (
            || of_five(&targets(&[0, 1])?, &LinearCrossEntropy { softcap: Some(0.0), ..OPTIONS }),
            "linear_cross_entropy: softcap must be a positive number, got 0",
        ),
        (
            || {
                let classes = Classes { label_smoothing: 1.5, ..Classes::default() };
                of_five(&targets(&[0, 1])?, &LinearCrossEntropy { classes, ..OPTIONS })
            },
            "linear_cross_entropy: label_smoothing must be in 0..=1, got 1.5",
        ),
        (
            || {
                let weight = Some(cpu(&[4], DType::F32)?);
                let classes = Classes { weight, ..Classes::default() };
                of_five(&targets(&[0, 1])?, &LinearCrossEntropy { classes, ..OPTIONS })
            },
            "linear_cross_entropy: the weights of classes must be [5], got [4]",
        ),
        (
            || {
                let (x, weight) = (cpu(&[2, 3], DType::F32)?, cpu(&[5, 4], DType::F32)?);
                x.linear_cross_entropy(&weight, None, &targets(&[0, 1])?, &OPTIONS)
            },
            "linear_cross_entropy: inputs [2, 3] do not fit a weight of [5, 4]",
        ),
    ]),
    OpInfo::new(
        "linear_cross_entropy/options",
        Family::Softmax,
        |x| x[0].linear_cross_entropy(&x[1], Some(&x[2]), &x[3], &OPTIONS),
        |x| {
            let loss = |(i, &t): (usize, &f64)| {
                let logits = logits(&x[0], &x[1], i);
                let capped = |(v, b): (&f64, &f64)| 3.0 * ((v + b) / 3.0).tanh();
                let y: Vec<f64> = logits.iter().zip(&x[2].data).map(capped).collect();
                let (top, mean) = (logsum(&y), y.iter().sum::<f64>() / y.len() as f64);
                let all = top - 0.9 * y[t as usize] - 0.1 * mean + 0.01 * top * top;
                if t == 1.0 { 0.0 } else { all }
            };
            vector(x[3].data.iter().enumerate().map(loss).collect())
        },
        &[&[&[5, 4], &[7, 4], &[7], &[5]], &[&[3, 2], &[300, 2], &[300], &[3]]],
    )
    .computing(|x, _| 2.0 * numel(&x[0]) * x[1][0] as f64)
    .without_peer("PyTorch has neither the soft cap nor the loss of the logarithm's square")
    .within(-1.0, 1.0)
    .indexed(&[(3, 7)]),
];
