//! Devices, by name.

use std::fmt;

/// Where memory is and kernels run. The default is what `GENESIS_DEVICE` says, else the first GPU,
/// else the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU with this number.
    Cuda(u32),
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
