//! The index of a gather is a tile of integers.

use genesis_kernel::prelude::*;

#[kernel]
fn floats<const M: usize, const N: usize>(x: View<f32, 2>, y: ViewMut<f32, 2>) {
    let v = x.load::<M, N>([0, 0]);
    y.store([0, 0], gather(v, v, 1));
}

fn main() {}
