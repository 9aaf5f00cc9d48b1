//! Losses as modules; each is a tensor's method of the same name.
//!
//! A loss that holds weights holds them as plain tensors: it is no module and has no state.

use super::Linear;
use crate::error::Result;
use crate::ops::{Classes, Ctc, LinearCrossEntropy, MultiMargin, Reduction, Triplet};
use crate::tensor::Tensor;

/// Cross entropy of logits against class indices, or against probabilities of classes.
///
/// Classes are axis 1, as in PyTorch, or the only axis.
#[derive(Clone, Debug, Default)]
pub struct CrossEntropyLoss {
    /// A weight for each class, `[C]`.
    pub weight: Option<Tensor>,
    /// A target that says its row does not count; -100 where absent.
    pub ignore_index: Option<i64>,
    /// The share of a target that is spread over all classes.
    pub label_smoothing: f64,
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

/// What PyTorch ignores where nothing is said.
const IGNORE: i64 = -100;

impl CrossEntropyLoss {
    /// The loss of `logits: [N, C, ..]` against `target: [N, ..]`, or against probabilities.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy_loss`].
    pub fn forward(&self, logits: &Tensor, target: &Tensor) -> Result<Tensor> {
        let plain = self.weight.is_none() && self.label_smoothing == 0.0;
        let ignore_index = self.ignore_index.unwrap_or(IGNORE);
        // One kernel where classes are the last axis and nothing else is asked for.
        if plain && ignore_index == IGNORE && logits.rank() <= 2 && !target.dtype().is_float() {
            return logits.cross_entropy(target, self.reduction);
        }
        let classes = Classes {
            weight: self.weight.clone(),
            ignore_index,
            label_smoothing: self.label_smoothing,
            reduction: self.reduction,
        };
        logits.cross_entropy_loss(target, &classes)
    }
}

/// Cross entropy of a linear layer's output against class indices, without all of it in memory.
#[derive(Clone, Debug, Default)]
pub struct LinearCrossEntropyLoss {
    /// Classes, soft cap, the loss of the logarithm's square, and reduction.
    pub options: LinearCrossEntropy,
}

impl LinearCrossEntropyLoss {
    /// The loss of `layer` of `x: [.., in]` against `target: [..]`.
    ///
    /// # Errors
    /// As [`Tensor::linear_cross_entropy`].
    pub fn forward(&self, x: &Tensor, layer: &Linear, target: &Tensor) -> Result<Tensor> {
        x.linear_cross_entropy(&layer.weight, layer.bias.as_deref(), target, &self.options)
    }
}

/// The negative of the log-probability of each target class.
#[derive(Clone, Debug, Default)]
pub struct NllLoss {
    /// A weight for each class, `[C]`.
    pub weight: Option<Tensor>,
    /// A target that says its row does not count; -100 where absent.
    pub ignore_index: Option<i64>,
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

impl NllLoss {
    /// The loss of `log_probs: [N, C, ..]` against `target: [N, ..]`.
    ///
    /// # Errors
    /// As [`Tensor::nll_loss`].
    pub fn forward(&self, log_probs: &Tensor, target: &Tensor) -> Result<Tensor> {
        let classes = Classes {
            weight: self.weight.clone(),
            ignore_index: self.ignore_index.unwrap_or(IGNORE),
            reduction: self.reduction,
            ..Classes::default()
        };
        log_probs.nll_loss(target, &classes)
    }
}

/// Losses times a weight that broadcasts, reduced.
fn weighted(
    weight: Option<&Tensor>,
    reduction: Reduction,
    losses: impl FnOnce(Reduction) -> Result<Tensor>,
) -> Result<Tensor> {
    match weight {
        Some(weight) => reduction.of(&losses(Reduction::None)?.mul(weight)?),
        None => losses(reduction),
    }
}

/// `-(target log(x) + (1 - target) log(1 - x))` of probabilities.
#[derive(Clone, Debug, Default)]
pub struct BceLoss {
    /// A weight for each loss, which broadcasts.
    pub weight: Option<Tensor>,
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

impl BceLoss {
    /// The loss of probabilities against targets of their shape.
    ///
    /// # Errors
    /// As [`Tensor::binary_cross_entropy`].
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        weighted(self.weight.as_ref(), self.reduction, |r| x.binary_cross_entropy(target, r))
    }
}

/// [`BceLoss`] of the sigmoid of scores, which does not overflow.
#[derive(Clone, Debug, Default)]
pub struct BceWithLogitsLoss {
    /// A weight for each loss, which broadcasts.
    pub weight: Option<Tensor>,
    /// How much a positive target counts, which broadcasts.
    pub pos_weight: Option<Tensor>,
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

impl BceWithLogitsLoss {
    /// The loss of scores against targets.
    ///
    /// # Errors
    /// As [`Tensor::binary_cross_entropy_with_logits`].
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        weighted(self.weight.as_ref(), self.reduction, |r| match &self.pos_weight {
            Some(pos) => x.binary_cross_entropy_with_pos_weight(target, pos, r),
            None => x.binary_cross_entropy_with_logits(target, r),
        })
    }
}

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr),* } = $method:ident($($operand:ident),+);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
            /// How the losses of a batch become one.
            pub reduction: Reduction,
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* reduction: Reduction::Mean }
            }
        }

        impl $name {
            /// The loss.
            ///
            /// # Errors
            /// If shapes do not fit.
            pub fn forward(&self, x: &Tensor, $($operand: &Tensor),+) -> Result<Tensor> {
                x.$method($($operand,)+ $(self.$field,)* self.reduction)
            }
        }
    )*};
}

