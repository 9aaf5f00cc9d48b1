use genesis_kernel::prelude::*;

#[kernel]
fn f<T: Clone>(x: Ptr<T>) {
    let v = load(x);
}

fn main() {}
