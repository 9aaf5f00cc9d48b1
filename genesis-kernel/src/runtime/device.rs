//! Devices.

use std::fmt;

use super::cuda::{self, GpuInfo};
use crate::diag::Error;
use crate::knobs;
use crate::target::GpuTarget;

/// Where memory is and kernels run. The default is what `GENESIS_DEVICE` says, else the first GPU,
/// else the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU with this number.
    Cuda(u32),
}

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
    /// The device with this name: `cpu`, `cuda`, `cuda:1`.
    pub fn from_name(name: &str) -> Option<Device> {
        match name {
            "cpu" => Some(Device::Cpu),
            "cuda" | "gpu" => Some(Device::Cuda(0)),
            _ => name.strip_prefix("cuda:")?.parse().ok().map(Device::Cuda),
        }
    }

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

    /// Whether it is a GPU.
    pub fn is_cuda(self) -> bool {
        matches!(self, Device::Cuda(_))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for device in [Device::Cpu, Device::Cuda(0), Device::Cuda(3)] {
            assert_eq!(Device::from_name(&device.to_string()), Some(device));
        }
        assert_eq!(Device::from_name("cuda:x"), None);
        assert_eq!(Device::from_name("tpu"), None);
    }
}
