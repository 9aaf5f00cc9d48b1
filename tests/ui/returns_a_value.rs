use genesis_kernel::prelude::*;

#[kernel]
fn f(n: i64) -> i64 {
    n
}

fn main() {}
