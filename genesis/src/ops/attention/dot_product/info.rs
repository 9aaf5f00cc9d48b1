//! What tests know of attention.

use genesis_kernel::ir::DType;

use crate::ops::Attention;
use crate::ops::info::{Dense, Family, OpInfo, numel};

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
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
        &[&[&[2, 3, 4], &[2, 3, 4], &[2, 3, 4]]],
    )
    .computing(|x, y| 4.0 * y * x[1][1] as f64)
    .peer("F.scaled_dot_product_attention(x[0], x[1], x[2], is_causal=True)"),
    OpInfo::new(
        "attention_with_lse",
        Family::Softmax,
        |x| Ok(x[0].attention_with_lse(&x[1], &x[1], &Attention::default())?.1),
        |x| {
            Dense::from_fn(&[2, 3], |at| {
                let score = |s: usize| {
                    (0..4)
                        .map(|d| x[0].at(&[at[0], at[1], d]) * x[1].at(&[at[0], s, d]))
                        .sum::<f64>()
                        / 2.0
                };
                (0..3).map(|s| score(s).exp()).sum::<f64>().ln()
            })
        },
        &[&[&[2, 3, 4], &[2, 3, 4]]],
    )
    .computing(|x, y| 2.0 * y * numel(&x[1][1..]))
    .without_peer("PyTorch gives the logarithms through private calls only")
    .within(-2.0, 2.0)
    .of(&[DType::F32])
    .flat(),
];
