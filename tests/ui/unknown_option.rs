use genesis_kernel::prelude::*;

#[kernel(fast)]
fn f(n: i64) {}

fn main() {}
