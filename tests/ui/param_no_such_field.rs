//! What a struct has no field of.

use genesis_kernel::prelude::*;

#[derive(Clone, Copy, KernelParam)]
struct Window {
    x: View<f32, 1>,
    scale: f32,
}

#[kernel]
fn f(p: Window, y: ViewMut<f32, 1>) {
    y.store([0], p.x.load::<4>([0]) * p.scales);
}

fn main() {}
