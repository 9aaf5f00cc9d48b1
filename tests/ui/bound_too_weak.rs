use genesis_kernel::prelude::*;

#[kernel]
fn f<T: Number, const BM: usize>(x: Ptr<T>) {
    let e = exp(load(x + arange::<BM>()));
}

fn main() {}
