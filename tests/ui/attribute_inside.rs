use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize>(out: PtrMut<f32>) {
    #[cfg(debug_assertions)]
    store(out, 1.0);
}

fn main() {}
