use genesis_kernel::prelude::*;

#[device]
unsafe fn start(x: View<f32, 1>) -> Ptr<f32> {
    x.ptr()
}

fn main() {}
