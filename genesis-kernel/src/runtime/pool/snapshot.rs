//! What can be known of a device's memory: sizes, counts, and every block.

use super::{Label, Site};

/// Sizes in bytes and counts of a device's memory, as Genesis sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Bytes of live blocks.
    pub allocated: usize,
    /// Bytes of live blocks as they were asked for, before rounding.
    pub requested: usize,
    /// Bytes held from the system: live blocks and free ones kept for reuse.
    pub reserved: usize,
    /// The most bytes of live blocks at once.
    pub peak: usize,
    /// The most bytes held from the system at once.
    pub peak_reserved: usize,
    /// Bytes of free blocks.
    pub free: usize,
    /// Bytes of the largest free block.
    pub largest_free: usize,
    /// Bytes that were freed while another stream may still use them.
    pub waiting: usize,
    /// What may be held from the system, where there is a limit.
    pub limit: Option<usize>,
    /// Blocks that were handed out.
    pub allocations: u64,
    /// Blocks that were handed out without asking the system.
    pub hits: u64,
    /// Blocks that came back.
    pub frees: u64,
    /// Segments held from the system.
    pub segments: usize,
    /// Segments that the system gave.
    pub segments_reserved: u64,
    /// Segments that went back to the system.
    pub segments_released: u64,
    /// Requests for which free segments went back to the system.
    pub retries: u64,
    /// Requests that ended in an error.
    pub out_of_memory: u64,
}

impl MemoryStats {
    /// The share of requests that were served without asking the system; 1 where there was none.
    pub fn hit_rate(&self) -> f64 {
        if self.allocations == 0 { 1.0 } else { self.hits as f64 / self.allocations as f64 }
    }

    /// The share of free bytes that a request as large as all of them can't have, because they are in
    /// pieces: 0 for one block.
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free as f64 }
    }
}

/// Every segment and block of a device.
#[derive(Clone, Debug)]
pub struct MemorySnapshot {
    /// `cpu`, `cuda:0`, or `pinned host memory`.
    pub device: String,
    /// Sizes and counts.
    pub stats: MemoryStats,
    /// Segments.
    pub segments: Vec<SegmentInfo>,
}

/// Memory that the system gave in one piece.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// The number of the stream in whose order it is used; 0 is the default one.
    pub stream: u64,
    /// The private pool that it is of.
    pub pool: Option<u64>,
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
    /// Whether it is for small blocks.
    pub is_small: bool,
    /// Its blocks, in order.
    pub blocks: Vec<BlockInfo>,
}

/// A piece of a segment.
#[derive(Clone, Debug)]
pub struct BlockInfo {
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
    /// What was asked for, of a live block.
    pub requested: usize,
    /// What it is for.
    pub state: BlockState,
    /// What lies in a live block.
    pub label: Label,
    /// Where a live block was asked for, if that was recorded.
    pub site: Option<Site>,
}

/// What a block is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// It is handed out.
    Live,
    /// It is kept for reuse.
    Free,
    /// It was freed, but another stream may still use it.
    Waiting,
}
