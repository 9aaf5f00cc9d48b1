use genesis::nn::{Linear, Module};

#[derive(Module)]
struct Net {
    #[module(name = "encoder.linear")]
    linear: Linear,
}

fn main() {}
