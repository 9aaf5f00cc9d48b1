use genesis_kernel::prelude::*;

#[device]
fn power(x: f32, n: i64) -> f32 {
    if n == 0 { 1.0 } else { x * power(x, n - 1) }
}

fn main() {}
