use genesis_kernel::prelude::*;

#[kernel]
fn f<const N: usize>(x: Tile1<f32, N>) {
    let y = x + 1.0;
}

fn main() {}
