//! Direct preference optimization (DPO).
//!
//! ```text
//! r(y) = log p(y | x) - log p_ref(y | x)         over the tokens of the answer
//! loss = -log sigmoid(beta (r(chosen) - r(rejected)))
//! ```
//!
//! The reference is the model as it is before the first step, whose probabilities do not change: they are computed
//! once, so that no second model is in memory and a step costs no second forward. A run that goes on computes them anew
//! before it takes its checkpoint, from the same weights to the same bits.
//!
//! A batch holds all better answers, then all others, packed, so that one forward has both:
//!
//! ```text
//! x0 chosen0 | x1 chosen1 | x0 rejected0 | x1 rejected1
//! ```
//!
//! # Source
//! arXiv:2305.18290, equation 7; label smoothing: Mitchell, 2023, *A note on DPO with noisy preferences*.

use std::path::PathBuf;
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use rayon::prelude::*;

use super::batch::{Rows, TokenBatch};
use super::corpus::Sample;
use super::document::Document;
use super::encoder::Encoder;
use super::lesson::{Lesson, Lessons, Measured, Source};
use super::loss::losses;
use super::options::DpoOptions;
use super::pair::{Pair, read_pairs};
use crate::autograd::no_grad;
use crate::data::{Batch, DataLoader, LoaderOptions};
use crate::error::{Error, Result};
use crate::models::CausalLm;
use crate::tensor::Tensor;

/// Pairs of answers, packed, and how probable they are for the reference.
#[derive(Clone, Debug)]
pub struct PairBatch {
    /// All better answers, then all others, each behind its prompt.
    pub tokens: TokenBatch,
    /// How many tokens of each answer are learned, in that order.
    pub lengths: Vec<usize>,
    /// The logarithms of the probabilities of the answers for the reference: `[2, B]`, f32.
    pub reference: Tensor,
    /// How strongly they are preferred.
    pub options: DpoOptions,
}

impl PairBatch {
    /// A batch of pairs, better answers first, with what the reference gives both.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        pairs: &[&[Sample; 2]],
        reference: &[[f32; 2]],
        options: DpoOptions,
        device: Device,
    ) -> Result<PairBatch> {
        let sides = |side: usize| pairs.iter().map(move |pair| pair[side].clone());
        let samples: Vec<Sample> = sides(0).chain(sides(1)).collect();
        let values: Vec<f32> =
            [0, 1].iter().flat_map(|&side| reference.iter().map(move |of| of[side])).collect();
        Ok(PairBatch {
            tokens: TokenBatch::new(&samples, 0, device)?,
            lengths: samples.iter().map(Sample::learned).collect(),
            reference: Tensor::from_slice_on(&values, &[2, reference.len()], device)?,
            options,
        })
    }

    /// The logarithms of the probabilities of the answers: `[2, B]`, f32 or f64.
    ///
    /// # Errors
    /// If a token is out of range, or memory runs out.
    pub fn log_probabilities(
        &self,
        model: &Arc<dyn CausalLm>,
        half: Option<DType>,
    ) -> Result<Tensor> {
        let parts = losses(model, &self.tokens, half)?;
        let all = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?; // [M]
        let (mut start, mut sums) = (0, Vec::with_capacity(self.lengths.len()));
        for &length in &self.lengths {
            sums.push(all.narrow(0, start, length)?.sum()?);
            start += length;
        }
        let sums = Tensor::stack(&sums.iter().collect::<Vec<_>>(), 0)?; // [2 B]
        sums.neg()?.reshape(&[2, self.lengths.len() / 2]) // [2, B]
    }
}

/// The losses of pairs, and the rewards of their answers.
///
/// # Shapes
/// `policy` and `reference`: `[2, B]`, the logarithms of the probabilities of better answers and of the others, give
/// losses `[B]` and rewards `[2, B]`, which are constants.
/// # Errors
/// If shapes or dtypes do not fit, or memory runs out.
/// # Source
/// arXiv:2305.18290, equation 7.
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::train::language::{DpoOptions, preference_losses};
///
/// let policy = Tensor::from_slice(&[-3.0f32, -5.0], &[2, 1])?;
/// let (losses, _) = preference_losses(&policy, &policy, DpoOptions { beta: 0.1, label_smoothing: 0.0 })?;
/// assert!((losses.sum()?.item()? - 2f64.ln()).abs() < 1e-6);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn preference_losses(
    policy: &Tensor,
    reference: &Tensor,
    options: DpoOptions,
) -> Result<(Tensor, Tensor)> {
    let DpoOptions { beta, label_smoothing } = options;
    let rewards = policy.sub(&reference.to_dtype(policy.dtype())?)?.mul_scalar(beta)?; // [2, B]
    let margins = rewards.select(0, 0)?.sub(&rewards.select(0, 1)?)?; // [B]
    let right = margins.log_sigmoid()?.mul_scalar(label_smoothing - 1.0)?;
    let losses = match label_smoothing > 0.0 {
        true => right.sub(&margins.neg()?.log_sigmoid()?.mul_scalar(label_smoothing)?)?,
        false => right,
    };
    Ok((losses, rewards.detach()))
}

impl Batch for PairBatch {
    fn to_device(self, device: Device) -> Result<PairBatch> {
        let (tokens, reference) =
            (self.tokens.to_device(device)?, self.reference.to_device(device)?);
        Ok(PairBatch { tokens, reference, ..self })
    }
}

impl Lesson for PairBatch {
    const HAS_PREFERENCES: bool = true;

