use genesis_kernel::prelude::*;

#[kernel]
fn copy<const BLOCK: usize>(x: View<f32, 1>, y: ViewMut<f32, 1>, from: i64) {
    let from = multiple_of(from, 16);
    y.store([from], x.load::<BLOCK>([from]));
}

fn run(stream: &Stream, x: &Array<f32>, y: &mut Array<f32>) {
    let _ = copy::launch(stream, Grid::x(1), copy::Consts { BLOCK: 64 }, (x, y, 1));
}

fn main() {}
