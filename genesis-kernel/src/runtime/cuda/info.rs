//! What a GPU is.

use crate::target::GpuTarget;

/// What a GPU is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuInfo {
    /// The product's name.
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (u32, u32),
    /// What kernels are compiled for.
    pub target: GpuTarget,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The driver's CUDA version, such as 13000 for 13.0.
    pub driver_version: u32,
}
