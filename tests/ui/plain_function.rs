use genesis_kernel::prelude::*;

fn half(x: f32) -> f32 {
    0.5 * x
}

#[kernel]
fn kernel<const BM: usize>(x: PtrMut<f32>, a: f32) {
    let i = arange::<BM>();
    store(x + i, load(x + i, i < 7) * half(a), i < 7);
}

fn main() {}
