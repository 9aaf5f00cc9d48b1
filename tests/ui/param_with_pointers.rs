//! A kernel that takes pointers in a struct says that its launch is `unsafe`: what it takes is not in its text.

use genesis_kernel::prelude::*;

#[derive(Clone, Copy, KernelParam)]
struct Counts {
    of: PtrMut<i32>,
    n: i64,
}

#[kernel]
fn f(counts: Counts) {
    store(counts.of + counts.n, 1);
}

#[kernel]
unsafe fn declared(counts: Counts) {
    store(counts.of + counts.n, 1);
}

fn main() {}
