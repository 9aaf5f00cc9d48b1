use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize>(out: PtrMut<f32>, total: f32) {
    store(out, totl);
}

fn main() {}
