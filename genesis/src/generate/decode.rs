//! The step that generation is made of: one new token of each sequence, from its number to the next one's, as
//! one graph.
//!
//! A step of a small model is a few hundred launches of a few microseconds, for each of which the host would take as
//! long. So it is recorded once for a number of sequences and of pages ([`crate::graph()`]), and then is one launch,
//! the picking of tokens included: what comes back is a number for each sequence.
//!
//! Nobody waits for a step until its tokens are asked for. They may go into the next step on the device, before the
//! host knows them ([`Tokens::Drawn`]): every step leaves its tokens in the same place. Everything else that a step is
//! told comes in one copy from pinned memory.
//!
//! Both numbers are rounded up, so that there are few recordings. What is added computes nothing: rows without
//! keys, whose new key goes nowhere, and pages that nobody reads. A row whose sequence has ended is such a row.
//!
//! ```text
//! 5 sequences of up to 40 tokens in pages of 16         recorded for 8 rows of 4 pages
//! words   token .. | position .. | slot .. | keys .. | top-k .. | seed .. | drawn position .. | starts | pages
//!         | temperature .. top-p .. min-p .., of 32 bits, two to a word; the token -1 is the one drawn last
//! ```

use std::ops::Range;
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Device, bytes_of};

use super::batch::slot;
use super::row::{Draw, Draws, Row, halves, numbers, paired, wholes};
use crate::error::{Error, Result};
use crate::fuse::{Fused, fuse};
use crate::graph::{Graph, graph};
use crate::models::{Batch, CausalLm, KvCache, Pass};
use crate::tensor::Tensor;

pub(super) type Step = Box<dyn FnMut(&mut (), &[Tensor]) -> Result<Vec<Tensor>> + Send>;

/// The most sets of sizes of which recordings are kept.
pub(super) const MOST_RECORDINGS: usize = 128;

/// The steps of a model and its cache that are recorded.
pub(super) struct Decode {
    graph: Graph<(), Step>,
    page_size: usize,
    device: Device,
}

/// The new token of each row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tokens<'a> {
    /// Which the host knows.
    Known(&'a [u32]),
    /// What the step before drew in the same rows.
    Drawn,
}

/// A step that was launched.
#[derive(Debug)]
pub(super) struct Decoded {
    /// `[S, C]`, the hidden state of the last new token of each sequence; the next step writes over it.
    pub(super) hidden: Tensor,
    /// A copy of the token of each sequence, `[S]`, on its way to the host.
    drawn: Tensor,
}

/// A step whose tokens nobody has read yet.
#[derive(Debug)]
pub(super) struct Launched {
    /// The arrivals of its sequences, in order; some may have ended since.
    pub(super) arrivals: Vec<u64>,
    /// The row of the first new token of each, then how many rows there are.
    pub(super) starts: Vec<usize>,
    pub(super) decoded: Decoded,
    /// Whether it was launched before the tokens of the step before it were read.
    pub(super) is_ahead: bool,
}

impl Launched {
    /// The step ahead of one new token of each sequence.
    pub(super) fn ahead(arrivals: Vec<u64>, decoded: Decoded) -> Launched {
        let starts = (0..=arrivals.len()).collect();
        Launched { arrivals, starts, decoded, is_ahead: true }
    }

    /// The place of a sequence among those of the step.
    pub(super) fn place(&self, arrival: u64) -> Option<usize> {
        self.arrivals.binary_search(&arrival).ok()
    }

    /// The rows of the new tokens of the sequence at a place.
    pub(super) fn rows(&self, place: usize) -> Range<usize> {
        self.starts[place]..self.starts[place + 1]
    }
}

impl Decoded {
    /// What a step gave: hidden states and tokens, which start their way to the host.
    pub(super) fn of(given: Vec<Tensor>) -> Result<Decoded> {
        let [hidden, drawn] = <[Tensor; 2]>::try_from(given)
            .map_err(|_| Error::op("generate", "a step gives two tensors"))?;
        // The next step writes over it.
        let drawn = match drawn.device() {
            Device::Cpu => drawn.copy()?,
            Device::Cuda(_) => drawn.to_device_non_blocking(Device::Cpu)?,
        };
        Ok(Decoded { hidden, drawn })
    }

    /// The token of each row; -1 where its largest logit is infinite. Waits for the step, and not for those after
    /// it, which asking for indices that are not there would: the next other read tells of them.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn tokens(&self) -> Result<Vec<i64>> {
        self.drawn.to_vec::<i64>()
    }
}

/// The sizes that a step is recorded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes {
    rows: usize,
    pages: usize,
}

/// Lines of one word for each row.
const LINES: usize = 7;

