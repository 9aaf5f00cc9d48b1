use genesis_kernel::prelude::*;

#[kernel]
fn f<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let v = load(x + arange::<N>());
    store(out + arange::<N>(), max(v, 0.0));
}

fn main() {}
