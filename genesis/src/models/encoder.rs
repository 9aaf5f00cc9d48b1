//! What the encoders share: attention in which every token sees all, and the sizes of their layers.

use super::blueprint::Blueprint;
use super::settings::Settings;
use crate::error::Result;
use crate::nn::{LayerNorm, Linear, Module, watch};
use crate::ops::{Activation, Attention};
use crate::tensor::Tensor;

/// Queries, keys and values, and what each token sees.
#[derive(Debug, Module)]
pub struct EncoderAttention {
    /// `[C, C]`
    pub query: Linear,
    /// `[C, C]`
    pub key: Linear,
    /// `[C, C]`
    pub value: Linear,
    /// Heads of each.
    pub heads: usize,
}

impl EncoderAttention {
    /// `[B, T, C]` to the same; where `mask`, which broadcasts to `[B, H, T, T]`, is false nobody looks.
    ///
    /// # Errors
    /// If the channels are others, or the mask does not fit.
    pub fn forward(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        watch(self, || {
            let heads = |linear: &Linear| {
                linear.forward(x)?.unflatten(-1, &[self.heads as i64, -1])?.transpose(1, 2)
            };
            let (q, k, v) = (heads(&self.query)?, heads(&self.key)?, heads(&self.value)?);
            let options = Attention { mask: mask.cloned(), ..Attention::default() };
            let y = q.scaled_dot_product_attention(&k, &v, &options)?; // [B, H, T, D]
            y.transpose(1, 2)?.reshape(x.shape())
        })
    }
}

/// One product, under its published name.
#[derive(Debug, Module)]
pub struct Dense {
    /// `[out, in]`
    pub dense: Linear,
}

/// A product, and the norm behind the sum with what came in.
#[derive(Debug, Module)]
pub struct DenseNorm {
    /// `[C, in]`
    pub dense: Linear,
    /// Behind the sum.
    #[module(name = "LayerNorm")]
    pub norm: LayerNorm,
}

impl DenseNorm {
    fn forward(&self, y: &Tensor, residual: &Tensor) -> Result<Tensor> {
        Ok(self.norm.after_add(residual, &self.dense.forward(y)?)?.1)
    }
}

/// Attention and the product behind it, as BERT names them.
#[derive(Debug, Module)]
pub struct PostNormAttention {
    /// What each token sees.
    #[module(name = "self")]
    pub attention: EncoderAttention,
    /// Behind it.
    pub output: DenseNorm,
}

/// Attention, add, norm; feed-forward layer, add, norm: the layer of BERT.
#[derive(Debug, Module)]
pub struct PostNormBlock {
    /// What looks at other tokens.
    pub attention: PostNormAttention,
    /// The first product of the feed-forward layer.
    pub intermediate: Dense,
    /// The second one.
    pub output: DenseNorm,
    /// The function between them.
    #[module(skip)]
    pub activation: Activation,
}

impl PostNormBlock {
    /// The hidden states behind this layer.
    ///
    /// # Errors
    /// As of [`EncoderAttention::forward`].
    pub fn forward(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        watch(self, || {
            let seen = self.attention.attention.forward(x, mask)?;
            let x = self.attention.output.forward(&seen, x)?;
            let hidden = self.activation.apply(&self.intermediate.dense.forward(&x)?)?;
            self.output.forward(&hidden, &x)
        })
    }
}

/// What encoders are told by their configuration.
pub(super) struct EncoderPlan {
    pub(super) channels: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) eps: f64,
    pub(super) activation: Activation,
}

impl EncoderPlan {
    pub(super) fn read(settings: &mut Settings) -> Result<EncoderPlan> {
        let of = EncoderPlan {
            channels: settings.size("hidden_size", 768)?,
            hidden: settings.size("intermediate_size", 3072)?,
            layers: settings.size("num_hidden_layers", 12)?,
            heads: settings.size("num_attention_heads", 12)?,
            eps: settings.epsilon("layer_norm_eps", 1e-12)?,
            activation: settings.activation("hidden_act", "gelu")?,
        };
        if !of.channels.is_multiple_of(of.heads) {
            let what = format!("hidden_size {} is no multiple of {} heads", of.channels, of.heads);
            return Err(settings.refusal(what));
        }
        Ok(of)
    }

    pub(super) fn attention(&self, plan: &Blueprint, bias: bool) -> Result<EncoderAttention> {
        let linear = || plan.linear([self.channels, self.channels], bias);
        Ok(EncoderAttention {
            query: linear()?,
            key: linear()?,
            value: linear()?,
            heads: self.heads,
        })
    }

    /// A product of the channels with a bias.
    pub(super) fn dense(&self, plan: &Blueprint) -> Result<Dense> {
        Ok(Dense { dense: plan.linear([self.channels, self.channels], true)? })
    }

    pub(super) fn post_norm(&self, plan: &Blueprint) -> Result<PostNormBlock> {
        let norm = |inputs| -> Result<DenseNorm> {
            let dense = plan.linear([inputs, self.channels], true)?;
            Ok(DenseNorm { dense, norm: plan.layer_norm(self.channels, self.eps)? })
        };
        Ok(PostNormBlock {
            attention: PostNormAttention {
                attention: self.attention(plan, true)?,
                output: norm(self.channels)?,
            },
            intermediate: Dense { dense: plan.linear([self.channels, self.hidden], true)? },
            output: norm(self.hidden)?,
            activation: self.activation,
        })
    }
}
