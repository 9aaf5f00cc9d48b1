use genesis_kernel::prelude::*;

#[kernel]
fn f(out: PtrMut<f32>, n: usize) {
    store(out, 0.0);
}

fn main() {}
