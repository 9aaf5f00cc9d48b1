//! What barriers remember: who has come, who waits, and what those who came had done.

use super::shadow::{Epoch, VectorClock};

/// A barrier of a block, or of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockBarrier {
    pub(super) arrived: u32,
    /// Warps that wait.
    pub(super) waiting: Vec<usize>,
    pub(super) clock: VectorClock,
    /// Times that it has opened.
    pub(super) opened: u32,
}

/// A barrier in memory.
#[derive(Clone, Debug)]
pub(super) struct MemoryBarrier {
    /// Arrivals of a phase.
    pub(super) count: i64,
    /// Those that are missing.
    pub(super) missing: i64,
    /// Bytes that are missing.
    pub(super) bytes: i64,
    /// Phases that are over.
    pub(super) phases: u32,
    pub(super) agent: u32,
    pub(super) arriving: VectorClock,
    pub(super) over: VectorClock,
    /// Warps with the lanes that wait.
    pub(super) waiting: Vec<(usize, u32)>,
    pub(super) made: Epoch,
    /// Whether its maker has handed it to the copy engine.
    pub(super) is_fenced: bool,
}

impl MemoryBarrier {
    /// What the copies are that this phase counts.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch { agent: self.agent, number: self.phases + 1 }
    }
}
