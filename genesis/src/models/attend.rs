//! Attention of a layer in both passes: the only place that knows how keys and values are kept.

use genesis_kernel::ir::DType;

use super::{Batch, KvCache, Pass};
use crate::error::Result;
use crate::ops::{Attention, Varlen};
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

    /// New tokens, `[N, heads, D]`, over the pages of their sequences.
    fn paged(
        &self,
        Heads { q, k, v }: Heads<'_>,
        layer: usize,
        (batch, cache): (&Batch, &KvCache),
    ) -> Result<Tensor> {
        let (keys, values) = cache.layer(layer)?;
        write(keys, &batch.slots, k)?;
        write(values, &batch.slots, v)?;
        let (slots, ends) = cached_slots(batch, cache.page_size())?;
        let lengths = Varlen {
            cu_seqlens_q: &batch.query_starts,
            cu_seqlens_k: &ends,
            max_seqlen_q: batch.max_queries,
            max_seqlen_k: batch.max_keys,
        };
        let read = |cache: &Tensor| rows(cache)?.index_select(0, &slots)?.to_dtype(q.dtype());
        q.varlen_attn(&read(keys)?, &read(values)?, &lengths, &self.options())
    }
}

/// The tokens of a cache as rows: `[pages * page_size, heads, D]`.
fn rows(cache: &Tensor) -> Result<Tensor> {
    let shape = cache.shape();
    cache.reshape(&[&[shape[0] * shape[1]], &shape[2..]].concat())
}

/// Puts the new rows in their slots.
fn write(cache: &Tensor, slots: &Tensor, new: &Tensor) -> Result<()> {
    rows(cache)?.index_copy_(0, slots, &new.to_dtype(cache.dtype())?)
}

/// The slots of all keys of a batch, sequence by sequence, and where those of each sequence end.
fn cached_slots(batch: &Batch, page_size: usize) -> Result<(Tensor, Tensor)> {
    let (pages, lengths) = (batch.pages.to_vec::<i64>()?, batch.key_lengths.to_vec::<i64>()?);
    let width = batch.pages.dim(-1)?;
    let (mut slots, mut ends) = (Vec::new(), vec![0i64]);
    for (sequence, &length) in lengths.iter().enumerate() {
        let own = &pages[sequence * width..][..width];
        for position in 0..length as usize {
            let page = own.get(position / page_size).copied().unwrap_or(0);
            slots.push(page * page_size as i64 + (position % page_size) as i64);
        }
        ends.push(slots.len() as i64);
    }
    let device = batch.pages.device();
    let slots = Tensor::from_slice_on(&slots, &[slots.len()], device)?;
    let ends = Tensor::from_slice_on(&ends, &[ends.len()], device)?;
    Ok((slots, ends.to_dtype(DType::I64)?))
}
