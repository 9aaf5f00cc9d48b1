//! A batch of new tokens, and the cache of keys and values that came before them.
//!
//! The cache is cut into pages of [`KvCache::page_size`] tokens. Which pages hold a sequence says its row of
//! the page table, so that sequences grow without moving, share the pages of a common prefix, and free what
//! they leave. Slot `page * page_size + offset` is a token's place in the cache of each layer.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::packed::Packed;
use crate::error::{Error, Result};
use crate::ops::PagedLayout;
use crate::tensor::{Creation, Tensor};

/// How a model runs over its tokens.
#[derive(Clone, Copy, Debug)]
pub enum Pass<'a> {
    /// Whole sequences `[B, T]` from position 0 on, without a cache; differentiable.
    Whole,
    /// Whole sequences one after the other, `[N]`, each from position 0 on, without a cache; differentiable.
    Packed(&'a Packed),
    /// New tokens of several sequences, whose keys and values go to the cache.
    Paged {
        /// Which tokens stand where.
        batch: &'a Batch,
        /// What was computed of the tokens before them.
        cache: &'a KvCache,
    },
}

impl Pass<'_> {
    /// The tokens whose hidden states alone are looked at.
    pub(super) fn ends(&self) -> Option<&Ends> {
        match self {
            Pass::Paged { batch, .. } => batch.ends.as_ref(),
            Pass::Whole | Pass::Packed(_) => None,
        }
    }
}

/// Where the new tokens of a paged batch belong; every tensor is on the model's device.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The position of each new token in its sequence: `[N]`, i64.
    pub positions: Tensor,
    /// Where each new token's key and value go in the cache: `[N]`, i64.
    pub slots: Tensor,
    /// 0, then where the new tokens of each sequence end: `[S + 1]`, i64.
    pub query_starts: Tensor,
    /// Keys of each sequence, the new tokens included: `[S]`, i64.
    pub key_lengths: Tensor,
    /// The pages of each sequence in order, padded with 0: `[S, P]`, i64.
    pub pages: Tensor,
    /// The most new tokens of a sequence.
    pub max_queries: usize,
    /// The most keys of a sequence.
    pub max_keys: usize,
    /// Where nobody looks at other hidden states than those of the last new token of each sequence: which these are.
    pub ends: Option<Ends>,
}

/// The last new token of each sequence of a batch.
///
/// What the last layer computes of other tokens than these, nobody sees but for their keys and values:
///
/// ```text
/// tokens      a0 a1 a2 a3 | b0 b1        rows 3, 5
/// last layer  keys and values of 6 tokens; attention, products and norms of 2
/// ```
#[derive(Clone, Debug)]
pub struct Ends {
    /// `[S]`, i64
    rows: Tensor,
    /// Where the only query of each sequence begins, as `Batch::query_starts`: `[S + 1]`, i64.
    starts: Tensor,
}

impl Ends {
    /// The rows of the last new tokens, `[S]`, i64; any row stands for a sequence without tokens.
    ///
    /// # Errors
    /// If rows are of another dtype or have several axes, or memory runs out.
    pub fn new(rows: Tensor) -> Result<Ends> {
        if rows.dtype() != DType::I64 || rows.rank() != 1 {
            let (dtype, shape) = (rows.dtype(), rows.shape());
            let message = format!("rows of last tokens must be i64 [S], got {dtype} {shape:?}");
            return Err(Error::op("ends", message));
        }
        let count = rows.numel() as f64;
        let starts = Tensor::arange(0.0, count + 1.0, 1.0, (DType::I64, rows.device()))?;
        Ok(Ends { rows, starts })
    }

    /// The rows of last tokens of what all new tokens have, `[N, ..]` to `[S, ..]`.
    ///
    /// # Errors
    /// If a row is out of range.
    pub fn of(&self, all: &Tensor) -> Result<Tensor> {
        all.index_select(0, &self.rows)
    }
}

impl Batch {
    /// As [`Batch::layout`], of queries of last tokens alone.
    pub(super) fn layout_of<'b>(&'b self, ends: &'b Ends) -> PagedLayout<'b> {
        PagedLayout { query_starts: &ends.starts, max_queries: 1, ..self.layout() }
    }

    /// Where its tokens and keys are, as attention takes it.
    pub(super) fn layout(&self) -> PagedLayout<'_> {
        PagedLayout {
            query_starts: &self.query_starts,
            key_lengths: &self.key_lengths,
            pages: &self.pages,
            max_queries: self.max_queries,
            max_keys: self.max_keys,
        }
    }
}

/// The keys and values that a model caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvShape {
    /// Layers with a cache.
    pub layers: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
}

/// Keys and values of all layers, in pages.
#[derive(Debug)]
pub struct KvCache {
    /// `[pages, page_size, heads, head_dim]` of each layer.
    keys: Vec<Tensor>,
    /// As of `keys`.
    values: Vec<Tensor>,
    page_size: usize,
}

impl KvCache {
    /// An empty cache of so many pages.
    ///
    /// # Errors
    /// If `page_size` is 0, or memory runs out.
    pub fn new(
        shape: KvShape,
        pages: usize,
        page_size: usize,
        dtype: DType,
        device: Device,
    ) -> Result<KvCache> {
        if page_size == 0 {
            return Err(Error::op("kv_cache", "a page holds at least one token"));
        }
        let at = Creation { dtype, device };
        let extents = [pages, page_size, shape.heads, shape.head_dim];
        let layers = || -> Result<Vec<Tensor>> {
            (0..shape.layers).map(|_| Tensor::zeros(&extents, at)).collect()
        };
        Ok(KvCache { keys: layers()?, values: layers()?, page_size })
    }

    /// Keys and values of a layer, each `[pages, page_size, heads, head_dim]`.
    ///
    /// # Errors
    /// If there is no such layer.
    pub fn layer(&self, index: usize) -> Result<(&Tensor, &Tensor)> {
        let layer = self.keys.get(index).zip(self.values.get(index));
        let missing = || format!("there is no layer {index}, the cache has {}", self.keys.len());
        layer.ok_or_else(|| Error::op("kv_cache", missing()))
    }

    /// Tokens of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Pages of the cache.
    pub fn pages(&self) -> usize {
        self.keys.first().map_or(0, |keys| keys.shape()[0])
    }
}
