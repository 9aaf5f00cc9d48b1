//! Every kernel that steps may need, compiled before the first of them.

use std::collections::BTreeSet;

use super::decode::rows_of;
use super::engine::Engine;
use super::mixed::{MOST_TOKENS, Sizes};
use super::recorded::give_up;
use super::schedule::Bounds;
use crate::autograd::no_grad;

impl Engine {
    /// Compiles every kernel that a step may need, side by side, so that nobody waits for one later. It is for
    /// programs that answer many; nothing is done where steps are not recorded, see
    /// [`EngineOptions::on_device`](super::EngineOptions::on_device).
    pub fn warm_up(&mut self) {
        let Some(steps) = &mut self.recorded else { return };
        let (mixed, decode) = all_sizes(&self.scheduler.bounds);
        match no_grad(|| steps.rehearse(&mixed, &decode)) {
            // The largest steps need not come.
            Err(error) if !error.is_out_of_memory() => give_up(&mut self.recorded, &error),
            _ => (),
        }
    }
}

/// Sizes that have among them every kernel of a step that may be: of prompts, and sequences and pages of one new token
/// each. Kernels are chosen by powers of two of the numbers.
fn all_sizes(bounds: &Bounds) -> (Vec<Sizes>, Vec<(usize, usize)>) {
    let up_to =
        |most: usize| (0..=most.max(1).next_power_of_two().ilog2()).map(|bit| 1usize << bit);
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