/// Rows that so many sequences are computed in: 1, 2, 4 and multiples of 8.
pub(super) fn rows_of(sequences: usize) -> usize {
    match sequences {
        0..=4 => sequences.next_power_of_two(),
        _ => sequences.next_multiple_of(8),
    }
}

impl Sizes {
    /// Those of a step, rounded up: pages to powers of two.
    fn of(sequences: usize, pages: usize) -> Sizes {
        Sizes { rows: rows_of(sequences), pages: pages.max(1).next_power_of_two() }
    }

    /// The sizes of a step that is told words of such a shape.
    fn read(shape: &[usize]) -> Sizes {
        let [rows, each] = [shape[0], shape[1]];
        let others = Sizes { rows, pages: 0 };
        Sizes { rows, pages: each - others.words().div_ceil(rows) }
    }

    /// The shape of the words: as many for each row.
    fn shape(self) -> [usize; 2] {
        [self.rows, self.words().div_ceil(self.rows)]
    }

    /// The first word of the page table.
    fn table(self) -> usize {
        self.rows * (LINES + 1) + 1
    }

    /// Words of the numbers of 32 bits.
    fn numbers(self) -> usize {
        (3 * self.rows).div_ceil(2)
    }

    fn words(self) -> usize {
        self.table() + self.rows * self.pages + self.numbers()
    }
}

/// A step that is recorded at its second call of each set of sizes.
pub(super) fn recorded(step: Step) -> Graph<(), Step> {
    graph(step).lend(true).warm_up(1).keep(MOST_RECORDINGS)
}

impl Decode {
    /// Nothing is recorded yet. Steps leave the tokens that they draw in `last`.
    pub(super) fn new(
        model: Arc<dyn CausalLm>,
        cache: Arc<KvCache>,
        (last, device): (Tensor, Device),
    ) -> Decode {
        let page_size = cache.page_size();
        // A row without a token, -1, goes on with any: it ends when the host sees it.
        let next = fuse(|args| {
            let [told, last] = args else { unreachable!("two lines are given") };
            told.lt_scalar(0.0)?.where_(last, told)?.maximum_scalar(0.0)
        });
        let step =
            move |(): &mut (), args: &[Tensor]| step(&*model, &cache, &args[0], (&next, &last));
        Decode { graph: recorded(Box::new(step)).fed_by_host(device), page_size, device }
    }

