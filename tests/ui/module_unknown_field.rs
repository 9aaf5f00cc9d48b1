use genesis::nn::{Linear, Module};

struct Config {
    depth: usize,
}

#[derive(Module)]
struct Net {
    linear: Linear,
    config: Vec<Config>,
}

fn main() {}
