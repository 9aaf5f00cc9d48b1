use genesis_kernel::prelude::*;

#[kernel]
fn f(out: &mut [f32]) {
    store(out, 0.0);
}

fn main() {}
