//! A view is chosen by one number.

use genesis_kernel::prelude::*;

#[kernel]
fn f(x: Views<f32, 1>, y: ViewMut<f32, 1>) {
    y.store([0], x.at(arange::<4>()).load::<4>([0]));
}

fn main() {}
