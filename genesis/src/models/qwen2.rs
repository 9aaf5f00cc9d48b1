//! Qwen2 and Qwen2.5: a Llama with biases of queries, keys and values, and a window in its later layers where
//! the configuration switches it on.
//!
//! # Source
//! arXiv:2407.10671, arXiv:2412.15115; the names and defaults of `transformers`.

use super::attend::Attend;
use super::attention::{AttentionPlan, SelfAttention};
use super::blueprint::Blueprint;
use super::decoder::{DecoderLm, DecoderOptions, silu, windowed_layers};
use super::llama::{Llama, pre_norm};
use super::mlp::GatedMlp;
use super::norm::Norm;
use super::rope::RopeSettings;
use super::settings::Settings;
use super::sizes::Sizes;
use crate::error::Result;

/// What holds where a configuration says nothing.
pub(super) const QWEN2: Sizes = Sizes {
    vocabulary: 151_936,
    channels: 4096,
    hidden: 22_016,
    layers: 32,
    heads: 32,
    kv_heads: 32,
    head_dim: 0, // what is left for a head
    max_positions: 32_768,
    eps: 1e-6,
    tied: false,
};

/// A Qwen2 by its configuration.
pub(super) fn qwen2(settings: &mut Settings, plan: &Blueprint) -> Result<Llama> {
    let sizes = Sizes::read(settings, &QWEN2)?;
    let windows = windows(settings, sizes.layers)?;
    let activation = silu(settings)?;
    let rope = RopeSettings::read(settings, sizes.rotated(), 10_000.0)?;
    let layer = |&window: &Option<usize>| {
        let attention = AttentionPlan {
            qkv_bias: true,
            attend: Attend { scale: sizes.scale(), window, softcap: None },
            ..AttentionPlan::of(&sizes)
        };
        let mlp = GatedMlp::new(plan, [sizes.channels, sizes.hidden], activation, false)?;
        pre_norm(plan, &sizes, SelfAttention::new(plan, attention)?, mlp)
    };
    let layers = windows.iter().map(layer).collect::<Result<_>>()?;
    let norm = Norm::new(plan, sizes.channels, sizes.eps)?;
    DecoderLm::new(plan, &sizes, (layers, norm), vec![rope], DecoderOptions::default())
}

/// The window of each layer: from `max_window_layers` on, where windows are used at all.
pub(super) fn windows(settings: &mut Settings, layers: usize) -> Result<Vec<Option<usize>>> {
    let is_used = settings.flag("use_sliding_window", false)?;
    let window = match settings.has("sliding_window") {
        true => settings.size_if("sliding_window")?,
        false => Some(4096),
    };
    let window = window.filter(|_| is_used);
    let first = settings.count("max_window_layers")?.unwrap_or(28);
    let windowed = windowed_layers(settings, layers, |i| window.is_some() && i >= first)?;
    if window.is_none() && windowed.contains(&true) {
        return Err(settings.refusal("layer_types has windows, use_sliding_window has none"));
    }
    Ok(windowed.into_iter().map(|is_windowed| window.filter(|_| is_windowed)).collect())
}
