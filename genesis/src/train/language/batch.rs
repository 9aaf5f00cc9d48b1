//! Rows of samples as the tensors that a step takes, and the loader of them.
//!
//! The samples of all rows of a batch stand one after the other, and what the rows have left comes at the end, so that
//! a packed batch always has the same extents.

use std::sync::Arc;

use genesis_kernel::runtime::Device;

use super::corpus::{Corpus, Sample};
use crate::data::{self, DataLoader, LoaderOptions};
use crate::distributed::ProcessGroup;
use crate::error::Result;
use crate::models::{ContextParts, Packed};
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
    /// Tokens that are learned, those of other ranks that have parts of the samples included.
    pub counted: usize,
}

/// A target that does not count.
const IGNORED: i64 = -100;

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
            counted: targets.len(),
        })
    }

    /// A rank's parts of samples, in `total` inputs: of `2 ranks` pieces of each the one of its number from the front, and
    /// the one from the back. Samples are made longer to be in equal pieces.
    fn part(
        samples: &[Sample],
        total: usize,
        group: &ProcessGroup,
        device: Device,
    ) -> Result<TokenBatch> {
        let (size, rank) = (group.size(), group.rank());
        let (mut tokens, mut positions): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
        let (mut places, mut targets, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for sample in samples {
            let piece = piece_of(sample.inputs.len(), size);
            for number in [rank, 2 * size - 1 - rank] {
                for at in number * piece..(number + 1) * piece {
                    if let Some(&Some(target)) = sample.targets.get(at) {
                        places.push(tokens.len() as i64);
                        targets.push(i64::from(target));
                    }
                    tokens.push(sample.inputs.get(at).map_or(0, |&token| token.into()));
                    positions.push(at as i64);
                }
            }
            lengths.push(2 * piece);
        }
        if places.is_empty() {
            // The rank takes part in the backward of the others.
            places.push(0);
            targets.push(IGNORED);
        }
        let total = total.max(tokens.len());
        let mut packed = Packed::new(&lengths, total, device)?;
        tokens.resize(total, 0);
        positions.resize(total, 0);
        let list = |values: &[i64]| Tensor::from_slice_on(values, &[values.len()], device);
        packed.positions = list(&positions)?;
        packed.context = Some(ContextParts { group: group.clone(), lengths });
        Ok(TokenBatch {
            tokens: list(&tokens)?,
            packed,
            places: list(&places)?,
            targets: list(&targets)?,
            inputs: samples.iter().map(|sample| sample.inputs.len()).sum(),
            counted: samples.iter().map(Sample::learned).sum(),
        })
    }

    /// The number of tokens that are learned.
    pub fn learned(&self) -> usize {
        self.counted
    }
}

/// Tokens of each of the pieces that ranks have two of each.
fn piece_of(length: usize, ranks: usize) -> usize {
    length.div_ceil(2 * ranks)
}

impl data::Batch for TokenBatch {
    fn to_device(self, device: Device) -> Result<TokenBatch> {
        let TokenBatch { tokens, packed, places, targets, inputs, counted } = self;
        Ok(TokenBatch {
            tokens: tokens.to_device(device)?,
            packed: Packed {
                positions: packed.positions.to_device(device)?,
                starts: packed.starts.to_device(device)?,
                longest: packed.longest,
                context: packed.context,
            },
            places: places.to_device(device)?,
            targets: targets.to_device(device)?,
            inputs,
            counted,
        })
    }
}

/// What ranks that share a batch ask of its tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharing {
    /// The ranks that have parts of each sample.
    pub(super) context: Option<ProcessGroup>,
    /// In so many equal parts the tokens of a rank are to be; 0 counts as 1.
    pub(super) parts: usize,
    /// Whether all batches must have as many tokens.
    pub(super) is_fixed: bool,
}

/// How rows become batches.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// Inputs of a row.
    pub(super) length: usize,
    /// Rows of a batch.
    pub(super) batch: usize,
    pub(super) packing: bool,
    /// What the order depends on; data in order without it.
    pub(super) seed: Option<u64>,
    pub(super) device: Device,
    pub(super) sharing: Sharing,
}

impl Rows {
    /// The inputs of a rank of a batch of these rows; fewer where batches differ.
    fn total(&self, corpus: &Corpus, rows: &[Vec<usize>]) -> usize {
        let Sharing { context, is_fixed, .. } = &self.sharing;
        match context {
            _ if !(self.packing || *is_fixed) => 0,
            None => self.length * self.batch,
            Some(group) => {
                let part = |&sample: &usize| 2 * piece_of(corpus.length(sample), group.size());
                let longest = rows.iter().map(|row| row.iter().map(part).sum::<usize>()).max();
                longest.unwrap_or(0) * self.batch
            }
        }
    }

    /// The batch of some samples.
    fn batch(&self, samples: &[Sample], total: usize) -> Result<TokenBatch> {
        let Sharing { context, parts, .. } = &self.sharing;
        let own: usize = match context {
            None => samples.iter().map(|sample| sample.inputs.len()).sum(),
            Some(group) => samples.iter().map(|s| 2 * piece_of(s.inputs.len(), group.size())).sum(),
        };
        let total = total.max(own).next_multiple_of((*parts).max(1));
        match context {
            None => TokenBatch::new(samples, total, self.device),
            Some(group) => TokenBatch::part(samples, total, group, self.device),
        }
    }
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
    let total = rows.total(corpus, &of_rows);
    let corpus = corpus.clone();
    DataLoader::with_fetch(of_rows.len(), options, move |chosen, _| {
        let samples = chosen.iter().flat_map(|&row| &of_rows[row]);
        let samples: Vec<Sample> = samples.map(|&sample| corpus.sample(sample)).collect();
        rows.batch(&samples, total)
    })
}
