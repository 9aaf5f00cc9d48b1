//! Inline assembly has a text, constraints, and what the CPU computes.

use genesis_kernel::prelude::*;

#[kernel]
fn nothing_for_the_cpu(y: PtrMut<u32>) {
    store(y, inline_asm!("mov.u32 $0, 1;", "=r"));
}

fn main() {}
