use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize>(a: View<f32, 2>) {
    let v = a.load::<BM, BN>(0);
}

fn main() {}
