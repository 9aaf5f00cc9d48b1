//! Devices, streams, memory and launches.
//!
//! The CPU is a device like any other: its stream runs what it is given at once. CUDA is loaded when
//! a program first asks for it, and where it is missing everything else still works.

mod arg;
mod args;
mod array;
mod buffer;
pub(crate) mod cpu;
pub(crate) mod cuda;
mod device;
mod element;
mod event;
pub(crate) mod fork;
mod grid;
pub(crate) mod list;
mod memory;
pub mod nccl;
mod nvtx;
pub(crate) mod observe;
mod optional;
mod origin;
pub(crate) mod overlap;
mod pool;
pub(crate) mod reach;
mod share;
mod stream;
mod team;
mod threads;
mod ticks;
pub(crate) mod words;
mod work;

pub use arg::{Arg, PtrArg, ViewArg};
pub use args::{AsParam, AsPtr, AsPtrMut, AsScalar, AsView, AsViewMut, CheckedArg};
pub use array::{Array, ArrayView, ArrayViewMut};
pub use buffer::Buffer;
pub use cuda::{GpuInfo, Graph};
pub use device::Device;
pub use element::{HostElement, bytes_of, from_bytes};
pub use event::Event;
pub use grid::{Grid, GridExtent};
pub use list::{ViewList, ViewListMut};
pub use memory::{pinned_memory_snapshot, pinned_memory_stats};
pub use nvtx::has_nvtx;
pub(crate) use nvtx::{pop as nvtx_pop, push as nvtx_push};
pub use observe::TransferKind;
pub use optional::{
    Absent, AsOptionalPtr, AsOptionalPtrMut, AsOptionalScalar, AsOptionalView, AsOptionalViewMut,
};
pub use origin::{EnteredOrigin, Origin, enter, origin};
pub use pool::{
    BlockInfo, BlockState, Label, MemoryEvent, MemoryEventKind, MemoryPool, MemorySnapshot,
    MemoryStats, SegmentInfo, Site, is_history_on, record_history, set_memory_hook, with_site,
};
pub use share::{share, share_items};
pub(crate) use stream::Queue;
pub use stream::{Stream, with_stream};
pub use threads::{install, num_threads, set_num_threads, threads_here};
pub(crate) use ticks::HostClock;
