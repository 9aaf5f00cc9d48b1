//! What the devices of this machine are.

use super::cuda::{self, GpuInfo};
pub use crate::device::Device;
use crate::diag::Error;
use crate::knobs;
use crate::target::GpuTarget;

impl Default for Device {
    fn default() -> Device {
        match knobs::get().device {
            Some(device) => device,
            None if cuda::is_available() => Device::Cuda(0),
            None => Device::Cpu,
        }
    }
}

impl Device {
    /// The number of GPUs that can be used; 0 where there is no driver.
    pub fn cuda_count() -> u32 {
        cuda::device_count().unwrap_or(0)
    }

    /// Why no GPU can be used; none if one can.
    pub fn cuda_problem() -> Option<Error> {
        cuda::device_count().err()
    }

    /// What the GPU is.
    ///
    /// # Errors
    /// On the CPU, and if the GPU can't be used.
    pub fn gpu_info(self) -> Result<GpuInfo, Error> {
        match self {
            Device::Cpu => Err(Error::device("the CPU is not a GPU")),
            Device::Cuda(number) => Ok(cuda::open(number)?.info().clone()),
        }
    }

    /// What kernels are compiled for: the GPU itself, unless `GENESIS_TARGET` names an older one. None
    /// where it is no GPU that can be used.
    pub fn target(self) -> Option<GpuTarget> {
        match self {
            Device::Cpu => None,
            Device::Cuda(number) => Some(cuda::open(number).ok()?.target()),
        }
    }
}
