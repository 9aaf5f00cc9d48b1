//! What tests know of indexing.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::ops::Index;
use crate::ops::info::{Dense, Family, OpInfo, cpu, vector};
use crate::tensor::Tensor;

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "gather",
        Family::Exact,
        |x| x[0].gather(0, &x[1]),
        |x| Dense::from_fn(&[5, 2], |at| x[0].at(&[x[1].at(at) as usize, at[1]])),
        &[&[&[3, 4], &[5, 2]]],
    )
    .peer("torch.gather(x[0], 0, x[1])")
    .indexed(&[(1, 3)])
    .refusing(&[
        (
            || {
                cpu(&[2, 3], DType::F32)?
                    .gather(0, &Tensor::full(&[1, 3], 2.0, DType::I64)?.to_device(Device::Cpu)?)
            },
            "gather: index 2 is out of range for 2 elements",
        ),
        (
            || cpu(&[2, 3], DType::F32)?.gather(0, &cpu(&[1, 4], DType::I64)?),
            "gather: an index of [1, 4] does not fit shape [2, 3]",
        ),
    ]),
    OpInfo::new(
        "take_along_dim",
        Family::Exact,
        |x| x[0].take_along_dim(&x[1], 0),
        |x| Dense::from_fn(&[5, 4], |at| x[0].at(&[x[1].at(&[at[0], 0]) as usize, at[1]])),
        &[&[&[3, 4], &[5, 1]]],
    )
    .peer("torch.take_along_dim(x[0], x[1], 0)")
    .indexed(&[(1, 3)]),
    OpInfo::new(
        "index_select",
        Family::Exact,
        |x| x[0].index_select(1, &x[1]),
        |x| Dense::from_fn(&[2, 5, 4], |at| x[0].at(&[at[0], x[1].data[at[1]] as usize, at[2]])),
        &[&[&[2, 3, 4], &[5]]],
    )
    .peer("torch.index_select(x[0], 1, x[1])")
    .indexed(&[(1, 3)]),
    OpInfo::new(
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
        &[&[&[3, 3, 4], &[5]]],
    )
    .peer("x[0][::2, x[1], None, -1]")
    .indexed(&[(1, 3)]),
    OpInfo::new(
        "index_add",
        Family::Sum,
        |x| x[0].index_add(0, &x[1], &x[2], 2.0),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let from = (0..5).filter(|&i| x[1].data[i] as usize == at[0]);
                x[0].at(at) + from.map(|i| 2.0 * x[2].at(&[i, at[1]])).sum::<f64>()
            })
        },
        &[&[&[3, 2], &[5], &[5, 2]]],
    )
    .peer("torch.index_add(x[0], 0, x[1], x[2], alpha=2.0)")
    .indexed(&[(1, 3)]),
    OpInfo::new(
        "scatter_add",
        Family::Sum,
        |x| x[0].scatter_add(0, &x[1], &x[2]),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let from = (0..4).filter(|&i| x[1].at(&[i, at[1]]) as usize == at[0]);
                x[0].at(at) + from.map(|i| x[2].at(&[i, at[1]])).sum::<f64>()
            })
        },
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter_add(x[0], 0, x[1], x[2])")
    .indexed(&[(1, 3)]),
    OpInfo::new(
        "scatter_add/ints",
        Family::Exact,
        |x| x[0].scatter_add(0, &x[1], &x[2]),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let from = (0..4).filter(|&i| x[1].at(&[i, at[1]]) as usize == at[0]);
                x[0].at(at) + from.map(|i| x[2].at(&[i, at[1]])).sum::<f64>()
            })
        },
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter_add(x[0], 0, x[1], x[2])")
    .indexed(&[(1, 3)])
    .of(&[DType::I64, DType::U8])
    .flat(),
    OpInfo::new(
        "scatter",
        Family::Exact,
        |x| x[0].scatter(0, &x[1], &x[2]),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let last = (0..4).rev().find(|&i| x[1].at(&[i, at[1]]) as usize == at[0]);
                last.map_or(x[0].at(at), |i| x[2].at(&[i, at[1]]))
            })
        },
        &[&[&[3, 2], &[4, 2], &[4, 2]]],
    )
    .peer("torch.scatter(x[0], 0, x[1], x[2])")
    .indexed(&[(1, 3)]),
    OpInfo::new(
        "index_put/add",
        Family::Sum,
        |x| x[0].index_put(&[Index::Tensor(x[1].clone())], &x[2], true),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let hit = (0..4).filter(|&i| x[1].data[i] as usize == at[0]);
                x[0].at(at) + hit.map(|i| x[2].at(&[i, at[1]])).sum::<f64>()
            })
        },
        &[&[&[3, 2], &[4], &[4, 2]]],
    )
    .peer("torch.index_put(x[0], (x[1],), x[2], True)")
    .indexed(&[(1, 3)])
    .of(&[DType::F32, DType::F64, DType::I64]),
    OpInfo::new(
        "take",
        Family::Exact,
        |x| x[0].take(&x[1]),
        |x| Dense::from_fn(&[2, 4], |at| x[0].data[x[1].at(at) as usize]),
        &[&[&[2, 3], &[2, 4]]],
    )
    .indexed(&[(1, 6)]),
    OpInfo::new(
        "nonzero",
        Family::Exact,
        |x| x[0].nonzero(),
        |x| {
            let n = x[0].shape[1];
            let at = (0..x[0].data.len()).filter(|&i| x[0].data[i] >= 1.0);
            let pairs: Vec<f64> = at.flat_map(|i| [(i / n) as f64, (i % n) as f64]).collect();
            Dense { shape: vec![pairs.len() / 2, 2], data: pairs }
        },
        &[&[&[3, 5]]],
    )
    .peer("torch.nonzero(x[0])")
    .whole()
    .within(0.0, 2.0)
    .flat(),
    OpInfo::new(
        "masked_select",
        Family::Exact,
        |x| x[0].masked_select(&x[0].detach().gt_scalar(2.0)?),
        |x| vector(x[0].data.iter().copied().filter(|v| *v > 2.0).collect()),
        &[&[&[3, 5]]],
    )
    .peer("torch.masked_select(x[0], x[0].detach() > 2.0)"),
    OpInfo::new(
        "set",
        Family::Exact,
        |x| {
            let y = x[0].copy()?;
            y.set(&[Index::At(1)], &x[1])?;
            Ok(y)
        },
        |x| Dense::from_fn(&[3, 2], |at| if at[0] == 1 { x[1].data[at[1]] } else { x[0].at(at) }),
        &[&[&[3, 2], &[2]]],
    )
    .peer("torch.select_scatter(x[0], x[1], 0, 1)"),
];
