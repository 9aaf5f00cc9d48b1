//! What a run learns from: batches of texts, or of pairs of answers.
//!
//! The loop, its checkpoints and its metrics are the same for both; what differs is how files become batches, what the
//! loss is, and over how many it is a mean.

use std::path::PathBuf;
use std::sync::Arc;

use genesis_kernel::ir::DType;

use super::batch::{Rows, TokenBatch, loader};
use super::corpus::Corpus;
use super::document::{Document, read_documents};
use super::encoder::Encoder;
use super::loss::loss_sum;
use super::options::Options;
use super::ranks::Ranks;
use super::start::Start;
use crate::data::{Batch, DataLoader};
use crate::error::{Error, Result};
use crate::models::CausalLm;
use crate::tensor::Tensor;

/// A batch that a step learns from.
pub(super) trait Lesson: Batch {
    /// The batches of files.
    fn read(source: &Source<'_>, paths: &[PathBuf], rows: Rows) -> Result<Lessons<Self>>;

    /// Its tokens.
    fn tokens(&self) -> &TokenBatch;

    /// Over how many losses the mean is: tokens, or pairs.
    fn count(&self) -> usize;

    /// Whether it is of pairs, whose preferences are measured.
    const HAS_PREFERENCES: bool;

    /// Its losses, as a sum to go backward from.
    fn measure(&self, model: &Arc<dyn CausalLm>, half: Option<DType>) -> Result<Measured>;
}

/// What batches are made with.
#[derive(Clone, Copy)]
pub(super) struct Source<'s> {
    pub(super) start: &'s Start,
    pub(super) options: &'s Options,
    pub(super) encoder: &'s Encoder,
    /// Whether the model has no values, so that nothing can be computed with it.
    pub(super) is_outlined: bool,
}

impl Source<'_> {
    /// Refuses tokens that the model does not know.
    pub(super) fn check(&self, largest: u32) -> Result<()> {
        let (largest, known) = (largest as usize, self.start.model.vocab_size());
        match largest < known {
            true => Ok(()),
            false => {
                let what =
                    format!("the tokenizer makes token {largest}, the model knows {known} tokens");
                Err(Error::op("train", what))
            }
        }
    }
}

/// The batches of files, and what there is to tell of them.
pub(super) struct Lessons<L> {
    pub(super) loader: DataLoader<L>,
    /// Whether there are conversations among them.
    pub(super) is_chat: bool,
    pub(super) notes: Vec<String>,
}

/// What a batch came to.
pub(super) struct Measured {
    /// The sum of the losses: `[]`
    pub(super) loss: Tensor,
    /// Of pairs the sums of what [`Preferences`] has the means of: `[4]`
    pub(super) preferences: Option<Tensor>,
}

/// How far a model prefers the better answers of pairs, as means over them.
///
/// The reward of an answer is `beta` times the logarithm of how much more probable it is than for the reference.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Preferences {
    /// The share of pairs whose better answer has the higher reward.
    pub accuracy: f64,
    /// By how much it is higher.
    pub margin: f64,
    /// The reward of better answers.
    pub chosen: f64,
    /// The reward of the others.
    pub rejected: f64,
}

impl Preferences {
    /// The means of the sums of batches with so many pairs in all; none where there are no pairs.
    pub(super) fn of(sums: &[Tensor], pairs: usize) -> Result<Option<Preferences>> {
        let mut totals = [0.0; 4];
        for sum in sums {
            totals.iter_mut().zip(sum.to_f64_vec()?).for_each(|(total, sum)| *total += sum);
        }
        let [accuracy, margin, chosen, rejected] = totals.map(|total| total / pairs.max(1) as f64);
        Ok((!sums.is_empty()).then_some(Preferences { accuracy, margin, chosen, rejected }))
    }

    /// The sum of the shares of all ranks, all of which call it: one without a batch of its own adds nothing.
    pub(super) fn over<L: Lesson>(
        own: Option<Preferences>,
        ranks: &Ranks,
    ) -> Result<Option<Preferences>> {
        if !L::HAS_PREFERENCES {
            return Ok(None);
        }
        let Preferences { accuracy, margin, chosen, rejected } = own.unwrap_or_default();
        let [accuracy, margin, chosen, rejected] =
            ranks.sum([accuracy, margin, chosen, rejected])?;
        Ok(Some(Preferences { accuracy, margin, chosen, rejected }))
    }
}

impl Lesson for TokenBatch {
    const HAS_PREFERENCES: bool = false;

    fn read(source: &Source<'_>, paths: &[PathBuf], rows: Rows) -> Result<Lessons<TokenBatch>> {
        let documents = read_documents(paths)?;
        let corpus = Arc::new(Corpus::new(&documents, source.encoder, rows.length)?);
        source.check(corpus.largest())?;
        let loader = loader(&corpus, rows.clone())?;
        let mut notes = vec![format!(
            "{} documents, {} samples, {} tokens, {} of them learned, {} batches",
            documents.len(),
            corpus.len(),
            corpus.inputs(),
            corpus.learned(),
            loader.len().unwrap_or(0)
        )];
        if corpus.truncated > 0 {
            let (count, length) = (corpus.truncated, rows.length);
            notes.push(format!("{count} documents are over {length} tokens and lost their end"));
        }
        if corpus.dropped > 0 {
            let count = corpus.dropped;
            notes.push(format!("{count} documents have no token to learn and are left out"));
        }
        let is_conversation =
            |document: &Document| matches!(document, Document::Conversation { .. });
        Ok(Lessons { loader, is_chat: documents.iter().any(is_conversation), notes })
    }

    fn tokens(&self) -> &TokenBatch {
        self
    }

    fn count(&self) -> usize {
        self.learned()
    }

    fn measure(&self, model: &Arc<dyn CausalLm>, half: Option<DType>) -> Result<Measured> {
        Ok(Measured { loss: loss_sum(model, self, half)?, preferences: None })
    }
}
