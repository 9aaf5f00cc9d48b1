//! `torch.nn.functional`: activations and losses.

use anyhow::Result;
use genesis::Tensor;
use genesis::ops::{Ctc, Reduction, Triplet};

use super::call::Call;
use super::rows_nn::{along, reduction};
use super::table::{Outs, Row, one};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("nn.functional.relu6", |c| one(c.x()?.relu6())),
    ("nn.functional.hardsigmoid", |c| one(c.x()?.hardsigmoid())),
    ("nn.functional.selu", |c| one(c.x()?.selu())),
    ("nn.functional.celu", |c| one(c.x()?.celu(c.float(1, "alpha", Some(1.0))?))),
    ("nn.functional.softsign", |c| one(c.x()?.softsign())),
    ("nn.functional.tanhshrink", |c| one(c.x()?.tanhshrink())),
    ("nn.functional.logsigmoid", |c| one(c.x()?.log_sigmoid())),
    ("nn.functional.hardtanh", |c| {
        let (low, high) = (c.float(1, "min_val", Some(-1.0))?, c.float(2, "max_val", Some(1.0))?);
        one(c.x()?.hardtanh(low, high))
    }),
    ("nn.functional.hardshrink", |c| one(c.x()?.hardshrink(c.float(1, "lambd", Some(0.5))?))),
    ("nn.functional.softshrink", |c| one(c.x()?.softshrink(c.float(1, "lambd", Some(0.5))?))),
    ("nn.functional.threshold", |c| {
        one(c.x()?.threshold(c.float(1, "threshold", None)?, c.float(2, "value", None)?))
    }),
    ("nn.functional.prelu", |c| one(c.x()?.prelu(c.tensor(1, "weight")?))),
    ("nn.functional.glu", |c| one(c.x()?.glu(c.int(1, "dim", Some(-1))?))),
    ("nn.functional.softmin", |c| along(c, Tensor::softmin)),
    ("nn.functional.cosine_similarity", |c| {
        let (dim, eps) = (c.int(2, "dim", Some(1))?, c.float(3, "eps", Some(1e-8))?);
        one(c.x()?.cosine_similarity(c.tensor(1, "x2")?, dim, eps))
    }),
    ("nn.functional.pairwise_distance", |c| {
        let (p, eps) = (c.float(2, "p", Some(2.0))?, c.float(3, "eps", Some(1e-6))?);
        let keep = c.flag(4, "keepdim", false)?;
        one(c.x()?.pairwise_distance(c.tensor(1, "x2")?, p, eps, keep))
    }),
    ("nn.functional.kl_div", |c| {
        let log = c.flag(9, "log_target", false)?;
        one(c.x()?.kl_div(c.tensor(1, "target")?, log, reduction(c, 4)?))
    }),
    ("nn.functional.poisson_nll_loss", |c| {
        let (log, full) = (c.flag(2, "log_input", true)?, c.flag(3, "full", false)?);
        let (target, eps) = (c.tensor(1, "target")?, c.float(5, "eps", Some(1e-8))?);
        one(c.x()?.poisson_nll_loss(target, log, full, eps, reduction(c, 7)?))
    }),
    ("nn.functional.gaussian_nll_loss", |c| {
        let (target, variance) = (c.tensor(1, "target")?, c.tensor(2, "var")?);
        let (full, eps) = (c.flag(3, "full", false)?, c.float(4, "eps", Some(1e-6))?);
        one(c.x()?.gaussian_nll_loss(target, variance, full, eps, reduction(c, 5)?))
    }),
    ("nn.functional.soft_margin_loss", |c| {
        one(c.x()?.soft_margin_loss(c.tensor(1, "target")?, reduction(c, 4)?))
    }),
    ("nn.functional.hinge_embedding_loss", |c| {
        let margin = c.float(2, "margin", Some(1.0))?;
        one(c.x()?.hinge_embedding_loss(c.tensor(1, "target")?, margin, reduction(c, 5)?))
    }),
    ("nn.functional.margin_ranking_loss", |c| {
        let (other, target) = (c.tensor(1, "input2")?, c.tensor(2, "target")?);
        let margin = c.float(3, "margin", Some(0.0))?;
        one(c.x()?.margin_ranking_loss(other, target, margin, reduction(c, 6)?))
    }),
    ("nn.functional.cosine_embedding_loss", |c| {
        let (other, target) = (c.tensor(1, "input2")?, c.tensor(2, "target")?);
        let margin = c.float(3, "margin", Some(0.0))?;
        one(c.x()?.cosine_embedding_loss(other, target, margin, reduction(c, 6)?))
    }),
    ("nn.functional.triplet_margin_loss", |c| {
        let plain = Triplet::default();
        let options = Triplet {
            margin: c.float(3, "margin", Some(plain.margin))?,
            p: c.float(4, "p", Some(plain.p))?,
            eps: c.float(5, "eps", Some(plain.eps))?,
            swap: c.flag(6, "swap", plain.swap)?,
            reduction: reduction(c, 9)?,
        };
        let pair = [c.tensor(1, "positive")?, c.tensor(2, "negative")?];
        one(c.x()?.triplet_margin_loss(pair, &options))
    }),
    ("nn.functional.ctc_loss/of_logits", |c| {
        let count = |n: &i64| Ok(usize::try_from(*n)?);
        let counts = |at: usize, name: &str| -> Result<Vec<usize>> {
            c.tensor(at, name)?.to_vec::<i64>()?.iter().map(count).collect()
        };
        let options = Ctc {
            blank: c.count(4, "blank", Some(0))?,
            zero_infinity: c.flag(6, "zero_infinity", false)?,
            reduction: reduction(c, 5)?,
        };
        let (frames, labels) = (counts(2, "input_lengths")?, counts(3, "target_lengths")?);
        one(c.x()?.log_softmax(-1)?.ctc_loss(c.tensor(1, "targets")?, &frames, &labels, &options))
    }),
    ("nn.functional.binary_cross_entropy", |c| {
        let (target, how) = (c.tensor(1, "target")?, reduction(c, 9)?);
        let x = c.x()?;
        weighed(c, how, |how| x.binary_cross_entropy(target, how))
    }),
    ("nn.functional.binary_cross_entropy_with_logits", |c| {
        let (target, how) = (c.tensor(1, "target")?, reduction(c, 9)?);
        let positive = c.tensor_or_none(9, "pos_weight")?;
        let x = c.x()?;
        weighed(c, how, |how| match positive {
            Some(weight) => x.binary_cross_entropy_with_pos_weight(target, weight, how),
            None => x.binary_cross_entropy_with_logits(target, how),
        })
    }),
    ("nn.functional.instance_norm", |c| {
        // Each channel of each sample is a group of its own.
        let (x, eps) = (c.x()?, c.float(7, "eps", Some(1e-5))?);
        let (weight, bias) = (c.tensor_or_none(3, "weight")?, c.tensor_or_none(4, "bias")?);
        one(x.group_norm(x.dim(1)?, weight, bias, eps))
    }),
    ("nn.functional.bilinear", |c| {
        let product = Tensor::einsum(
            "...i,oij,...j->...o",
            &[c.x()?, c.tensor(2, "weight")?, c.tensor(1, "input2")?],
        )?;
        match c.tensor_or_none(3, "bias")? {
            Some(bias) => one(product.add(bias)),
            None => Ok(vec![product]),
        }
    }),
    ("nn.functional.normalize", |c| {
        let (p, dim) = (c.float(1, "p", Some(2.0))?, c.int(2, "dim", Some(1))?);
        one(c.x()?.normalize(p, dim, c.float(3, "eps", Some(1e-12))?))
    }),
];

/// Losses that each count as often as `weight` says, where it is given.
fn weighed(
    c: &Call,
    how: Reduction,
    losses: impl Fn(Reduction) -> genesis::Result<Tensor>,
) -> Outs {
    let Some(weight) = c.tensor_or_none(2, "weight")? else { return one(losses(how)) };
    let losses = losses(Reduction::None)?.mul(weight)?;
    one(match how {
        Reduction::None => Ok(losses),
        Reduction::Sum => losses.sum(),
        Reduction::Mean => losses.mean(),
    })
}
