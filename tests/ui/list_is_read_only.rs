//! What is in a list of views to read is not written.

use genesis_kernel::prelude::*;

#[kernel]
fn f(x: Views<f32, 1>, y: ViewsMut<f32, 1>, g: i64) {
    x.at(g).store([0], y.at(g).load::<4>([0]));
}

fn main() {}
