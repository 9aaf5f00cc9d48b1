//! A list borrows what it is about: as long as a launch may take it, the memory is there.

use genesis_kernel::prelude::*;

#[kernel]
fn f(x: Views<f32, 1>, y: ViewMut<f32, 1>) {
    y.store([0], x.at(0).load::<4>([0]));
}

fn run(stream: &Stream, x: Array<f32>, y: &mut Array<f32>) -> Result<(), Error> {
    let parts = [x.view([4])?];
    let list = stream.views(&parts)?;
    drop(x);
    f::launch(stream, Grid::x(1), f::Consts {}, (list, y.view_mut([4])?))
}

fn main() {}
