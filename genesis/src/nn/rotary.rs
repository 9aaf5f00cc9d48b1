//! What language models add: rotary positions and gated feed-forward layers.

use super::init::extent;
use super::layer::layers;
use super::{Buffer, Linear, Module, watch};
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::ops::Gate;
use crate::tensor::{Creation, Tensor, host};

/// Positions as rotations of pairs of channels.
///
/// Channel `i` of the first half and of the second half are a pair (the convention of Llama and Qwen in
/// Hugging Face's form); it is turned by `position * base^(-2 i / D)`.
///
/// # Source
/// arXiv:2104.09864.
#[derive(Debug, Module)]
pub struct RotaryEmbedding {
    /// `[positions, D]`, f32; it follows from the sizes and is not saved.
    pub cos: Buffer,
    /// `[positions, D]`, f32; it follows from the sizes and is not saved.
    pub sin: Buffer,
}

impl RotaryEmbedding {
    /// Rotations of `dim` channels at so many positions; the base is 10,000 where nothing else is known.
    ///
    /// # Errors
    /// If `dim` is odd, or memory runs out.
    pub fn new(
        dim: usize,
        positions: usize,
        base: f64,
        at: impl Into<Creation>,
    ) -> Result<RotaryEmbedding> {
        if !dim.is_multiple_of(2) {
            return Err(Error::op("rotary_embedding", format!("{dim} channels are no pairs")));
        }
        const NAME: &str = "rotary_embedding";
        let count = extent(NAME, &[positions, dim])?;
        let device = at.into().device;
        let table = |f: fn(f64) -> f64| -> Result<Buffer> {
            let mut values: Vec<f32> = host::reserve(NAME, count)?;
            // Without channels there is nothing to turn at any position.
            for position in 0..if count == 0 { 0 } else { positions } {
                let angle =
                    |i| position as f64 * base.powf(-2.0 * (i % (dim / 2)) as f64 / dim as f64);
                values.extend((0..dim).map(|i| f(angle(i)) as f32));
            }
            Ok(Buffer::transient(Tensor::from_slice_on(&values, &[positions, dim], device)?))
        };
        Ok(RotaryEmbedding { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }

    /// Queries or keys `[.., T, D]`, the first of them at position `start`, turned.
    ///
    /// # Errors
    /// If there are not so many positions, or the channels are others.
    pub fn forward(&self, x: &Tensor, start: usize) -> Result<Tensor> {
        let (positions, dim) = (self.cos.shape()[0], self.cos.shape()[1]);
        let fits = x.rank() >= 2
            && x.shape()[x.rank() - 1] == dim
            && start.checked_add(x.shape()[x.rank() - 2]).is_some_and(|end| end <= positions);
        if !fits {
            let message = format!(
                "shape {:?} from position {start} does not fit [{positions}, {dim}]",
                x.shape()
            );
            return Err(Error::op("rotary_embedding", message));
        }
        watch(self, || {
            let rows = |table: &Tensor| table.narrow(0, start, x.dim(-2)?);
            turned(x, &rows(&self.cos)?, &rows(&self.sin)?)
        })
    }

    /// [`RotaryEmbedding::forward`] with the position of each: `positions: [.., T]`, i64, whose shape
    /// broadcasts to that of `x` without the channels.
    ///
    /// # Errors
    /// If the channels are others, positions do not broadcast or, on the CPU, there is no such position.
    pub fn forward_at(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        watch(self, || turned(x, &self.cos.embedding(positions)?, &self.sin.embedding(positions)?))
    }
}

/// Heads turned by tables in f32 whose halves are the same.
fn turned(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let half = x.dim(-1)? / 2;
    let table = |t: &Tensor| t.narrow(-1, 0, half)?.to_dtype(accumulate_dtype(x.dtype()));
    x.rotary(&table(cos)?, &table(sin)?)
}

/// A gated feed-forward layer: `down(silu(gate(x)) * up(x))`.
///
/// # Shapes
/// `[.., C]` -> `[.., C]`
/// # Source
/// arXiv:2002.05202.
#[derive(Debug, Module)]
pub struct SwiGlu {
    /// `[hidden, C]`
    pub gate_proj: Linear,
    /// `[hidden, C]`
    pub up_proj: Linear,
    /// `[C, hidden]`
    pub down_proj: Linear,
}

impl SwiGlu {
    /// A layer without biases.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(channels: usize, hidden: usize, at: impl Into<Creation>) -> Result<SwiGlu> {
        let at = at.into();
        Ok(SwiGlu {
            gate_proj: Linear::without_bias(channels, hidden, at)?,
            up_proj: Linear::without_bias(channels, hidden, at)?,
            down_proj: Linear::without_bias(hidden, channels, at)?,
        })
    }

    /// The gated product, projected back.
    ///
    /// # Errors
    /// If the channels are others.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let gate = self.gate_proj.forward(x)?;
            self.down_proj.forward(&gate.gate(&self.up_proj.forward(x)?, Gate::Silu)?)
        })
    }
}

layers!(SwiGlu);
