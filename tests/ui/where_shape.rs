use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize>(n: i64) {
    let m = arange::<BM>() < 3;
    let v = where_(m, zeros::<f32, BN>(), 0.0);
}

fn main() {}
