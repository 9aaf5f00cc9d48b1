//! What tests know of writes by index.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::ops::info::{Dense, Family, OpInfo, WIDE, cpu};
use crate::ops::{Index, ScatterReduce};
use crate::tensor::Tensor;

/// What is written to each element of a `[3, 2]` tensor by rows of a `[4, 2]` index, folded.
fn scattered(x: &[Dense], fold: fn(Option<f64>, &[f64]) -> f64, with_self: bool) -> Dense {
    Dense::from_fn(&[3, 2], |at| {
        let hit = (0..4).filter(|&i| x[1].at(&[i, at[1]]) as usize == at[0]);
        let values: Vec<f64> = hit.map(|i| x[2].at(&[i, at[1]])).collect();
        if values.is_empty() {
            return x[0].at(at);
        }
        fold(with_self.then(|| x[0].at(at)), &values)
    })
}

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "scatter_reduce/sum",
        Family::Sum,
        |x| x[0].scatter_reduce(0, &x[1], &x[2], ScatterReduce::Sum, false),
        |x| scattered(x, |own, v| own.unwrap_or(0.0) + v.iter().sum::<f64>(), false),
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter_reduce(x[0], 0, x[1], x[2], 'sum', include_self=False)")
    .indexed(&[(1, 3)])
    .of(&[DType::F32, DType::F64, DType::I64]),
    OpInfo::new(
        "scatter_reduce/mean",
        Family::Softmax,
        |x| x[0].scatter_reduce(0, &x[1], &x[2], ScatterReduce::Mean, true),
        |x| {
            let mean = |own: Option<f64>, v: &[f64]| {
                (own.unwrap_or(0.0) + v.iter().sum::<f64>())
                    / (v.len() + usize::from(own.is_some())) as f64
            };
            scattered(x, mean, true)
        },
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter_reduce(x[0], 0, x[1], x[2], 'mean')")
    .indexed(&[(1, 3)])
    .of(WIDE),
    OpInfo::new(
        "scatter_reduce/prod",
        Family::Softmax,
        |x| x[0].scatter_reduce(0, &x[1], &x[2], ScatterReduce::Prod, true),
        |x| scattered(x, |own, v| own.unwrap_or(1.0) * v.iter().product::<f64>(), true),
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter_reduce(x[0], 0, x[1], x[2], 'prod')")
    .indexed(&[(1, 3)])
    .of(&[DType::F32, DType::F64, DType::I64]),
    OpInfo::new(
        "scatter_reduce/amax",
        Family::Exact,
        |x| x[0].scatter_reduce(0, &x[1], &x[2], ScatterReduce::Amax, true),
        |x| scattered(x, |own, v| v.iter().copied().fold(own.unwrap_or(f64::MIN), f64::max), true),
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter_reduce(x[0], 0, x[1], x[2], 'amax')")
    .indexed(&[(1, 3)])
    .of(&[DType::F32, DType::F64, DType::I64]),
    OpInfo::new(
        "scatter_reduce/amin",
        Family::Exact,
        |x| x[0].scatter_reduce(0, &x[1], &x[2], ScatterReduce::Amin, false),
        |x| scattered(x, |own, v| v.iter().copied().fold(own.unwrap_or(f64::MAX), f64::min), false),
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter_reduce(x[0], 0, x[1], x[2], 'amin', include_self=False)")
    .indexed(&[(1, 3)])
    .of(&[DType::F32, DType::F64, DType::I64])
    .refusing(&[(
        || {
            let (x, at) = (cpu(&[2], DType::F32)?, cpu(&[1], DType::I64)?);
            x.scatter_reduce(0, &at, &cpu(&[1], DType::F64)?, ScatterReduce::Sum, true)
        },
        "scatter_reduce: dtypes differ, f32 and f64; convert one with to_dtype",
    )]),
    OpInfo::new(
        "index_copy",
        Family::Exact,
        |x| x[0].index_copy(0, &x[1], &x[2]),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let last = (0..4).rev().find(|&i| x[1].data[i] as usize == at[0]);
                last.map_or(x[0].at(at), |i| x[2].at(&[i, at[1]]))
            })
        },
        &[&[&[3, 2], &[4], &[4, 2]]],
    )
    .peer("torch.index_copy(x[0], 0, x[1], x[2])")
    .indexed(&[(1, 3)])
    .of(&[DType::F32, DType::F64, DType::I64]),
    OpInfo::new(
        "index_fill",
        Family::Exact,
        |x| x[0].index_fill(1, &x[1], 7.0),
        |x| {
            Dense::from_fn(
                &[2, 3],
                |at| if x[1].data[0] as usize == at[1] { 7.0 } else { x[0].at(at) },
            )
        },
        &[&[&[2, 3], &[1]]],
    )
    .peer("torch.index_fill(x[0], 1, x[1], 7.0)")
    .indexed(&[(1, 3)])
    .of(&[DType::F32, DType::F64, DType::I64]),
    OpInfo::new(
        "put/add",
        Family::Sum,
        |x| x[0].put(&x[1], &x[2], true),
        |x| {
            Dense::from_fn(&[2, 3], |at| {
                let own = at[0] * 3 + at[1];
                let hit = (0..4).filter(|&i| x[1].data[i] as usize == own);
                x[0].at(at) + hit.map(|i| x[2].data[i]).sum::<f64>()
            })
        },
        &[&[&[2, 3], &[4], &[4]]],
    )
    .peer("torch.put(x[0], x[1], x[2], True)")
    .indexed(&[(1, 6)])
    .of(&[DType::F32, DType::F64, DType::I64]),
    OpInfo::new(
        "masked_scatter",
        Family::Exact,
        |x| x[0].masked_scatter(&x[0].detach().gt_scalar(2.0)?, &x[1]),
        |x| {
            let mut next = x[1].data.iter();
            Dense::from_fn(&[2, 3], |at| match x[0].at(at) {
                v if v > 2.0 => *next.next().unwrap_or(&f64::NAN),
                v => v,
            })
        },
        &[&[&[2, 3], &[2, 3]]],
    )
    .peer("x[0].masked_scatter(x[0].detach() > 2.0, x[1])")
    .refusing(&[(
        || {
            let mask = Tensor::ones(&[3], (DType::Bool, Device::Cpu))?;
            cpu(&[3], DType::F32)?.masked_scatter(&mask, &cpu(&[2], DType::F32)?)
        },
        "masked_scatter: 2 elements for 3 places",
    )]),
    OpInfo::new(
        "slice_scatter",
        Family::Exact,
        |x| x[0].slice_scatter(&x[1], 0, Some(1), None, 2),
        |x| {
            Dense::from_fn(&[5, 2], |at| {
                if at[0] % 2 == 1 { x[1].at(&[at[0] / 2, at[1]]) } else { x[0].at(at) }
            })
        },
        &[&[&[5, 2], &[2, 2]]],
    )
    .peer("torch.slice_scatter(x[0], x[1], 0, 1, None, 2)"),
    OpInfo::new(
        "select_scatter",
        Family::Exact,
        |x| x[0].select_scatter(&x[1], 1, 1),
        |x| Dense::from_fn(&[3, 2], |at| if at[1] == 1 { x[1].data[at[0]] } else { x[0].at(at) }),
        &[&[&[3, 2], &[3]]],
    )
    .peer("torch.select_scatter(x[0], x[1], 1, 1)")
    .refusing(&[(
        || cpu(&[3, 2], DType::F32)?.select_scatter(&cpu(&[2], DType::F32)?, 1, 1),
        "select_scatter: needs [3], got [2]",
    )]),
    OpInfo::new(
        "index_reduce/amax",
        Family::Exact,
        |x| x[0].index_reduce(0, &x[1], &x[2], ScatterReduce::Amax, true),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let hit = (0..4).filter(|&i| x[1].data[i] as usize == at[0]);
                hit.map(|i| x[2].at(&[i, at[1]])).fold(x[0].at(at), f64::max)
            })
        },
        &[&[&[3, 2], &[4], &[4, 2]]],
    )
    .peer("torch.index_reduce(x[0], 0, x[1], x[2], 'amax')")
    .indexed(&[(1, 3)]),
    OpInfo::new(
        "scatter_value",
        Family::Exact,
        |x| x[0].scatter_value(0, &x[1], 7.0),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                if (0..4).any(|i| x[1].at(&[i, at[1]]) as usize == at[0]) {
                    7.0
                } else {
                    x[0].at(at)
                }
            })
        },
        &[&[&[3, 2], &[4, 2]]],
    )
    .peer("torch.scatter(x[0], 0, x[1], 7.0)")
    .indexed(&[(1, 3)]),
    OpInfo::new(
        "diagonal_scatter",
        Family::Exact,
        |x| x[0].diagonal_scatter(&x[1], 0, 0, 1),
        |x| {
            Dense::from_fn(
                &[3, 3],
                |at| if at[1] == at[0] { x[1].data[at[0]] } else { x[0].at(at) },
            )
        },
        &[&[&[3, 3], &[3]]],
    )
    .peer("torch.diagonal_scatter(x[0], x[1], 0, 0, 1)"),
    OpInfo::new(
        "with_index",
        Family::Exact,
        |x| x[0].with_index(&[Index::At(1)], &x[1]),
        |x| Dense::from_fn(&[3, 2], |at| if at[0] == 1 { x[1].data[at[1]] } else { x[0].at(at) }),
        &[&[&[3, 2], &[2]]],
    )
    .peer("torch.select_scatter(x[0], x[1], 0, 1)"),
];
