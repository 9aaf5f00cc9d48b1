//! Free blocks by size: where the smallest one that fits is found without looking at the others.
//!
//! Sizes are counted in granules. Up to 32 granules each size has a bin of its own, above there are 16
//! bins between powers of two. A bit for each bin says whether there is anything in it, so that the
//! next bin with a block is found in a few instructions however many bins are empty.
//!
//! The lists run through the blocks themselves, which the caller keeps.

use super::block::{Block, NONE};

/// Bins of one granule each.
const EXACT: usize = 32;
/// Bins between two powers of two, as a power of two.
const STEPS_LOG2: u32 = 4;
/// All bins: sizes are below 2^48 granules.
const COUNT: usize = EXACT + ((48 - EXACT.ilog2() as usize) << STEPS_LOG2);
const WORDS: usize = COUNT.div_ceil(64);
/// Blocks of a bin that are looked at for the best one.
const LOOKS: usize = 64;

/// Lists of free blocks.
#[derive(Debug)]
pub(super) struct Bins {
    heads: [u32; COUNT],
    /// A bit for each bin that is not empty.
    words: [u64; WORDS],
    /// A bit for each word that is not zero.
    summary: u16,
    order: Order,
}

/// Which of several blocks of the best size is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// The one that was freed last: it may still be in a cache.
    Newest,
    /// The one of the lowest address, so that others stay together.
    Lowest,
}

const _: () = assert!(WORDS <= 16, "a bit of the summary for each word");

impl Bins {
    pub(super) const fn new(order: Order) -> Bins {
        Bins { heads: [NONE; COUNT], words: [0; WORDS], summary: 0, order }
    }

    /// The smallest block of at least `granules`, or nearly: of a bin with very many the best of the
    /// first ones.
    pub(super) fn find(&self, blocks: &[Block], granules: usize) -> Option<u32> {
        let own = bin_of(granules)?;
        if let Some(found) = self.best(blocks, own, granules) {
            return Some(found);
        }
        let above = self.next_used(own + 1)?;
        self.best(blocks, above, granules)
    }

    /// The best block of a bin.
    fn best(&self, blocks: &[Block], bin: usize, granules: usize) -> Option<u32> {
        let (mut at, mut best, mut best_size) = (self.heads[bin], None, (usize::MAX, u64::MAX));
        for _ in 0..LOOKS {
            let Some(block) = blocks.get(at as usize) else { break };
            if block.granules == granules && self.order == Order::Newest {
                return Some(at);
            }
            let found = (block.granules, block.address);
            let is_better = match self.order {
                Order::Newest => found.0 < best_size.0,
                Order::Lowest => found < best_size,
            };
            if block.granules >= granules && is_better {
                (best, best_size) = (Some(at), found);
            }
            at = block.bin_next;
        }
        best
    }

    /// The first bin from `from` on with a block in it.
    fn next_used(&self, from: usize) -> Option<usize> {
        let (word, bit) = (from / 64, from % 64);
        let rest = self.words.get(word)? >> bit;
        if rest != 0 {
            return Some(from + rest.trailing_zeros() as usize);
        }
        let words = u32::from(self.summary) >> (word + 1);
        if words == 0 {
            return None;
        }
        let word = word + 1 + words.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// Puts a block in front of its list.
    pub(super) fn insert(&mut self, blocks: &mut [Block], id: u32) {
        let Some(bin) = bin_of(blocks[id as usize].granules) else { return };
        let head = self.heads[bin];
        (blocks[id as usize].bin_prev, blocks[id as usize].bin_next) = (NONE, head);
        match blocks.get_mut(head as usize) {
            Some(next) => next.bin_prev = id,
            None => {
                self.words[bin / 64] |= 1 << (bin % 64);
                self.summary |= 1 << (bin / 64);
            }
        }
        self.heads[bin] = id;
    }

    /// Takes a block out of its list.
    pub(super) fn remove(&mut self, blocks: &mut [Block], id: u32) {
        let Block { bin_prev, bin_next, granules, .. } = blocks[id as usize];
        if let Some(next) = blocks.get_mut(bin_next as usize) {
            next.bin_prev = bin_prev;
        }
        if let Some(prev) = blocks.get_mut(bin_prev as usize) {
            prev.bin_next = bin_next;
            return;
        }
        let Some(bin) = bin_of(granules) else { return };
        self.heads[bin] = bin_next;
        if bin_next == NONE {
            self.words[bin / 64] &= !(1 << (bin % 64));
            if self.words[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }
}

/// The bin of a size; none for what fits into no memory.
fn bin_of(granules: usize) -> Option<usize> {
    if granules < EXACT {
        return Some(granules);
    }
    let log2 = granules.ilog2();
    let step = (granules >> (log2 - STEPS_LOG2)) & ((1 << STEPS_LOG2) - 1);
    let bin = EXACT + (((log2 - EXACT.ilog2()) as usize) << STEPS_LOG2) + step;
    (bin < COUNT).then_some(bin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_the_order_of_sizes() {
        let mut last = 0;
        for granules in (1..100_000).chain([1 << 40, (1 << 48) - 1]) {
            let bin = bin_of(granules).unwrap();
            assert!(bin >= last && bin < COUNT, "{granules} is in {bin}");
            last = bin;
        }
        assert_eq!((bin_of(1 << 48), bin_of(usize::MAX)), (None, None));
    }

    #[test]
    fn the_smallest_that_fits_is_found() {
        let sizes = [40, 33, 1000, 41, 1 << 30, 7];
        let mut blocks: Vec<Block> = sizes.iter().map(|&n| Block::sized(n)).collect();
        let mut bins = Bins::new(Order::Newest);
        (0..sizes.len() as u32).for_each(|id| bins.insert(&mut blocks, id));
        let size = |bins: &Bins, blocks: &[Block], n| {
            bins.find(blocks, n).map(|id| blocks[id as usize].granules)
        };
        assert_eq!(size(&bins, &blocks, 1), Some(7));
        assert_eq!(size(&bins, &blocks, 34), Some(40));
        assert_eq!(size(&bins, &blocks, 41), Some(41));
        assert_eq!(size(&bins, &blocks, 1001), Some(1 << 30));
        assert_eq!(size(&bins, &blocks, (1 << 30) + 1), None);
        bins.remove(&mut blocks, 0);
        assert_eq!(size(&bins, &blocks, 34), Some(41));
        (1..6).for_each(|id| bins.remove(&mut blocks, id));
        assert_eq!((size(&bins, &blocks, 1), bins.summary), (None, 0));
    }
}
