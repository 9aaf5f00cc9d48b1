//! The step that generation is made of: one new token of each sequence, from its number to the next one's, as
//! one graph.
//!
//! A step of a small model is a few hundred launches of a few microseconds, for each of which the host would take as
//! long. So it is recorded once for a number of sequences and of pages ([`crate::graph()`]), and then is one launch,
//! the picking of tokens included: what comes back is a number for each sequence.
//!
//! Both numbers are rounded up, so that there are few recordings. What is added computes nothing: sequences
//! without keys, whose new key goes nowhere, and pages that nobody reads.
//!
//! ```text
//! 5 sequences of up to 40 tokens in pages of 16         recorded for 8 sequences of 4 pages
//! wholes   token .. | position .. | slot .. | keys .. | top-k .. | seed .. | drawn position .. | starts | pages
//! numbers  temperature .. | top-p .. | min-p ..
//! ```

use std::sync::Arc;

use genesis_kernel::runtime::Device;

use super::batch::Piece;
use super::device::{Draw, Draws, numbers, wholes};
use crate::error::Result;
use crate::graph::{Graph, graph};
use crate::models::{Batch, CausalLm, KvCache, Pass};
use crate::tensor::Tensor;

type Step = Box<dyn FnMut(&mut (), &[Tensor]) -> Result<Vec<Tensor>> + Send>;

/// The steps of a model and its cache that are recorded.
pub(super) struct Decode {
    graph: Graph<(), Step>,
    page_size: usize,
    device: Device,
}

/// What a step gives.
pub(super) struct Decoded {
    /// `[S, C]`, of each sequence the hidden state that its token was picked by; more rows may follow.
    pub(super) hidden: Tensor,
    /// The token of each sequence; -1 where its largest logit is infinite.
    pub(super) tokens: Vec<i64>,
}

/// The sizes that a step is recorded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes {
    sequences: usize,
    pages: usize,
}

/// Lines of one number for each sequence.
const LINES: usize = 7;

impl Sizes {
    /// Those of a step, rounded up: to 1, 2, 4 and multiples of 8 sequences, to powers of two of pages.
    fn of(sequences: usize, pages: usize) -> Sizes {
        let sequences = match sequences {
            0..=4 => sequences.next_power_of_two(),
            _ => sequences.next_multiple_of(8),
        };
        Sizes { sequences, pages: pages.max(1).next_power_of_two() }
    }

    /// The sizes of such numbers `[n]`.
    fn read(wholes: &Tensor, numbers: &Tensor) -> Sizes {
        let sequences = numbers.numel() / 3;
        let of_sequence = (wholes.numel() - 1) / sequences.max(1);
        Sizes { sequences, pages: of_sequence - LINES - 1 }
    }
}

impl Decode {
    /// Nothing is recorded yet.
    pub(super) fn new(model: Arc<dyn CausalLm>, cache: Arc<KvCache>, device: Device) -> Decode {
        let page_size = cache.page_size();
        let step = move |(): &mut (), args: &[Tensor]| {
            let sizes = Sizes::read(&args[0], &args[1]);
            step(&*model, &cache, sizes, (&args[0], &args[1]))
        };
        Decode { graph: graph(Box::new(step) as Step), page_size, device }
    }

    /// Computes the next token of each piece, which has one token.
    ///
    /// # Errors
    /// Those of the model, and if it does what can't be recorded.
    pub(super) fn run(&mut self, pieces: &[Piece], draws: &[Draw]) -> Result<Decoded> {
        let used = |piece: &Piece| (piece.start + 1).div_ceil(self.page_size);
        let sizes = Sizes::of(pieces.len(), pieces.iter().map(used).max().unwrap_or(0));
        let mut draws = draws.to_vec();
        draws.resize(sizes.sequences, Draw::default());
        let wholes = packed(pieces, &draws, sizes, self.page_size);
        let wholes = Tensor::from_slice_on(&wholes, &[wholes.len()], self.device)?;
        let numbers = numbers(&draws);
        let numbers = Tensor::from_slice_on(&numbers, &[numbers.len()], self.device)?;
        let [hidden, tokens] =
            <[Tensor; 2]>::try_from(self.graph.call(&mut (), &[&wholes, &numbers])?)
                .map_err(|_| crate::Error::op("generate", "a step gives two tensors"))?;
        let mut tokens = tokens.to_vec::<i64>()?;
        tokens.truncate(pieces.len());
        Ok(Decoded { hidden, tokens })
    }
}

