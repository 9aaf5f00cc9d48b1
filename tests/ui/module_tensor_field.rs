use genesis::Tensor;
use genesis::nn::{Linear, Module};

#[derive(Module)]
struct Net {
    linear: Linear,
    scale: Tensor,
}

fn main() {}
