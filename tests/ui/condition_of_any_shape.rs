//! What has any shape is no scalar.

use genesis_kernel::prelude::*;

#[device]
fn positive<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    if x > 0.0 { x } else { 0.0 * x }
}

fn main() {}
