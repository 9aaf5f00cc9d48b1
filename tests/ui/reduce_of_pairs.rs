use genesis_kernel::prelude::*;

#[device]
fn larger(a: f32, b: f32) -> f32 {
    maximum(a, b)
}

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let v = reduce((zeros::<f32, BM>(), arange::<BM>()), 0, larger);
}

fn main() {}
