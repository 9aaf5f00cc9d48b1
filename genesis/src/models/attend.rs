//! Attention of a layer in both passes: the only place that knows how keys and values are kept.

use genesis_kernel::ir::DType;

use super::paged::Ends;
use super::{Batch, ContextParts, KvCache, Packed, Pass};
use crate::distributed::context_parallel_attention_with;
use crate::error::Result;
use crate::ops::{Attention, PagedAttention, PagedLayout, limit_of};
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
    /// In a paged pass keys and values are written to the cache of the layer first; then only queries of `ends` look,
    /// where there are such.
    pub(super) fn run(
        &self,
        heads: Heads<'_>,
        layer: usize,
        (pass, ends): (&Pass<'_>, Option<&Ends>),
    ) -> Result<Tensor> {
        let y = match pass {
            Pass::Whole => self.whole(heads)?,
            Pass::Packed(packed) => self.packed(heads, packed)?,
            Pass::Paged { batch, cache } => self.paged(heads, layer, (batch, cache, ends))?,
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
        if let Some(context) = &packed.context {
            return self.around(Heads { q, k, v }, context);
        }
        q.varlen_attn(k, v, &packed.lengths(), &self.options()) // [N, H, D]
    }

    /// Parts of sequences, `[N, heads, D]`, by attention around the ranks; parts of one length are one batch.
    fn around(&self, Heads { q, k, v }: Heads<'_>, context: &ContextParts) -> Result<Tensor> {
        let all = q.shape()[0];
        let (mut start, mut seen) = (0, Vec::new());
        for alike in context.lengths.chunk_by(|a, b| a == b) {
            let (count, length) = (alike.len(), alike[0]);
            let reaches_all = |window: usize| window >= length * context.group.size();
            let window = self.window.filter(|&window| !reaches_all(window));
            let options = Attend { window, ..*self }.options();
            let part = |t: &Tensor| {
                let rows = t.narrow(0, start, count * length)?;
                rows.unflatten(0, &[count as i64, length as i64])?.transpose(1, 2)?.contiguous()
            };
            let (q, k, v) = (part(q)?, part(k)?, part(v)?); // [B, heads, L, D]
            let y = context_parallel_attention_with(&q, &k, &v, &options, &context.group)?;
            seen.push(y.transpose(1, 2)?.flatten(0, 1)?); // [B * L, H, D]
            start += count * length;
        }
        // What belongs to no sequence sees nothing.
        let rest = [&[all - start], &q.shape()[1..]].concat();
        seen.push(Tensor::zeros(&rest, (q.dtype(), q.device()))?);
        Tensor::cat(&seen.iter().collect::<Vec<_>>(), 0)
    }

    /// New tokens, `[N, heads, D]`, over the pages of their sequences, in the dtype of the cache.
    fn paged(
        &self,
        Heads { q, k, v }: Heads<'_>,
        layer: usize,
        (batch, cache, ends): (&Batch, &KvCache, Option<&Ends>),
    ) -> Result<Tensor> {
        let (keys, values) = cache.layer(layer)?;
        keys.write_slots_(&kept(k, keys.dtype())?, &batch.slots)?;
        values.write_slots_(&kept(v, keys.dtype())?, &batch.slots)?;
        match ends {
            Some(ends) => self.seen(&ends.of(q)?, (keys, values), &batch.layout_of(ends)),
            None => self.seen(q, (keys, values), &batch.layout()),
        }
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

    fn seen(
        &self,
        q: &Tensor,
        (keys, values): (&Tensor, &Tensor),
        layout: &PagedLayout<'_>,
    ) -> Result<Tensor> {
        let options = self.paged_options();
        let queries = match limit_of(keys.dtype()) {
            0 => q.to_dtype(keys.dtype())?,
            _ => q.clone(),
        };
        queries.paged_attention(keys, values, layout, &options)?.to_dtype(q.dtype())
    }
}

/// Keys or values as a cache keeps them; of 8 bits the largest number stands for larger ones.
fn kept(t: &Tensor, dtype: DType) -> Result<Tensor> {
    match limit_of(dtype) {
        0 => t.to_dtype(dtype),
        most => t.clamp(-most as f64, most as f64)?.to_dtype(dtype),
    }
}
