//! Samples and references of activations and losses.

use super::sample::{Dense, FLOATS, Family, OpInfo, Refusal, cpu, refuse, samples};
use crate::error::Result;
use crate::ops::{Ctc, Reduction, Triplet};
use crate::tensor::Tensor;
use genesis_kernel::ir::DType;

/// An op in short: its name, where its values are drawn from, the call, the reference, one shape an
/// input.
struct Row {
    name: &'static str,
    range: (f64, f64),
    call: fn(&[Tensor]) -> Result<Tensor>,
    reference: fn(&[Dense]) -> Dense,
    shapes: &'static [&'static [usize]],
}

pub(super) fn infos() -> Vec<OpInfo> {
    ACTIVATIONS.iter().chain(LOSSES).map(info).collect()
}

fn info(row: &'static Row) -> OpInfo {
    OpInfo {
        name: row.name.to_owned(),
        family: Family::Softmax,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(row.call),
        reference: Box::new(row.reference),
        samples: samples(&[row.shapes], row.range),
        refused: refused(row.name),
    }
}

fn refused(name: &str) -> Vec<Refusal> {
    match name {
        "glu" => {
            vec![refuse(|| cpu(&[2, 3], DType::F32)?.glu(-1), "glu: dimension -1 of [2, 3] is odd")]
        }
        "prelu" => vec![refuse(
            || cpu(&[2, 3], DType::F32)?.prelu(&cpu(&[4], DType::F32)?),
            "prelu: 4 weights for 3 channels",
        )],
        "celu" => vec![refuse(|| cpu(&[2], DType::F32)?.celu(0.0), "celu: alpha is 0")],
        "hardtanh" => {
            vec![refuse(|| cpu(&[2], DType::F32)?.hardtanh(1.0, 0.0), "hardtanh: 1 is over 0")]
        }
        "softshrink" => vec![refuse(
            || cpu(&[2], DType::F32)?.softshrink(-1.0),
            "softshrink: lambda is negative, -1",
        )],
        "binary_cross_entropy" => vec![refuse(
            || {
                let (x, t) = (cpu(&[2], DType::F32)?, cpu(&[1], DType::F32)?);
                x.binary_cross_entropy(&t, Reduction::Mean)
            },
            "binary_cross_entropy: x is [2], the target [1]",
        )],
        "ctc_loss" => vec![refuse(
            || {
                cpu(&[4, 2], DType::F32)?.ctc_loss(
                    &cpu(&[2, 3], DType::I64)?,
                    &[4],
                    &[3],
                    &Ctc::default(),
                )
            },
            "ctc_loss: needs log-probabilities [T, N, C], got [4, 2]",
        )],
        _ => Vec::new(),
    }
}

