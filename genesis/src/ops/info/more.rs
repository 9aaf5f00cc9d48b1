//! Samples and references of ops made of others: shapes, indexing, order, reductions, windows, losses.

use genesis_kernel::ir::DType;

use super::sample::{Dense, FLOATS, Family, OpInfo, Refusal, cpu, refuse, samples};
use crate::error::Result;
use crate::ops::{Attention, BatchStats, Classes, Conv, Index, PadMode, Reduction, Window};
use crate::tensor::Tensor;

type Call = fn(&[Tensor]) -> Result<Tensor>;
type Reference = fn(&[Dense]) -> Dense;

/// An op in short: its name, how exact it is, the call, the reference, one shape an input.
struct Row(&'static str, Family, Call, Reference, &'static [&'static [usize]]);

pub(super) fn infos() -> Vec<OpInfo> {
    let groups: [&[Row]; 5] = [SHAPES, INDEXED, FOLDS, WINDOWS, LOSSES];
    groups.into_iter().flatten().map(info).collect()
}

fn info(row: &'static Row) -> OpInfo {
    let Row(name, family, call, reference, shapes) = row;
    OpInfo {
        name: (*name).to_owned(),
        family: *family,
        dtypes: match family {
            _ if name.ends_with("/ints") => vec![DType::I64, DType::U8],
            Family::Exact => vec![DType::F32, DType::BF16, DType::F64, DType::I64, DType::U8],
            _ => FLOATS.to_vec(),
        },
        index_inputs: index_inputs(name),
        is_differentiable: !name.ends_with("/ints"),
        call: Box::new(*call),
        reference: Box::new(*reference),
        samples: samples(
            &[shapes],
            if name.contains("log_probs") { (-3.0, -0.1) } else { (0.1, 5.0) },
        ),
        refused: refused(name),
    }
}

/// Inputs that are indices, with their bound.
fn index_inputs(name: &str) -> Vec<(usize, usize)> {
    match name {
        "gather" | "take_along_dim" | "index_select" | "index" | "scatter_add"
        | "scatter_add/ints" | "index_add" | "scatter" => vec![(1, 3)],
        "nll_loss/log_probs" | "cross_entropy_loss" => vec![(1, 4)],
        _ => Vec::new(),
    }
}

fn refused(name: &str) -> Vec<Refusal> {
    match name {
        "cat" => vec![
            refuse(|| Tensor::cat(&[], 0), "cat: needs at least one tensor"),
            refuse(
                || {
                    let (a, b) = (cpu(&[2, 3], DType::F32)?, cpu(&[2], DType::F32)?);
                    Tensor::cat(&[&a, &b], 0)
                },
                "cat: shapes differ beside dimension 0, [2, 3] and [2]",
            ),
        ],
        "diagonal" => vec![refuse(
            || cpu(&[2, 3], DType::F32)?.diagonal(0, 1, 1),
            "diagonal: diagonal dimensions cannot be identical 1, 1",
        )],
        "gather" => vec![
            refuse(
                || {
                    cpu(&[2, 3], DType::F32)?.gather(
                        0,
                        &Tensor::full(&[1, 3], 2.0, DType::I64)?.to_device(crate::Device::Cpu)?,
                    )
                },
                "gather: index 2 is out of range for 2 elements",
            ),
            refuse(
                || cpu(&[2, 3], DType::F32)?.gather(0, &cpu(&[1, 4], DType::I64)?),
                "gather: an index of [1, 4] does not fit shape [2, 3]",
            ),
        ],
        "einsum" => vec![refuse(
            || Tensor::einsum("ij->ik", &[&cpu(&[2, 3], DType::F32)?]),
            "einsum: the result has a label of no operand, in `ij->ik`",
        )],
        "conv" => vec![refuse(
            || {
                cpu(&[1, 3, 5], DType::F32)?.conv(
                    &cpu(&[1, 2, 3], DType::F32)?,
                    None,
                    &Conv::new(1),
                )
            },
            "conv: a weight of [1, 2, 3] in 1 groups does not fit shape [1, 3, 5]",
        )],
        "pad/reflect" => vec![refuse(
            || cpu(&[2], DType::F32)?.pad(&[2, 0], PadMode::Reflect),
            "pad: [2, 0] is too much for shape [2]",
        )],
        "topk" => vec![refuse(
            || Ok(cpu(&[2], DType::F32)?.topk(3, 0, true)?.0),
            "topk: has no 3 of 2 elements, shape [2]",
        )],
        _ => Vec::new(),
    }
}

const SHAPES: &[Row] = &[
    Row(
        "diagonal",
        Family::Exact,
        |x| x[0].diagonal(1, 0, 2),
        |x| Dense::from_fn(&[3, 2], |at| x[0].at(&[at[1], at[0], at[1] + 1])),
        &[&[2, 3, 4]],
    ),
    Row(
        "flip",
        Family::Exact,
        |x| x[0].flip(&[0, -1]),
        |x| Dense::from_fn(&[2, 3, 4], |at| x[0].at(&[1 - at[0], at[1], 3 - at[2]])),
        &[&[2, 3, 4]],
    ),
    Row(
        "slice_step",
        Family::Exact,
        |x| x[0].slice_step(2, Some(-6), Some(99), 2),
        |x| Dense::from_fn(&[2, 3, 3], |at| x[0].at(&[at[0], at[1], 1 + 2 * at[2]])),
        &[&[2, 3, 7]],
    ),
    Row(
        "cat",
        Family::Exact,
        |x| Tensor::cat(&[&x[0], &x[1]], 1),
        |x| {
            Dense::from_fn(&[2, 5], |at| {
                if at[1] < 3 { x[0].at(at) } else { x[1].at(&[at[0], at[1] - 3]) }
            })
        },
        &[&[2, 3], &[2, 2]],
    ),
    Row(
        "stack",
        Family::Exact,
        |x| Tensor::stack(&[&x[0], &x[1]], -1),
        |x| Dense::from_fn(&[2, 3, 2], |at| x[at[2]].at(&at[..2])),
        &[&[2, 3], &[2, 3]],
    ),
    Row(
        "repeat",
        Family::Exact,
        |x| x[0].repeat(&[2, 1, 3]),
        |x| Dense::from_fn(&[2, 2, 9], |at| x[0].at(&[at[1], at[2] % 3])),
        &[&[2, 3]],
    ),
    Row(
        "repeat_interleave",
        Family::Exact,
        |x| x[0].repeat_interleave(3, 0),
        |x| Dense::from_fn(&[6, 3], |at| x[0].at(&[at[0] / 3, at[1]])),
        &[&[2, 3]],
    ),
    Row(
        "roll",
        Family::Exact,
        |x| x[0].roll(-2, 1),
        |x| Dense::from_fn(&[2, 5], |at| x[0].at(&[at[0], (at[1] + 2) % 5])),
        &[&[2, 5]],
    ),
    Row(
        "movedim",
        Family::Exact,
        |x| x[0].movedim(&[0], &[-1]),
        |x| Dense::from_fn(&[3, 4, 2], |at| x[0].at(&[at[2], at[0], at[1]])),
        &[&[2, 3, 4]],
    ),
    Row(
        "tril",
        Family::Exact,
        |x| x[0].tril(1),
        |x| Dense::from_fn(&[3, 4], |at| if at[1] <= at[0] + 1 { x[0].at(at) } else { 0.0 }),
        &[&[3, 4]],
    ),
    Row(
        "triu",
        Family::Exact,
        |x| x[0].triu(1),
        |x| Dense::from_fn(&[3, 4], |at| if at[1] > at[0] { x[0].at(at) } else { 0.0 }),
        &[&[3, 4]],
    ),
    Row(
        "pad/constant",
        Family::Exact,
        |x| x[0].pad(&[1, -1, 0, 2], PadMode::Constant(7.0)),
        |x| {
            Dense::from_fn(&[4, 3], |at| {
                if at[0] < 2 && at[1] > 0 { x[0].at(&[at[0], at[1] - 1]) } else { 7.0 }
            })
        },
        &[&[2, 3]],
    ),
    Row(
        "pad/reflect",
        Family::Exact,
        |x| x[0].pad(&[2, 1], PadMode::Reflect),
        |x| Dense::from_fn(&[2, 6], |at| x[0].at(&[at[0], [2, 1, 0, 1, 2, 1][at[1]]])),
        &[&[2, 3]],
    ),
    Row(
        "pad/circular",
        Family::Exact,
        |x| x[0].pad(&[2, 1], PadMode::Circular),
        |x| Dense::from_fn(&[2, 6], |at| x[0].at(&[at[0], (at[1] + 1) % 3])),
        &[&[2, 3]],
    ),
];

const INDEXED: &[Row] = &[
    Row(
        "gather",
        Family::Exact,
        |x| x[0].gather(0, &x[1]),
        |x| Dense::from_fn(&[5, 2], |at| x[0].at(&[x[1].at(at) as usize, at[1]])),
        &[&[3, 4], &[5, 2]],
    ),
    Row(
        "take_along_dim",
        Family::Exact,
        |x| x[0].take_along_dim(&x[1], 0),
        |x| Dense::from_fn(&[5, 4], |at| x[0].at(&[x[1].at(&[at[0], 0]) as usize, at[1]])),
        &[&[3, 4], &[5, 1]],
    ),
    Row(
        "index_select",
        Family::Exact,
        |x| x[0].index_select(1, &x[1]),
        |x| Dense::from_fn(&[2, 5, 4], |at| x[0].at(&[at[0], x[1].data[at[1]] as usize, at[2]])),
        &[&[2, 3, 4], &[5]],
    ),
    Row(
        "index",
        Family::Exact,
        |x| {
            x[0].index(&[
                Index::Range(None, None, 2),
                Index::Tensor(x[1].clone()),
                Index::NewAxis,
                Index::At(-1),
            ])
        },
        |x| Dense::from_fn(&[2, 5, 1], |at| x[0].at(&[2 * at[0], x[1].data[at[1]] as usize, 3])),
        &[&[3, 3, 4], &[5]],
    ),
    Row(
        "index_add",
        Family::Sum,
        |x| x[0].index_add(0, &x[1], &x[2], 2.0),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let from = (0..5).filter(|&i| x[1].data[i] as usize == at[0]);
                x[0].at(at) + from.map(|i| 2.0 * x[2].at(&[i, at[1]])).sum::<f64>()
            })
        },
        &[&[3, 2], &[5], &[5, 2]],
    ),
    Row(
        "scatter_add",
        Family::Sum,
        |x| x[0].scatter_add(0, &x[1], &x[2]),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let from = (0..4).filter(|&i| x[1].at(&[i, at[1]]) as usize == at[0]);
                x[0].at(at) + from.map(|i| x[2].at(&[i, at[1]])).sum::<f64>()
            })
        },
        &[&[3, 2], &[4, 2], &[4, 2]],
    ),
    Row(
        "scatter_add/ints",
        Family::Exact,
        |x| x[0].scatter_add(0, &x[1], &x[2]),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let from = (0..4).filter(|&i| x[1].at(&[i, at[1]]) as usize == at[0]);
                x[0].at(at) + from.map(|i| x[2].at(&[i, at[1]])).sum::<f64>()
            })
        },
        &[&[3, 2], &[4, 2], &[4, 2]],
    ),
    Row(
        "scatter",
        Family::Exact,
        |x| x[0].scatter(0, &x[1], &x[2]),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let last = (0..4).rev().find(|&i| x[1].at(&[i, at[1]]) as usize == at[0]);
                last.map_or(x[0].at(at), |i| x[2].at(&[i, at[1]]))
            })
        },
        &[&[3, 2], &[4, 2], &[4, 2]],
    ),
    Row(
        "sort",
        Family::Exact,
        |x| Ok(x[0].sort(0, false)?.0),
        |x| {
            columns(&x[0], |column| {
                let mut sorted = column.to_vec();
                sorted.sort_by(f64::total_cmp);
                sorted
            })
        },
        &[&[37, 2]],
    ),
    Row(
        "topk",
        Family::Exact,
        |x| Ok(x[0].topk(3, 0, true)?.0),
        |x| {
            let sorted = columns(&x[0], |column| {
                let mut sorted = column.to_vec();
                sorted.sort_by(|a, b| b.total_cmp(a));
                sorted
            });
            Dense::from_fn(&[3, 2], |at| sorted.at(at))
        },
        &[&[9, 2]],
    ),
];

