//! Which ops run in which precision under autocast. What is not here runs in the dtype of its operands.

/// In what an op's operands come under autocast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// In the 16 bits of the region.
    Half,
    /// In f32.
    Single,
    /// Where they differ, in f32.
    Widest,
}

use Precision::{Half, Single, Widest};

/// The ops that autocast changes, by name, in order. f64 and integers are left alone.
pub const OPS: &[(&str, Precision)] = &[
    ("acos", Single),
    ("acosh", Single),
    ("add", Widest),
    ("addbmm", Half),
    ("addmm", Half),
    ("addmv", Half),
    ("asin", Single),
    ("atan2", Widest),
    ("atanh", Single),
    ("attention", Half),
    ("baddbmm", Half),
    ("bce_with_logits", Single),
    ("bilinear", Half),
    ("bmm", Half),
    ("cat", Widest),
    ("conv", Half),
    ("conv1d", Half),
    ("conv2d", Half),
    ("conv3d", Half),
    ("conv_transpose", Half),
    ("conv_transpose1d", Half),
    ("conv_transpose2d", Half),
    ("conv_transpose3d", Half),
    ("copysign", Widest),
    ("cosh", Single),
    ("cosine_embedding_loss", Single),
    ("cosine_similarity", Single),
    ("cross", Widest),
    ("cross_entropy", Single),
    ("cumprod", Single),
    ("cumsum", Single),
    ("div", Widest),
    ("dot", Widest),
    ("einsum", Half),
    ("eq", Widest),
    ("erfc", Single),
    ("erfinv", Single),
    ("exp", Single),
    ("exp2", Single),
    ("expm1", Single),
    ("floor_divide", Widest),
    ("fmod", Widest),
    ("gaussian_nll_loss", Single),
    ("ge", Widest),
    ("group_norm", Single),
    ("gt", Widest),
    ("hinge_embedding_loss", Single),
    ("huber_loss", Single),
    ("hypot", Widest),
    ("instance_norm", Single),
    ("kl_div", Single),
    ("l1_loss", Single),
    ("layer_norm", Single),
    ("le", Widest),
    ("lerp", Widest),
    ("log", Single),
    ("log10", Single),
    ("log1p", Single),
    ("log2", Single),
    ("log_softmax", Single),
    ("logcumsumexp", Single),
    ("logsumexp", Single),
    ("lt", Widest),
    ("margin_ranking_loss", Single),
    ("matmul", Half),
    ("matmul_bias", Half),
    ("matmul_bias_gelu", Half),
    ("matmul_bias_relu", Half),
    ("matmul_bias_silu", Half),
    ("maximum", Widest),
    ("minimum", Widest),
    ("mm", Half),
    ("mse_loss", Single),
    ("mul", Widest),
    ("multi_margin_loss", Single),
    ("multilabel_margin_loss", Single),
    ("multilabel_soft_margin_loss", Single),
    ("mv", Half),
    ("ne", Widest),
    ("nll_loss", Single),
    ("norm", Single),
    ("pairwise_distance", Single),
    ("poisson_nll_loss", Single),
    ("pow", Single),
    ("pow_scalar", Single),
    ("prod", Single),
    ("rdiv_scalar", Single),
    ("reciprocal", Single),
    ("remainder", Widest),
    ("rms_norm", Single),
    ("rsqrt", Single),
    ("scaled_dot_product_attention", Half),
    ("sinh", Single),
    ("smooth_l1_loss", Single),
    ("soft_margin_loss", Single),
    ("softmax", Single),
    ("softplus", Single),
    ("stack", Widest),
    ("std", Single),
    ("sub", Widest),
    ("sum", Single),
    ("tan", Single),
    ("triplet_margin_loss", Single),
    ("var", Single),
    ("where", Widest),
];

/// What autocast does to an op; nothing where it is not in the table.
pub(super) fn precision(op: &str) -> Option<Precision> {
    OPS.binary_search_by(|(name, _)| (*name).cmp(op)).ok().map(|at| OPS[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(OPS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(precision("matmul"), Some(Half));
        assert_eq!(precision("softmax"), Some(Single));
        assert_eq!(precision("add"), Some(Widest));
        assert_eq!(precision("relu"), None);
    }
}
