//! Gemma 3, text: a Gemma 2 with norms of heads instead of soft caps, five layers with a window for each
//! without, and rotary positions of two bases: a small one in the window, a large one, often interpolated,
//! outside of it.
//!
//! # Source
//! arXiv:2503.19786; the names and defaults of `transformers`.

use serde_json::Value;

use super::attention::{AttentionPlan, SelfAttention};
use super::blueprint::Blueprint;
use super::decoder::{DecoderLm, windowed_layers};
use super::gemma2::{GEMMA2, Gemma, SandwichBlock, Shared};
use super::norm::Norm;
use super::rope::RopeSettings;
use super::settings::Settings;
use super::sizes::Sizes;
use crate::error::Result;

/// What holds where a configuration says nothing.
const GEMMA3: Sizes = Sizes { vocabulary: 262_208, max_positions: 131_072, ..GEMMA2 };

/// The ropes of a model, by their numbers.
const GLOBAL: usize = 0;
const LOCAL: usize = 1;

/// A Gemma 3 by the configuration of its text.
pub(super) fn gemma3(settings: &mut Settings, plan: &Blueprint) -> Result<Gemma> {
    let sizes = Sizes::read(settings, &GEMMA3)?;
    // `transformers` reads it and computes without it, so that a value would be a misunderstanding.
    settings.only("attn_logit_softcapping", Value::Null)?;
    let shared = Shared::read(settings, &sizes, [None, None])?;
    let period = settings.size("_sliding_window_pattern", 6)?;
    let period = settings.size("sliding_window_pattern", period)?;
    let windowed = windowed_layers(settings, sizes.layers, |i| !(i + 1).is_multiple_of(period))?;
    let ropes = ropes(settings, &sizes)?;
    let layer = |&is_windowed: &bool| {
        let rope = if is_windowed { LOCAL } else { GLOBAL };
        let of = AttentionPlan { rope, ..shared.attention(&sizes, is_windowed) };
        let attention = SelfAttention::new(plan, of)?;
        let attention = attention.with_head_norms(|d| Norm::from_one(plan, d, sizes.eps))?;
        SandwichBlock::new(plan, &sizes, attention, shared.activation)
    };
    let layers = windowed.iter().map(layer).collect::<Result<_>>()?;
    let norm = Norm::from_one(plan, sizes.channels, sizes.eps)?;
    DecoderLm::new(plan, &sizes, (layers, norm), ropes, shared.options)
}

/// Rotary positions of layers without and with a window: `rope_parameters` of both kinds, or what was before
/// it `rope_scaling`, `rope_theta` and `rope_local_base_freq`.
fn ropes(settings: &mut Settings, sizes: &Sizes) -> Result<Vec<RopeSettings>> {
    let theta = settings.positive_if("rope_theta")?.unwrap_or(1e6);
    let local_theta = settings.positive_if("rope_local_base_freq")?.unwrap_or(1e4);
    let scaling = settings.nested("rope_scaling")?;
    let mut both =
        settings.nested("rope_parameters")?.unwrap_or_else(|| settings.empty("rope_parameters"));
    let mut kind = |name: &str, old: Option<Settings>, theta: f64| {
        let mut keys = both.nested(name)?.or(old).unwrap_or_else(|| both.empty(name));
        keys.put_if_absent("rope_theta", theta);
        RopeSettings::of(keys, sizes.head_dim, sizes.max_positions)
    };
    let global = kind("full_attention", scaling, theta)?;
    let local = kind("sliding_attention", None, local_theta)?;
    both.finish()?;
    Ok(vec![global, local])
}
