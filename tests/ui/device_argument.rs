use genesis_kernel::prelude::*;

#[device]
fn twice<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    2.0 * x
}

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let v = twice(arange::<BM>());
}

fn main() {}