losses! {
    /// Squared differences.
    MseLoss {} = mse_loss(target);
    /// Distances.
    L1Loss {} = l1_loss(target);
    /// Half the square of distances below `beta`, over `beta`; beyond it distances less `beta / 2`.
    SmoothL1Loss {
        /// Where squares end.
        beta: f64 = 1.0
    } = smooth_l1_loss(target);
    /// Half the square of distances up to `delta`, beyond it `delta * (distance - delta / 2)`.
    HuberLoss {
        /// Where squares end.
        delta: f64 = 1.0
    } = huber_loss(target);
    /// The negative log-likelihood of a Poisson distribution.
    PoissonNllLoss {
        /// Whether inputs are logarithms of rates.
        log_input: bool = true,
        /// Whether Stirling's approximation of the constant is added.
        full: bool = false,
        /// Added to rates before the logarithm.
        eps: f64 = 1e-8
    } = poisson_nll_loss(target);
    /// The negative log-likelihood of a normal distribution of known variance.
    GaussianNllLoss {
        /// Whether the constant is added.
        full: bool = false,
        /// The smallest variance.
        eps: f64 = 1e-6
    } = gaussian_nll_loss(target, variance);
    /// x where the target is 1, `max(0, margin - x)` where it is -1.
    HingeEmbeddingLoss {
        /// How far apart what does not belong together must be.
        margin: f64 = 1.0
    } = hinge_embedding_loss(target);
    /// `log(1 + exp(-target x))`, for targets of 1 and -1.
    SoftMarginLoss {} = soft_margin_loss(target);
    /// `max(0, margin - target (x - other))`.
    MarginRankingLoss {
        /// By how much one must be over the other.
        margin: f64 = 0.0
    } = margin_ranking_loss(other, target);
    /// Every target of a row over every class that is none by a margin of 1.
    MultiLabelMarginLoss {} = multilabel_margin_loss(target);
    /// `1 - cos` of rows where the target is 1, `max(0, cos - margin)` where it is -1.
    CosineEmbeddingLoss {
        /// How similar what does not belong together may be.
        margin: f64 = 0.0
    } = cosine_embedding_loss(other, target);
}

/// The mean over classes of `max(0, margin - x[target] + x[i])^p`.
#[derive(Clone, Debug, Default)]
pub struct MultiMarginLoss {
    /// Power, margin, weights and reduction.
    pub options: MultiMargin,
}

