use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let x = zeros::<f32, BM, BK>();
    let y = zeros::<f32, BN, BK>();
    let acc = dot(x, y, zeros::<f32, BM, BN>());
}

fn main() {}
