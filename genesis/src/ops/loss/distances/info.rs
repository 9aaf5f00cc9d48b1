//! What tests know of losses that compare elements or rows.

use genesis_kernel::ir::DType;

use crate::ops::info::{Dense, Family, OpInfo, cpu, mean, scalar, zip};
use crate::ops::{Reduction, Triplet};

/// The mean of a function of two inputs of one shape.
fn mean_of_pairs(x: &[Dense], f: impl Fn(f64, f64) -> f64) -> Dense {
    scalar(mean(&zip(&x[0], &x[1], f).data))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b + 1e-6) * (a - b + 1e-6)).sum::<f64>().sqrt()
}

/// The root of the sum of squares.
fn length(row: &[f64]) -> f64 {
    row.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

pub(in crate::ops) static INFOS: &[OpInfo] = &[
    OpInfo::new(
        "mse_loss",
        Family::Softmax,
        |x| x[0].mse_loss(&x[1], Reduction::Mean),
        |x| mean_of_pairs(x, |a, b| (a - b) * (a - b)),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.mse_loss(x[0], x[1])")
    .within(-3.0, 3.0),
    OpInfo::new(
        "l1_loss",
        Family::Softmax,
        |x| x[0].l1_loss(&x[1], Reduction::Mean),
        |x| mean_of_pairs(x, |a, b| (a - b).abs()),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.l1_loss(x[0], x[1])")
    .within(-3.0, 3.0),
    OpInfo::new(
        "huber_loss",
        Family::Softmax,
        |x| x[0].huber_loss(&x[1], 1.5, Reduction::Mean),
        |x| {
            mean_of_pairs(x, |a, b| {
                let d = (a - b).abs();
                if d < 1.5 { 0.5 * d * d } else { 1.5 * (d - 0.75) }
            })
        },
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.huber_loss(x[0], x[1], delta=1.5)"),
    OpInfo::new(
        "smooth_l1_loss",
        Family::Softmax,
        |x| x[0].smooth_l1_loss(&x[1], 0.5, Reduction::Mean),
        |x| {
            mean_of_pairs(x, |a, b| {
                let d = (a - b).abs();
                if d < 0.5 { d * d } else { d - 0.25 }
            })
        },
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.smooth_l1_loss(x[0], x[1], beta=0.5)")
    .within(-3.0, 3.0),
    OpInfo::new(
        "binary_cross_entropy",
        Family::Softmax,
        |x| x[0].binary_cross_entropy(&x[1], Reduction::Mean),
        |x| mean_of_pairs(x, |p, t| -t * p.ln() - (1.0 - t) * (1.0 - p).ln()),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.binary_cross_entropy(x[0], x[1])")
    .within(0.1, 0.9)
    .refusing(&[(
        || {
            let (x, t) = (cpu(&[2], DType::F32)?, cpu(&[1], DType::F32)?);
            x.binary_cross_entropy(&t, Reduction::Mean)
        },
        "binary_cross_entropy: x is [2], the target [1]",
    )]),
    OpInfo::new(
        "binary_cross_entropy_with_logits",
        Family::Softmax,
        |x| x[0].binary_cross_entropy_with_logits(&x[1], Reduction::Mean),
        |x| mean_of_pairs(x, |a, t| a - a * t + (-a).exp().ln_1p()),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.binary_cross_entropy_with_logits(x[0], x[1])"),
    OpInfo::new(
        "binary_cross_entropy_with_pos_weight",
        Family::Softmax,
        |x| x[0].binary_cross_entropy_with_pos_weight(&x[1], &x[2], Reduction::Mean),
        |x| {
            let n = x[0].data.len() as f64;
            let loss = |i: usize| {
                let (v, t, w) = (x[0].data[i], x[1].data[i], x[2].data[i % 5]);
                -w * t * sigmoid(v).ln() - (1.0 - t) * sigmoid(-v).ln()
            };
            scalar((0..x[0].data.len()).map(loss).sum::<f64>() / n)
        },
        &[&[&[3, 5], &[3, 5], &[5]]],
    )
    .peer("F.binary_cross_entropy_with_logits(x[0], x[1], pos_weight=x[2])")
    .within(0.1, 3.0),
    OpInfo::new(
        "kl_div",
        Family::Softmax,
        |x| x[0].kl_div(&x[1], false, Reduction::Mean),
        |x| mean_of_pairs(x, |a, t| t * (t.ln() - a)),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.kl_div(x[0], x[1], reduction='mean')")
    .within(0.1, 2.0),
    OpInfo::new(
        "kl_div/log_target",
        Family::Softmax,
        |x| x[0].kl_div(&x[1], true, Reduction::Mean),
        |x| mean_of_pairs(x, |a, t| t.exp() * (t - a)),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.kl_div(x[0], x[1], reduction='mean', log_target=True)")
    .within(-2.0, 0.0),
    OpInfo::new(
        "poisson_nll_loss",
        Family::Softmax,
        |x| x[0].poisson_nll_loss(&x[1], true, true, 1e-8, Reduction::Mean),
        |x| {
            mean_of_pairs(x, |a, t| {
                let stirling = t * t.ln() - t + 0.5 * (2.0 * std::f64::consts::PI * t).ln();
                a.exp() - t * a + if t > 1.0 { stirling } else { 0.0 }
            })
        },
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.poisson_nll_loss(x[0], x[1], full=True)")
    .within(0.1, 3.0),
    OpInfo::new(
        "gaussian_nll_loss",
        Family::Softmax,
        |x| x[0].gaussian_nll_loss(&x[1], &x[2], true, 1e-6, Reduction::Mean),
        |x| {
            let loss = |i: usize| {
                let (a, t, v) = (x[0].data[i], x[1].data[i], x[2].data[i / 5]);
                0.5 * (v.ln() + (a - t) * (a - t) / v + (2.0 * std::f64::consts::PI).ln())
            };
            scalar((0..15).map(loss).sum::<f64>() / 15.0)
        },
        &[&[&[3, 5], &[3, 5], &[3]]],
    )
    .peer("F.gaussian_nll_loss(x[0], x[1], x[2], full=True)")
    .within(0.2, 3.0),
    OpInfo::new(
        "hinge_embedding_loss",
        Family::Softmax,
        |x| {
            let sign = x[1].detach().sub_scalar(0.5)?.sign()?;
            x[0].hinge_embedding_loss(&sign, 0.5, Reduction::Mean)?
                .add(&x[1].sum()?.mul_scalar(0.0)?)
        },
        |x| mean_of_pairs(x, |a, t| if t > 0.5 { a } else { (0.5 - a).max(0.0) }),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer(
        "F.hinge_embedding_loss(x[0], (x[1].detach() - 0.5).sign(), \
             0.5) + x[1].sum() * 0.0",
    )
    .within(0.1, 0.9),
    OpInfo::new(
        "soft_margin_loss",
        Family::Softmax,
        |x| x[0].soft_margin_loss(&x[1], Reduction::Mean),
        |x| mean_of_pairs(x, |a, t| (-t * a).exp().ln_1p()),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.soft_margin_loss(x[0], x[1])")
    .within(-2.0, 2.0),
    OpInfo::new(
        "margin_ranking_loss",
        Family::Softmax,
        |x| x[0].margin_ranking_loss(&x[1], &x[2], 0.5, Reduction::Mean),
        |x| {
            let loss = |i: usize| (0.5 - x[2].data[i] * (x[0].data[i] - x[1].data[i])).max(0.0);
            scalar((0..15).map(loss).sum::<f64>() / 15.0)
        },
        &[&[&[3, 5], &[3, 5], &[3, 5]]],
    )
    .peer("F.margin_ranking_loss(x[0], x[1], x[2], 0.5)")
    .within(-2.0, 2.0),
    OpInfo::new(
        "cosine_similarity",
        Family::Softmax,
        |x| x[0].cosine_similarity(&x[1], -1, 1e-8),
        |x| Dense::from_fn(&[3], |at| cosine(x[0].row(at[0]), x[1].row(at[0]))),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.cosine_similarity(x[0], x[1], -1)")
    .within(0.1, 3.0),
    OpInfo::new(
        "normalize",
        Family::Softmax,
        |x| x[0].normalize(2.0, -1, 1e-12),
        |x| Dense::from_fn(&[3, 5], |at| x[0].at(at) / length(x[0].row(at[0]))),
        &[&[&[3, 5]]],
    )
    .peer("F.normalize(x[0], dim=-1)")
    .within(0.1, 3.0)
    .refusing(&[(
        || cpu(&[3], DType::F32)?.normalize(2.0, 1, 1e-12),
        "sum: dimension 1 is out of range for shape [3]",
    )]),
    OpInfo::new(
        "pairwise_distance",
        Family::Softmax,
        |x| x[0].pairwise_distance(&x[1], 2.0, 1e-6, false),
        |x| Dense::from_fn(&[3], |at| distance(x[0].row(at[0]), x[1].row(at[0]))),
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer("F.pairwise_distance(x[0], x[1])")
    .within(-3.0, 3.0),
    OpInfo::new(
        "cosine_embedding_loss",
        Family::Softmax,
        |x| {
            let sign = x[0].detach().select(1, 0)?.sub_scalar(1.5)?.sign()?;
            x[0].cosine_embedding_loss(&x[1], &sign, 0.1, Reduction::Mean)
        },
        |x| {
            let loss = |i: usize| match cosine(x[0].row(i), x[1].row(i)) {
                cos if x[0].at(&[i, 0]) > 1.5 => 1.0 - cos,
                cos => (cos - 0.1).max(0.0),
            };
            scalar((0..3).map(loss).sum::<f64>() / 3.0)
        },
        &[&[&[3, 5], &[3, 5]]],
    )
    .peer(
        "F.cosine_embedding_loss(x[0], x[1], (x[0].detach().select(1, \
             0) - 1.5).sign(), 0.1)",
    )
    .within(0.1, 3.0),
    OpInfo::new(
        "triplet_margin_loss",
        Family::Softmax,
        |x| x[0].triplet_margin_loss([&x[1], &x[2]], &Triplet::default()),
        |x| {
            let loss = |i: usize| {
                let to = |other: &Dense| distance(x[0].row(i), other.row(i));
                (to(&x[1]) - to(&x[2]) + 1.0).max(0.0)
            };
            scalar((0..3).map(loss).sum::<f64>() / 3.0)
        },
        &[&[&[3, 5], &[3, 5], &[3, 5]]],
    )
    .peer("F.triplet_margin_loss(x[0], x[1], x[2])")
    .within(-3.0, 3.0),
];