/// Each column of a matrix by itself.
fn columns(x: &Dense, f: fn(&[f64]) -> Vec<f64>) -> Dense {
    let (m, n) = (x.shape[0], x.shape[1]);
    let of = |j: usize| f(&(0..m).map(|i| x.at(&[i, j])).collect::<Vec<_>>());
    let columns: Vec<Vec<f64>> = (0..n).map(of).collect();
    Dense::from_fn(&[columns[0].len(), n], |at| columns[at[1]][at[0]])
}

/// One number for each column.
fn folded(x: &Dense, f: fn(&[f64]) -> f64) -> Dense {
    let (m, n) = (x.shape[0], x.shape[1]);
    Dense::from_fn(&[n], |at| f(&(0..m).map(|i| x.at(&[i, at[0]])).collect::<Vec<_>>()))
}

fn variance(column: &[f64]) -> f64 {
    let mean = column.iter().sum::<f64>() / column.len() as f64;
    column.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (column.len() as f64 - 1.0)
}

const FOLDS: &[Row] = &[
    Row(
        "prod",
        Family::Transcendental,
        |x| x[0].prod_dim(0, false),
        |x| folded(&x[0], |c| c.iter().product::<f64>()),
        &[&[5, 3]],
    ),
    Row(
        "cumprod",
        Family::Transcendental,
        |x| x[0].cumprod(0),
        |x| {
            columns(&x[0], |c| {
                c.iter()
                    .scan(1.0, |p, v| {
                        *p *= v;
                        Some(*p)
                    })
                    .collect()
            })
        },
        &[&[5, 3]],
    ),
    Row(
        "var",
        Family::Softmax,
        |x| x[0].var_dims(&[0], 1.0, false),
        |x| folded(&x[0], variance),
        &[&[9, 3]],
    ),
    Row(
        "std",
        Family::Softmax,
        |x| x[0].std_dims(&[0], 1.0, false),
        |x| folded(&x[0], |c| variance(c).sqrt()),
        &[&[9, 3]],
    ),
    Row(
        "norm/2",
        Family::Softmax,
        |x| x[0].vector_norm(2.0, &[0], false),
        |x| folded(&x[0], |c| c.iter().map(|v| v * v).sum::<f64>().sqrt()),
        &[&[9, 3]],
    ),
    Row(
        "norm/3",
        Family::Softmax,
        |x| x[0].vector_norm(3.0, &[0], false),
        |x| folded(&x[0], |c| c.iter().map(|v| v * v * v).sum::<f64>().cbrt()),
        &[&[9, 3]],
    ),
    Row(
        "logsumexp",
        Family::Softmax,
        |x| x[0].logsumexp(&[0], false),
        |x| folded(&x[0], |c| c.iter().map(|v| v.exp()).sum::<f64>().ln()),
        &[&[9, 3]],
    ),
    Row(
        "max_with_index",
        Family::Exact,
        |x| Ok(x[0].max_with_index(0, false)?.0),
        |x| folded(&x[0], |c| c.iter().copied().fold(f64::MIN, f64::max)),
        &[&[9, 3]],
    ),
];

