use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(a: View<f32, 2>) {
    let v = a.load::<BM>([0, 0]);
}

fn main() {}
