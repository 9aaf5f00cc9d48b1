use genesis_kernel::prelude::*;

#[kernel]
fn poke(x: ViewMut<f32, 1>, n: i64) {
    store(x.ptr() + n, 7.0);
}

fn run(stream: &Stream, x: &mut Array<f32>) {
    let _ = poke::launch(stream, Grid::x(1), poke::Consts {}, (x, 1i64 << 40));
}

fn main() {}
