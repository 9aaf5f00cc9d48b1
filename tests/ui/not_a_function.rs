use genesis_kernel::prelude::*;

#[kernel]
struct F;

fn main() {}
