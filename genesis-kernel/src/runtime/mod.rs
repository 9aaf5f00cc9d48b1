//! Devices, streams, memory and launches.
//!
//! The CPU is a device like any other: its stream runs what it is given at once. CUDA is loaded when
//! a program first asks for it, and where it is missing everything else still works.

mod args;
mod array;
mod buffer;
pub(crate) mod cuda;
mod device;
mod element;
mod event;
mod memory;
mod pool;
mod stream;

pub use args::{Arg, AsPtr, AsPtrMut, AsScalar, AsView, AsViewMut, PtrArg, ViewArg};
pub use array::{Array, ArrayView, ArrayViewMut};
pub use buffer::Buffer;
pub use cuda::{GpuInfo, Graph};
pub use device::Device;
pub use element::{HostElement, bytes_of, from_bytes};
pub use event::Event;
pub use memory::{pinned_memory_snapshot, pinned_memory_stats};
pub use pool::{
    BlockInfo, BlockState, Label, MemoryEvent, MemoryEventKind, MemoryPool, MemorySnapshot,
    MemoryStats, SegmentInfo, Site, is_history_on, record_history, set_memory_hook, with_site,
};
pub(crate) use stream::Queue;
pub use stream::{Stream, with_stream};
