//! Inline assembly is of numbers.

use genesis_kernel::prelude::*;

#[kernel]
fn pointers(y: PtrMut<u32>) {
    store(y, inline_asm!("mov.u32 $0, 1;", "=r,l", y, 1_u32));
}

fn main() {}
