//! Attention of a layer in both passes: the only place that knows how keys and values are kept.

use genesis_kernel::ir::DType;

use super::{Batch, KvCache, Packed, Pass};
use crate::error::Result;
use crate::ops::{Attention, PagedAttention, limit_of};
use crate::tensor::Tensor;

/// How the queries of a layer look at keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Attend {
    /// Factor of the scores.
    pub scale: f64,
    /// A query looks at so many keys, its own included; all where absent.
    pub window: Option<usize>,
    /// Scores are bounded softly: `cap tanh(score / cap)`.
    pub softcap: Option<f64>,
}

/// Queries, keys and values of the tokens of a pass, `[.., tokens, heads, D]` each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
}

impl Attend {
    /// What each token's queries see in the keys of its sequence up to its own: `[.., tokens, H * D]`.
    ///
    /// In a paged pass keys and values are written to the cache of the layer first.
    pub(super) fn run(&self, heads: Heads<'_>, layer: usize, pass: &Pass<'_>) -> Result<Tensor> {
        let y = match pass {
            Pass::Whole => self.whole(heads)?,
            Pass::Packed(packed) => self.packed(heads, packed)?,
            Pass::Paged { batch, cache } => self.paged(heads, layer, (batch, cache))?,
        };
        let shape = y.shape();
        let (lead, channels) = shape.split_at(shape.len() - 2);
        y.reshape(&[lead, &[crate::shape::product(channels)]].concat())
    }

    fn options(&self) -> Attention {
        Attention {
            is_causal: true,
            scale: Some(self.scale),
            groups: true,
            window: self.window.map(|window| (window.saturating_sub(1), 0)),
            softcap: self.softcap,
            ..Attention::default()
        }
    }

    /// Whole sequences, `[B, T, heads, D]`.
    fn whole(&self, Heads { q, k, v }: Heads<'_>) -> Result<Tensor> {
        let [q, k, v] = [q.transpose(1, 2)?, k.transpose(1, 2)?, v.transpose(1, 2)?];
        q.scaled_dot_product_attention(&k, &v, &self.options())?.transpose(1, 2) // [B, T, H, D]
    }

    /// Packed sequences, `[N, heads, D]`.
    fn packed(&self, Heads { q, k, v }: Heads<'_>, packed: &Packed) -> Result<Tensor> {
        q.varlen_attn(k, v, &packed.lengths(), &self.options()) // [N, H, D]
    }

    /// New tokens, `[N, heads, D]`, over the pages of their sequences, in the dtype of the cache.
    fn paged(
        &self,
        Heads { q, k, v }: Heads<'_>,
        layer: usize,
        (batch, cache): (&Batch, &KvCache),
    ) -> Result<Tensor> {
        let (keys, values) = cache.layer(layer)?;
        keys.write_slots_(&kept(k, keys.dtype())?, &batch.slots)?;
        values.write_slots_(&kept(v, keys.dtype())?, &batch.slots)?;
        self.seen(q, layer, (batch, cache))
    }

    /// How queries look at a cache in pages.
    pub(super) fn paged_options(&self) -> PagedAttention {
        PagedAttention {
            scale: Some(self.scale),
            window: self.window,
            softcap: self.softcap,
            sinks: None,
        }
    }

    fn seen(&self, q: &Tensor, layer: usize, (batch, cache): (&Batch, &KvCache)) -> Result<Tensor> {
        let (keys, values) = cache.layer(layer)?;
        let (layout, options) = (batch.layout(), self.paged_options());
        let queries = match limit_of(keys.dtype()) {
            0 => q.to_dtype(keys.dtype())?,
            _ => q.clone(),
        };
        queries.paged_attention(keys, values, &layout, &options)?.to_dtype(q.dtype())
    }
}

/// Keys or values as a cache keeps them; of 8 bits the largest number stands for larger ones.
fn kept(t: &Tensor, dtype: DType) -> Result<Tensor> {
    match limit_of(dtype) {
        0 => t.to_dtype(dtype),
        most => t.clamp(-most as f64, most as f64)?.to_dtype(dtype),
    }
}
