//! Exponents are integers.

use genesis_kernel::prelude::*;

#[kernel]
fn scaled<const N: usize>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
    let v = x.load::<N>([0]);
    y.store([0], ldexp(v, v));
}

fn main() {}
