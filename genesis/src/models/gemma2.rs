//! Gemma 2: norms on both sides of attention and feed-forward layer, weights of norms as distances from 1,
//! every other layer with a window, soft caps of scores and of logits.
//!
//! ```text
//! x += post_attention_layernorm(attention(input_layernorm(x)))
//! x += post_feedforward_layernorm(mlp(pre_feedforward_layernorm(x)))
//! ```
//!
//! # Source
//! arXiv:2408.00118; the names and defaults of `transformers`.

use super::attend::Attend;
use super::attention::{AttentionPlan, Context, SelfAttention};
use super::blueprint::Blueprint;
use super::decoder::{Block, DecoderLm, DecoderOptions, FeedForwardLayer, windowed_layers};
use super::mlp::GatedMlp;
use super::norm::Norm;
use super::residual::{Residual, watch_block};
use super::rope::RopeSettings;
use super::settings::Settings;
use super::sizes::Sizes;
use super::tensor_parallel::TensorParallel;
use crate::error::Result;
use crate::nn::Module;
use crate::ops::Activation;
use crate::tensor::Tensor;

/// A decoder whose layers have norms on both sides.
pub type Gemma = DecoderLm<SandwichBlock>;

/// What holds where a configuration of Gemma 2 says nothing.
pub(super) const GEMMA2: Sizes = Sizes {
    vocabulary: 256_000,
    channels: 2304,
    hidden: 9216,
    layers: 26,
    heads: 8,
    kv_heads: 4,
    head_dim: 256,
    max_positions: 8192,
    eps: 1e-6,
    tied: true,
};

/// Norm, attention, norm, add; norm, feed-forward layer, norm, add: the layer of Gemma 2 and 3.
#[derive(Debug, Module)]
pub struct SandwichBlock {
    /// What looks at other tokens.
    pub self_attn: SelfAttention,
    /// What each token does by itself.
    pub mlp: GatedMlp,
    /// Before the attention.
    pub input_layernorm: Norm,
    /// Behind the attention.
    pub post_attention_layernorm: Norm,
    /// Before the feed-forward layer.
    pub pre_feedforward_layernorm: Norm,
    /// Behind the feed-forward layer.
    pub post_feedforward_layernorm: Norm,
}

impl Block for SandwichBlock {
    fn forward(&self, x: Residual, context: &Context<'_>) -> Result<Residual> {
        watch_block(self, || {
            let (x, normed) = x.before(&self.input_layernorm, self.self_attn.defers_norm())?;
            let seen = self.self_attn.forward(&normed, context)?;
            let x = context.going_on(x)?;
            let x = x.plus(self.post_attention_layernorm.forward(&seen)?)?;
            let (x, normed) = x.before(&self.pre_feedforward_layernorm, self.mlp.defers_norm())?;
            x.plus(self.post_feedforward_layernorm.forward(&self.mlp.of_normed(&normed)?)?)
        })
    }

    fn pack(&mut self) -> Result<()> {
        self.self_attn.pack()?;
        self.mlp.pack()
    }

    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<Vec<Tensor>> {
        self.mlp.tensor_parallel(by)?;
        self.self_attn.tensor_parallel(by)
    }
}

impl SandwichBlock {
    pub(super) fn new(
        plan: &Blueprint,
        sizes: &Sizes,
        self_attn: SelfAttention,
        activation: Activation,
    ) -> Result<SandwichBlock> {
        let norm = || Norm::from_one(plan, sizes.channels, sizes.eps);
        Ok(SandwichBlock {
            self_attn,
            mlp: GatedMlp::new(plan, [sizes.channels, sizes.hidden], activation, false)?,
            input_layernorm: norm()?,
            post_attention_layernorm: norm()?,
            pre_feedforward_layernorm: norm()?,
            post_feedforward_layernorm: norm()?,
        })
    }
}

/// What Gemma 2 and 3 are told alike.
pub(super) struct Shared {
    pub(super) window: Option<usize>,
    pub(super) activation: Activation,
    pub(super) bias: bool,
    pub(super) attend: Attend,
    pub(super) options: DecoderOptions,
}

impl Shared {
    /// Reads them; the soft caps of Gemma 2 are the defaults of Gemma 2 only.
    pub(super) fn read(
        settings: &mut Settings,
        sizes: &Sizes,
        caps: [Option<f64>; 2],
    ) -> Result<Shared> {
        settings.only("use_bidirectional_attention", false)?;
        // Published files have both keys; this one is not the one that counts.
        settings.take("hidden_act");
        let mut cap = |key: &str, usual: Option<f64>| match settings.has(key) {
            true => settings.positive_if(key),
            false => Ok(usual),
        };
        let scores = cap("attn_logit_softcapping", caps[0])?;
        let logits = cap("final_logit_softcapping", caps[1])?;
        let window = match settings.has("sliding_window") {
            true => settings.size_if("sliding_window")?,
            false => Some(4096),
        };
        let scale = settings.positive_if("query_pre_attn_scalar")?.unwrap_or(256.0).powf(-0.5);
        let embed_scale = Some((sizes.channels as f64).sqrt());
        Ok(Shared {
            window,
            activation: settings.activation("hidden_activation", "gelu_pytorch_tanh")?,
            bias: settings.flag("attention_bias", false)?,
            attend: Attend { scale, window: None, softcap: scores },
            options: DecoderOptions { embed_scale, logit_softcap: logits },
        })
    }

    /// The attention of a layer with or without the window.
    pub(super) fn attention(&self, sizes: &Sizes, is_windowed: bool) -> AttentionPlan {
        AttentionPlan {
            qkv_bias: self.bias,
            out_bias: self.bias,
            attend: Attend { window: self.window.filter(|_| is_windowed), ..self.attend },
            ..AttentionPlan::of(sizes)
        }
    }
}

/// A Gemma 2 by its configuration.
pub(super) fn gemma2(settings: &mut Settings, plan: &Blueprint) -> Result<Gemma> {
    let sizes = Sizes::read(settings, &GEMMA2)?;
    let shared = Shared::read(settings, &sizes, [Some(50.0), Some(30.0)])?;
    let windowed = windowed_layers(settings, sizes.layers, |i| i.is_multiple_of(2))?;
    let rope = RopeSettings::read(settings, sizes.rotated(), 10_000.0)?;
    let layer = |&is_windowed: &bool| {
        let attention = SelfAttention::new(plan, shared.attention(&sizes, is_windowed))?;
        SandwichBlock::new(plan, &sizes, attention, shared.activation)
    };
    let layers = windowed.iter().map(layer).collect::<Result<_>>()?;
    let norm = Norm::from_one(plan, sizes.channels, sizes.eps)?;
    DecoderLm::new(plan, &sizes, (layers, norm), vec![rope], shared.options)
}
