//! The block that the transformers here are made of.

use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::nn::{Dropout, Layer, LayerNorm, Linear, Module};
use crate::ops::{Activation, Attention};
use crate::tensor::Tensor;

/// Every position looks at every other, or at those before it.
///
/// # Shapes
/// `[B, T, C]` -> `[B, T, C]`
#[derive(Module)]
pub struct SelfAttention {
    qkv: Linear,
    out: Linear,
    heads: usize,
    causal: bool,
}

impl SelfAttention {
    /// Attention of `heads` heads over `channels` channels.
    ///
    /// # Errors
    /// If the heads do not divide the channels, or memory runs out.
    pub fn new(
        channels: usize,
        heads: usize,
        causal: bool,
        device: Device,
    ) -> Result<SelfAttention> {
        if heads == 0 || !channels.is_multiple_of(heads) {
            let message = format!("{heads} heads do not divide {channels} channels");
            return Err(Error::op("self attention", message));
        }
        Ok(SelfAttention {
            qkv: Linear::new(channels, 3 * channels, device)?,
            out: Linear::new(channels, channels, device)?,
            heads,
            causal,
        })
    }
}

impl Layer for SelfAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, t, c) = (x.dim(0)?, x.dim(1)?, x.dim(2)?);
        let qkv = self.qkv.forward(x)?.reshape(&[b, t, 3, self.heads, c / self.heads])?;
        let qkv = qkv.permute(&[2, 0, 3, 1, 4])?; // [3, B, H, T, D]
        let [q, k, v] = [qkv.select(0, 0)?, qkv.select(0, 1)?, qkv.select(0, 2)?];
        let options = Attention { is_causal: self.causal, ..Attention::default() };
        let y = q.scaled_dot_product_attention(&k, &v, &options)?; // [B, H, T, D]
        self.out.forward(&y.transpose(1, 2)?.reshape(&[b, t, c])?) // [B, T, C]
    }
}

/// Attention and a small network, each with its norm before and a way around.
///
/// # Shapes
/// `[B, T, C]` -> `[B, T, C]`
#[derive(Module)]
pub struct Block {
    norm1: LayerNorm,
    attention: SelfAttention,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    dropout: Dropout,
}

impl Block {
    /// A block of `channels` channels, four times as many inside.
    ///
    /// # Errors
    /// If the heads do not divide the channels, or memory runs out.
    pub fn new(
        channels: usize,
        heads: usize,
        causal: bool,
        dropout: f64,
        device: Device,
    ) -> Result<Block> {
        Ok(Block {
            norm1: LayerNorm::new(channels, device)?,
            attention: SelfAttention::new(channels, heads, causal, device)?,
            norm2: LayerNorm::new(channels, device)?,
            up: Linear::new(channels, 4 * channels, device)?,
            down: Linear::new(4 * channels, channels, device)?,
            dropout: Dropout::new(dropout),
        })
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let attended = self.attention.forward(&self.norm1.forward(x)?)?;
        let x = x.add(&self.dropout.forward(&attended)?)?; // [B, T, C]
        let inside = self.up.forward_with(&self.norm2.forward(&x)?, Activation::Gelu)?; // [B, T, 4C]
        x.add(&self.dropout.forward(&self.down.forward(&inside)?)?)
    }
}
