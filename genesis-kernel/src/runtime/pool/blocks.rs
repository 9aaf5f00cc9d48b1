//! Segments cut into blocks: best fit, cut where the rest is worth keeping, joined with free neighbours.
//!
//! It knows nothing of devices, threads or time; see [`super::arena`]. The sizes below hold 5 % less
//! memory than PyTorch's (1, 2, 10 and 20 MiB) on the trace of `benches/src/memory.rs`.
//!
//! ```text
//! segment of 2 MiB   [ 512 live ][ 3 KiB free ][ 1 KiB live ][ rest free ]
//! give 1 KiB back    [ 512 live ][ all the rest free                     ]
//! ```

use super::bins::{Bins, Order};
use super::block::{Block, NONE, State};

/// Requests up to this many bytes share small segments.
pub(super) const SMALL: usize = 256 << 10;
/// The segment of small blocks.
const SMALL_SEGMENT: usize = 2 << 20;
/// Requests below this many bytes share large segments.
const LARGE: usize = 16 << 20;
/// The segment of blocks between the two.
const LARGE_SEGMENT: usize = 32 << 20;
/// Segments of one block are a multiple of this.
const SEGMENT_STEP: usize = 2 << 20;
/// The rest of a large block is cut off from here on.
const LARGE_REST: usize = SMALL;

/// Which requests a segment serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Small = 0,
    Large = 1,
}

impl Kind {
    pub(super) fn of(bytes: usize) -> Kind {
        if bytes <= SMALL { Kind::Small } else { Kind::Large }
    }
}

/// Memory that the system gave in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) kind: Kind,
    /// The block at its start.
    first: u32,
}

/// Segments and their blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    granule_log2: u32,
    blocks: Vec<Block>,
    vacant_blocks: Vec<u32>,
    bins: [Bins; 2],
    segments: Vec<Option<Segment>>,
    vacant_segments: Vec<u32>,
    free_granules: usize,
    reserved: usize,
}

impl Blocks {
    /// No memory yet; sizes are multiples of `1 << granule_log2` bytes.
    pub(super) fn new(granule_log2: u32) -> Blocks {
        Blocks {
            granule_log2,
            blocks: Vec::new(),
            vacant_blocks: Vec::new(),
            bins: [Bins::new(Order::Newest), Bins::new(Order::Lowest)],
            segments: Vec::new(),
            vacant_segments: Vec::new(),
            free_granules: 0,
            reserved: 0,
        }
    }

    /// Bytes of all segments.
    pub(super) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Bytes of free blocks.
    pub(super) fn free_bytes(&self) -> usize {
        self.free_granules << self.granule_log2
    }

    /// The size of a request in granules; none if that fits into no memory.
    fn granules(&self, bytes: usize) -> Option<usize> {
        let granule = 1usize << self.granule_log2;
        Some(bytes.checked_next_multiple_of(granule)?.max(granule) >> self.granule_log2)
    }

    /// A request in the bytes that it takes.
    pub(super) fn rounded(&self, bytes: usize) -> Option<usize> {
        Some(self.granules(bytes)? << self.granule_log2)
    }

    /// The bytes of a block.
    pub(super) fn bytes(&self, id: u32) -> usize {
        self.blocks[id as usize].granules << self.granule_log2
    }

    /// A block.
    pub(super) fn block(&self, id: u32) -> &Block {
        &self.blocks[id as usize]
    }

    /// A live block of at least `bytes`, out of what is free.
    pub(super) fn take(&mut self, bytes: usize) -> Option<u32> {
        let kind = Kind::of(bytes);
        let granules = self.granules(bytes)?;
        let id = self.bins[kind as usize].find(&self.blocks, granules)?;
        self.cut(id, granules, kind);
        Some(id)
    }

    /// Makes a free block live and gives back what it has too much.
    fn cut(&mut self, id: u32, granules: usize, kind: Kind) {
        self.bins[kind as usize].remove(&mut self.blocks, id);
        let rest = self.blocks[id as usize].granules - granules;
        let least = if kind == Kind::Small { 1 } else { LARGE_REST >> self.granule_log2 };
        if rest >= least {
            let Block { address, next, segment, .. } = self.blocks[id as usize];
            let address = address + ((granules as u64) << self.granule_log2);
            let tail = Block {
                address,
                prev: id,
                next,
                segment,
                state: State::Free,
                ..Block::sized(rest)
            };
            let tail = self.insert(tail);
            if let Some(next) = self.blocks.get_mut(next as usize) {
                next.prev = tail;
            }
            let block = &mut self.blocks[id as usize];
            (block.next, block.granules) = (tail, granules);
            self.bins[kind as usize].insert(&mut self.blocks, tail);
        }
        let block = &mut self.blocks[id as usize];
        block.state = State::Live;
        self.free_granules -= block.granules;
    }

