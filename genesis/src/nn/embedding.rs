//! Embedding tables.

use super::layer::layers;
use super::{Module, Parameter, init, watch};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::ops::{BagMode, Bags};
use crate::tensor::{Creation, Tensor};

/// Rows of a table by index.
///
/// # Shapes
/// i64 `[..]` -> `[.., C]`, with `weight: [V, C]`.
#[derive(Debug, Module)]
pub struct Embedding {
    /// `[V, C]`
    pub weight: Parameter,
    /// A row that gets no gradient; it starts as zeros.
    pub padding_idx: Option<usize>,
    /// The longest a row may be: rows that are looked up are shortened to it, in place.
    pub max_norm: Option<f64>,
    /// The order of the norm of `max_norm`.
    pub norm_type: f64,
}

impl Embedding {
    /// A table that starts standard normal.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(vocabulary: usize, channels: usize, at: impl Into<Creation>) -> Result<Embedding> {
        Ok(Embedding::from_weight(init::normal(&[vocabulary, channels], 0.0, 1.0, at)?))
    }

    /// A table whose row `padding_idx` starts as zeros and gets no gradient.
    ///
    /// # Errors
    /// If there is no such row, or memory runs out.
    pub fn with_padding(
        vocabulary: usize,
        channels: usize,
        padding_idx: usize,
        at: impl Into<Creation>,
    ) -> Result<Embedding> {
        if padding_idx >= vocabulary {
            let message = format!("padding_idx {padding_idx} is none of {vocabulary} rows");
            return Err(Error::op("embedding", message));
        }
        let table = Embedding::new(vocabulary, channels, at)?;
        init::zeros_(&table.weight.detach().select(0, padding_idx)?)?;
        Ok(Embedding { padding_idx: Some(padding_idx), ..table })
    }

    /// A table with this weight: PyTorch's `from_pretrained`, but that it is trained unless it is
    /// frozen by `requires_grad_(false)`.
    pub fn from_weight(weight: Parameter) -> Embedding {
        Embedding { weight, padding_idx: None, max_norm: None, norm_type: 2.0 }
    }

    /// The rows that the index names.
    ///
    /// # Errors
    /// If the index is not an integer, on another device or, on the CPU, outside of the table.
    pub fn forward(&self, index: &Tensor) -> Result<Tensor> {
        watch(self, || {
            if let Some(max_norm) = self.max_norm {
                no_grad(|| self.shorten(index, max_norm))?;
            }
            let rows = self.weight.embedding(index)?;
            let Some(padding) = self.padding_idx else { return Ok(rows) };
            let is_padding = index.eq_scalar(padding as f64)?.unsqueeze(-1)?;
            is_padding.where_(&rows.detach(), &rows)
        })
    }

    /// Shortens the rows that are looked up to `max_norm`.
    fn shorten(&self, index: &Tensor, max_norm: f64) -> Result<()> {
        shorten(&self.weight, index, max_norm, self.norm_type)
    }
}

/// Shortens the rows of a table that an index names, in place.
fn shorten(table: &Tensor, index: &Tensor, max_norm: f64, norm_type: f64) -> Result<()> {
    let table = table.detach();
    if table.rank() != 2 {
        let message = format!("the weight must be [V, C], got {:?}", table.shape());
        return Err(Error::op("embedding", message));
    }
    let norms = table.vector_norm(norm_type, &[-1], true)?; // [V, 1]
    let rows = Tensor::arange(0.0, table.shape()[0] as f64, 1.0, (index.dtype(), index.device()))?;
    let asked = index.reshape(&[1, index.numel()])?.eq(&rows.unsqueeze(1)?)?;
    let is_long = norms.gt_scalar(max_norm)?.logical_and(&asked.any_dims(&[1], true)?)?;
    // As PyTorch: a little shorter than asked, so that it is not shortened again.
    let shorter = table.mul(&norms.add_scalar(1e-7)?.rdiv_scalar(max_norm)?)?;
    table.copy_(&is_long.where_(&shorter, &table)?)
}

layers!(Embedding);

/// Bags of rows of a table, each reduced to one.
///
/// # Shapes
/// i64 `[B, L]` -> `[B, C]`, or `[N]` with B offsets, with `weight: [V, C]`.
#[derive(Debug, Module)]
pub struct EmbeddingBag {
    /// `[V, C]`
    pub weight: Parameter,
    /// What becomes of the rows of a bag.
    #[module(skip)]
    pub mode: BagMode,
    /// A row that belongs to no bag; it starts as zeros where [`EmbeddingBag::with_padding`] made it.
    pub padding_idx: Option<usize>,
    /// Whether the last offset is where the last bag ends, and begins none.
    pub include_last_offset: bool,
    /// The longest a row may be: rows that are looked up are shortened to it, in place.
    pub max_norm: Option<f64>,
    /// The order of the norm of `max_norm`.
    pub norm_type: f64,
}

impl EmbeddingBag {
    /// A table that starts standard normal, of which bags are averaged.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        vocabulary: usize,
        channels: usize,
        at: impl Into<Creation>,
    ) -> Result<EmbeddingBag> {
        Ok(EmbeddingBag::from_embedding(Embedding::new(vocabulary, channels, at)?))
    }

    /// A table whose row `padding_idx` starts as zeros and belongs to no bag.
    ///
    /// # Errors
    /// If there is no such row, or memory runs out.
    pub fn with_padding(
        vocabulary: usize,
        channels: usize,
        padding_idx: usize,
        at: impl Into<Creation>,
    ) -> Result<EmbeddingBag> {
        let table = Embedding::with_padding(vocabulary, channels, padding_idx, at)?;
        Ok(EmbeddingBag::from_embedding(table))
    }

    fn from_embedding(table: Embedding) -> EmbeddingBag {
        EmbeddingBag {
            weight: table.weight,
            mode: BagMode::default(),
            padding_idx: table.padding_idx,
            include_last_offset: false,
            max_norm: None,
            norm_type: 2.0,
        }
    }

    /// The bags of an index of two axes, or of one with offsets; sums may have a weight an index.
    ///
    /// # Errors
    /// As [`Tensor::embedding_bag`].
    pub fn forward(
        &self,
        index: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        watch(self, || {
            if let Some(max_norm) = self.max_norm {
                no_grad(|| shorten(&self.weight, index, max_norm, self.norm_type))?;
            }
            let bags = Bags {
                mode: self.mode,
                offsets: offsets.cloned(),
                include_last_offset: self.include_last_offset,
                per_sample_weights: per_sample_weights.cloned(),
                padding_idx: self.padding_idx,
            };
            self.weight.embedding_bag(index, &bags)
        })
    }
}
