//! A piece of a segment, and its neighbours.

/// No block, no segment.
pub(super) const NONE: u32 = u32::MAX;

/// What a block is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// An entry that stands for no memory.
    Vacant,
    Free,
    Live,
    /// Given back, but another stream may still use it.
    Waiting,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    /// Its size.
    pub(super) granules: usize,
    /// Neighbours in the segment.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Neighbours in the list of its bin, while free.
    pub(super) bin_prev: u32,
    pub(super) bin_next: u32,
    pub(super) segment: u32,
    pub(super) state: State,
}

impl Block {
    /// A block alone.
    pub(super) fn sized(granules: usize) -> Block {
        let (prev, next, bin_prev, bin_next) = (NONE, NONE, NONE, NONE);
        let (segment, state) = (NONE, State::Vacant);
        Block { address: 0, granules, prev, next, bin_prev, bin_next, segment, state }
    }
}
