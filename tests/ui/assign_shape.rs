use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let mut acc = zeros::<f32, BM>();
    for i in range(0, n, BK) {
        acc = zeros::<f32, BN>();
    }
}

fn main() {}
