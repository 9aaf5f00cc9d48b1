use genesis_kernel::prelude::*;

struct Model;

impl Model {
    #[kernel]
    pub fn f<const N: usize>(out: PtrMut<f32>) {
        store(out + arange::<N>(), 0.0);
    }
}

fn main() {}
