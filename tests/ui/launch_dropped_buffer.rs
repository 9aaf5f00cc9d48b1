use genesis_kernel::ir::DType;
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::CheckedArg;

fn dangling(x: Array<f32>) -> CheckedArg<'static> {
    CheckedArg::ptr(x.buffer(), 0, DType::F32, true).unwrap()
}

fn main() {}
