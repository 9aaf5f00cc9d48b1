use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{Arg, AsView, CheckedArg, PtrArg, ViewArg};

/// Memory that is nowhere.
struct Forged;

impl AsView<f32, 1> for Forged {
    fn as_arg(&self) -> CheckedArg<'_> {
        let (device, dtype) = (Device::Cpu, DType::F32);
        let ptr = PtrArg { device, address: 64, bytes: 1 << 40, dtype, mutable: false };
        let number = CheckedArg::scalar(Scalar::zero(dtype));
        CheckedArg { arg: Arg::View(ViewArg::flat(ptr, 1 << 30)), ..number }
    }
}

fn main() {}
