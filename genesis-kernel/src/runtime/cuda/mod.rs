//! GPUs through the CUDA driver, loaded when a program first asks for one.
//!
//! Nothing here goes through a layer that keeps or forgets errors: each driver call is checked where
//! it is made. Errors that break a context for good (a bad address, a trap, a failed device
//! assertion) are remembered, because the driver answers every later call with the same code and a
//! program should hear that from the first call on, in words. Nothing here panics in `drop`.

mod assert_memory;
mod asserts;
mod device;
mod driver;
mod event;
mod graph;
mod handle;
mod info;
mod memory;
mod module;
mod pinned;
mod recent;
mod stream;
mod tensor_map;
mod timing;
mod writes;

pub(crate) use self::device::{CudaDevice, device_count, is_available, open};
pub(crate) use self::event::CudaEvent;
pub use self::graph::Graph;
pub use self::info::GpuInfo;
pub(crate) use self::module::{CudaKernel, EntryPoint, MAX_SLOTS};
pub(crate) use self::pinned::arena as pinned_arena;
pub(crate) use self::stream::{CudaStream, default_stream};
pub(crate) use self::timing::Mark;
pub(crate) use self::writes::Writes;
