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
mod nvtx;
mod origin;
mod pool;
mod threads;

pub use args::{Arg, AsPtr, AsPtrMut, AsScalar, AsView, AsViewMut, PtrArg, ViewArg};
pub use array::{Array, ArrayView, ArrayViewMut};
pub use buffer::Buffer;
pub use cuda::{GpuInfo, Graph, MemoryStats};
pub(crate) use device::Queue;
pub use device::{Device, Stream};
pub use element::{HostElement, bytes_of, from_bytes};
pub use event::Event;
pub use nvtx::has_nvtx;
pub(crate) use nvtx::{pop as nvtx_pop, push as nvtx_push};
pub use origin::{EnteredOrigin, Origin, enter, origin};
pub use threads::{install, num_threads, set_num_threads, threads_here};
