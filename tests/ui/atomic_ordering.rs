//! An atomic has an order and a scope.

use genesis_kernel::prelude::*;

#[kernel]
fn f(out: PtrMut<i32>) {
    atomic_add::<Gpu, Release>(out, 1);
}

fn main() {}
