use genesis_kernel::prelude::*;

#[device]
fn f(x: f32) -> f32 {
    if x > 0.0 {
        return x;
    }
    0.0
}

fn main() {}