const WINDOWS: &[Row] = &[
    Row(
        "einsum",
        Family::MatMul,
        |x| Tensor::einsum("bij,kj->kbi", &[&x[0], &x[1]]),
        |x| {
            Dense::from_fn(&[5, 2, 3], |at| {
                (0..4).map(|j| x[0].at(&[at[1], at[2], j]) * x[1].at(&[at[0], j])).sum()
            })
        },
        &[&[2, 3, 4], &[5, 4]],
    ),
    Row(
        "conv",
        Family::MatMul,
        |x| {
            let conv =
                Conv { stride: vec![2], padding: vec![[1, 1]], dilation: vec![2], groups: 2 };
            x[0].conv(&x[1], None, &conv)
        },
        |x| {
            // Two groups of two channels, one result each; 9 places of which every second window begins.
            Dense::from_fn(&[2, 2, 3], |at| {
                let tap = |c: usize, k: usize| {
                    let place = (at[2] * 2 + 2 * k) as i64 - 1;
                    if !(0..7).contains(&place) {
                        return 0.0;
                    }
                    x[0].at(&[at[0], 2 * at[1] + c, place as usize]) * x[1].at(&[at[1], c, k])
                };
                (0..2).flat_map(|c| (0..3).map(move |k| (c, k))).map(|(c, k)| tap(c, k)).sum()
            })
        },
        &[&[2, 4, 7], &[2, 2, 3]],
    ),
    Row(
        "max_pool",
        Family::Exact,
        |x| Ok(x[0].max_pool(&Window::new(&[2, 2]))?.0),
        |x| {
            Dense::from_fn(&[2, 2, 2], |at| {
                let at = |i: usize, j: usize| x[0].at(&[at[0], 2 * at[1] + i, 2 * at[2] + j]);
                at(0, 0).max(at(0, 1)).max(at(1, 0)).max(at(1, 1))
            })
        },
        &[&[2, 4, 5]],
    ),
    Row(
        "avg_pool",
        Family::Softmax,
        |x| x[0].avg_pool(&Window::new(&[2, 2]), true, None),
        |x| {
            Dense::from_fn(&[2, 2, 2], |at| {
                let at = |i: usize, j: usize| x[0].at(&[at[0], 2 * at[1] + i, 2 * at[2] + j]);
                (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) / 4.0
            })
        },
        &[&[2, 4, 5]],
    ),
    Row(
        "scaled_dot_product_attention",
        Family::Softmax,
        |x| {
            let options = Attention { is_causal: true, ..Attention::default() };
            x[0].scaled_dot_product_attention(&x[1], &x[2], &options)
        },
        |x| {
            Dense::from_fn(&[2, 3, 4], |at| {
                let score = |s: usize| {
                    (0..4)
                        .map(|d| x[0].at(&[at[0], at[1], d]) * x[1].at(&[at[0], s, d]))
                        .sum::<f64>()
                        / 2.0
                };
                let weights: Vec<f64> = (0..=at[1]).map(|s| (score(s) - score(0)).exp()).collect();
                let total: f64 = weights.iter().sum();
                weights
                    .iter()
                    .enumerate()
                    .map(|(s, w)| w / total * x[2].at(&[at[0], s, at[2]]))
                    .sum()
            })
        },
        &[&[2, 3, 4], &[2, 3, 4], &[2, 3, 4]],
    ),
    Row(
        "group_norm",
        Family::Softmax,
        |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5),
        |x| {
            Dense::from_fn(&[2, 4, 3], |at| {
                let group = at[1] / 2 * 2;
                let all: Vec<f64> =
                    (0..6).map(|i| x[0].at(&[at[0], group + i / 3, i % 3])).collect();
                let mean = all.iter().sum::<f64>() / 6.0;
                let var = all.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 6.0;
                (x[0].at(at) - mean) / (var + 1e-5).sqrt() * x[1].data[at[1]] + x[2].data[at[1]]
            })
        },
        &[&[2, 4, 3], &[4], &[4]],
    ),
    Row(
        "batch_norm",
        Family::Softmax,
        |x| {
            let stats = BatchStats { running: None, training: true, momentum: 0.1, eps: 1e-5 };
            x[0].batch_norm(Some(&x[1]), None, &stats)
        },
        |x| {
            Dense::from_fn(&[5, 3], |at| {
                let all: Vec<f64> = (0..5).map(|i| x[0].at(&[i, at[1]])).collect();
                let mean = all.iter().sum::<f64>() / 5.0;
                let var = all.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 5.0;
                (x[0].at(at) - mean) / (var + 1e-5).sqrt() * x[1].data[at[1]]
            })
        },
        &[&[5, 3], &[3]],
    ),
];

