//! A field of a struct that kernels take is what a kernel could take.

use genesis_kernel::prelude::*;

#[derive(Clone, Copy, KernelParam)]
struct Window<T: Float> {
    x: View<T, 1>,
    steps: [i64; 2],
}

#[kernel]
fn f<T: Float>(p: Window<T>, y: ViewMut<T, 1>) {
    y.store([0], p.x.load::<4>([0]));
}

fn main() {}
