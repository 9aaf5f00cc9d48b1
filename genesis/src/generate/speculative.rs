//! Guesses of the tokens to come, which the model verifies several at a time.
//!
//! A step that computes one token reads all weights; one that computes five reads them once as well. So a
//! cheap guess of the next tokens goes into the same batch as further new tokens of the sequence, and the
//! sampler then picks at each place as it always does, with the seed and position of that place. As long as a
//! pick is the guess, the next row is what plain decoding would have computed, and is used; the first other
//! pick is taken, and what was computed behind it is overwritten later. Guesses change how many tokens a step
//! gives and never which, given a model whose rows do not depend on the batch.
//!
//! ```text
//! tokens   the cat sat on the          guess   mat and purred
//! rows     the -> mat    = guess       kept
//!          mat -> and    = guess       kept
//!          and -> slept                kept, it is the sampler's; "purred" is dropped: 3 tokens of 1 step
//! ```
//!
//! # Source
//! Leviathan, Kalman and Matias, Fast inference from transformers via speculative decoding (ICML 2023), of
//! which this is the case without a change of distribution: a guess is kept only where it is the pick.

use std::fmt;
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::batch::{CachedModel, Piece, place};
use super::sequence::Sequence;
use crate::error::{Error, Result};
use crate::models::{CausalLm, KvCache};

/// How the tokens to come are guessed.
#[derive(Clone, Default)]
pub enum Speculation {
    /// They are not.
    #[default]
    None,
    /// The last tokens stood somewhere before: what followed there may follow again. It costs nothing, and
    /// pays where answers repeat their prompts, as edits and summaries do.
    PromptLookup {
        /// The longest run of last tokens that is looked for; shorter ones are tried after it.
        longest: usize,
        /// Tokens that are guessed at most.
        drafts: usize,
    },
    /// A smaller model with the same vocabulary goes ahead.
    Draft {
        /// The smaller model.
        model: Arc<dyn CausalLm>,
        /// Tokens that are guessed at most.
        drafts: usize,
    },
}

impl fmt::Debug for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Speculation::None => f.write_str("None"),
            Speculation::PromptLookup { longest, drafts } => {
                write!(f, "PromptLookup {{ longest: {longest}, drafts: {drafts} }}")
            }
            Speculation::Draft { drafts, .. } => write!(f, "Draft {{ drafts: {drafts} }}"),
        }
    }
}

/// The most tokens that are guessed at a time.
const MAX_DRAFTS: usize = 64;

impl Speculation {
    /// Tokens that are guessed at most.
    pub(super) fn drafts(&self) -> usize {
        match self {
            Speculation::None => 0,
            Speculation::PromptLookup { drafts, .. } | Speculation::Draft { drafts, .. } => *drafts,
        }
    }

    /// Refuses what can't guess for this model.
    pub(super) fn check(&self, model: &dyn CausalLm) -> Result<()> {
        let refuse = |message: String| Err(Error::op("generate", message));
        if self.drafts() > MAX_DRAFTS {
            return refuse(format!("{} drafts, at most {MAX_DRAFTS} are guessed", self.drafts()));
        }
        match self {
            Speculation::PromptLookup { longest: 0, .. } => {
                refuse("prompt lookup needs at least one token to look for".to_owned())
            }
            Speculation::Draft { model: draft, .. } if draft.vocab_size() != model.vocab_size() => {
                let (own, other) = (model.vocab_size(), draft.vocab_size());
                refuse(format!("the draft model knows {other} tokens, the model {own}"))
            }
            _ => Ok(()),
        }
    }
}

/// What makes the guesses of an engine.
#[derive(Debug)]
pub(super) enum Drafter {
    None,
    PromptLookup { longest: usize },
    Model(DraftModel),
}

impl Drafter {
    /// Of a setting that was checked; a draft model's cache has the same pages as the model's.
    pub(super) fn new(
        speculation: &Speculation,
        pages: usize,
        page_size: usize,
    ) -> Result<Drafter> {
        Ok(match speculation {
            Speculation::None => Drafter::None,
            &Speculation::PromptLookup { longest, .. } => Drafter::PromptLookup { longest },
            Speculation::Draft { model, .. } => {
                let (device, dtype) = place(&**model);
                let cache = KvCache::new(model.kv_shape(), pages, page_size, dtype, device)?;
                Drafter::Model(DraftModel { model: model.clone(), cache, device })
            }
        })
    }

    /// Bytes of keys and values of a page.
    pub(super) fn page_bytes(speculation: &Speculation, page_size: usize) -> usize {
        match speculation {
            Speculation::Draft { model, .. } => page_bytes(&**model, page_size, place(&**model).1),
            _ => 0,
        }
    }

    /// Guesses for each sequence, as many as it has room for or fewer.
    pub(super) fn propose(&self, sequences: &mut [&mut Sequence]) -> Result<Vec<Vec<u32>>> {
        match self {
            Drafter::None => Ok(vec![Vec::new(); sequences.len()]),
            Drafter::PromptLookup { longest } => {
                let look = |s: &&mut Sequence| look_up(&s.tokens, *longest, s.room).to_vec();
                Ok(sequences.iter().map(look).collect())
            }
            Drafter::Model(draft) => draft.propose(sequences),
        }
    }

