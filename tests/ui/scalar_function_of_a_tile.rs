use genesis_kernel::prelude::*;

#[device]
fn square(x: f32) -> f32 {
    x * x
}

#[kernel]
fn f<const N: usize>(out: PtrMut<f32>) {
    store(out + arange::<N>(), square(zeros::<f32, N>()));
}

fn main() {}
