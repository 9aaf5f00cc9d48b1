//! Devices and their streams.

use std::fmt;

use super::cuda::{self, CudaDevice, GpuInfo, MemoryStats};
use super::pool;
use crate::diag::Error;
use crate::knobs;
use crate::target::GpuTarget;
use crate::trace;

/// Where memory is and kernels run. The default is what `GENESIS_DEVICE` says, else the first GPU,
/// else the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU with this number.
    Cuda(u32),
}

/// The queue of a device: what is given to it runs in order.
///
/// The CPU runs it at once, a GPU after the call returned. A clone is the same queue.
#[derive(Clone, Debug)]
pub struct Stream {
    queue: Queue,
}

/// What is behind a stream.
#[derive(Clone, Debug)]
pub(crate) enum Queue {
    Cpu,
    Cuda(&'static CudaDevice),
    /// A GPU that could not be opened, and why: every use of the stream says it.
    Missing(u32, Error),
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

    /// The device's stream.
    ///
    /// A GPU that is missing gives a stream too: whatever is asked of it is an error that says why.
    pub fn stream(self) -> Stream {
        let queue = match self {
            Device::Cpu => Queue::Cpu,
            Device::Cuda(number) => match cuda::open(number) {
                Ok(device) => Queue::Cuda(device),
                Err(error) => Queue::Missing(number, error),
            },
        };
        Stream { queue }
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

impl Stream {
    /// The device it belongs to.
    pub fn device(&self) -> Device {
        match &self.queue {
            Queue::Cpu => Device::Cpu,
            Queue::Cuda(device) => Device::Cuda(device.number()),
            Queue::Missing(number, _) => Device::Cuda(*number),
        }
    }

    /// Waits until everything given to it ran.
    ///
    /// # Errors
    /// If something that ran failed; the device is then lost.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.queue {
            Queue::Cpu => Ok(()),
            Queue::Cuda(device) => {
                let _traced = trace::transfer(trace::TransferKind::Wait, self.device(), 0);
                device.synchronize()
            }
            Queue::Missing(_, error) => Err(error.clone()),
        }
    }

    /// Bytes of memory in use and kept on a GPU; none on the CPU.
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        match &self.queue {
            Queue::Cuda(device) => Some(device.memory_stats()),
            Queue::Cpu | Queue::Missing(..) => None,
        }
    }

    /// Gives memory that is kept for reuse back to the system.
    pub fn release_memory(&self) -> Result<(), Error> {
        match &self.queue {
            Queue::Cuda(device) => device.release_free_blocks(),
            Queue::Cpu => {
                pool::host_release();
                Ok(())
            }
            Queue::Missing(_, error) => Err(error.clone()),
        }
    }

    /// The driver's handle of a GPU's stream (a `CUstream`), for libraries beside Genesis.
    pub fn raw_cuda(&self) -> Option<*mut std::ffi::c_void> {
        match &self.queue {
            Queue::Cuda(device) => Some(device.raw_stream().cast()),
            Queue::Cpu | Queue::Missing(..) => None,
        }
    }

    /// Whether an earlier error broke the device for the rest of the process.
    pub fn is_lost(&self) -> bool {
        matches!(&self.queue, Queue::Cuda(device) if device.is_lost())
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.device() == other.device()
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

    #[test]
    fn a_missing_gpu_says_why() {
        let stream = Device::Cuda(4_000_000).stream();
        assert!(!stream.synchronize().unwrap_err().to_string().is_empty());
    }
}
