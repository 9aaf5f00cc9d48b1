use genesis_kernel::prelude::*;

#[kernel]
fn f<const BM: usize, const BN: usize, const BK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    for i in range(0, n).stages(3) {
        if load(x + i) > 10.0 {
            break;
        }
    }
}

fn main() {}
