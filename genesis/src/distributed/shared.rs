//! What all clones of a group share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use genesis_kernel::runtime::nccl::Communicator;
use genesis_kernel::runtime::{Device, Stream};

use super::host::Host;
use super::recorder::Recorder;
use super::store::Store;
use super::world::World;

/// What carries the values of a group.
#[derive(Debug)]
pub(super) enum Backend {
    /// A group of one process, on any device.
    Alone,
    /// GPUs.
    Nccl(Communicator),
    /// Processors.
    Host(Host),
}

/// What all clones of a group share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) name: String,
    /// The processes of the group, as the world numbers them.
    pub(super) ranks: Vec<usize>,
    /// This process among them.
    pub(super) rank: usize,
    pub(super) device: Device,
    pub(super) backend: Backend,
    /// None where there is one process.
    pub(super) store: Option<Arc<Store>>,
    pub(super) recorder: Recorder,
    /// Where collectives run that go on beside the current stream.
    pub(super) stream: Stream,
    /// Splits that were made so far.
    pub(super) splits: AtomicU64,
}

impl Shared {
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Says that this rank leaves; the one that holds the store waits for the others, for a while.
    pub(super) fn leave(&self, patience: Duration) {
        let Some(store) = &self.store else { return };
        let key = |rank: usize| self.key(&format!("left/{rank}"));
        if store.set(&key(self.rank), b"").is_err() || self.rank != 0 {
            return;
        }
        let until = Instant::now() + patience;
        for rank in 1..self.size() {
            // One that was killed says nothing.
            let _ = store.get_within(&key(rank), until.saturating_duration_since(Instant::now()));
        }
    }

    /// A key of the store that is this group's own.
    pub(super) fn key(&self, what: &str) -> String {
        format!("{}/{what}", self.name)
    }
}
