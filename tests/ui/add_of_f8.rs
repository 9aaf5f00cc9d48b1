use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize>(x: View<f8e4m3, 1>, out: ViewMut<f8e4m3, 1>) {
    let v = x.load::<BM>([0]);
    out.store([0], v + v);
}

fn main() {}
