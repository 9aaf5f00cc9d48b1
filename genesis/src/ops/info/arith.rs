//! Samples and references of elementwise ops made of others, and of products of vectors.

use genesis_kernel::ir::DType;

use super::case::{Case, WIDE, map, vector, zip};
use super::sample::{Dense, Family, cpu, refuse};
use crate::ops::{RoundingMode, Tolerance};
use crate::tensor::Tensor;

const NUMBERS: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64];

pub(super) static CASES: &[Case] = &[
    Case::new(
        "div_rounded/floor",
        Family::Exact,
        |x| x[0].div_rounded(&x[1], RoundingMode::Floor),
        |x| zip(&x[0], &x[1], |a, b| (a / b).floor()),
        &[&[3, 5], &[3, 5]],
    )
    .of(NUMBERS)
    .within(1.0, 9.0)
    .flat(),
    Case::new(
        "div_rounded/trunc",
        Family::Exact,
        |x| x[0].neg()?.div_rounded(&x[1], RoundingMode::Trunc),
        |x| zip(&x[0], &x[1], |a, b| (-a / b).trunc()),
        &[&[3, 5], &[3, 5]],
    )
    .of(NUMBERS)
    .within(1.0, 9.0)
    .flat(),
    Case::new(
        "rsub_scalar",
        Family::Arithmetic,
        |x| x[0].rsub_scalar(2.0),
        |x| map(&x[0], |v| 2.0 - v),
        &[&[3, 5]],
    ),
    Case::new(
        "rpow_scalar",
        Family::Transcendental,
        |x| x[0].rpow_scalar(2.0),
        |x| map(&x[0], |v| 2f64.powf(v)),
        &[&[3, 5]],
    )
    .of(WIDE),
    Case::new(
        "logaddexp2",
        Family::Softmax,
        |x| x[0].logaddexp2(&x[1]),
        |x| zip(&x[0], &x[1], |a, b| (a.exp2() + b.exp2()).log2()),
        &[&[3, 5], &[3, 5]],
    ),
    Case::new(
        "heaviside",
        Family::Exact,
        |x| x[0].sub_scalar(2.0)?.floor()?.heaviside(&x[1]),
        |x| {
            zip(&x[0], &x[1], |a, b| match (a - 2.0).floor() {
                v if v < 0.0 => 0.0,
                v if v > 0.0 => 1.0,
                _ => b,
            })
        },
        &[&[3, 5], &[3, 5]],
    )
    .of(WIDE)
    .flat(),
    Case::new(
        "signbit",
        Family::Exact,
        |x| x[0].sub_scalar(2.0)?.signbit(),
        |x| map(&x[0], |v| f64::from(u8::from(v - 2.0 < 0.0))),
        &[&[3, 5]],
    )
    .of(NUMBERS)
    .flat(),
    Case::new(
        "deg2rad",
        Family::Transcendental,
        |x| x[0].deg2rad(),
        |x| map(&x[0], f64::to_radians),
        &[&[3, 5]],
    ),
    Case::new(
        "rad2deg",
        Family::Transcendental,
        |x| x[0].rad2deg(),
        |x| map(&x[0], f64::to_degrees),
        &[&[3, 5]],
    ),
    Case::new(
        "logit",
        Family::Softmax,
        |x| x[0].logit(None),
        |x| map(&x[0], |v| (v / (1.0 - v)).ln()),
        &[&[3, 5]],
    )
    .within(0.1, 0.4)
    .of(WIDE),
    Case::new(
        "polygamma/2",
        Family::Softmax,
        |x| x[0].polygamma(2),
        |x| map(&x[0], |v| -2.0 * (0..200_000).map(|k| (v + f64::from(k)).powi(-3)).sum::<f64>()),
        &[&[3, 5]],
    )
    .within(2.0, 9.0)
    .of(&[DType::F32]),
    Case::new(
        "isclose",
        Family::Exact,
        |x| x[0].isclose(&x[1], &Tolerance { absolute: 1.0, ..Tolerance::default() }),
        |x| zip(&x[0], &x[1], |a, b| f64::from(u8::from((a - b).abs() <= 1.0 + 1e-5 * b))),
        &[&[7, 5], &[7, 5]],
    )
    .flat()
    .refusing(|| {
        vec![refuse(
            || cpu(&[2], DType::F32)?.isclose(&cpu(&[2], DType::F64)?, &Tolerance::default()),
            "isclose: dtypes differ, f32 and f64; convert one with to_dtype",
        )]
    }),
    Case::new(
        "isin",
        Family::Exact,
        |x| x[0].isin(&x[1]),
        |x| map(&x[0], |v| f64::from(u8::from(x[1].data.contains(&v)))),
        &[&[3, 5], &[3]],
    )
    .of(&[DType::F32, DType::I64, DType::U8])
    .flat(),
    Case::new(
        "fmax",
        Family::Exact,
        |x| x[0].fmax(&x[1]),
        |x| zip(&x[0], &x[1], f64::max),
        &[&[3, 5], &[3, 5]],
    )
    .of(WIDE),
    Case::new(
        "bitwise_left_shift",
        Family::Exact,
        |x| x[0].bitwise_left_shift(&x[1])?.bitwise_right_shift(&x[1]),
        |x| x[0].clone(),
        &[&[3, 5], &[3, 5]],
    )
    .of(&[DType::I64, DType::I32, DType::U8])
    .flat()
    .refusing(|| {
        vec![refuse(
            || cpu(&[2], DType::F32)?.bitwise_left_shift(&cpu(&[2], DType::F32)?),
            "bitwise_left_shift: does not take f32",
        )]
    }),
    Case::new(
        "multi_dot",
        Family::Softmax,
        |x| Tensor::multi_dot(&[&x[0], &x[1], &x[2]]),
        |x| {
            Dense::from_fn(&[2], |at| {
                let pairs = (0..3).flat_map(|i| (0..4).map(move |j| (i, j)));
                pairs.map(|(i, j)| x[0].at(&[at[0], i]) * x[1].at(&[i, j]) * x[2].data[j]).sum()
            })
        },
        &[&[2, 3], &[3, 4], &[4]],
    )
    .within(-1.0, 1.0)
    .of(WIDE),
    Case::new(
        "cov",
        Family::Softmax,
        |x| x[0].cov(1.0),
        |x| {
            let mean = |i: usize| (0..5).map(|k| x[0].at(&[i, k])).sum::<f64>() / 5.0;
            let off = |i: usize, k: usize| x[0].at(&[i, k]) - mean(i);
            Dense::from_fn(&[3, 3], |at| {
                (0..5).map(|k| off(at[0], k) * off(at[1], k)).sum::<f64>() / 4.0
            })
        },
        &[&[3, 5]],
    )
    .of(WIDE),
    Case::new(
        "tensordot",
        Family::MatMul,
        |x| x[0].tensordot(&x[1], &[0, 2], &[1, 0]),
        |x| {
            Dense::from_fn(&[3, 5], |at| {
                let pairs = (0..2).flat_map(|i| (0..4).map(move |k| (i, k)));
                pairs.map(|(i, k)| x[0].at(&[i, at[0], k]) * x[1].at(&[k, i, at[1]])).sum()
            })
        },
        &[&[2, 3, 4], &[4, 2, 5]],
    )
    .refusing(|| {
        vec![refuse(
            || cpu(&[2, 3], DType::F32)?.tensordot(&cpu(&[4], DType::F32)?, &[1], &[0]),
            "tensordot: axes [1] of [2, 3] do not match [0] of [4]",
        )]
    }),
    Case::new(
        "matmul/ints",
        Family::Exact,
        |x| x[0].matmul(&x[1]),
        |x| {
            Dense::from_fn(&[3, 5], |at| {
                (0..4).map(|k| x[0].at(&[at[0], k]) * x[1].at(&[k, at[1]])).sum()
            })
        },
        &[&[3, 4], &[4, 5]],
    )
    .of(&[DType::I8, DType::U8, DType::I16, DType::I32, DType::I64])
    .flat(),
    Case::new(
        "kron",
        Family::Arithmetic,
        |x| x[0].kron(&x[1]),
        |x| {
            Dense::from_fn(&[4, 6], |at| {
                x[0].at(&[at[0] / 2, at[1] / 3]) * x[1].at(&[at[0] % 2, at[1] % 3])
            })
        },
        &[&[2, 2], &[2, 3]],
    ),
    Case::new(
        "cross",
        Family::Softmax,
        |x| x[0].cross(&x[1], 0),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let (i, j) = ((at[0] + 1) % 3, (at[0] + 2) % 3);
                let of = |n: usize, i: usize| x[n].at(&[i, at[1]]);
                of(0, i) * of(1, j) - of(0, j) * of(1, i)
            })
        },
        &[&[3, 2], &[3, 2]],
    )
    .of(WIDE)
    .refusing(|| {
        vec![refuse(
            || cpu(&[2], DType::F32)?.cross(&cpu(&[2], DType::F32)?, 0),
            "cross: dimension 0 of [2] must have 3 elements",
        )]
    }),
    Case::new(
        "cdist/2",
        Family::Softmax,
        |x| x[0].cdist(&x[1], 2.0),
        |x| {
            Dense::from_fn(&[3, 2], |at| {
                let off = |d: usize| x[0].at(&[at[0], d]) - x[1].at(&[at[1], d]);
                (0..4).map(|d| off(d) * off(d)).sum::<f64>().sqrt()
            })
        },
        &[&[3, 4], &[2, 4]],
    )
    .of(WIDE),
    Case::new(
        "dist/1",
        Family::Softmax,
        |x| x[0].dist(&x[1], 1.0),
        |x| {
            let off = x[0].data.iter().zip(&x[1].data).map(|(a, b)| (a - b).abs());
            Dense { shape: Vec::new(), data: vec![off.sum()] }
        },
        &[&[3, 4], &[3, 4]],
    )
    .of(WIDE),
    Case::new(
        "promotion/u8 and f32",
        Family::Arithmetic,
        |x| x[0].to_dtype(DType::U8)?.mul(&x[1])?.add_scalar(0.5),
        |x| zip(&x[0], &x[1], |a, b| a.trunc() * b + 0.5),
        &[&[7], &[7]],
    )
    .of(&[DType::F64])
    .flat(),
    Case::new(
        "linspace",
        Family::Arithmetic,
        |x| Tensor::linspace(1.0, 2.0, 5, (x[0].dtype(), x[0].device())),
        |_| vector(vec![1.0, 1.25, 1.5, 1.75, 2.0]),
        &[&[1]],
    )
    .flat(),
];