    /// Sees the new tokens of prompts, which the model computes in this step.
    pub(super) fn follow(&self, sequences: &mut [&mut Sequence]) -> Result<()> {
        let Drafter::Model(draft) = self else { return Ok(()) };
        let is_prompt = |s: &&mut &mut Sequence| !s.is_decoding();
        let mut prompts: Vec<&mut Sequence> =
            sequences.iter_mut().filter(is_prompt).map(|s| &mut **s).collect();
        let pieces: Vec<Piece> = prompts
            .iter()
            .map(|s| {
                let tokens = s.tokens[s.computed..s.computed + s.planned].to_vec();
                Piece { start: s.computed, tokens, pages: s.pages.clone() }
            })
            .collect();
        if !pieces.is_empty() {
            draft.cached().hidden_ends(&pieces)?;
            prompts.iter_mut().for_each(|s| s.drafted = s.computed + s.planned);
        }
        Ok(())
    }
}

/// Bytes of keys and values of a page of a model.
pub(super) fn page_bytes(model: &dyn CausalLm, page_size: usize, dtype: DType) -> usize {
    let shape = model.kv_shape();
    let factors = [2, shape.layers, shape.heads, shape.head_dim, page_size, dtype.bytes()];
    factors.into_iter().fold(1usize, usize::saturating_mul)
}

/// A model that goes ahead. Its cache has the pages of the model's, so that a sequence has one page table, and
/// what is missing in it, after a prefix hit say, costs guesses and no token.
pub(super) struct DraftModel {
    model: Arc<dyn CausalLm>,
    cache: KvCache,
    device: Device,
}

impl fmt::Debug for DraftModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DraftModel").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl DraftModel {
    fn cached(&self) -> CachedModel<'_> {
        CachedModel { model: &*self.model, cache: &self.cache, device: self.device }
    }

    fn propose(&self, sequences: &mut [&mut Sequence]) -> Result<Vec<Vec<u32>>> {
        let mut guesses = vec![Vec::new(); sequences.len()];
        let context = self.model.max_positions();
        loop {
            let mut open = Vec::new();
            for (index, (sequence, guess)) in sequences.iter().zip(&guesses).enumerate() {
                let end = sequence.tokens.len() + guess.len();
                if guess.len() < sequence.room && end <= context {
                    open.push((index, piece(sequence, guess)));
                }
            }
            if open.is_empty() {
                break;
            }
            let (indices, pieces): (Vec<usize>, Vec<Piece>) = open.into_iter().unzip();
            let next = self.guess(&indices, &pieces, sequences)?;
            let mut is_over = true;
            for ((index, piece), token) in indices.into_iter().zip(&pieces).zip(next) {
                sequences[index].drafted = piece.start + piece.tokens.len();
                match token {
                    Some(token) => guesses[index].push(token),
                    None => sequences[index].room = guesses[index].len(),
                }
                is_over &= guesses[index].len() >= sequences[index].room;
            }
            if is_over {
                break;
            }
        }
        // What follows a guess that is not taken is no part of the sequence.
        for sequence in sequences {
            sequence.drafted = sequence.drafted.min(sequence.tokens.len());
        }
        Ok(guesses)
    }

    /// The next token of each piece's sequence.
    fn guess(
        &self,
        indices: &[usize],
        pieces: &[Piece],
        sequences: &[&mut Sequence],
    ) -> Result<Vec<Option<u32>>> {
        let hidden = self.cached().hidden_ends(pieces)?;
        let rows: Vec<usize> = (0..pieces.len()).collect();
        let mut logits = self.cached().logits(&hidden, &rows)?;
        let rows = logits.chunks_mut(self.model.vocab_size());
        let guess = |((&index, piece), row): ((&usize, &Piece), &mut [f32])| {
            sequences[index].guess(row, piece.start + piece.tokens.len())
        };
        Ok(indices.iter().zip(pieces).zip(rows).map(guess).collect())
    }
}

/// What the draft model has not seen of a sequence and its guess so far.
fn piece(sequence: &Sequence, guess: &[u32]) -> Piece {
    let start = sequence.drafted;
    let all = sequence.tokens.iter().chain(guess);
    Piece { start, tokens: all.skip(start).copied().collect(), pages: sequence.pages.clone() }
}

/// What followed the last tokens where they stood before, at the latest such place, after the longest run.
fn look_up(tokens: &[u32], longest: usize, count: usize) -> &[u32] {
    for length in (1..=longest.min(tokens.len().saturating_sub(1))).rev() {
        if count == 0 {
            break;
        }
        let (before, last) = (&tokens[..tokens.len() - 1], &tokens[tokens.len() - length..]);
        if let Some(place) = before.windows(length).rposition(|run| run == last) {
            let follows = &tokens[place + length..];
            return &follows[..count.min(follows.len())];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_at_the_latest_place_is_followed() {
        assert_eq!(look_up(&[1, 2, 3, 1, 2], 3, 2), [3, 1]);
        assert_eq!(look_up(&[1, 2, 3, 9, 2, 4, 1, 2], 3, 1), [3]);
        assert_eq!(look_up(&[1, 2, 3, 9, 2, 4, 1, 2], 1, 1), [4]);
        assert_eq!(look_up(&[5, 5, 5], 2, 4), [5]);
    }

    #[test]
    fn nothing_is_guessed_where_nothing_came_back() {
        assert_eq!(look_up(&[1, 2, 3], 3, 4), [] as [u32; 0]);
        assert_eq!(look_up(&[1], 3, 4), [] as [u32; 0]);
        assert_eq!(look_up(&[1, 1], 3, 0), [] as [u32; 0]);
    }
}
