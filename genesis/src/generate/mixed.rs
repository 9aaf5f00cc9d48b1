//! Steps of any number of new tokens in each sequence as one graph: prompts, and next tokens beside them.
//!
//! Op by op such a step of a small model takes the host three times as long as the device, and whoever waits for the
//! next token waits with it. So it is recorded as [`decode`](super::decode) is, for rounded numbers of tokens,
//! sequences and pages. What is added computes nothing: tokens behind the last sequence, whose keys go nowhere, and
//! sequences without tokens. Rounded numbers are also few forms of each kernel, whatever prompts there are.
//!
//! ```text
//! a prompt of 40 tokens beside 5 next tokens, in pages of 16       recorded for 64 tokens, 8 sequences of 4 pages
//! rows    token .. | position .. | slot ..                         [3, N]
//! table   the pages of each sequence                               [S, P]
//! lines   keys .. | top-k .. | seed .. | drawn position .. | row that the next token is picked by ..
//!         | temperature .. top-p .. min-p .., of 32 bits, two to a word | starts
//! ```

use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Device, bytes_of};

use super::batch::{looked_at, slot};
use super::decode::{Decoded, Step, recorded, rows_of};
use super::row::{Draw, Draws, halves, numbers, paired, wholes};
use crate::error::Result;
use crate::graph::Graph;
use crate::models::{Batch, CausalLm, KvCache, Pass};
use crate::shape::product;
use crate::tensor::Tensor;

/// The most tokens of a step that is recorded: the device takes longer for more than the host does.
pub(super) const MOST_TOKENS: usize = 2048;

/// Lines of one word for each sequence.
const LINES: usize = 5;

/// The recorded steps of a model and its cache in which sequences have several new tokens.
pub(super) struct Mixed {
    graph: Graph<(), Step>,
    page_size: usize,
    device: Device,
}

/// The new tokens of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    /// The position of the first of them.
    pub(super) start: usize,
    pub(super) tokens: &'a [u32],
    /// The sequence's pages, as many as its tokens fill or more.
    pub(super) pages: &'a [u32],
    /// How the token after them is drawn, which is passed over where more of the prompt is to come.
    pub(super) draw: Draw,
}

/// The sizes that a step is recorded for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Sizes {
    tokens: usize,
    sequences: usize,
    pages: usize,
}

impl Sizes {
    /// Those of a step, rounded up: products have tiles of up to 128 rows, and what belongs to sequences costs little.
    pub(super) fn of(tokens: usize, sequences: usize, pages: usize) -> Sizes {
        Sizes {
            tokens: match tokens {
                0..=64 => tokens.next_power_of_two().max(16),
                _ => tokens.next_multiple_of(128),
            },
            sequences: match sequences {
                0..=1 => 1,
                2..=64 => sequences.next_power_of_two().max(8),
                _ => sequences.next_multiple_of(64),
            },
            pages: pages.max(1).next_power_of_two(),
        }
    }

    fn of_parts(parts: &[Part<'_>], page_size: usize) -> Sizes {
        let tokens = parts.iter().map(|part| part.tokens.len()).sum();
        let used = |part: &Part<'_>| (part.start + part.tokens.len()).div_ceil(page_size);
        Sizes::of(tokens, parts.len(), parts.iter().map(used).max().unwrap_or(0))
    }

    /// Words of the settings of draws that are numbers of 32 bits.
    fn numbers(self) -> usize {
        (3 * self.sequences).div_ceil(2)
    }

    /// The shapes of rows, table and lines.
    fn shapes(self) -> [Vec<usize>; 3] {
        let Sizes { tokens, sequences, pages } = self;
        let lines = LINES * sequences + self.numbers() + sequences + 1;
        [vec![3, tokens], vec![sequences, pages], vec![lines]]
    }
}

/// The most rows that a step of so many sequences draws tokens in.
pub(super) fn most_rows(sequences: usize) -> usize {
    Sizes::of(0, sequences, 0).sequences.max(rows_of(sequences))
}

impl Mixed {
    /// Nothing is recorded yet. Steps leave the tokens that they draw in `last`.
    pub(super) fn new(
        model: Arc<dyn CausalLm>,
        cache: Arc<KvCache>,
        (last, device): (Tensor, Device),
    ) -> Mixed {
        let page_size = cache.page_size();
        let step = move |(): &mut (), args: &[Tensor]| step(&*model, &cache, args, &last);
        Mixed { graph: recorded(Box::new(step)), page_size, device }
    }