    /// Launches the step of the next token of each row; nothing is computed in rows of nobody. Nothing may be
    /// read of an earlier step after it but its tokens.
    ///
    /// # Errors
    /// Those of the model, and if it does what can't be recorded.
    pub(super) fn launch(
        &mut self,
        rows: &[Option<Row<'_>>],
        tokens: Tokens<'_>,
    ) -> Result<Decoded> {
        let used = |row: &Row<'_>| (row.position + 1).div_ceil(self.page_size);
        let sizes = Sizes::of(rows.len(), rows.iter().flatten().map(used).max().unwrap_or(0));
        let known = match tokens {
            Tokens::Known(tokens) => tokens,
            Tokens::Drawn => &[],
        };
        let words = self.words(&packed(rows, known, sizes, self.page_size), sizes)?;
        Decoded::of(self.graph.call(&mut (), &[&words])?)
    }

    /// Words where the device copies them from.
    fn words(&self, words: &[i64], sizes: Sizes) -> Result<Tensor> {
        Tensor::filled_for(&sizes.shape(), (DType::I64, self.device), |bytes| {
            let (told, rest) = bytes.split_at_mut(size_of_val(words));
            told.copy_from_slice(bytes_of(words));
            rest.fill(0);
            Ok(())
        })
    }

    /// Whether a step of so many sequences of so many pages is of sizes that none had before.
    pub(super) fn is_new(&self, sequences: usize, pages: usize) -> bool {
        self.graph.is_new(&[(&Sizes::of(sequences, pages).shape(), DType::I64)])
    }

    /// Rehearses such a step, see [`compile_ahead`](genesis_kernel::compile_ahead).
    ///
    /// # Errors
    /// As [`Decode::launch`].
    pub(super) fn rehearse(&mut self, sequences: usize, pages: usize) -> Result<()> {
        let sizes = Sizes::of(sequences, pages);
        let words = self.words(&packed(&[], &[], sizes, self.page_size), sizes)?;
        self.graph.rehearse(&mut (), &[&words])
    }
}

/// What a step is told, line after line.
fn packed(rows: &[Option<Row<'_>>], tokens: &[u32], sizes: Sizes, page_size: usize) -> Vec<i64> {
    let mut all = Vec::with_capacity(sizes.words());
    all.extend(tokens.iter().map(|&token| i64::from(token)));
    all.resize(sizes.rows, -1);
    let mut line = |of: &dyn Fn(&Row<'_>) -> i64, none: i64| {
        let end = all.len() + sizes.rows;
        all.extend(rows.iter().map(|row| row.as_ref().map_or(none, of)));
        all.resize(end, none);
    };
    line(&|row| row.position as i64, 0);
    line(&|row| slot(row.pages, row.position, page_size), -1);
    line(&|row| row.position as i64 + 1, 0);
    let drawn = rows.iter().map(|row| row.as_ref().map_or_else(Draw::default, |row| row.draw));
    let mut draws: Vec<Draw> = drawn.collect();
    draws.resize(sizes.rows, Draw::default());
    all.extend(wholes(&draws));
    all.extend((0..=sizes.rows).map(|row| row as i64));
    for row in rows {
        let end = all.len() + sizes.pages;
        let own = row.as_ref().map_or(&[][..], |row| row.pages);
        all.extend(own.iter().take(sizes.pages).map(|&page| i64::from(page)));
        all.resize(end, 0);
    }
    all.resize(sizes.table() + sizes.rows * sizes.pages, 0);
    all.extend(paired(&numbers(&draws)));
    all
}

/// A step, from what it is told to hidden states and the next tokens, which are in `last` then.
fn step(
    model: &dyn CausalLm,
    cache: &KvCache,
    words: &Tensor,
    (next, last): (&Fused, &Tensor),
) -> Result<Vec<Tensor>> {
    let sizes = Sizes::read(words.shape());
    let Sizes { rows, pages } = sizes;
    let words = &words.flatten(0, 1)?;
    let last = last.narrow(0, 0, rows)?;
    let line = |index: usize| words.narrow(0, index * rows, rows);
    let batch = Batch {
        positions: line(1)?,
        slots: line(2)?,
        key_lengths: line(3)?,
        query_starts: words.narrow(0, LINES * rows, rows + 1)?,
        pages: words.narrow(0, sizes.table(), rows * pages)?.reshape(&[rows, pages])?,
        max_queries: 1,
        max_keys: pages * cache.page_size(),
        ends: None,
    };
    let tokens = next.call(&[&line(0)?, &last])?; // [S]
    let hidden = model.hidden(&tokens, &Pass::Paged { batch: &batch, cache })?; // [S, C]
    let first = sizes.table() + rows * pages;
    let draws = Draws {
        numbers: halves(words, first, &[3, rows]),
        wholes: words.narrow(0, 4 * rows, 3 * rows)?.reshape(&[3, rows])?,
    };
    draws.pick_into(&model.logits(&hidden)?, &last)?;
    Ok(vec![hidden, last])
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
            let Sizes { rows, pages } = Sizes::of(sequences, pages);
            (rows, pages)
        };
        assert_eq!(sizes(1, 1), (1, 1));
        assert_eq!(sizes(3, 3), (4, 4));
        assert_eq!(sizes(5, 8), (8, 8));
        assert_eq!(sizes(17, 9), (24, 16));
    }

    #[test]
    fn sizes_are_read_from_what_a_step_is_told() {
        for rows in [1, 2, 4, 8, 24] {
            for pages in [1, 2, 16] {
                let sizes = Sizes { rows, pages };
                assert_eq!(Sizes::read(&sizes.shape()), sizes);
            }
        }
    }

    #[test]
    fn words_are_packed_as_the_picture_says() {
        let draw = Draw { top_k: 2, seed: 8, position: 6, temperature: 0.5, ..Draw::default() };
        let row = |position, pages| Row { position, pages, draw: Draw::default() };
        let rows = [Some(Row { draw, ..row(5, &[1, 2]) }), None, Some(row(1, &[6]))];
        let sizes = Sizes::of(3, 2);
        let all = packed(&rows, &[9, 7, 3], sizes, 4);
        let expected: [&[i64]; 10] = [
            &[9, 7, 3, -1],
            &[5, 0, 1, 0],
            &[9, -1, 25, -1],
            &[6, 0, 2, 0],
            &[2, 0, 0, 0],
            &[8, 0, 0, 0],
            &[6, 0, 0, 0],
            &[0, 1, 2, 3, 4],
            &[1, 2, 0, 0, 6, 0, 0, 0],
            &[i64::from(0.5f32.to_bits()), 0, 0, 0, 0, 0],
        ];
        assert_eq!(all, expected.concat());
        assert_eq!(all.len(), sizes.words());
        let words = Tensor::from_slice_on(&all, &[all.len()], Device::Cpu).expect("it fits");
        let first = sizes.table() + 8;
        let temperatures = halves(&words, first, &[3, 4]).select(0, 0).expect("it is there");
        assert_eq!(temperatures.to_vec::<f32>().expect("floats"), [0.5, 0.0, 0.0, 0.0]);
    }
}
