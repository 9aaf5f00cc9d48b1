//! An argument that is left out is `Absent`.

use genesis_kernel::prelude::*;

#[kernel]
fn f(x: Option<View<f32, 1>>, y: ViewMut<f32, 1>) {
    if let Some(x) = x {
        y.store([0], x.load::<4>([0]));
    }
}

fn run(stream: &Stream, y: &mut Array<f32>) -> Result<(), Error> {
    f::launch(stream, Grid::x(1), f::Consts {}, ((), y.view_mut([4])?))
}

fn main() {}