    /// Launches the step of these new tokens, of which each sequence has at least one. Nothing may be read of an
    /// earlier step after it but its tokens.
    ///
    /// # Errors
    /// Those of the model, and if it does what can't be recorded.
    pub(super) fn launch(&mut self, parts: &[Part<'_>]) -> Result<Decoded> {
        let args = self.args(parts, Sizes::of_parts(parts, self.page_size))?;
        Decoded::of(self.graph.call(&mut (), &args.each_ref())?)
    }

    /// Whether a step of such sizes is the first.
    pub(super) fn is_new(&self, sizes: Sizes) -> bool {
        let shapes = sizes.shapes();
        self.graph.is_new(&shapes.each_ref().map(|shape| (&shape[..], DType::I64)))
    }

    /// Rehearses a step of such sizes, see [`compile_ahead`](genesis_kernel::compile_ahead).
    ///
    /// # Errors
    /// As [`Mixed::launch`].
    pub(super) fn rehearse(&mut self, sizes: Sizes) -> Result<()> {
        let args = self.args(&[], sizes)?;
        self.graph.rehearse(&mut (), &args.each_ref())
    }

    /// Rows, table and lines on the device, by one copy.
    fn args(&self, parts: &[Part<'_>], sizes: Sizes) -> Result<[Tensor; 3]> {
        let words = packed(parts, sizes, self.page_size);
        let words = Tensor::filled(&[words.len()], (DType::I64, self.device), |bytes| {
            bytes.copy_from_slice(bytes_of(&words));
            Ok(())
        })?;
        let mut end = 0;
        let [rows, table, lines] = sizes.shapes().map(|shape| {
            let (start, count) = (end, product(&shape));
            end += count;
            words.narrow(0, start, count)?.reshape(&shape)
        });
        Ok([rows?, table?, lines?])
    }
}

/// What a step is told: rows, table and lines.
fn packed(parts: &[Part<'_>], sizes: Sizes, page_size: usize) -> Vec<i64> {
    let Sizes { tokens, sequences, pages } = sizes;
    let total = sizes.shapes().iter().map(product).sum();
    let mut all: Vec<i64> = Vec::with_capacity(total);
    let positions = |part: &Part<'_>| part.start..part.start + part.tokens.len();
    all.extend(parts.iter().flat_map(|part| part.tokens).map(|&token| i64::from(token)));
    all.resize(tokens, 0);
    all.extend(parts.iter().flat_map(positions).map(|position| position as i64));
    all.resize(2 * tokens, 0);
    let slots = |part| positions(part).map(|position| slot(part.pages, position, page_size));
    all.extend(parts.iter().flat_map(slots));
    all.resize(3 * tokens, -1);
    for (place, part) in parts.iter().enumerate() {
        all.extend(part.pages.iter().take(pages).map(|&page| i64::from(page)));
        all.resize(3 * tokens + (place + 1) * pages, 0);
    }
    let mut end = 3 * tokens + sequences * pages;
    all.resize(end, 0);
    all.extend(parts.iter().map(|part| positions(part).end as i64));
    end += sequences;
    all.resize(end, 0);
    let mut draws: Vec<Draw> = parts.iter().map(|part| part.draw).collect();
    draws.resize(sequences, Draw::default());
    all.extend(wholes(&draws));
    let mut starts = vec![0];
    starts.extend(parts.iter().scan(0, |row, part| {
        *row += part.tokens.len() as i64;
        Some(*row)
    }));
    let rows = starts[parts.len()];
    starts.resize(sequences + 1, rows);
    all.extend(starts[1..].iter().map(|&end| (end - 1).max(0)));
    all.extend(paired(&numbers(&draws)));
    all.extend(starts);
    all
}

/// A step, from new tokens and what goes with them to the hidden state of each sequence's last one and its next token,
/// which is in `last` then.
fn step(
    model: &dyn CausalLm,
    cache: &KvCache,
    args: &[Tensor],
    last: &Tensor,
) -> Result<Vec<Tensor>> {
    let [rows, table, lines] = [&args[0], &args[1], &args[2]];
    let sequences = table.shape()[0];
    let sizes = Sizes { tokens: rows.shape()[1], sequences, pages: table.shape()[1] };
    let line = |number: usize| lines.narrow(0, number * sequences, sequences);
    let mut batch = Batch {
        positions: rows.select(0, 1)?,
        slots: rows.select(0, 2)?,
        query_starts: lines.narrow(0, LINES * sequences + sizes.numbers(), sequences + 1)?,
        key_lengths: line(0)?,
        pages: table.clone(),
        max_queries: sizes.tokens,
        max_keys: sizes.pages * cache.page_size(),
        ends: None,
    };
    let hidden = looked_at(&mut batch, sizes.tokens, line(4)?, |batch| {
        model.hidden(&rows.select(0, 0)?, &Pass::Paged { batch, cache })
    })?; // [S, C]
    let draws = Draws {
        numbers: halves(lines, LINES * sequences, &[3, sequences]),
        wholes: lines.narrow(0, sequences, 3 * sequences)?.reshape(&[3, sequences])?,
    };
    let drawn = last.narrow(0, 0, sequences)?;
    draws.pick_into(&model.logits(&hidden)?, &drawn)?;
    Ok(vec![hidden, drawn])
}

impl std::fmt::Debug for Mixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mixed").field("recorded", &self.graph.captures()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_are_recorded() {
        let sizes = |tokens, sequences, pages| {
            let Sizes { tokens, sequences, pages } = Sizes::of(tokens, sequences, pages);
            (tokens, sequences, pages)
        };
        assert_eq!(sizes(1, 1, 1), (16, 1, 1));
        assert_eq!(sizes(33, 2, 3), (64, 8, 4));
        assert_eq!(sizes(65, 9, 5), (128, 16, 8));
        assert_eq!(sizes(129, 65, 9), (256, 128, 16));
    }

    #[test]
    fn words_are_packed_as_the_picture_says() {
        let draw = Draw { top_k: 2, seed: 8, position: 6, temperature: 0.5, ..Draw::default() };
        let parts = [
            Part { start: 5, tokens: &[9], pages: &[1, 2], draw },
            Part { start: 0, tokens: &[7, 3, 4], pages: &[6, 5], draw: Draw::default() },
        ];
        let sizes = Sizes { tokens: 5, sequences: 3, pages: 2 };
        let expected: [&[i64]; 9] = [
            &[9, 7, 3, 4, 0, 5, 0, 1, 2, 0, 9, 24, 25, 26, -1],
            &[1, 2, 6, 5, 0, 0],
            &[6, 3, 0],
            &[2, 0, 0],
            &[8, 0, 0],
            &[6, 0, 0],
            &[0, 3, 3],
            &[i64::from(0.5f32.to_bits()), 0, 0, 0, 0],
            &[0, 1, 4, 4],
        ];
        let all = packed(&parts, sizes, 4);
        assert_eq!(all, expected.concat());
        let words = sizes.shapes().iter().map(product).sum::<usize>();
        assert_eq!(all.len(), words);
    }
}
