use genesis_kernel::prelude::*;

#[kernel]
fn copy<T: Element, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    store(out + i, load(x + i, i < n), i < n);
}

fn run(stream: &Stream, x: &Array<f32>, y: &mut Array<f32>) {
    let consts = copy::Consts { BLOCK: 64 };
    let _ = unsafe { copy::launch::<f32>(stream, Grid::x(1), consts, (x, y, 64.0)) };
}

fn main() {}
