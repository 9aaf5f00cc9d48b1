//! Samples and references of ops on shapes.

use genesis_kernel::ir::DType;

use super::case::{Case, WIDE, vector};
use super::sample::{Dense, Family, cpu, refuse};
use crate::ops::GridOrder;
use crate::tensor::Tensor;

pub(super) static CASES: &[Case] = &[
    Case::new(
        "tensor_split",
        Family::Exact,
        |x| Ok(x[0].tensor_split(3, 0)?.swap_remove(1)),
        |x| Dense::from_fn(&[2, 2], |at| x[0].at(&[at[0] + 3, at[1]])),
        &[&[7, 2]],
    ),
    Case::new(
        "tensor_split_at",
        Family::Exact,
        |x| Ok(x[0].tensor_split_at(&[1, -2], 0)?.swap_remove(1)),
        |x| Dense::from_fn(&[4, 2], |at| x[0].at(&[at[0] + 1, at[1]])),
        &[&[7, 2]],
    ),
    Case::new(
        "unflatten",
        Family::Exact,
        |x| x[0].unflatten(1, &[2, -1]),
        |x| Dense { shape: vec![2, 2, 3], data: x[0].data.clone() },
        &[&[2, 6]],
    )
    .refusing(|| {
        vec![refuse(
            || cpu(&[2, 6], DType::F32)?.unflatten(1, &[4, -1]),
            "unflatten: can't view shape [6] as [4, -1]",
        )]
    }),
    Case::new(
        "rot90",
        Family::Exact,
        |x| x[0].rot90(1, 0, 1),
        |x| Dense::from_fn(&[3, 2], |at| x[0].at(&[at[1], 2 - at[0]])),
        &[&[2, 3]],
    ),
    Case::new(
        "vstack",
        Family::Exact,
        |x| Tensor::vstack(&[&x[0], &x[1]]),
        |x| Dense::from_fn(&[2, 3], |at| x[at[0]].at(&at[1..])),
        &[&[3], &[3]],
    ),
    Case::new(
        "dstack",
        Family::Exact,
        |x| Tensor::dstack(&[&x[0], &x[1]]),
        |x| Dense::from_fn(&[2, 3, 2], |at| x[at[2]].at(&at[..2])),
        &[&[2, 3], &[2, 3]],
    ),
    Case::new(
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
        &[&[2, 3], &[2]],
    ),
    Case::new(
        "combinations",
        Family::Exact,
        |x| x[0].combinations(2, false),
        |x| {
            let pairs = [[0, 1], [0, 2], [1, 2]];
            Dense::from_fn(&[3, 2], |at| x[0].data[pairs[at[0]][at[1]]])
        },
        &[&[3]],
    ),
    Case::new(
        "tile",
        Family::Exact,
        |x| x[0].tile(&[2]),
        |x| Dense::from_fn(&[2, 6], |at| x[0].at(&[at[0], at[1] % 3])),
        &[&[2, 3]],
    ),
    Case::new(
        "diff",
        Family::Arithmetic,
        |x| x[0].diff(1, 0),
        |x| Dense::from_fn(&[2, 2], |at| x[0].at(&[at[0] + 1, at[1]]) - x[0].at(at)),
        &[&[3, 2]],
    ),
    Case::new(
        "trace",
        Family::Sum,
        |x| x[0].trace(),
        |x| Dense { shape: Vec::new(), data: vec![(0..3).map(|i| x[0].at(&[i, i])).sum()] },
        &[&[3, 4]],
    ),
    Case::new(
        "diag_embed",
        Family::Exact,
        |x| x[0].diag_embed(1, 0, 2),
        |x| {
            Dense::from_fn(&[4, 2, 4], |at| {
                if at[0] + 1 == at[2] { x[0].at(&[at[1], at[0]]) } else { 0.0 }
            })
        },
        &[&[2, 3]],
    ),
    Case::new(
        "meshgrid/xy",
        Family::Exact,
        |x| Ok(Tensor::meshgrid(&[&x[0], &x[1]], GridOrder::Xy)?.swap_remove(0)),
        |x| Dense::from_fn(&[3, 2], |at| x[0].at(&at[1..])),
        &[&[2], &[3]],
    )
    .of(&[DType::F32, DType::I64])
    .flat(),
    Case::new(
        "cartesian_prod",
        Family::Exact,
        |x| Tensor::cartesian_prod(&[&x[0], &x[1]]),
        |x| {
            Dense::from_fn(&[6, 2], |at| {
                if at[1] == 0 { x[0].data[at[0] / 3] } else { x[1].data[at[0] % 3] }
            })
        },
        &[&[2], &[3]],
    ),
    Case::new(
        "unfold",
        Family::Exact,
        |x| x[0].unfold(0, 3, 2),
        |x| Dense::from_fn(&[3, 2, 3], |at| x[0].at(&[at[0] * 2 + at[2], at[1]])),
        &[&[8, 2]],
    )
    .refusing(|| {
        vec![
            refuse(
                || cpu(&[2], DType::F32)?.unfold(0, 3, 1),
                "unfold: a window of 3 does not fit dimension 0 of shape [2]",
            ),
            refuse(|| cpu(&[2], DType::F32)?.unfold(0, 1, 0), "unfold: a step of 0 never ends"),
            refuse(
                || cpu(&[5], DType::F32)?.slice_step(0, None, None, 0),
                "slice: a step of 0 never ends",
            ),
        ]
    }),
    Case::new(
        "as_strided",
        Family::Exact,
        |x| x[0].contiguous()?.as_strided(&[3, 2], &[2, 1], 1),
        |x| Dense::from_fn(&[3, 2], |at| x[0].data[1 + 2 * at[0] + at[1]]),
        &[&[3, 3]],
    )
    .of(WIDE)
    .refusing(|| {
        vec![refuse(
            || cpu(&[4], DType::F32)?.as_strided(&[3], &[2], 0),
            "as_strided: shape [3] with strides [2] leaves a storage of 4",
        )]
    }),
    Case::new(
        "tril_indices",
        Family::Exact,
        |x| Tensor::tril_indices(2, 3, 0, (DType::I64, x[0].device())),
        |_| Dense { shape: vec![2, 3], data: vec![0.0, 1.0, 1.0, 0.0, 0.0, 1.0] },
        &[&[1]],
    )
    .of(&[DType::F32])
    .flat(),
    Case::new(
        "logspace",
        Family::Transcendental,
        |x| Tensor::logspace(0.0, 2.0, 3, 10.0, (x[0].dtype(), x[0].device())),
        |_| vector(vec![1.0, 10.0, 100.0]),
        &[&[1]],
    )
    .of(WIDE)
    .flat(),
];
