use genesis_kernel::prelude::*;

#[kernel]
fn f<T: Float, const BM: usize>(x: Ptr<T>, n: i64) {
    let i = arange::<BM>();
    let v: Tile1<f32, BM> = load(x + i, i < n);
}

fn main() {}
