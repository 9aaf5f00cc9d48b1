//! A struct that kernels take says so.

use genesis_kernel::prelude::*;

#[derive(Clone, Copy)]
struct Window {
    x: View<f32, 1>,
}

#[kernel]
fn f(p: Window, y: ViewMut<f32, 1>) {
    y.store([0], p.x.load::<4>([0]));
}

fn main() {}
