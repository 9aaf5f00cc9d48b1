use genesis_kernel::prelude::*;

#[device]
fn inner(x: ViewMut<f32, 1>, n: i64) {
    store(x.ptr() + n, 7.0);
}

#[device]
fn outer(x: ViewMut<f32, 1>, n: i64) {
    inner(x, n + 1);
}

#[kernel]
fn poke(x: ViewMut<f32, 1>, n: i64) {
    outer(x, n);
}

#[kernel]
unsafe fn declared(x: ViewMut<f32, 1>, n: i64) {
    outer(x, n);
}

fn main() {}
