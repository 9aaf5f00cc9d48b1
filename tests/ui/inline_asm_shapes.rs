//! Results of inline assembly have one shape.

use genesis_kernel::prelude::*;

#[kernel]
fn f<const N: usize>(out: PtrMut<u32>) {
    let v = load(out + arange::<N>());
    let (a, b) = inline_asm!("mov.b32 $0, $2; mov.b32 $1, $2;", "=r,=r,r", v, (v, 1_u32));
    store(out + arange::<N>(), a + b);
}

fn main() {}
