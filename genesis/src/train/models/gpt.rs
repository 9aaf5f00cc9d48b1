//! A small language model.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::Block;
use crate::data::SampleRng;
use crate::error::{Error, Result};
use crate::nn::{Dropout, Embedding, Layer, LayerNorm, Linear, Module, ModuleList, init};
use crate::tensor::Tensor;

/// How large a [`Gpt`] is.
#[derive(Clone, Copy, Debug)]
pub struct GptOptions {
    /// Different tokens.
    pub vocabulary: usize,
    /// The most tokens that it looks back on.
    pub context: usize,
    /// Channels of a token.
    pub channels: usize,
    /// Heads of a block.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// The share of channels that are dropped in training.
    pub dropout: f64,
}

/// A decoder-only transformer: from each token, what the next may be.
///
/// # Shapes
/// i64 `[B, T]` -> logits `[B, T, V]`
#[derive(Module)]
pub struct Gpt {
    token: Embedding,
    position: Embedding,
    dropout: Dropout,
    blocks: ModuleList<Block>,
    norm: LayerNorm,
    head: Linear,
    context: usize,
}

impl Gpt {
    /// A model with random weights; embeddings start small, as in GPT-2.
    ///
    /// # Errors
    /// If the heads do not divide the channels, or memory runs out.
    pub fn new(options: &GptOptions, device: Device) -> Result<Gpt> {
        let &GptOptions { vocabulary, context, channels, heads, layers, dropout } = options;
        let block = |_| Block::new(channels, heads, true, dropout, device);
        let model = Gpt {
            token: Embedding::new(vocabulary, channels, device)?,
            position: Embedding::new(context, channels, device)?,
            dropout: Dropout::new(dropout),
            blocks: ModuleList((0..layers).map(block).collect::<Result<_>>()?),
            norm: LayerNorm::new(channels, device)?,
            head: Linear::without_bias(channels, vocabulary, device)?,
            context,
        };
        init::normal_(&model.token.weight, 0.0, 0.02)?;
        init::normal_(&model.position.weight, 0.0, 0.02)?;
        Ok(model)
    }

    /// Continues a text by `count` tokens, each drawn from what the model holds likely.
    ///
    /// A temperature below 1 keeps to what is likely, one above 1 dares more.
    ///
    /// # Errors
    /// If the prompt is empty or has a token that is not in the vocabulary, or a launch fails.
    pub fn generate(
        &self,
        prompt: &[i64],
        count: usize,
        temperature: f64,
        rng: &mut SampleRng,
    ) -> Result<Vec<i64>> {
        if prompt.is_empty() {
            return Err(Error::op("generate", "a text begins with at least one token"));
        }
        let device = self.head.weight.device();
        let mut tokens = prompt.to_vec();
        for _ in 0..count {
            let seen = &tokens[tokens.len().saturating_sub(self.context)..];
            let x = Tensor::from_slice_on(seen, &[1, seen.len()], device)?;
            let logits = self.forward(&x)?.select(0, 0)?.select(0, seen.len() - 1)?; // [V]
            let scaled = logits.div_scalar(temperature.max(1e-3))?;
            tokens.push(draw(&scaled.softmax(-1)?.to_f64_vec()?, rng));
        }
        Ok(tokens[prompt.len()..].to_vec())
    }
}

impl Layer for Gpt {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let t = x.dim(-1)?;
        let places = Tensor::arange(0.0, t as f64, 1.0, (DType::I64, x.device()))?;
        let h = self.token.forward(x)?.add(&self.position.forward(&places)?)?; // [B, T, C]
        let mut h = self.dropout.forward(&h)?;
        for block in &self.blocks.0 {
            h = block.forward(&h)?;
        }
        self.head.forward(&self.norm.forward(&h)?) // [B, T, V]
    }
}

/// A place by its probability.
fn draw(probabilities: &[f64], rng: &mut SampleRng) -> i64 {
    let mut left = rng.uniform() * probabilities.iter().sum::<f64>();
    let place = probabilities.iter().position(|p| {
        left -= p;
        left < 0.0
    });
    place.unwrap_or(probabilities.len().saturating_sub(1)) as i64
}
