use genesis::nn::{Linear, Module};

#[derive(Module)]
struct Net {
    fc: Linear,
    #[module(name = "fc")]
    other: Linear,
}

fn main() {}
