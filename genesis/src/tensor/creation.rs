//! Where and as what a tensor is made.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

/// Where and as what a tensor is made: `DType::F32`, `(DType::BF16, Device::Cpu)`, or `()` for f32
/// on the default device.
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    /// The dtype of the elements.
    pub dtype: DType,
    /// Where they are.
    pub device: Device,
}

impl From<()> for Creation {
    fn from((): ()) -> Creation {
        Creation { dtype: DType::F32, device: Device::default() }
    }
}

impl From<DType> for Creation {
    fn from(dtype: DType) -> Creation {
        Creation { dtype, device: Device::default() }
    }
}

impl From<Device> for Creation {
    fn from(device: Device) -> Creation {
        Creation { dtype: DType::F32, device }
    }
}

impl From<(DType, Device)> for Creation {
    fn from((dtype, device): (DType, Device)) -> Creation {
        Creation { dtype, device }
    }
}
