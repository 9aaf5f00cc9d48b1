//! What is optional is a parameter that a launch can leave out.

use genesis_kernel::prelude::*;

#[device]
fn shifted<const N: usize>(x: Tile1<f32, N>, by: Option<Tile1<f32, N>>) -> Tile1<f32, N> {
    if let Some(by) = by { x + by } else { x }
}

fn main() {}
