//! What tests and benches know about every op: a slow and obviously right reference in f64, sample
//! inputs, and the calls that are refused with their exact text.

mod arith;
mod case;
mod math;
mod more;
mod nn;
mod places;
mod products;
mod sample;
mod shapes;
mod stats;
mod window;

use genesis_kernel::ir::DType;

use self::case::Case;
pub use self::sample::{Dense, Family, OpInfo, Refusal, Sample};
use self::sample::{FLOATS, NUMBERS, cpu, refuse, samples};
use super::elementwise::{BINARY, Binary, Domain, UNARY, Unary};
use crate::error::Result;
use crate::ops::Reduction;
use crate::tensor::Tensor;

/// The table of all ops.
pub fn all() -> Vec<OpInfo> {
    let unary = UNARY.iter().map(|row| unary_info(row));
    let binary = BINARY.iter().map(|row| binary_info(row));
    unary
        .chain(binary)
        .chain(reductions())
        .chain(scans())
        .chain(rows())
        .chain(products::products())
        .chain(views())
        .chain(math::infos())
        .chain(more::infos())
        .chain(cases())
        .chain(window::infos())
        .chain(nn::infos())
        .collect()
}

/// Ops that are made of others.
fn cases() -> Vec<OpInfo> {
    let tables: [&[Case]; 4] = [arith::CASES, shapes::CASES, stats::CASES, places::CASES];
    tables.into_iter().flatten().map(case::info).collect()
}

fn unary_info(row: &'static Unary) -> OpInfo {
    let is_exact = matches!(row.name, "neg" | "abs" | "relu" | "floor" | "ceil" | "round");
    let low = row.at.iter().copied().fold(f64::INFINITY, f64::min);
    let high = row.at.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_float = row.domain != Domain::Number;
    let apply = move |x: &Tensor| super::apply(row, &[x]);
    let refused = if is_float {
        vec![refuse(
            move || apply(&cpu(&[2], DType::I32)?),
            &format!("{}: needs a float dtype, got i32", row.name),
        )]
    } else {
        vec![refuse(
            move || apply(&cpu(&[2], DType::Bool)?),
            &format!("{}: needs a number dtype, got bool", row.name),
        )]
    };
    OpInfo {
        name: row.name.to_owned(),
        family: match row.name {
            _ if is_exact => Family::Exact,
            "sqrt" => Family::Arithmetic,
            "gelu" | "gelu_slope" | "silu" => Family::Chain,
            _ => Family::Transcendental,
        },
        dtypes: if is_float { FLOATS.to_vec() } else { NUMBERS.to_vec() },
        index_inputs: Vec::new(),
        is_differentiable: row.grad.is_some() && !matches!(row.name, "floor" | "ceil" | "round"),
        call: Box::new(move |x| apply(&x[0])),
        reference: Box::new(move |x| Dense {
            shape: x[0].shape.clone(),
            data: x[0].data.iter().map(|&v| (row.reference)(v)).collect(),
        }),
        samples: samples(
            &[&[&[]], &[&[1]], &[&[7]], &[&[3, 5]], &[&[2, 3, 33]], &[&[0, 4]], &[&[5000]]],
            (low, high),
        ),
        refused,
    }
}