    fn insert(&mut self, block: Block) -> u32 {
        match self.vacant_blocks.pop() {
            Some(id) => {
                self.blocks[id as usize] = block;
                id
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as u32
            }
        }
    }

    /// Says that a live block waits for another stream.
    pub(super) fn set_waiting(&mut self, id: u32) {
        self.blocks[id as usize].state = State::Waiting;
    }

    /// Frees a block and joins it with free neighbours. Says which segment is all free now, if one is.
    pub(super) fn give(&mut self, id: u32) -> Option<u32> {
        let segment = self.blocks[id as usize].segment;
        let kind = self.segments[segment as usize].as_ref().map_or(Kind::Small, |s| s.kind);
        self.free_granules += self.blocks[id as usize].granules;
        let mut id = id;
        let next = self.blocks[id as usize].next;
        if self.is_free(next) {
            self.bins[kind as usize].remove(&mut self.blocks, next);
            self.join(id, next);
        }
        let prev = self.blocks[id as usize].prev;
        if self.is_free(prev) {
            self.bins[kind as usize].remove(&mut self.blocks, prev);
            self.join(prev, id);
            id = prev;
        }
        let block = &mut self.blocks[id as usize];
        block.state = State::Free;
        let is_whole = block.prev == NONE && block.next == NONE;
        self.bins[kind as usize].insert(&mut self.blocks, id);
        is_whole.then_some(segment)
    }

    fn is_free(&self, id: u32) -> bool {
        self.blocks.get(id as usize).is_some_and(|block| block.state == State::Free)
    }

    /// Makes one block of two neighbours, under the number of the first.
    fn join(&mut self, first: u32, second: u32) {
        let Block { granules, next, .. } = self.blocks[second as usize];
        if let Some(next) = self.blocks.get_mut(next as usize) {
            next.prev = first;
        }
        let block = &mut self.blocks[first as usize];
        (block.next, block.granules) = (next, block.granules + granules);
        self.blocks[second as usize].state = State::Vacant;
        self.vacant_blocks.push(second);
    }

    /// Adds memory of the system and takes a live block out of it, whose number it gives.
    pub(super) fn add(&mut self, address: u64, bytes: usize, request: usize) -> Option<u32> {
        let kind = Kind::of(request);
        let granules = self.granules(request)?;
        let all = bytes >> self.granule_log2;
        let segment = self.vacant_segments.pop().unwrap_or(self.segments.len() as u32);
        let block = Block { address, segment, state: State::Free, ..Block::sized(all) };
        let id = self.insert(block);
        let entry = Some(Segment { address, bytes, kind, first: id });
        match self.segments.get_mut(segment as usize) {
            Some(slot) => *slot = entry,
            None => self.segments.push(entry),
        }
        self.bins[kind as usize].insert(&mut self.blocks, id);
        self.free_granules += all;
        self.reserved += bytes;
        self.cut(id, granules, kind);
        Some(id)
    }

    /// Takes a segment out that is all free: its address and bytes.
    pub(super) fn remove(&mut self, segment: u32) -> Option<(u64, usize)> {
        let Segment { address, bytes, kind, first } = (*self.segments.get(segment as usize)?)?;
        if !self.is_free(first) || self.blocks[first as usize].next != NONE {
            return None;
        }
        self.bins[kind as usize].remove(&mut self.blocks, first);
        self.free_granules -= self.blocks[first as usize].granules;
        self.blocks[first as usize].state = State::Vacant;
        self.vacant_blocks.push(first);
        self.segments[segment as usize] = None;
        self.vacant_segments.push(segment);
        self.reserved -= bytes;
        Some((address, bytes))
    }

    /// Takes out all segments that are all free.
    pub(super) fn drain(&mut self) -> Vec<(u64, usize)> {
        (0..self.segments.len() as u32).filter_map(|segment| self.remove(segment)).collect()
    }

    /// The segments with their blocks, which are in the order of their addresses.
    pub(super) fn walk(&self) -> impl Iterator<Item = (&Segment, Vec<u32>)> {
        self.segments.iter().flatten().map(|segment| {
            let mut at = segment.first;
            let ids = std::iter::from_fn(|| {
                let id = at;
                at = self.blocks.get(id as usize)?.next;
                Some(id)
            });
            (segment, ids.collect())
        })
    }

    /// The number of segments.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len() - self.vacant_segments.len()
    }
}

