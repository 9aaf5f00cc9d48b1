use genesis::nn::{Linear, Module};

#[derive(Module)]
struct Head<'a> {
    linear: &'a Linear,
}

fn main() {}