impl MultiMarginLoss {
    /// The loss of scores `[N, C]` against classes `[N]`.
    ///
    /// # Errors
    /// As [`Tensor::multi_margin_loss`].
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        x.multi_margin_loss(target, &self.options)
    }
}

/// The mean over classes of the cross entropy of each score's sigmoid against 0 or 1.
#[derive(Clone, Debug, Default)]
pub struct MultiLabelSoftMarginLoss {
    /// A weight for each class, `[C]`.
    pub weight: Option<Tensor>,
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

impl MultiLabelSoftMarginLoss {
    /// The loss of scores `[.., C]` against targets of their shape.
    ///
    /// # Errors
    /// As [`Tensor::multilabel_soft_margin_loss`].
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        x.multilabel_soft_margin_loss(target, self.weight.as_ref(), self.reduction)
    }
}

/// The divergence of Kullback and Leibler of log-probabilities against probabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KlDivLoss {
    /// Whether targets are log-probabilities too.
    pub log_target: bool,
    /// Whether the sum is divided by the extent of the first axis: PyTorch's `reduction="batchmean"`,
    /// which is the divergence itself. It takes the place of `reduction`.
    pub batch_mean: bool,
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

impl KlDivLoss {
    /// The loss of log-probabilities against a target.
    ///
    /// # Errors
    /// As [`Tensor::kl_div`].
    pub fn forward(&self, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        if !self.batch_mean {
            return x.kl_div(target, self.log_target, self.reduction);
        }
        let rows = x.shape().first().copied().unwrap_or(1);
        x.kl_div(target, self.log_target, Reduction::Sum)?.div_scalar(rows as f64)
    }
}

/// `max(0, d(anchor, positive) - d(anchor, negative) + margin)`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TripletMarginLoss {
    /// Margin, distance and reduction.
    pub options: Triplet,
}

impl TripletMarginLoss {
    /// The loss.
    ///
    /// # Errors
    /// As [`Tensor::triplet_margin_loss`].
    pub fn forward(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Result<Tensor> {
        anchor.triplet_margin_loss([positive, negative], &self.options)
    }
}

/// Connectionist temporal classification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtcLoss {
    /// Blank, reduction, and what an impossible labeling gives.
    pub options: Ctc,
}

impl CtcLoss {
    /// The loss of `log_probs: [T, N, C]` against labelings.
    ///
    /// # Errors
    /// As [`Tensor::ctc_loss`].
    pub fn forward(
        &self,
        log_probs: &Tensor,
        targets: &Tensor,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor> {
        log_probs.ctc_loss(targets, input_lengths, target_lengths, &self.options)
    }
}

/// The cosine of the angle between rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CosineSimilarity {
    /// The axis of the vectors.
    pub dim: i64,
    /// The smallest length.
    pub eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity { dim: 1, eps: 1e-8 }
    }
}

impl CosineSimilarity {
    /// The cosines.
    ///
    /// # Errors
    /// As [`Tensor::cosine_similarity`].
    pub fn forward(&self, x: &Tensor, other: &Tensor) -> Result<Tensor> {
        x.cosine_similarity(other, self.dim, self.eps)
    }
}

/// The distance between rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PairwiseDistance {
    /// The order of the norm.
    pub p: f64,
    /// Added to each difference.
    pub eps: f64,
    /// Whether the last axis stays, as extent 1.
    pub keepdim: bool,
}

impl Default for PairwiseDistance {
    fn default() -> PairwiseDistance {
        PairwiseDistance { p: 2.0, eps: 1e-6, keepdim: false }
    }
}

impl PairwiseDistance {
    /// The distances.
    ///
    /// # Errors
    /// As [`Tensor::pairwise_distance`].
    pub fn forward(&self, x: &Tensor, other: &Tensor) -> Result<Tensor> {
        x.pairwise_distance(other, self.p, self.eps, self.keepdim)
    }
}