fn map(x: &Dense, f: impl Fn(f64) -> f64) -> Dense {
    Dense { shape: x.shape.clone(), data: x.data.iter().map(|&v| f(v)).collect() }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

const SHAPE: &[&[usize]] = &[&[3, 5]];

const ACTIVATIONS: &[Row] = &[
    Row {
        name: "log_sigmoid",
        range: (-3.0, 3.0),
        call: |x| x[0].log_sigmoid(),
        reference: |x| map(&x[0], |v| sigmoid(v).ln()),
        shapes: SHAPE,
    },
    Row {
        name: "prelu",
        range: (-3.0, 3.0),
        call: |x| x[0].prelu(&x[1]),
        reference: |x| {
            Dense::from_fn(&x[0].shape, |at| {
                let v = x[0].at(at);
                if v > 0.0 { v } else { v * x[1].at(&at[1..2]) }
            })
        },
        shapes: &[&[2, 3, 2], &[3]],
    },
    Row {
        name: "selu",
        range: (-3.0, 3.0),
        call: |x| x[0].selu(),
        reference: |x| {
            let below = |v: f64| 1.673_263_242_354_377_2 * v.exp_m1();
            map(&x[0], |v| 1.050_700_987_355_480_5 * if v > 0.0 { v } else { below(v) })
        },
        shapes: SHAPE,
    },
    Row {
        name: "celu",
        range: (-3.0, 3.0),
        call: |x| x[0].celu(1.5),
        reference: |x| map(&x[0], |v| if v > 0.0 { v } else { 1.5 * (v / 1.5).exp_m1() }),
        shapes: SHAPE,
    },
    Row {
        name: "hardsigmoid",
        range: (-5.0, 5.0),
        call: |x| x[0].hardsigmoid(),
        reference: |x| map(&x[0], |v| (v / 6.0 + 0.5).clamp(0.0, 1.0)),
        shapes: SHAPE,
    },
    Row {
        name: "hardtanh",
        range: (-3.0, 3.0),
        call: |x| x[0].hardtanh(-1.0, 2.0),
        reference: |x| map(&x[0], |v| v.clamp(-1.0, 2.0)),
        shapes: SHAPE,
    },
    Row {
        name: "relu6",
        range: (-3.0, 9.0),
        call: |x| x[0].relu6(),
        reference: |x| map(&x[0], |v| v.clamp(0.0, 6.0)),
        shapes: SHAPE,
    },
    Row {
        name: "softsign",
        range: (-3.0, 3.0),
        call: |x| x[0].softsign(),
        reference: |x| map(&x[0], |v| v / (1.0 + v.abs())),
        shapes: SHAPE,
    },
    Row {
        name: "tanhshrink",
        range: (-3.0, 3.0),
        call: |x| x[0].tanhshrink(),
        reference: |x| map(&x[0], |v| v - v.tanh()),
        shapes: SHAPE,
    },
    Row {
        name: "hardshrink",
        range: (-1.0, 1.0),
        call: |x| x[0].hardshrink(0.5),
        reference: |x| map(&x[0], |v| if v.abs() <= 0.5 { 0.0 } else { v }),
        shapes: SHAPE,
    },
    Row {
        name: "softshrink",
        range: (-1.0, 1.0),
        call: |x| x[0].softshrink(0.5),
        reference: |x| map(&x[0], |v| v.signum() * (v.abs() - 0.5).max(0.0)),
        shapes: SHAPE,
    },
    Row {
        name: "threshold",
        range: (-1.0, 1.0),
        call: |x| x[0].threshold(0.25, -7.0),
        reference: |x| map(&x[0], |v| if v > 0.25 { v } else { -7.0 }),
        shapes: SHAPE,
    },
    Row {
        name: "glu",
        range: (-3.0, 3.0),
        call: |x| x[0].glu(1),
        reference: |x| {
            Dense::from_fn(&[2, 3, 2], |at| {
                x[0].at(at) * sigmoid(x[0].at(&[at[0], at[1] + 3, at[2]]))
            })
        },
        shapes: &[&[2, 6, 2]],
    },
    Row {
        name: "softmin",
        range: (-3.0, 3.0),
        call: |x| x[0].softmin(-1),
        reference: |x| {
            Dense::from_fn(&x[0].shape, |at| {
                let total: f64 = (0..x[0].shape[1]).map(|i| (-x[0].at(&[at[0], i])).exp()).sum();
                (-x[0].at(at)).exp() / total
            })
        },
        shapes: SHAPE,
    },
];

/// The mean of a function of two inputs of one shape.
fn mean(x: &[Dense], f: impl Fn(f64, f64) -> f64) -> Dense {
    let sum: f64 = x[0].data.iter().zip(&x[1].data).map(|(&a, &b)| f(a, b)).sum();
    scalar(sum / x[0].data.len() as f64)
}

fn scalar(value: f64) -> Dense {
    Dense { shape: Vec::new(), data: vec![value] }
}

/// A row of a matrix.
fn row(x: &Dense, i: usize) -> &[f64] {
    let n = x.shape[x.shape.len() - 1];
    &x.data[i * n..(i + 1) * n]
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b + 1e-6) * (a - b + 1e-6)).sum::<f64>().sqrt()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

const PAIR: &[&[usize]] = &[&[3, 5], &[3, 5]];