/// The bytes to ask the system for, so that a request fits and others after it.
pub(super) fn segment_bytes(request: usize) -> Option<usize> {
    match Kind::of(request) {
        Kind::Small => Some(SMALL_SEGMENT),
        Kind::Large if request < LARGE => Some(LARGE_SEGMENT),
        Kind::Large => request.checked_next_multiple_of(SEGMENT_STEP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a segment as `bytes state`, in order.
    fn picture(blocks: &Blocks) -> Vec<Vec<(usize, State)>> {
        let of = |id: &u32| (blocks.bytes(*id), blocks.block(*id).state);
        blocks.walk().map(|(_, ids)| ids.iter().map(of).collect()).collect()
    }

    #[test]
    fn blocks_are_cut_and_joined() {
        use State::{Free, Live};
        let mut blocks = Blocks::new(9);
        let a = blocks.add(1 << 30, 2 << 20, 100).unwrap();
        let b = blocks.take(3000).unwrap();
        let c = blocks.take(1024).unwrap();
        assert_eq!(blocks.block(b).address, (1 << 30) + 512);
        let rest = (2 << 20) - 512 - 3072 - 1024;
        assert_eq!(picture(&blocks), [[(512, Live), (3072, Live), (1024, Live), (rest, Free)]]);
        assert_eq!(blocks.give(b), None);
        assert_eq!(blocks.take(2048).map(|id| blocks.block(id).address), Some((1 << 30) + 512));
        assert_eq!(blocks.give(b), None);
        assert_eq!(blocks.give(c), None);
        assert_eq!(picture(&blocks), [[(512, Live), ((2 << 20) - 512, Free)]]);
        assert_eq!(blocks.give(a), Some(0));
        assert_eq!((blocks.free_bytes(), blocks.reserved()), (2 << 20, 2 << 20));
        assert_eq!(blocks.drain(), [(1 << 30, 2 << 20)]);
        assert_eq!((blocks.free_bytes(), blocks.reserved(), blocks.take(1)), (0, 0, None));
    }

    #[test]
    fn small_and_large_do_not_mix() {
        let mut blocks = Blocks::new(9);
        let large = blocks.add(1 << 30, 20 << 20, 2 << 20).unwrap();
        assert_eq!(blocks.take(100), None);
        assert_eq!(blocks.take(18 << 20).map(|id| blocks.bytes(id)), Some(18 << 20));
        assert_eq!(blocks.take((1 << 20) + 1), None);
        assert_eq!(blocks.give(large), None);
        // What is left of a large block stays with it where it is next to nothing.
        let again = blocks.take((2 << 20) - 1024).unwrap();
        assert_eq!(blocks.bytes(again), 2 << 20);
    }

    #[test]
    fn sizes_that_fit_nowhere_are_none() {
        let mut blocks = Blocks::new(6);
        assert_eq!((blocks.rounded(usize::MAX), blocks.take(usize::MAX)), (None, None));
        assert_eq!((blocks.take(1 << 60), segment_bytes(usize::MAX)), (None, None));
        assert_eq!([1, SMALL, SMALL + 1].map(segment_bytes), [2, 2, 32].map(|m| Some(m << 20)));
        assert_eq!(segment_bytes(17 << 20), Some(18 << 20));
    }

    #[test]
    fn a_random_walk_never_overlaps() {
        let mut blocks = Blocks::new(9);
        let (mut live, mut next, mut seed) = (Vec::<(u32, u64, usize)>::new(), 1u64 << 40, 9u64);
        let mut random = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        for _ in 0..20_000 {
            if random(100) < 52 || live.is_empty() {
                let most = 1 << (1 + random(24));
                let bytes = 1 + random(most);
                let id = blocks.take(bytes).or_else(|| {
                    let size = segment_bytes(bytes)?;
                    next += 1 << 34;
                    blocks.add(next, size, bytes)
                });
                let id = id.unwrap();
                live.push((id, blocks.block(id).address, blocks.bytes(id)));
            } else {
                let (id, ..) = live.swap_remove(random(live.len()));
                blocks.give(id);
            }
        }
        live.sort_by_key(|&(_, address, _)| address);
        assert!(live.windows(2).all(|pair| pair[0].1 + pair[0].2 as u64 <= pair[1].1));
        let in_use: usize = live.iter().map(|&(_, _, bytes)| bytes).sum();
        assert_eq!(blocks.reserved() - blocks.free_bytes(), in_use);
        for &(id, ..) in &live {
            blocks.give(id);
        }
        assert_eq!(blocks.free_bytes(), blocks.reserved());
        assert!(picture(&blocks).iter().all(|segment| segment.len() == 1));
        blocks.drain();
        assert_eq!((blocks.segment_count(), blocks.reserved()), (0, 0));
    }
}
