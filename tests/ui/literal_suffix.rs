use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize>(out: PtrMut<i64>) {
    store(out, 1usize);
}

fn main() {}
