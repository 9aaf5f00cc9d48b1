use genesis_kernel::prelude::*;

#[kernel]
async fn f(n: i64) {}

fn main() {}
