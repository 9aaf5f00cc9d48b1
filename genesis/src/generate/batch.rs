//! The tensors of a step, and the rows of logits that come back.
//!
//! New tokens of several sequences are packed one after the other, as
//! [`models`](crate::models) shows. Logits are only computed of rows that somebody looks at, and a few rows at
//! a time: a row of a large vocabulary is half a megabyte, and a scored prompt has thousands of them.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::models::{Batch, CausalLm, Ends, KvCache, Pass};
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
        let batch = batch(pieces, self.cache.page_size(), self.device)?;
        let (hidden, new) = self.hidden_in(pieces, &batch)?;
        match hidden.shape() {
            [rows, _] if *rows == new => Ok(hidden),
            found => Err(wrong_hidden(found, new)),
        }
    }

    /// The hidden states of the last new token of each sequence, `[S, C]`.
    pub(super) fn hidden_ends(&self, pieces: &[Piece]) -> Result<Tensor> {
        let new: usize = pieces.iter().map(|piece| piece.tokens.len()).sum();
        if new == pieces.len() {
            return self.hidden(pieces);
        }
        let mut batch = batch(pieces, self.cache.page_size(), self.device)?;
        let rows = batch.query_starts.narrow(0, 1, pieces.len())?.sub_scalar(1.0)?;
        looked_at(&mut batch, new, rows, |batch| Ok(self.hidden_in(pieces, batch)?.0))
    }

    /// What a model gives for new tokens, and how many these are.
    fn hidden_in(&self, pieces: &[Piece], batch: &Batch) -> Result<(Tensor, usize)> {
        let tokens = pieces.iter().flat_map(|piece| &piece.tokens).map(|&token| i64::from(token));
        let tokens: Vec<i64> = tokens.collect();
        let tokens = integers(&tokens, self.device)?; // [N]
        let hidden = self.model.hidden(&tokens, &Pass::Paged { batch, cache: self.cache })?;
        Ok((hidden, tokens.numel()))
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

/// The hidden states of some of `new` tokens, the last of each sequence, by a model that may give these alone.
pub(super) fn looked_at(
    batch: &mut Batch,
    new: usize,
    rows: Tensor,
    hidden: impl FnOnce(&Batch) -> Result<Tensor>,
) -> Result<Tensor> {
    // Of as many rows as there are tokens nobody could tell which they are.
    batch.ends = (rows.numel() != new).then(|| Ends::new(rows.clone())).transpose()?;
    let hidden = hidden(batch)?;
    match hidden.shape() {
        [all, _] if *all == new => hidden.index_select(0, &rows),
        [ends, _] if *ends == rows.numel() => Ok(hidden),
        found => Err(wrong_hidden(found, new)),
    }
}

fn wrong_hidden(found: &[usize], new: usize) -> Error {
    Error::op("generate", format!("the model gave hidden states {found:?} for {new} tokens"))
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
        ends: None,
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
