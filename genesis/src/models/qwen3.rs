//! Qwen3, dense: a Qwen2 whose heads of queries and keys are normed before they are rotated, without the
//! biases unless the configuration asks for them.
//!
//! # Source
//! arXiv:2505.09388; the names and defaults of `transformers`.

use super::attend::Attend;
use super::attention::{AttentionPlan, SelfAttention};
use super::blueprint::Blueprint;
use super::decoder::{DecoderLm, DecoderOptions, silu};
use super::llama::{Llama, pre_norm};
use super::mlp::GatedMlp;
use super::norm::Norm;
use super::qwen2::{QWEN2, windows};
use super::rope::RopeSettings;
use super::settings::Settings;
use super::sizes::Sizes;
use crate::error::Result;

/// What holds where a configuration says nothing.
const QWEN3: Sizes = Sizes { head_dim: 128, ..QWEN2 };

/// A Qwen3 by its configuration.
pub(super) fn qwen3(settings: &mut Settings, plan: &Blueprint) -> Result<Llama> {
    let sizes = Sizes::read(settings, &QWEN3)?;
    let windows = windows(settings, sizes.layers)?;
    let activation = silu(settings)?;
    let bias = settings.flag("attention_bias", false)?;
    let rope = RopeSettings::read(settings, sizes.rotated(), 10_000.0)?;
    let layer = |&window: &Option<usize>| {
        let mlp = GatedMlp::new(plan, [sizes.channels, sizes.hidden], activation, false)?;
        pre_norm(plan, &sizes, normed_attention(plan, &sizes, window, bias)?, mlp)
    };
    let layers = windows.iter().map(layer).collect::<Result<_>>()?;
    let norm = Norm::new(plan, sizes.channels, sizes.eps)?;
    DecoderLm::new(plan, &sizes, (layers, norm), vec![rope], DecoderOptions::default())
}

/// Attention with norms of heads.
pub(super) fn normed_attention(
    plan: &Blueprint,
    sizes: &Sizes,
    window: Option<usize>,
    bias: bool,
) -> Result<SelfAttention> {
    let attention = AttentionPlan {
        qkv_bias: bias,
        out_bias: bias,
        attend: Attend { scale: sizes.scale(), window, softcap: None },
        ..AttentionPlan::of(sizes)
    };
    SelfAttention::new(plan, attention)?.with_head_norms(|d| Norm::new(plan, d, sizes.eps))
}