    fn read(source: &Source<'_>, paths: &[PathBuf], rows: Rows) -> Result<Lessons<PairBatch>> {
        let Some(options) = source.options.dpo_options() else {
            return Err(Error::op("train", "pairs are learned with a beta"));
        };
        let pairs = read_pairs(paths)?;
        let Samples { samples, truncated, dropped } =
            Samples::of(&pairs, source.encoder, rows.length)?;
        let tokens = samples
            .iter()
            .flatten()
            .flat_map(|s| s.inputs.iter().copied().chain(s.targets.iter().flatten().copied()));
        source.check(tokens.max().unwrap_or(0))?;
        let half = source.options.autocast();
        let reference = match source.is_outlined {
            true => vec![[0.0; 2]; samples.len()],
            false => reference(&source.start.model, &samples, (options, &rows), half)?,
        };
        let inputs: usize = samples.iter().flatten().map(|sample| sample.inputs.len()).sum();
        let learned: usize = samples.iter().flatten().map(Sample::learned).sum();
        let used = samples.len();
        let loader = loader(samples, reference, options, rows.clone())?;
        let mut notes = vec![format!(
            "{} pairs, {inputs} tokens, {learned} of them learned, {} batches",
            used,
            loader.len().unwrap_or(0)
        )];
        if truncated > 0 {
            let length = rows.length;
            notes.push(format!("{truncated} answers are over {length} tokens and lost their end"));
        }
        if dropped > 0 {
            notes.push(format!("{dropped} pairs have no token to learn and are left out"));
        }
        let is_chat = pairs.iter().any(|p| matches!(p.chosen, Document::Conversation { .. }));
        Ok(Lessons { loader, is_chat, notes })
    }

    fn tokens(&self) -> &TokenBatch {
        &self.tokens
    }

    fn count(&self) -> usize {
        self.lengths.len() / 2
    }

    fn measure(&self, model: &Arc<dyn CausalLm>, half: Option<DType>) -> Result<Measured> {
        let policy = self.log_probabilities(model, half)?;
        let (losses, rewards) = preference_losses(&policy, &self.reference, self.options)?;
        let (chosen, rejected) = (rewards.select(0, 0)?, rewards.select(0, 1)?); // [B]
        let margins = chosen.sub(&rejected)?;
        let is_right = margins.gt_scalar(0.0)?.to_dtype(margins.dtype())?;
        let sums = [is_right.sum()?, margins.sum()?, chosen.sum()?, rejected.sum()?];
        let preferences = Tensor::stack(&sums.iter().collect::<Vec<_>>(), 0)?; // [4]
        Ok(Measured { loss: losses.sum()?, preferences: Some(preferences) })
    }
}

/// Pairs as tokens.
struct Samples {
    samples: Vec<[Sample; 2]>,
    /// Answers that lost their end.
    truncated: usize,
    /// Pairs of which an answer has no token to learn.
    dropped: usize,
}

impl Samples {
    fn of(pairs: &[Pair], encoder: &Encoder, length: usize) -> Result<Samples> {
        let encode = |(index, pair): (usize, &Pair)| {
            let numbered = |error: Error| Error::io(format!("pair {}: {error}", index + 1));
            let answer = |document| encoder.encode_from(document, pair.given).map_err(numbered);
            Ok([answer(&pair.chosen)?, answer(&pair.rejected)?])
        };
        let encoded: Vec<Result<_>> = pairs.par_iter().enumerate().map(encode).collect();
        let encoded = encoded.into_iter().collect::<Result<Vec<_>>>()?;
        let is_long = |tokens: &[u32]| tokens.len() > length + 1;
        let truncated = encoded.iter().flatten().filter(|answer| is_long(&answer.tokens)).count();
        let cut = |pair: &[_; 2]| [Sample::of(&pair[0], length), Sample::of(&pair[1], length)];
        let mut samples: Vec<[Sample; 2]> = encoded.iter().map(cut).collect();
        samples.retain(|pair| pair.iter().all(|sample| sample.learned() > 0));
        match samples.is_empty() {
            true => {
                let what = format!("none of {} pairs has tokens to learn", pairs.len());
                Err(Error::op("training data", what))
            }
            false => Ok(Samples { dropped: pairs.len() - samples.len(), samples, truncated }),
        }
    }
}

/// How probable answers are for a model as it is now, in logarithms.
fn reference(
    model: &Arc<dyn CausalLm>,
    samples: &[[Sample; 2]],
    (options, rows): (DpoOptions, &Rows),
    half: Option<DType>,
) -> Result<Vec<[f32; 2]>> {
    model.eval();
    let mut all = Vec::with_capacity(samples.len());
    for some in samples.chunks(rows.batch) {
        let pairs: Vec<&[Sample; 2]> = some.iter().collect();
        let unknown = vec![[0.0; 2]; some.len()];
        let batch = PairBatch::new(&pairs, &unknown, options, rows.device)?;
        let found = no_grad(|| batch.log_probabilities(model, half))?.to_f64_vec()?;
        let (chosen, rejected) = found.split_at(some.len());
        all.extend(chosen.iter().zip(rejected).map(|(&c, &r)| [c as f32, r as f32]));
    }
    Ok(all)
}

fn loader(
    samples: Vec<[Sample; 2]>,
    reference: Vec<[f32; 2]>,
    options: DpoOptions,
    rows: Rows,
) -> Result<DataLoader<PairBatch>> {
    let of_loader = LoaderOptions {
        batch_size: rows.batch,
        shuffle: rows.seed.is_some(),
        seed: rows.seed.unwrap_or(0),
        workers: usize::from(rows.device.is_cuda()),
        ..LoaderOptions::default()
    };
    DataLoader::with_fetch(samples.len(), of_loader, move |chosen, _| {
        let pairs: Vec<&[Sample; 2]> = chosen.iter().map(|&pair| &samples[pair]).collect();
        let reference: Vec<[f32; 2]> = chosen.iter().map(|&pair| reference[pair]).collect();
        PairBatch::new(&pairs, &reference, options, rows.device)
    })
}
