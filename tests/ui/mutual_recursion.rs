use genesis_kernel::prelude::*;

#[device]
fn even(n: i64) -> i64 {
    odd(n - 1)
}

#[device]
fn odd(n: i64) -> i64 {
    even(n - 1)
}

#[kernel]
fn f(out: PtrMut<i64>) {
    store(out, even(4));
}

fn main() {}