fn binary_info(row: &'static Binary) -> OpInfo {
    let call = move |x: &Tensor, y: &Tensor| match row.name {
        "add" => x.add(y),
        "sub" => x.sub(y),
        "mul" => x.mul(y),
        "div" => x.div(y),
        "maximum" => x.maximum(y),
        _ => x.minimum(y),
    };
    let is_extreme = matches!(row.name, "maximum" | "minimum");
    let name = row.name;
    let refused = vec![
        refuse(
            move || call(&cpu(&[2, 3], DType::F32)?, &cpu(&[4], DType::F32)?),
            &format!("{name}: shapes do not broadcast, [2, 3] and [4]"),
        ),
        refuse(
            move || call(&cpu(&[2], DType::F8E4M3)?, &cpu(&[2], DType::F8E4M3)?),
            &format!(
                "{name}: needs a number dtype, got f8e4m3, which is for storage: convert it with `to_dtype`"
            ),
        ),
        refuse(
            || cpu(&[2], DType::Bool)?.sub(&cpu(&[2], DType::Bool)?),
            "sub: needs a number dtype, got bool",
        ),
    ];
    OpInfo {
        name: name.to_owned(),
        family: if is_extreme { Family::Exact } else { Family::Arithmetic },
        dtypes: NUMBERS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(move |x| call(&x[0], &x[1])),
        reference: Box::new(move |x| {
            let shapes = [&x[0].shape[..], &x[1].shape[..]];
            let shape = crate::shape::broadcast_shapes(name, &shapes).expect("samples broadcast");
            Dense::from_fn(&shape, |at| (row.reference)(x[0].at(at), x[1].at(at)))
        }),
        samples: samples(
            &[
                &[&[], &[]],
                &[&[7], &[7]],
                &[&[3, 5], &[5]],
                &[&[3, 1], &[1, 5]],
                &[&[2, 3, 33], &[3, 1]],
                &[&[0, 4], &[4]],
                &[&[2, 1, 3, 1, 5], &[4, 1, 2, 1]],
                &[&[5000], &[1]],
            ],
            (1.0, 9.0),
        ),
        refused,
    }
}

/// The reference of a reduction over `dims` by a fold of the reduced values.
fn reduce(x: &Dense, dims: &[usize], keep: bool, fold: fn(&[f64]) -> f64) -> Dense {
    let kept: Vec<usize> =
        x.shape.iter().enumerate().map(|(a, &e)| if dims.contains(&a) { 1 } else { e }).collect();
    let mut groups = vec![Vec::new(); crate::shape::product(kept.iter())];
    let mut source = x.data.iter();
    Dense::from_fn(&x.shape, |at| {
        let group = at.iter().zip(&kept).fold(0, |i, (&c, &e)| i * e + if e == 1 { 0 } else { c });
        groups[group].push(*source.next().expect("one value for each coordinate"));
        0.0
    });
    let shape = if keep {
        kept
    } else {
        x.shape.iter().enumerate().filter(|(a, _)| !dims.contains(a)).map(|(_, &e)| e).collect()
    };
    Dense { shape, data: groups.iter().map(|g| fold(g)).collect() }
}

