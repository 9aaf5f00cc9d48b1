//! The steps of an engine that are recorded, and the kernels that they launch, compiled before somebody waits.
//!
//! The first step of each size is rehearsed, so that its kernels are compiled side by side.

use std::sync::Arc;

use genesis_kernel::compile_ahead;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::decode::{Decode, Decoded, Tokens};
use super::mixed::{Mixed, Part, Sizes, most_rows};
use super::row::Row;
use crate::error::{Error, Result, warn_once};
use crate::models::{CausalLm, KvCache};
use crate::tensor::Tensor;

/// The recorded steps of a model and its cache.
#[derive(Debug)]
pub(super) struct RecordedSteps {
    decode: Decode,
    mixed: Mixed,
    page_size: usize,
    device: Device,
}

impl RecordedSteps {
    /// Nothing is recorded yet; steps have up to so many sequences.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) fn new(
        model: &Arc<dyn CausalLm>,
        cache: &Arc<KvCache>,
        (device, sequences): (Device, usize),
    ) -> Result<RecordedSteps> {
        // Both kinds of step draw into the same rows, so that either may follow on either.
        let last = Tensor::zeros(&[most_rows(sequences)], (DType::I64, device))?;
        Ok(RecordedSteps {
            decode: Decode::new(Arc::clone(model), Arc::clone(cache), (last.clone(), device)),
            mixed: Mixed::new(Arc::clone(model), Arc::clone(cache), (last, device)),
            page_size: cache.page_size(),
            device,
        })
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
            self.rehearse(&[sizes], &[])?;
        }
        self.mixed.launch(parts)
    }

    /// Compiles what steps of these sizes launch: of prompts, and of so many sequences of so many pages.
    ///
    /// # Errors
    /// Those of the model, and if it does what can't be recorded.
    pub(super) fn rehearse(&mut self, mixed: &[Sizes], decode: &[(usize, usize)]) -> Result<()> {
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

/// Steps run op by op from here on.
pub(super) fn give_up(recorded: &mut Option<RecordedSteps>, error: &Error) {
    warn_once(format_args!("a step can't be a graph and runs op by op: {error}"));
    *recorded = None;
}
