use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize>(x: Ptr<f32>, y: Ptr<f32>) {
    let v = load(x + y);
}

fn main() {}
