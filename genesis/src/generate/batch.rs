//! The tensors of a step, and the rows of logits that come back.
//!
//! New tokens of several sequences are packed one after the other, as
//! [`models`](crate::models) shows. Logits are only computed of rows that somebody looks at, and a few rows at
//! a time: a row of a large vocabulary is half a megabyte, and a scored prompt has thousands of them.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::models::{Batch, CausalLm, KvCache, Pass};
use crate::tensor::Tensor;

/// New tokens of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The position of the first of them.
    pub(super) start: usize,
    pub(super) tokens: Vec<u32>,
    /// The sequence's pages, as many as its tokens fill or more.
    pub(super) pages: Vec<u32>,
}

impl Piece {
    /// Where the key of a position goes in the cache.
    fn slot(&self, position: usize, page_size: usize) -> i64 {
        slot(&self.pages, position, page_size)
    }
}

/// Where the key of a position goes in the cache, by the pages of its sequence.
pub(super) fn slot(pages: &[u32], position: usize, page_size: usize) -> i64 {
    let page = pages[position / page_size] as usize;
    (page * page_size + position % page_size) as i64
}

/// A model with its cache.
pub(super) struct CachedModel<'a> {
    pub(super) model: &'a dyn CausalLm,
    pub(super) cache: &'a KvCache,
    pub(super) device: Device,
}

/// Rows of logits that are computed at a time.
pub(super) const ROWS: usize = 64;

impl CachedModel<'_> {
    /// The hidden states of all new tokens, `[N, C]`.
    pub(super) fn hidden(&self, pieces: &[Piece]) -> Result<Tensor> {
        let tokens = pieces.iter().flat_map(|piece| &piece.tokens).map(|&token| i64::from(token));
        let tokens: Vec<i64> = tokens.collect();
        let batch = batch(pieces, self.cache.page_size(), self.device)?;
        let tokens = integers(&tokens, self.device)?; // [N]
        let hidden =
            self.model.hidden(&tokens, &Pass::Paged { batch: &batch, cache: self.cache })?;
        if hidden.rank() != 2 || hidden.shape()[0] != tokens.shape()[0] {
            let (found, new) = (hidden.shape(), tokens.shape()[0]);
            let message = format!("the model gave hidden states {found:?} for {new} tokens");
            return Err(Error::op("generate", message));
        }
        Ok(hidden)
    }

    /// Logits of some rows of hidden states, row after row.
    pub(super) fn logits(&self, hidden: &Tensor, rows: &[usize]) -> Result<Vec<f32>> {
        self.logits_of(hidden, rows)?.to_dtype(DType::F32)?.to_vec::<f32>()
    }

    /// Logits of some rows of hidden states, `[R, V]`.
    pub(super) fn logits_of(&self, hidden: &Tensor, rows: &[usize]) -> Result<Tensor> {
        let is_all = rows.iter().copied().eq(0..hidden.shape()[0]);
        let chosen = if is_all {
            hidden.clone()
        } else {
            let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
            hidden.index_select(0, &integers(&rows, self.device)?)? // [R, C]
        };
        let logits = self.model.logits(&chosen)?; // [R, V]
        let expected = [rows.len(), self.model.vocab_size()];
        if logits.shape() != expected {
            let message = format!("the model gave logits {:?}, not {expected:?}", logits.shape());
            return Err(Error::op("generate", message));
        }
        Ok(logits)
    }
}

/// Where a model's parameters are, and of which dtype its first floating one is.
pub(super) fn place(model: &dyn CausalLm) -> (Device, DType) {
    let parameters = model.parameters();
    let device = parameters.first().map_or(Device::Cpu, Tensor::device);
    let floats = [DType::F32, DType::BF16, DType::F16];
    let dtype = parameters.iter().map(Tensor::dtype).find(|dtype| floats.contains(dtype));
    (device, dtype.unwrap_or(DType::F32))
}

fn batch(pieces: &[Piece], page_size: usize, device: Device) -> Result<Batch> {
    let (mut positions, mut slots) = (Vec::new(), Vec::new());
    let (mut starts, mut lengths) = (vec![0i64], Vec::new());
    for piece in pieces {
        let end = piece.start + piece.tokens.len();
        for position in piece.start..end {
            positions.push(position as i64);
            slots.push(piece.slot(position, page_size));
        }
        starts.push(positions.len() as i64);
        lengths.push(end as i64);
    }
    let max_keys = lengths.iter().max().map_or(0, |&keys| keys as usize);
    let columns = max_keys.div_ceil(page_size);
    let mut pages = vec![0i64; pieces.len() * columns];
    for (row, piece) in pages.chunks_mut(columns.max(1)).zip(pieces) {
        row.iter_mut().zip(&piece.pages).for_each(|(slot, &page)| *slot = i64::from(page));
    }
    Ok(Batch {
        positions: integers(&positions, device)?,
        slots: integers(&slots, device)?,
        query_starts: integers(&starts, device)?,
        key_lengths: integers(&lengths, device)?,
        pages: Tensor::from_slice_on(&pages, &[pieces.len(), columns], device)?,
        max_queries: pieces.iter().map(|piece| piece.tokens.len()).max().unwrap_or(0),
        max_keys,
    })
}

fn integers(values: &[i64], device: Device) -> Result<Tensor> {
    Tensor::from_slice_on(values, &[values.len()], device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_is_that_of_the_picture() {
        let pieces = [
            Piece { start: 5, tokens: vec![9], pages: vec![1, 2] },
            Piece { start: 0, tokens: vec![7, 7, 7], pages: vec![4] },
        ];
        let batch = batch(&pieces, 4, Device::Cpu).expect("it fits");
        let of = |tensor: &Tensor| tensor.to_vec::<i64>().expect("integers");
        assert_eq!(of(&batch.positions), [5, 0, 1, 2]);
        assert_eq!(of(&batch.slots), [9, 16, 17, 18]);
        assert_eq!(of(&batch.query_starts), [0, 1, 4]);
        assert_eq!(of(&batch.key_lengths), [6, 3]);
        assert_eq!(of(&batch.pages), [1, 2, 4, 0]);
        assert_eq!((batch.max_queries, batch.max_keys), (3, 6));
    }
}
