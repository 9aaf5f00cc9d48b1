use genesis_kernel::prelude::*;

#[kernel]
fn f(out: PtrMut<f32>) {
    store(out, sum);
}

fn main() {}
