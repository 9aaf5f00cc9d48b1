use genesis_kernel::prelude::*;

#[kernel]
unsafe fn clear(x: ViewMut<f32, 1>) {
    x.store([program_id(0)], 0.0);
}

fn run(stream: &Stream, x: &mut Array<f32>) {
    let _ = clear::launch(stream, Grid::x(1), clear::Consts {}, (x,));
}

fn main() {}
