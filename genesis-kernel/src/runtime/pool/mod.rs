//! The caching allocator: one algorithm for the CPU, GPUs and pinned host memory.
//!
//! Asking a GPU's driver for memory takes longer than most kernels run, and giving memory back waits
//! for the whole device. So memory is asked for in *segments*, which are cut into *blocks*; what is
//! freed is joined with its free neighbours and waits for the next request ([`blocks`], [`bins`]).
//!
//! Blocks are handed out in the order of a stream: one that is freed on the host goes to the next
//! request of the same stream at once, though kernels that use it may still run, because whoever gets
//! it queues behind them. Each stream has an [`Arena`] of its own for that, and so has each stream of a
//! private pool of a graph. A block that another stream was given as well waits after it is freed until
//! that stream has passed the point of the free ([`User`], [`Fence`]). One whose address a graph names waits
//! until the graph is gone ([`Arena::hold`]).
//!
//! What a device's arenas hold together, its limit and what is said when memory runs out is a
//! [`Ledger`]'s. Where segments come from is a [`System`]'s, so that all of this is tested without a
//! GPU.
//!
//! ```text
//! Buffer -> Arena (lock, waiting blocks) -> Blocks (best fit) -> Bins
//!             |  nothing fits
//!             v
//!           Ledger (limit, totals) -> System (cuMemAlloc, malloc, cuMemHostAlloc)
//! ```

mod arena;
mod bins;
mod block;
mod blocks;
mod exhausted;
mod host;
mod ledger;
mod private;
mod snapshot;
mod stream_blocks;
#[cfg(test)]
mod tests;
mod watch;

use crate::diag::Error;
use crate::ir::DType;

pub(crate) use arena::Arena;
pub(crate) use host::arena as host_arena;
pub(crate) use ledger::Ledger;
pub use private::MemoryPool;
pub(crate) use private::{current_arena, is_current};
pub use snapshot::{BlockInfo, BlockState, MemorySnapshot, MemoryStats, SegmentInfo};
pub use watch::{
    MemoryEvent, MemoryEventKind, Site, is_history_on, record_history, set_memory_hook, with_site,
};

/// Where segments come from.
pub(crate) trait System: Sync {
    /// The smallest block, as a power of two.
    fn granule_log2(&self) -> u32;

    /// Refuses where the device can't be used any more.
    fn check(&self) -> Result<(), Error>;

    /// A segment; none where there is no more memory.
    fn reserve(&self, bytes: usize) -> Result<Option<u64>, Error>;

    /// Gives a segment back.
    fn release(&self, address: u64, bytes: usize) -> Result<(), Error>;

    /// Waits until nothing that was queued uses memory; false where that can't be waited for now.
    fn settle(&self) -> Result<bool, Error>;

    /// Bytes of free segments that are kept rather than given back.
    fn keeps(&self) -> usize;

    /// What all segments together may take, where the system would promise more than it has.
    fn most(&self) -> usize {
        usize::MAX
    }

    /// Free and total bytes of the machine, where it says so.
    fn space(&self) -> Option<(usize, usize)>;
}

/// A stream that uses memory of another one.
pub(crate) trait User: Sync {
    /// The number of the stream.
    fn id(&self) -> u64;

    /// Marks the point that the stream has been given work up to; none while it is recorded for a graph,
    /// when nothing runs.
    fn fence(&self) -> Result<Option<Box<dyn Fence>>, Error>;
}

/// A point of a stream.
pub(crate) trait Fence: Send {
    /// Whether the stream has passed it.
    fn is_reached(&self) -> Result<bool, Error>;

    /// Waits until it has.
    fn wait(&self) -> Result<(), Error>;
}

/// The most extents of a label; a tensor of more axes is described without the last ones.
const LABEL_AXES: usize = 6;

/// What memory is for, as people are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Label {
    dtype: Option<DType>,
    rank: u8,
    dims: [u64; LABEL_AXES],
}

impl Label {
    /// A tensor's elements.
    #[inline]
    pub fn tensor(dtype: DType, shape: &[usize]) -> Label {
        let mut dims = [0; LABEL_AXES];
        for (dim, &extent) in dims.iter_mut().zip(shape) {
            *dim = extent as u64;
        }
        Label { dtype: Some(dtype), rank: shape.len().min(u8::MAX as usize) as u8, dims }
    }

    /// The dtype of the elements, where it is a tensor.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// The extents, outermost first; of a tensor of many axes the first ones.
    pub fn shape(&self) -> &[u64] {
        &self.dims[..(self.rank as usize).min(LABEL_AXES)]
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.dtype {
            None => f.write_str("bytes"),
            Some(dtype) if self.rank as usize > LABEL_AXES => {
                let dims: Vec<String> = self.dims.iter().map(u64::to_string).collect();
                write!(f, "{dtype} [{}, ..]", dims.join(", "))
            }
            Some(dtype) => write!(f, "{dtype} {:?}", self.shape()),
        }
    }
}
