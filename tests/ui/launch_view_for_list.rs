//! A list of views is made by a stream, which writes the table of them.

use genesis_kernel::prelude::*;

#[kernel]
fn f(x: Views<f32, 1>, y: ViewMut<f32, 1>) {
    y.store([0], x.at(0).load::<4>([0]));
}

fn run(stream: &Stream, x: &Array<f32>, y: &mut Array<f32>) -> Result<(), Error> {
    let parts = [x.view([4])?, x.view([4])?];
    f::launch(stream, Grid::x(1), f::Consts {}, (parts, y.view_mut([4])?))
}

fn main() {}
