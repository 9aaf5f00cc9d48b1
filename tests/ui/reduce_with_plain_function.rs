use genesis_kernel::prelude::*;

fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[kernel]
fn f<const BM: usize>(out: PtrMut<f32>) {
    store(out, reduce(zeros::<f32, BM>(), 0, larger));
}

fn main() {}
