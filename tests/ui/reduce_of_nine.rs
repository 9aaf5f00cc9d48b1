use genesis_kernel::prelude::*;

#[device]
fn first(a: f32, _b: f32) -> f32 {
    a
}

#[kernel]
fn f<const N: usize>(out: PtrMut<f32>) {
    let v = zeros::<f32, N>();
    let sums = reduce((v, v, v, v, v, v, v, v, v), 0, first);
    store(out, sums.0);
}

fn main() {}
