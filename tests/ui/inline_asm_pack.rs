//! The option of inline assembly is how many elements a text is of.

use genesis_kernel::prelude::*;

#[kernel]
fn f<const N: usize>(out: PtrMut<u8>) {
    let v = load(out + arange::<N>());
    let three = inline_asm!("mov.b32 $0, $1;", "=r,r", v, v, pack = 3);
    store(out + arange::<N>(), three);
}

fn main() {}
