//! A function of any shape has no axis.

use genesis_kernel::prelude::*;

#[device]
fn centered<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    x - sum(x, 0)
}

fn main() {}
