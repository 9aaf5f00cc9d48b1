//! Rows of samples as the tensors that a step takes, and the loader of them.
//!
//! The samples of all rows of a batch stand one after the other, and what the rows have left comes at the end, so that
//! a packed batch always has the same extents.

use std::sync::Arc;

use genesis_kernel::runtime::Device;

use super::corpus::{Corpus, Sample};
use crate::data::{self, DataLoader, LoaderOptions};
use crate::error::Result;
use crate::models::Packed;
use crate::tensor::Tensor;

/// Packed samples, and which of their tokens predict what.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// The inputs: `[N]`, i64.
    pub tokens: Tensor,
    /// Where they belong.
    pub packed: Packed,
    /// The places of inputs that predict a token that is learned: `[M]`, i64.
    pub places: Tensor,
    /// Those tokens: `[M]`, i64.
    pub targets: Tensor,
    /// Inputs without padding.
    pub inputs: usize,
}

impl TokenBatch {
    /// A batch of samples, in `total` inputs, or in as many as there are where that is more.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(samples: &[Sample], total: usize, device: Device) -> Result<TokenBatch> {
        let lengths: Vec<usize> = samples.iter().map(|sample| sample.inputs.len()).collect();
        let inputs: usize = lengths.iter().sum();
        let total = total.max(inputs);
        let mut tokens: Vec<i64> =
            samples.iter().flat_map(|sample| &sample.inputs).map(|&token| token.into()).collect();
        tokens.resize(total, 0);
        let all = samples.iter().flat_map(|sample| &sample.targets).enumerate();
        let (places, targets): (Vec<i64>, Vec<i64>) =
            all.filter_map(|(at, target)| Some((at as i64, i64::from((*target)?)))).unzip();
        let list = |values: &[i64]| Tensor::from_slice_on(values, &[values.len()], device);
        Ok(TokenBatch {
            tokens: list(&tokens)?,
            packed: Packed::new(&lengths, total, device)?,
            places: list(&places)?,
            targets: list(&targets)?,
            inputs,
        })
    }

    /// The number of tokens that are learned.
    pub fn learned(&self) -> usize {
        self.targets.numel()
    }
}

impl data::Batch for TokenBatch {
    fn to_device(self, device: Device) -> Result<TokenBatch> {
        let TokenBatch { tokens, packed, places, targets, inputs } = self;
        Ok(TokenBatch {
            tokens: tokens.to_device(device)?,
            packed: Packed {
                positions: packed.positions.to_device(device)?,
                starts: packed.starts.to_device(device)?,
                longest: packed.longest,
            },
            places: places.to_device(device)?,
            targets: targets.to_device(device)?,
            inputs,
        })
    }
}

/// How rows become batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Inputs of a row.
    pub(super) length: usize,
    /// Rows of a batch.
    pub(super) batch: usize,
    pub(super) packing: bool,
    /// What the order depends on; data in order without it.
    pub(super) seed: Option<u64>,
    pub(super) device: Device,
}

/// Batches of the rows of a corpus.
pub(super) fn loader(corpus: &Arc<Corpus>, rows: Rows) -> Result<DataLoader<TokenBatch>> {
    let of_rows = corpus.rows(rows.length, rows.packing);
    let options = LoaderOptions {
        batch_size: rows.batch,
        shuffle: rows.seed.is_some(),
        seed: rows.seed.unwrap_or(0),
        // Beside threads that compute, one that makes batches would only take their time.
        workers: usize::from(rows.device.is_cuda()),
        ..LoaderOptions::default()
    };
    let total = if rows.packing { rows.length * rows.batch } else { 0 };
    let corpus = corpus.clone();
    DataLoader::with_fetch(of_rows.len(), options, move |chosen, _| {
        let samples = chosen.iter().flat_map(|&row| &of_rows[row]);
        let samples: Vec<Sample> = samples.map(|&sample| corpus.sample(sample)).collect();
        TokenBatch::new(&samples, total, rows.device)
    })
}
