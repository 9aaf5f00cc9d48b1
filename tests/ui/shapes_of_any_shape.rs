//! Arguments of one shape are all tiles of it or all scalars.

use genesis_kernel::prelude::*;

#[device]
fn mean<S: Shape>(a: Tile<f32, S>, b: Tile<f32, S>) -> Tile<f32, S> {
    0.5 * (a + b)
}

#[kernel]
fn f<const N: usize>(out: PtrMut<f32>, x: f32) {
    store(out + arange::<N>(), mean(zeros::<f32, N>(), x));
}

fn main() {}
