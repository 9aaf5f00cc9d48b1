use genesis::nn::{Linear, Module};

#[derive(Module)]
#[module(skip)]
struct Net {
    linear: Linear,
}

fn main() {}
