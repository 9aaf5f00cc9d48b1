//! The steps of an engine that are recorded, and the kernels that they launch, compiled before somebody waits.
//!
//! The first step of each size is rehearsed, so that its kernels are compiled side by side; the first of all
//! together with the step that follows it, which has one new token of each sequence. [`Engine::warm_up`] rehearses
//! every size that there may be.

use std::collections::BTreeSet;
use std::sync::Arc;

use genesis_kernel::compile_ahead;
use genesis_kernel::runtime::Device;

use super::decode::{Decode, Decoded, Tokens, rows_of};
use super::engine::Engine;
use super::mixed::{MOST_TOKENS, Mixed, Part, Sizes};
use super::row::Row;
use super::schedule::Bounds;
use crate::autograd::no_grad;
use crate::error::Result;
use crate::models::{CausalLm, KvCache};

/// The recorded steps of a model and its cache.
#[derive(Debug)]
pub(super) struct RecordedSteps {
    decode: Decode,
    mixed: Mixed,
    page_size: usize,
    device: Device,
}

impl RecordedSteps {
    /// Nothing is recorded yet.
    pub(super) fn new(
        model: &Arc<dyn CausalLm>,
        cache: &Arc<KvCache>,
        device: Device,
    ) -> RecordedSteps {
        RecordedSteps {
            decode: Decode::new(Arc::clone(model), Arc::clone(cache), device),
            mixed: Mixed::new(Arc::clone(model), Arc::clone(cache), device),
            page_size: cache.page_size(),
            device,
        }
    }

    /// As [`Decode::launch`].
    ///
    /// # Errors
    /// As that.
    pub(super) fn decode(
        &mut self,
        rows: &[Option<Row<'_>>],
        tokens: Tokens<'_>,
    ) -> Result<Decoded> {
        let keys = rows.iter().flatten().map(|row| row.position + 1).max();
        let pages = keys.unwrap_or(0).div_ceil(self.page_size);
        if self.decode.is_new(rows.len(), pages) {
            self.rehearse(&[], &[(rows.len(), pages)])?;
        }
        self.decode.launch(rows, tokens)
    }

    /// As [`Mixed::launch`].
    ///
    /// # Errors
    /// As that.
    pub(super) fn mixed(&mut self, parts: &[Part<'_>]) -> Result<Decoded> {
        let keys = parts.iter().map(|part| part.start + part.tokens.len()).max().unwrap_or(0);
        let tokens = parts.iter().map(|part| part.tokens.len()).sum();
        let sizes = Sizes::of(tokens, parts.len(), keys.div_ceil(self.page_size));
        if self.mixed.is_new(sizes) {
            let next = (parts.len(), (keys + 1).div_ceil(self.page_size));
            let next = Some(next).filter(|&(sequences, pages)| self.decode.is_new(sequences, pages));
            self.rehearse(&[sizes], next.as_slice())?;
        }
        self.mixed.launch(parts)
    }

    /// Compiles what steps of these sizes launch: of prompts, and of so many sequences of so many pages.
    fn rehearse(&mut self, mixed: &[Sizes], decode: &[(usize, usize)]) -> Result<()> {
        if self.device == Device::Cpu {
            return Ok(());
        }
        let rehearsal = || {
            mixed.iter().try_for_each(|&sizes| self.mixed.rehearse(sizes))?;
            let one_each = |&(sequences, pages)| self.decode.rehearse(sequences, pages);
            decode.iter().try_for_each(one_each)
        };
        compile_ahead(rehearsal).0
    }
}

impl Engine {
    /// Compiles every kernel that a step may need, so that nobody waits for one later, and rather than in the steps
    /// that need them first all of them side by side. It is for programs that answer many; nothing is done where
    /// steps are not recorded, see [`EngineOptions::on_device`](super::EngineOptions::on_device).
    ///
    /// # Errors
    /// Those of the model, if it does what can't be recorded, or memory runs out.
    pub fn warm_up(&mut self) -> Result<()> {
        let Some(steps) = &mut self.recorded else { return Ok(()) };
        let (mixed, decode) = all_sizes(&self.scheduler.bounds);
        no_grad(|| steps.rehearse(&mixed, &decode))
    }
}

/// Sizes that have among them every kernel of a step that may be: of prompts, and sequences and pages of one new token
/// each. Kernels are chosen by powers of two of the numbers.
fn all_sizes(bounds: &Bounds) -> (Vec<Sizes>, Vec<(usize, usize)>) {
    let up_to = |most: usize| {
        (0..=most.max(1).next_power_of_two().ilog2()).map(|bit| 1usize << bit)
    };
    let pages = bounds.context.div_ceil(bounds.page_size);
    let chunk = bounds.chunk.max(bounds.idle_chunk);
    let most = (chunk + bounds.max_sequences).min(MOST_TOKENS);
    let mut mixed = BTreeSet::new();
    for (tokens, sequences) in product(up_to(most), up_to(bounds.max_sequences)) {
        let sizes = up_to(pages).map(|pages| Sizes::of(tokens, sequences, pages));
        mixed.extend(sizes.filter(|_| sequences <= tokens));
    }
    let rows: BTreeSet<usize> = (1..=bounds.max_sequences).map(rows_of).collect();
    (mixed.into_iter().collect(), product(rows.into_iter(), up_to(pages)).collect())
}

/// Every pair of one and another.
fn product<A: Copy, B>(
    one: impl Iterator<Item = A>,
    other: impl Iterator<Item = B> + Clone,
) -> impl Iterator<Item = (A, B)> {
    one.flat_map(move |a| other.clone().map(move |b| (a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_bounds() {
        let bounds = Bounds {
            page_size: 16,
            chunk: 32,
            idle_chunk: 32,
            max_sequences: 9,
            context: 64,
            drafts: 0,
        };
        let (mixed, decode) = all_sizes(&bounds);
        let pages = [1, 2, 4];
        let of = |tokens, sequences| pages.map(|pages| Sizes::of(tokens, sequences, pages));
        let pairs = [(16, 1), (16, 8), (16, 16), (32, 1), (32, 8), (32, 16), (64, 1), (64, 8)];
        assert!(pairs.iter().all(|&(n, s)| of(n, s).iter().all(|sizes| mixed.contains(sizes))));
        assert_eq!(mixed.len(), 3 * 9);
        let rows = [1, 2, 4, 8, 16];
        assert_eq!(decode, product(rows.into_iter(), pages.into_iter()).collect::<Vec<_>>());
    }
}
