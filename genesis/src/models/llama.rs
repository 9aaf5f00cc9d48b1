//! Llama 2 and 3, SmolLM2, which is one, and Mistral, which is one with a window.
//!
//! ```text
//! x += o_proj(attention(rope(q_proj(n)), rope(k_proj(n)), v_proj(n)))    n = input_layernorm(x)
//! x += down_proj(silu(gate_proj(n)) * up_proj(n))                        n = post_attention_layernorm(x)
//! ```
//!
//! # Source
//! arXiv:2302.13971, arXiv:2310.06825; the names and defaults of `transformers`.

use super::attend::Attend;
use super::attention::{AttentionPlan, SelfAttention};
use super::blueprint::Blueprint;
use super::decoder::{DecoderLm, DecoderOptions, PreNormBlock, silu};
use super::mlp::GatedMlp;
use super::norm::Norm;
use super::rope::RopeSettings;
use super::settings::Settings;
use super::sizes::Sizes;
use crate::error::Result;
use crate::nn::Layer;

/// A decoder whose layers are attention and a gated feed-forward layer.
pub type Llama = DecoderLm<PreNormBlock<GatedMlp>>;

/// What holds where a configuration of Llama says nothing.
const LLAMA: Sizes = Sizes {
    vocabulary: 32_000,
    channels: 4096,
    hidden: 11_008,
    layers: 32,
    heads: 32,
    kv_heads: 0, // as many as queries
    head_dim: 0, // what is left for a head
    max_positions: 2048,
    eps: 1e-6,
    tied: false,
};

/// As [`LLAMA`], of Mistral.
const MISTRAL: Sizes = Sizes { hidden: 14_336, kv_heads: 8, max_positions: 4096 * 32, ..LLAMA };

/// The window of Mistral where its configuration has no such key; null means none.
const MISTRAL_WINDOW: usize = 4096;

/// A Llama by its configuration.
pub(super) fn llama(settings: &mut Settings, plan: &Blueprint) -> Result<Llama> {
    let sizes = Sizes::read(settings, &LLAMA)?;
    settings.only("rope_interleaved", false)?;
    let (attention, mlp) =
        (settings.flag("attention_bias", false)?, settings.flag("mlp_bias", false)?);
    build(settings, plan, &sizes, Extras { attention, mlp, window: None })
}

/// A Mistral by its configuration.
pub(super) fn mistral(settings: &mut Settings, plan: &Blueprint) -> Result<Llama> {
    let sizes = Sizes::read(settings, &MISTRAL)?;
    let window = match settings.has("sliding_window") {
        true => settings.size_if("sliding_window")?,
        false => Some(MISTRAL_WINDOW),
    };
    build(settings, plan, &sizes, Extras { attention: false, mlp: false, window })
}

/// In what the two differ: biases, and a window.
struct Extras {
    attention: bool,
    mlp: bool,
    window: Option<usize>,
}

fn build(
    settings: &mut Settings,
    plan: &Blueprint,
    sizes: &Sizes,
    extras: Extras,
) -> Result<Llama> {
    let activation = silu(settings)?;
    let rope = RopeSettings::read(settings, sizes.rotated(), 10_000.0)?;
    let attention = AttentionPlan {
        qkv_bias: extras.attention,
        out_bias: extras.attention,
        attend: Attend { scale: sizes.scale(), window: extras.window, softcap: None },
        ..AttentionPlan::of(sizes)
    };
    let layer = |_| {
        let mlp = GatedMlp::new(plan, [sizes.channels, sizes.hidden], activation, extras.mlp)?;
        pre_norm(plan, sizes, SelfAttention::new(plan, attention)?, mlp)
    };
    let layers = (0..sizes.layers).map(layer).collect::<Result<_>>()?;
    let norm = Norm::new(plan, sizes.channels, sizes.eps)?;
    DecoderLm::new(plan, sizes, (layers, norm), vec![rope], DecoderOptions::default())
}

/// A layer with its two norms.
pub(super) fn pre_norm<F: Layer>(
    plan: &Blueprint,
    sizes: &Sizes,
    self_attn: SelfAttention,
    mlp: F,
) -> Result<PreNormBlock<F>> {
    Ok(PreNormBlock {
        self_attn,
        mlp,
        input_layernorm: Norm::new(plan, sizes.channels, sizes.eps)?,
        post_attention_layernorm: Norm::new(plan, sizes.channels, sizes.eps)?,
    })
}
