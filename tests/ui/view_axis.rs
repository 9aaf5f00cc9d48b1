use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize>(v: View<f32, 2>) {
    let n = v.dim(2);
}

fn main() {}
