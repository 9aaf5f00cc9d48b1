use genesis_kernel::prelude::*;

#[device]
fn gelu<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let v = gelv(zeros::<f32, BM>());
}

fn main() {}
