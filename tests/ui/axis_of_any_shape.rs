//! A function of any shape has no axis, and is no scalar.

use genesis_kernel::prelude::*;

#[device]
fn centered<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    x - sum(x, 0)
}

#[device]
fn positive<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    if x > 0.0 { x } else { 0.0 * x }
}

fn main() {}
