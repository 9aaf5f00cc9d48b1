//! What is passed for a field is what could be passed for it if it were a parameter of its own.

use genesis_kernel::prelude::*;

#[derive(Clone, Copy, KernelParam)]
struct Window {
    x: View<f32, 1>,
    scale: f32,
}

#[kernel]
fn f(p: Window, y: ViewMut<f32, 1>) {
    y.store([0], p.x.load::<4>([0]) * p.scale);
}

fn run(stream: &Stream, x: &Array<f32>, y: &mut Array<f32>) -> Result<(), Error> {
    let p = WindowArg { x: x.view([4])?, scale: 1_i64 };
    f::launch(stream, Grid::x(1), f::Consts {}, (p, y.view_mut([4])?))
}

fn main() {}
