use genesis::nn::{Linear, Module};

#[derive(Module)]
struct Net {
    #[module(ignore)]
    linear: Linear,
}

fn main() {}
