//! The index of a gather has the extents of the tile, but along the axis.

use genesis_kernel::prelude::*;

#[kernel]
fn ranks<const M: usize, const N: usize>(x: View<f32, 2>, y: ViewMut<f32, 1>) {
    let v = x.load::<M, N>([0, 0]);
    y.store([0], gather(v, arange::<N>(), 1));
}

fn main() {}