/// The whole numbers of a step, line after line.
fn packed(pieces: &[Piece], draws: &[Draw], sizes: Sizes, page_size: usize) -> Vec<i64> {
    let Sizes { sequences, pages } = sizes;
    let mut all = Vec::with_capacity(sequences * (LINES + 1 + pages) + 1);
    let mut line = |of: &dyn Fn(&Piece) -> i64, none: i64| {
        all.extend(pieces.iter().map(of));
        all.resize(all.len() + sequences - pieces.len(), none);
    };
    line(&|piece| i64::from(piece.tokens[0]), 0);
    line(&|piece| piece.start as i64, 0);
    line(&|piece| piece.slot(piece.start, page_size), -1);
    line(&|piece| piece.start as i64 + 1, 0);
    all.extend(wholes(draws));
    all.extend((0..=sequences).map(|sequence| sequence as i64));
    for piece in pieces {
        let own = piece.pages.iter().take(pages).map(|&page| i64::from(page));
        let end = all.len() + pages;
        all.extend(own);
        all.resize(end, 0);
    }
    all.resize(sequences * (LINES + 1 + pages) + 1, 0);
    all
}

/// A step, from packed numbers to hidden states and tokens.
fn step(
    model: &dyn CausalLm,
    cache: &KvCache,
    Sizes { sequences, pages }: Sizes,
    (wholes, numbers): (&Tensor, &Tensor),
) -> Result<Vec<Tensor>> {
    let line = |index: usize| wholes.narrow(0, index * sequences, sequences);
    let starts = LINES * sequences;
    let table = starts + sequences + 1;
    let batch = Batch {
        positions: line(1)?,
        slots: line(2)?,
        key_lengths: line(3)?,
        query_starts: wholes.narrow(0, starts, sequences + 1)?,
        pages: wholes.narrow(0, table, sequences * pages)?.reshape(&[sequences, pages])?,
        max_queries: 1,
        max_keys: pages * cache.page_size(),
    };
    let hidden = model.hidden(&line(0)?, &Pass::Paged { batch: &batch, cache })?; // [S, C]
    let draws = Draws {
        numbers: numbers.reshape(&[3, sequences])?,
        wholes: wholes.narrow(0, 4 * sequences, 3 * sequences)?.reshape(&[3, sequences])?,
    };
    let tokens = draws.pick(&model.logits(&hidden)?)?;
    Ok(vec![hidden, tokens])
}

impl std::fmt::Debug for Decode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decode").field("recorded", &self.graph.captures()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_are_recorded() {
        let sizes = |sequences, pages| {
            let Sizes { sequences, pages } = Sizes::of(sequences, pages);
            (sequences, pages)
        };
        assert_eq!(sizes(1, 1), (1, 1));
        assert_eq!(sizes(3, 3), (4, 4));
        assert_eq!(sizes(5, 8), (8, 8));
        assert_eq!(sizes(17, 9), (24, 16));
    }

    #[test]
    fn numbers_are_packed_as_the_picture_says() {
        let pieces = [
            Piece { start: 5, tokens: vec![9], pages: vec![1, 2] },
            Piece { start: 0, tokens: vec![7], pages: vec![4] },
            Piece { start: 1, tokens: vec![3], pages: vec![6] },
        ];
        let draw = Draw { top_k: 2, seed: 8, position: 6, ..Draw::default() };
        let draws = [draw, Draw::default(), Draw::default(), Draw::default()];
        let sizes = Sizes::of(3, 2);
        let all = packed(&pieces, &draws, sizes, 4);
        let expected: [&[i64]; 9] = [
            &[9, 7, 3, 0],
            &[5, 0, 1, 0],
            &[9, 16, 25, -1],
            &[6, 1, 2, 0],
            &[2, 0, 0, 0],
            &[8, 0, 0, 0],
            &[6, 0, 0, 0],
            &[0, 1, 2, 3, 4],
            &[1, 2, 4, 0, 6, 0, 0, 0],
        ];
        assert_eq!(all, expected.concat());
        let numbers = Tensor::zeros(&[12], Device::Cpu).expect("it fits");
        let wholes = Tensor::from_slice_on(&all, &[all.len()], Device::Cpu).expect("it fits");
        assert_eq!(Sizes::read(&wholes, &numbers), sizes);
    }
}