const LOSSES: &[Row] = &[
    Row {
        name: "mse_loss",
        range: (-3.0, 3.0),
        call: |x| x[0].mse_loss(&x[1], Reduction::Mean),
        reference: |x| mean(x, |a, b| (a - b) * (a - b)),
        shapes: PAIR,
    },
    Row {
        name: "l1_loss",
        range: (-3.0, 3.0),
        call: |x| x[0].l1_loss(&x[1], Reduction::Mean),
        reference: |x| mean(x, |a, b| (a - b).abs()),
        shapes: PAIR,
    },
    Row {
        name: "smooth_l1_loss",
        range: (-3.0, 3.0),
        call: |x| x[0].smooth_l1_loss(&x[1], 0.5, Reduction::Mean),
        reference: |x| {
            mean(x, |a, b| {
                let d = (a - b).abs();
                if d < 0.5 { d * d } else { d - 0.25 }
            })
        },
        shapes: PAIR,
    },
    Row {
        name: "binary_cross_entropy",
        range: (0.1, 0.9),
        call: |x| x[0].binary_cross_entropy(&x[1], Reduction::Mean),
        reference: |x| mean(x, |p, t| -t * p.ln() - (1.0 - t) * (1.0 - p).ln()),
        shapes: PAIR,
    },
    Row {
        name: "binary_cross_entropy_with_pos_weight",
        range: (0.1, 3.0),
        call: |x| x[0].binary_cross_entropy_with_pos_weight(&x[1], &x[2], Reduction::Mean),
        reference: |x| {
            let n = x[0].data.len() as f64;
            let loss = |i: usize| {
                let (v, t, w) = (x[0].data[i], x[1].data[i], x[2].data[i % 5]);
                -w * t * sigmoid(v).ln() - (1.0 - t) * sigmoid(-v).ln()
            };
            scalar((0..x[0].data.len()).map(loss).sum::<f64>() / n)
        },
        shapes: &[&[3, 5], &[3, 5], &[5]],
    },
    Row {
        name: "kl_div",
        range: (0.1, 2.0),
        call: |x| x[0].kl_div(&x[1], false, Reduction::Mean),
        reference: |x| mean(x, |a, t| t * (t.ln() - a)),
        shapes: PAIR,
    },
    Row {
        name: "kl_div/log_target",
        range: (-2.0, 0.0),
        call: |x| x[0].kl_div(&x[1], true, Reduction::Mean),
        reference: |x| mean(x, |a, t| t.exp() * (t - a)),
        shapes: PAIR,
    },
    Row {
        name: "poisson_nll_loss",
        range: (0.1, 3.0),
        call: |x| x[0].poisson_nll_loss(&x[1], true, true, 1e-8, Reduction::Mean),
        reference: |x| {
            mean(x, |a, t| {
                let stirling = t * t.ln() - t + 0.5 * (2.0 * std::f64::consts::PI * t).ln();
                a.exp() - t * a + if t > 1.0 { stirling } else { 0.0 }
            })
        },
        shapes: PAIR,
    },
    Row {
        name: "gaussian_nll_loss",
        range: (0.2, 3.0),
        call: |x| x[0].gaussian_nll_loss(&x[1], &x[2], true, 1e-6, Reduction::Mean),
        reference: |x| {
            let loss = |i: usize| {
                let (a, t, v) = (x[0].data[i], x[1].data[i], x[2].data[i / 5]);
                0.5 * (v.ln() + (a - t) * (a - t) / v + (2.0 * std::f64::consts::PI).ln())
            };
            scalar((0..15).map(loss).sum::<f64>() / 15.0)
        },
        shapes: &[&[3, 5], &[3, 5], &[3]],
    },
    Row {
        name: "hinge_embedding_loss",
        range: (0.1, 0.9),
        call: |x| {
            let sign = x[1].detach().sub_scalar(0.5)?.sign()?;
            x[0].hinge_embedding_loss(&sign, 0.5, Reduction::Mean)?
                .add(&x[1].sum()?.mul_scalar(0.0)?)
        },
        reference: |x| mean(x, |a, t| if t > 0.5 { a } else { (0.5 - a).max(0.0) }),
        shapes: PAIR,
    },
    Row {
        name: "soft_margin_loss",
        range: (-2.0, 2.0),
        call: |x| x[0].soft_margin_loss(&x[1], Reduction::Mean),
        reference: |x| mean(x, |a, t| (-t * a).exp().ln_1p()),
        shapes: PAIR,
    },
    Row {
        name: "margin_ranking_loss",
        range: (-2.0, 2.0),
        call: |x| x[0].margin_ranking_loss(&x[1], &x[2], 0.5, Reduction::Mean),
        reference: |x| {
            let loss = |i: usize| (0.5 - x[2].data[i] * (x[0].data[i] - x[1].data[i])).max(0.0);
            scalar((0..15).map(loss).sum::<f64>() / 15.0)
        },
        shapes: &[&[3, 5], &[3, 5], &[3, 5]],
    },
    Row {
        name: "cosine_similarity",
        range: (0.1, 3.0),
        call: |x| x[0].cosine_similarity(&x[1], -1, 1e-8),
        reference: |x| Dense::from_fn(&[3], |at| cosine(row(&x[0], at[0]), row(&x[1], at[0]))),
        shapes: PAIR,
    },
    Row {
        name: "pairwise_distance",
        range: (-3.0, 3.0),
        call: |x| x[0].pairwise_distance(&x[1], 2.0, 1e-6, false),
        reference: |x| Dense::from_fn(&[3], |at| distance(row(&x[0], at[0]), row(&x[1], at[0]))),
        shapes: PAIR,
    },
    Row {
        name: "cosine_embedding_loss",
        range: (0.1, 3.0),
        call: |x| {
            let sign = Tensor::from_f64(&[1.0, -1.0, 1.0], &[3], (x[0].dtype(), x[0].device()))?;
            x[0].cosine_embedding_loss(&x[1], &sign, 0.1, Reduction::Mean)
        },
        reference: |x| {
            let cos = |i: usize| cosine(row(&x[0], i), row(&x[1], i));
            scalar((1.0 - cos(0) + (cos(1) - 0.1).max(0.0) + 1.0 - cos(2)) / 3.0)
        },
        shapes: PAIR,
    },
    Row {
        name: "triplet_margin_loss",
        range: (-3.0, 3.0),
        call: |x| x[0].triplet_margin_loss([&x[1], &x[2]], &Triplet::default()),
        reference: |x| {
            let loss = |i: usize| {
                let to = |other: &Dense| distance(row(&x[0], i), row(other, i));
                (to(&x[1]) - to(&x[2]) + 1.0).max(0.0)
            };
            scalar((0..3).map(loss).sum::<f64>() / 3.0)
        },
        shapes: &[&[3, 5], &[3, 5], &[3, 5]],
    },
    Row {
        name: "ctc_loss",
        range: (-2.0, -0.5),
        call: |x| {
            let labels = Tensor::from_slice_on(&[1i64, 2, 2, 1], &[2, 2], x[0].device())?;
            x[0].ctc_loss(&labels, &[4, 3], &[2, 1], &Ctc::default())
        },
        reference: |x| {
            let first = paths(&x[0], 0, 4, &[1, 2]);
            let second = paths(&x[0], 1, 3, &[2]);
            scalar((-first.ln() / 2.0 - second.ln()) / 2.0)
        },
        shapes: &[&[4, 2, 3]],
    },
];

/// The probability of all paths of `n` frames of a sequence that spell the labels, one by one.
fn paths(log_probs: &Dense, sequence: usize, n: usize, labels: &[usize]) -> f64 {
    let classes = log_probs.shape[2];
    let spelled = |path: &[usize]| {
        let mut found: Vec<usize> = Vec::new();
        let mut before = 0;
        for &class in path {
            if class != 0 && class != before {
                found.push(class);
            }
            before = class;
        }
        found == labels
    };
    let mut total = 0.0;
    for number in 0..classes.pow(n as u32) {
        let path: Vec<usize> = (0..n).map(|t| number / classes.pow(t as u32) % classes).collect();
        if spelled(&path) {
            let log: f64 = (0..n).map(|t| log_probs.at(&[t, sequence, path[t]])).sum();
            total += log.exp();
        }
    }
    total
}
