use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(a: View<f32, 2>, c: ViewMut<f32, 2>) {
    let v = a.load::<BM, BN>([0, 0]);
    c.store([0, 0], sum(v, 1));
}

fn main() {}
