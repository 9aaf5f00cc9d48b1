//! What tests know of arrangements.

use genesis_kernel::ir::DType;

use crate::ops::GridOrder;
use crate::ops::info::{Dense, Family, OpInfo, cpu, vector};
use crate::tensor::Tensor;

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "tensor_split",
        Family::Exact,
        |x| Ok(x[0].tensor_split(3, 0)?.swap_remove(1)),
        |x| Dense::from_fn(&[2, 2], |at| x[0].at(&[at[0] + 3, at[1]])),
        &[&[&[7, 2]]],
    )
    .peer("torch.tensor_split(x[0], 3, 0)[1]"),
    OpInfo::new(
        "tensor_split_at",
        Family::Exact,
        |x| Ok(x[0].tensor_split_at(&[1, -2], 0)?.swap_remove(1)),
        |x| Dense::from_fn(&[4, 2], |at| x[0].at(&[at[0] + 1, at[1]])),
        &[&[&[7, 2]]],
    )
    .peer("torch.tensor_split(x[0], (1, -2), 0)[1]"),
    OpInfo::new(
        "unflatten",
        Family::Exact,
        |x| x[0].unflatten(1, &[2, -1]),
        |x| Dense { shape: vec![2, 2, 3], data: x[0].data.clone() },
        &[&[&[2, 6]]],
    )
    .peer("x[0].unflatten(1, (2, -1))")
    .refusing(&[(
        || cpu(&[2, 6], DType::F32)?.unflatten(1, &[4, -1]),
        "unflatten: can't view shape [6] as [4, -1]",
    )]),
    OpInfo::new(
        "rot90",
        Family::Exact,
        |x| x[0].rot90(1, 0, 1),
        |x| Dense::from_fn(&[3, 2], |at| x[0].at(&[at[1], 2 - at[0]])),
        &[&[&[2, 3]]],
    )
    .peer("torch.rot90(x[0], 1, (0, 1))"),
    OpInfo::new(
        "vstack",
        Family::Exact,
        |x| Tensor::vstack(&[&x[0], &x[1]]),
        |x| Dense::from_fn(&[2, 3], |at| x[at[0]].at(&at[1..])),
        &[&[&[3], &[3]]],
    )
    .peer("torch.vstack(x)"),
    OpInfo::new(
        "dstack",
        Family::Exact,
        |x| Tensor::dstack(&[&x[0], &x[1]]),
        |x| Dense::from_fn(&[2, 3, 2], |at| x[at[2]].at(&at[..2])),
        &[&[&[2, 3], &[2, 3]]],
    )
    .peer("torch.dstack(x)"),
    OpInfo::new(
        "block_diag",
        Family::Exact,
        |x| Tensor::block_diag(&[&x[0], &x[1]]),
        |x| {
            Dense::from_fn(&[3, 5], |at| match (at[0] < 2, at[1] < 3) {
                (true, true) => x[0].at(at),
                (false, false) => x[1].at(&[at[1] - 3]),
                _ => 0.0,
            })
        },
        &[&[&[2, 3], &[2]]],
    ),
    OpInfo::new(
        "combinations",
        Family::Exact,
        |x| x[0].combinations(2, false),
        |x| {
            let pairs = [[0, 1], [0, 2], [1, 2]];
            Dense::from_fn(&[3, 2], |at| x[0].data[pairs[at[0]][at[1]]])
        },
        &[&[&[3]]],
    )
    .peer("torch.combinations(x[0], 2)"),
    OpInfo::new(
        "tile",
        Family::Exact,
        |x| x[0].tile(&[2]),
        |x| Dense::from_fn(&[2, 6], |at| x[0].at(&[at[0], at[1] % 3])),
        &[&[&[2, 3]]],
    )
    .peer("torch.tile(x[0], (2,))"),
    OpInfo::new(
        "diff",
        Family::Arithmetic,
        |x| x[0].diff(1, 0),
        |x| Dense::from_fn(&[2, 2], |at| x[0].at(&[at[0] + 1, at[1]]) - x[0].at(at)),
        &[&[&[3, 2]]],
    )
    .peer("torch.diff(x[0], 1, 0)"),
    OpInfo::new(
        "trace",
        Family::Sum,
        |x| x[0].trace(),
        |x| Dense { shape: Vec::new(), data: vec![(0..3).map(|i| x[0].at(&[i, i])).sum()] },
        &[&[&[3, 4]]],
    ),
    OpInfo::new(
        "diag_embed",
        Family::Exact,
        |x| x[0].diag_embed(1, 0, 2),
        |x| {
            Dense::from_fn(&[4, 2, 4], |at| {
                if at[0] + 1 == at[2] { x[0].at(&[at[1], at[0]]) } else { 0.0 }
            })
        },
        &[&[&[2, 3]]],
    )
    .peer("torch.diag_embed(x[0], 1, 0, 2)"),
    OpInfo::new(
        "meshgrid/xy",
        Family::Exact,
        |x| Ok(Tensor::meshgrid(&[&x[0], &x[1]], GridOrder::Xy)?.swap_remove(0)),
        |x| Dense::from_fn(&[3, 2], |at| x[0].at(&at[1..])),
        &[&[&[2], &[3]]],
    )
    .peer("torch.meshgrid(x[0], x[1], indexing='xy')[0]")
    .of(&[DType::F32, DType::I64])
    .flat(),
    OpInfo::new(
        "cartesian_prod",
        Family::Exact,
        |x| Tensor::cartesian_prod(&[&x[0], &x[1]]),
        |x| {
            Dense::from_fn(&[6, 2], |at| {
                if at[1] == 0 { x[0].data[at[0] / 3] } else { x[1].data[at[0] % 3] }
            })
        },
        &[&[&[2], &[3]]],
    ),
    OpInfo::new(
        "tril_indices",
        Family::Exact,
        |x| Tensor::tril_indices(x[0].shape()[0], x[0].shape()[1], 0, (DType::I64, x[0].device())),
        |_| Dense { shape: vec![2, 3], data: vec![0.0, 1.0, 1.0, 0.0, 0.0, 1.0] },
        &[&[&[2, 3]]],
    )
    .peer("torch.tril_indices(*x[0].shape, 0, device=x[0].device)")
    .of(&[DType::F32])
    .flat(),
    OpInfo::new(
        "swapaxes",
        Family::Exact,
        |x| x[0].swapaxes(0, 1),
        |x| Dense::from_fn(&[3, 2], |at| x[0].at(&[at[1], at[0]])),
        &[&[&[2, 3]]],
    )
    .peer("torch.swapaxes(x[0], 0, 1)"),
    OpInfo::new(
        "ravel",
        Family::Exact,
        |x| x[0].ravel(),
        |x| vector(x[0].data.clone()),
        &[&[&[2, 3]]],
    ),
    OpInfo::new(
        "broadcast_tensors",
        Family::Exact,
        |x| Tensor::broadcast_tensors(&[&x[0], &x[1]])?.swap_remove(1).copy(),
        |x| Dense::from_fn(&[2, 3], |at| x[1].at(&[at[0], 0])),
        &[&[&[3], &[2, 1]]],
    )
    .peer("torch.broadcast_tensors(x[0], x[1])[1].contiguous()"),
    OpInfo::new(
        "expand_as",
        Family::Exact,
        |x| x[0].expand_as(&x[1])?.copy(),
        |x| Dense::from_fn(&[2, 3], |at| x[0].at(&[at[0], 0])),
        &[&[&[2, 1], &[2, 3]]],
    )
    .peer("x[0].expand_as(x[1]).contiguous()")
    .flat(),
    OpInfo::new(
        "reshape_as",
        Family::Exact,
        |x| x[0].reshape_as(&x[1]),
        |x| Dense { shape: vec![3, 2], data: x[0].data.clone() },
        &[&[&[2, 3], &[3, 2]]],
    )
    .peer("x[0].reshape_as(x[1])")
    .flat(),
    OpInfo::new(
        "hstack",
        Family::Exact,
        |x| Tensor::hstack(&[&x[0], &x[1]]),
        |x| {
            Dense::from_fn(&[2, 5], |at| {
                if at[1] < 3 { x[0].at(at) } else { x[1].at(&[at[0], at[1] - 3]) }
            })
        },
        &[&[&[2, 3], &[2, 2]]],
    )
    .peer("torch.hstack(x)"),
    OpInfo::new(
        "column_stack",
        Family::Exact,
        |x| Tensor::column_stack(&[&x[0], &x[1]]),
        |x| {
            Dense::from_fn(&[2, 3], |at| {
                if at[1] == 0 { x[0].data[at[0]] } else { x[1].at(&[at[0], at[1] - 1]) }
            })
        },
        &[&[&[2], &[2, 2]]],
    )
    .peer("torch.column_stack(x)"),
    OpInfo::new(
        "atleast_1d",
        Family::Exact,
        |x| x[0].atleast_1d(),
        |x| vector(x[0].data.clone()),
        &[&[&[]]],
    ),
    OpInfo::new(
        "atleast_2d",
        Family::Exact,
        |x| x[0].atleast_2d(),
        |x| Dense { shape: vec![1, 3], data: x[0].data.clone() },
        &[&[&[3]]],
    ),
    OpInfo::new(
        "atleast_3d",
        Family::Exact,
        |x| x[0].atleast_3d(),
        |x| Dense { shape: vec![2, 3, 1], data: x[0].data.clone() },
        &[&[&[2, 3]]],
    ),
    OpInfo::new(
        "fliplr",
        Family::Exact,
        |x| x[0].fliplr(),
        |x| Dense::from_fn(&[2, 3], |at| x[0].at(&[at[0], 2 - at[1]])),
        &[&[&[2, 3]]],
    ),
    OpInfo::new(
        "flipud",
        Family::Exact,
        |x| x[0].flipud(),
        |x| Dense::from_fn(&[2, 3], |at| x[0].at(&[1 - at[0], at[1]])),
        &[&[&[2, 3]]],
    ),
    OpInfo::new(
        "diag",
        Family::Exact,
        |x| x[0].diag(1),
        |x| Dense::from_fn(&[4, 4], |at| if at[1] == at[0] + 1 { x[0].data[at[0]] } else { 0.0 }),
        &[&[&[3]]],
    )
    .peer("torch.diag(x[0], 1)"),
    OpInfo::new(
        "diag/of a matrix",
        Family::Exact,
        |x| x[0].diag(0),
        |x| Dense::from_fn(&[2], |at| x[0].at(&[at[0], at[0]])),
        &[&[&[2, 3]]],
    )
    .peer("torch.diag(x[0])"),
    OpInfo::new(
        "triu_indices",
        Family::Exact,
        |x| Tensor::triu_indices(x[0].shape()[0], x[0].shape()[1], 1, (DType::I64, x[0].device())),
        |_| Dense { shape: vec![2, 3], data: vec![0.0, 0.0, 1.0, 1.0, 2.0, 2.0] },
        &[&[&[2, 3]]],
    )
    .peer("torch.triu_indices(*x[0].shape, 1, device=x[0].device)")
    .of(&[DType::F32])
    .flat(),
];