fn sum_of(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn mean_of(values: &[f64]) -> f64 {
    sum_of(values) / values.len() as f64
}

fn max_of(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn min_of(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn argmax_of(values: &[f64]) -> f64 {
    let best = max_of(values);
    values.iter().position(|&v| v == best).unwrap_or(0) as f64
}

fn argmin_of(values: &[f64]) -> f64 {
    let best = min_of(values);
    values.iter().position(|&v| v == best).unwrap_or(0) as f64
}

type Fold = fn(&[f64]) -> f64;
type DimsCall = fn(&Tensor, &[i64], bool) -> Result<Tensor>;

fn reductions() -> Vec<OpInfo> {
    let rows: [(&'static str, Family, DimsCall, Fold); 4] = [
        ("sum", Family::Sum, Tensor::sum_dims, sum_of),
        ("mean", Family::Sum, Tensor::mean_dims, mean_of),
        ("max", Family::Exact, Tensor::max_dims, max_of),
        ("min", Family::Exact, Tensor::min_dims, min_of),
    ];
    let over: [(&[i64], &[usize], bool); 5] = [
        (&[-1], &[2], false),
        (&[0], &[0], true),
        (&[1], &[1], false),
        (&[0, 2], &[0, 2], true),
        (&[0, 1, 2], &[0, 1, 2], false),
    ];
    let mut infos = Vec::new();
    for (name, family, call, fold) in rows {
        for (dims, axes, keep) in over {
            infos.push(OpInfo {
                name: format!("{name}/dims={dims:?}"),
                family,
                dtypes: if name == "mean" {
                    FLOATS.to_vec()
                } else {
                    vec![DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32]
                },
                index_inputs: Vec::new(),
                is_differentiable: true,
                call: Box::new(move |x| call(&x[0], dims, keep)),
                reference: Box::new(move |x| reduce(&x[0], axes, keep, fold)),
                samples: samples(
                    &[&[&[2, 3, 4]], &[&[1, 1, 1]], &[&[3, 40, 70]], &[&[2, 5, 1200]]],
                    (-3.0, 3.0),
                ),
                refused: vec![
                    refuse(
                        move || call(&cpu(&[2], DType::F32)?, &[1], false),
                        &format!("{name}: dimension 1 is out of range for shape [2]"),
                    ),
                    refuse(
                        move || call(&cpu(&[2, 2], DType::F32)?, &[0, -2], false),
                        &format!("{name}: [0, -2] names a dimension twice"),
                    ),
                ],
            });
        }
    }
    type Row = (&'static str, fn(&Tensor, i64) -> Result<Tensor>, Fold);
    let arg: [Row; 2] =
        [("argmax", Tensor::argmax, argmax_of), ("argmin", Tensor::argmin, argmin_of)];
    for (name, call, fold) in arg {
        for dim in 0..3usize {
            infos.push(OpInfo {
                name: format!("{name}/dim={dim}"),
                family: Family::Exact,
                dtypes: vec![DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64],
                index_inputs: Vec::new(),
                is_differentiable: false,
                call: Box::new(move |x| call(&x[0], dim as i64)),
                reference: Box::new(move |x| reduce(&x[0], &[dim], false, fold)),
                samples: samples(&[&[&[2, 3, 4]], &[&[1, 1, 1]], &[&[3, 4, 70]]], (-30.0, 30.0)),
                refused: vec![refuse(
                    move || call(&cpu(&[2, 0], DType::F32)?, 1),
                    &format!("{name}: has no index over no elements, shape [2, 0]"),
                )],
            });
        }
    }
    infos
}

/// The reference of a running sum along `dim` of a tensor of rank 3.
fn cumsum_of(x: &Dense, dim: usize) -> Dense {
    Dense::from_fn(&x.shape, |at| {
        let mut from = at.to_vec();
        let terms = (0..=at[dim]).map(|j| {
            from[dim] = j;
            x.at(&from)
        });
        terms.sum()
    })
}

fn scans() -> Vec<OpInfo> {
    let info = |dim: usize| OpInfo {
        name: format!("cumsum/dim={dim}"),
        family: Family::Sum,
        dtypes: vec![DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32],
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(move |x| x[0].cumsum(dim as i64)),
        reference: Box::new(move |x| cumsum_of(&x[0], dim)),
        samples: samples(
            &[&[&[2, 3, 4]], &[&[1, 1, 1]], &[&[0, 2, 3]], &[&[3, 40, 70]]],
            (-3.0, 3.0),
        ),
        refused: vec![
            refuse(
                || cpu(&[2], DType::F32)?.cumsum(1),
                "cumsum: dimension 1 is out of range for shape [2]",
            ),
            refuse(
                || cpu(&[2], DType::F8E5M2)?.cumsum(0),
                "cumsum: needs a number dtype, got f8e5m2, which is for storage: convert it with `to_dtype`",
            ),
        ],
    };
    (0..3).map(info).collect()
}

/// The reference of an op that works on each row of the last axis.
fn by_row(x: &Dense, f: impl Fn(&[f64]) -> Vec<f64>) -> Dense {
    let n = x.shape.last().copied().unwrap_or(1);
    let data = if n == 0 { Vec::new() } else { x.data.chunks(n).flat_map(f).collect() };
    Dense { shape: x.shape.clone(), data }
}

fn softmax_of(row: &[f64]) -> Vec<f64> {
    let top = max_of(row);
    let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
    row.iter().map(|v| (v - top).exp() / total).collect()
}

fn log_softmax_of(row: &[f64]) -> Vec<f64> {
    let top = max_of(row);
    let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
    row.iter().map(|v| v - top - total.ln()).collect()
}

fn rows() -> Vec<OpInfo> {
    let shapes: &[&[&[usize]]] =
        &[&[&[1]], &[&[3, 7]], &[&[2, 3, 130]], &[&[0, 4]], &[&[2, 17000]]];
    let softmax = |name: &'static str,
                   call: fn(&Tensor, i64) -> Result<Tensor>,
                   f: fn(&[f64]) -> Vec<f64>| OpInfo {
        name: name.to_owned(),
        family: Family::Softmax,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(move |x| call(&x[0], -1)),
        reference: Box::new(move |x| by_row(&x[0], f)),
        samples: samples(shapes, (-8.0, 8.0)),
        refused: vec![
            refuse(
                move || call(&cpu(&[], DType::F32)?, -1),
                &format!("{name}: dimension -1 is out of range for shape []"),
            ),
            refuse(
                move || call(&cpu(&[2], DType::I64)?, -1),
                &format!("{name}: needs a float dtype, got i64"),
            ),
        ],
    };
    vec![
        softmax("softmax", Tensor::softmax, softmax_of),
        softmax("log_softmax", Tensor::log_softmax, log_softmax_of),
        layer_norm(),
        rms_norm(),
        cross_entropy(),
    ]
}

fn layer_norm() -> OpInfo {
    OpInfo {
        name: "layer_norm".to_owned(),
        family: Family::Softmax,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(|x| x[0].layer_norm(&x[1], &x[2], 1e-5)),
        reference: Box::new(|x| {
            by_row(&x[0], |row| {
                let mean = mean_of(row);
                let var =
                    row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / row.len() as f64;
                let normed = row.iter().map(|v| (v - mean) / (var + 1e-5).sqrt());
                normed.zip(x[1].data.iter().zip(&x[2].data)).map(|(h, (w, b))| h * w + b).collect()
            })
        }),
        samples: samples(
            &[
                &[&[3, 7], &[7], &[7]],
                &[&[2, 3, 130], &[130], &[130]],
                &[&[0, 4], &[4], &[4]],
                &[&[2, 17000], &[17000], &[17000]],
            ],
            (-3.0, 3.0),
        ),
        refused: vec![
            refuse(
                || {
                    cpu(&[], DType::F32)?.layer_norm(
                        &cpu(&[1], DType::F32)?,
                        &cpu(&[1], DType::F32)?,
                        1e-5,
                    )
                },
                "layer_norm: needs at least 1 dimension(s), got shape []",
            ),
            refuse(
                || {
                    cpu(&[2, 3], DType::F32)?.layer_norm(
                        &cpu(&[2], DType::F32)?,
                        &cpu(&[3], DType::F32)?,
                        1e-5,
                    )
                },
                "layer_norm: weight is [2], the last axis of [2, 3] needs [3]",
            ),
        ],
    }
}

fn rms_norm() -> OpInfo {
    OpInfo {
        name: "rms_norm".to_owned(),
        family: Family::Softmax,
        dtypes: FLOATS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(|x| x[0].rms_norm(&x[1], 1e-5)),
        reference: Box::new(|x| {
            by_row(&x[0], |row| {
                let square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
                row.iter().zip(&x[1].data).map(|(v, w)| v / (square + 1e-5).sqrt() * w).collect()
            })
        }),
        samples: samples(
            &[
                &[&[3, 7], &[7]],
                &[&[2, 3, 130], &[130]],
                &[&[0, 4], &[4]],
                &[&[2, 17000], &[17000]],
            ],
            (-3.0, 3.0),
        ),
        refused: vec![refuse(
            || cpu(&[2, 3], DType::F32)?.rms_norm(&cpu(&[2], DType::F32)?, 1e-5),
            "rms_norm: weight is [2], the last axis of [2, 3] needs [3]",
        )],
    }
}

fn cross_entropy() -> OpInfo {
    OpInfo {
        name: "cross_entropy".to_owned(),
        family: Family::Softmax,
        dtypes: FLOATS.to_vec(),
        index_inputs: vec![(1, 7)],
        is_differentiable: true,
        call: Box::new(|x| x[0].cross_entropy(&x[1], Reduction::Mean)),
        reference: Box::new(|x| {
            let n = *x[0].shape.last().expect("samples have a class axis");
            let losses = x[0]
                .data
                .chunks(n)
                .zip(&x[1].data)
                .map(|(row, &t)| -log_softmax_of(row)[t as usize]);
            Dense { shape: Vec::new(), data: vec![losses.sum::<f64>() / x[1].data.len() as f64] }
        }),
        samples: samples(
            &[&[&[1, 7], &[1]], &[&[5, 7], &[5]], &[&[2, 3, 130], &[2, 3]], &[&[2, 5000], &[2]]],
            (-5.0, 5.0),
        ),
        refused: vec![
            refuse(
                || {
                    cpu(&[2, 3], DType::F32)?
                        .cross_entropy(&cpu(&[2], DType::F32)?, Reduction::Mean)
                },
                "cross_entropy: the target must be i64, got f32",
            ),
            refuse(
                || {
                    cpu(&[2, 3], DType::F32)?
                        .cross_entropy(&cpu(&[3], DType::I64)?, Reduction::Mean)
                },
                "cross_entropy: logits are [2, 3], the target [3] must be [2]",
            ),
            refuse(
                || {
                    let target = Tensor::from_slice_on(
                        &[0i64, -100, 3],
                        &[3],
                        genesis_kernel::runtime::Device::Cpu,
                    )?;
                    cpu(&[3, 3], DType::F32)?.cross_entropy(&target, Reduction::Mean)
                },
                "cross_entropy: class 3 is out of range for 3 classes",
            ),
        ],
    }
}

fn views() -> Vec<OpInfo> {
    type Row = (&'static str, fn(&Tensor) -> Result<Tensor>, fn(&Dense) -> Dense);
    let rows: [Row; 6] = [
        ("reshape", |x| x.reshape(&[6, 4]), |x| Dense { shape: vec![6, 4], data: x.data.clone() }),
        (
            "permute",
            |x| x.permute(&[2, 0, 1])?.contiguous(),
            |x| Dense::from_fn(&[4, 2, 3], |at| x.at(&[at[1], at[2], at[0]])),
        ),
        (
            "narrow",
            |x| x.narrow(1, 1, 2)?.copy(),
            |x| Dense::from_fn(&[2, 2, 4], |at| x.at(&[at[0], at[1] + 1, at[2]])),
        ),
        (
            "step",
            |x| x.step(2, 2)?.copy(),
            |x| Dense::from_fn(&[2, 3, 2], |at| x.at(&[at[0], at[1], at[2] * 2])),
        ),
        (
            "broadcast_to",
            |x| x.broadcast_to(&[3, 2, 3, 4])?.copy(),
            |x| Dense::from_fn(&[3, 2, 3, 4], |at| x.at(&at[1..])),
        ),
        ("square", Tensor::square, |x| Dense {
            shape: x.shape.clone(),
            data: x.data.iter().map(|v| v * v).collect(),
        }),
    ];
    let info = |(name, call, reference): Row| OpInfo {
        name: name.to_owned(),
        family: if name == "square" { Family::Arithmetic } else { Family::Exact },
        dtypes: NUMBERS.to_vec(),
        index_inputs: Vec::new(),
        is_differentiable: true,
        call: Box::new(move |x| call(&x[0])),
        reference: Box::new(move |x| reference(&x[0])),
        samples: samples(&[&[&[2, 3, 4]]], (0.0, 9.0)),
        refused: Vec::new(),
    };
    rows.into_iter().map(info).collect()
}
