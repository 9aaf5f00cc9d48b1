use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize>(n: i64) {
    let v = zeros::<f32, BM, BN>().permute([0, 0]);
}

fn main() {}