fn map(x: &Dense, f: fn(f64) -> f64) -> Dense {
    Dense { shape: x.shape.clone(), data: x.data.iter().map(|&v| f(v)).collect() }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> Dense {
    let n = values.len() as f64;
    Dense { shape: Vec::new(), data: vec![values.sum::<f64>() / n] }
}

const LOSSES: &[Row] = &[
    Row(
        "softplus",
        Family::Softmax,
        |x| x[0].softplus(2.0, 20.0),
        |x| map(&x[0], |v| (2.0 * v).exp().ln_1p() / 2.0),
        &[&[3, 5]],
    ),
    Row(
        "leaky_relu",
        Family::Arithmetic,
        |x| x[0].sub_scalar(2.0)?.leaky_relu(0.5),
        |x| map(&x[0], |v| if v > 2.0 { v - 2.0 } else { 0.5 * (v - 2.0) }),
        &[&[3, 5]],
    ),
    Row(
        "elu",
        Family::Softmax,
        |x| x[0].neg()?.elu(1.5),
        |x| map(&x[0], |v| 1.5 * (-v).exp_m1()),
        &[&[3, 5]],
    ),
    Row(
        "hardswish",
        Family::Softmax,
        |x| x[0].hardswish(),
        |x| map(&x[0], |v| v * (v + 3.0).clamp(0.0, 6.0) / 6.0),
        &[&[3, 5]],
    ),
    Row(
        "mish",
        Family::Softmax,
        |x| x[0].mish(),
        |x| map(&x[0], |v| v * v.exp().ln_1p().tanh()),
        &[&[3, 5]],
    ),
    Row(
        "gelu_tanh",
        Family::Softmax,
        |x| x[0].gelu_tanh(),
        |x| {
            map(&x[0], |v| {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v);
                0.5 * v * (1.0 + inner.tanh())
            })
        },
        &[&[3, 5]],
    ),
    Row(
        "huber_loss",
        Family::Softmax,
        |x| x[0].huber_loss(&x[1], 1.5, Reduction::Mean),
        |x| {
            mean(x[0].data.iter().zip(&x[1].data).map(|(a, b)| {
                let d = (a - b).abs();
                if d < 1.5 { 0.5 * d * d } else { 1.5 * (d - 0.75) }
            }))
        },
        &[&[3, 5], &[3, 5]],
    ),
    Row(
        "binary_cross_entropy_with_logits",
        Family::Softmax,
        |x| x[0].binary_cross_entropy_with_logits(&x[1], Reduction::Mean),
        |x| mean(x[0].data.iter().zip(&x[1].data).map(|(&a, t)| a - a * t + (-a).exp().ln_1p())),
        &[&[3, 5], &[3, 5]],
    ),
    Row(
        "nll_loss/log_probs",
        Family::Softmax,
        |x| x[0].nll_loss(&x[1], &Classes::default()),
        |x| mean((0..5).map(|i| -x[0].at(&[i, x[1].data[i] as usize]))),
        &[&[5, 4], &[5]],
    ),
    Row(
        "cross_entropy_loss",
        Family::Softmax,
        |x| {
            let classes = Classes { label_smoothing: 0.1, ..Classes::default() };
            x[0].cross_entropy_loss(&x[1], &classes)
        },
        |x| {
            mean((0..5).map(|i| {
                let total = (0..4).map(|c| x[0].at(&[i, c]).exp()).sum::<f64>().ln();
                let log = |c: usize| x[0].at(&[i, c]) - total;
                -0.9 * log(x[1].data[i] as usize) - 0.025 * (0..4).map(log).sum::<f64>()
            }))
        },
        &[&[5, 4], &[5]],
    ),
];
