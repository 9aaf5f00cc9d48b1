use genesis::nn::{Linear, Module, Relu};

#[derive(Module)]
enum Block {
    Linear(Linear),
    Relu(Relu),
}

fn main() {}
