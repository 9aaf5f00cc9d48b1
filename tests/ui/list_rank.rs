//! The rank of the views of a list is a literal, as that of a view.

use genesis_kernel::prelude::*;

#[kernel]
fn f<const R: usize>(x: Views<f32, R>, y: ViewMut<f32, 1>) {
    y.store([0], x.at(0).load::<4>([0]));
}

fn main() {}
