//! Training beside PyTorch: the same weights and batches, step by step.
//!
//! `tests/fixtures/training/make.py` made the losses. Weights and batches come from the generator of
//! integers that both sides have.

use std::collections::BTreeMap;

use genesis::nn::{Layer, Linear, Module, Parameter, Relu, Sequential};
use genesis::ops::{Conv, Reduction, Window};
use genesis::optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_,
};
use genesis::train::models::{Gpt, GptOptions};
use genesis::{DType, Device, Result, Tensor};

const CPU: Device = Device::Cpu;

/// SplitMix64, as in the script.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From -1 up to but without 1, in steps of 2^-23.
    fn unit(&mut self) -> f64 {
        (self.next() >> 40) as f64 / f64::from(1 << 23) - 1.0
    }

    fn below(&mut self, n: u64) -> i64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as i64
    }
}

/// Gives a module the weights of the script.
fn set_weights(module: &dyn Module) -> Result<()> {
    let mut state = BTreeMap::new();
    for (place, (name, tensor)) in module.state_dict().into_iter().enumerate() {
        let (mut rng, shape) = (Rng(1000 + place as u64), tensor.shape());
        let bound = 1.0 / (shape[1..].iter().product::<usize>() as f64).sqrt();
        let value = |unit: f64| match shape.len() {
            1 if name.ends_with("weight") => 1.0 + 0.1 * unit,
            1 => 0.1 * unit,
            _ => unit * bound,
        };
        let values: Vec<f64> = (0..tensor.numel()).map(|_| value(rng.unit())).collect();
        state.insert(name.clone(), Tensor::from_f64(&values, shape, CPU)?);
    }
    module.load_state_dict(&state)
}

/// Rows of numbers; the class is the place of the largest of the first ten.
fn points(step: usize, count: usize, width: usize) -> Result<(Tensor, Tensor)> {
    let mut rng = Rng(5000 + step as u64);
    let rows: Vec<Vec<f64>> =
        (0..count).map(|_| (0..width).map(|_| rng.unit()).collect()).collect();
    let class = |row: &Vec<f64>| {
        (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a))).expect("ten") as i64
    };
    let classes: Vec<i64> = rows.iter().map(class).collect();
    let x = Tensor::from_f64(&rows.concat(), &[count, width], CPU)?;
    Ok((x, Tensor::from_slice_on(&classes, &[count], CPU)?))
}

/// Rows of tokens that mostly follow a rule, and the tokens after them.
fn tokens(step: usize, count: usize, length: usize, vocabulary: u64) -> Result<(Tensor, Tensor)> {
    let mut rng = Rng(9000 + step as u64);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut row = vec![rng.below(vocabulary)];
        while row.len() <= length {
            let follows = (5 * row[row.len() - 1] + 3) % vocabulary as i64;
            let jumps = rng.below(10) == 0;
            row.push(if jumps { rng.below(vocabulary) } else { follows });
        }
        x.extend_from_slice(&row[..length]);
        y.extend_from_slice(&row[1..]);
    }
    let part = |part: &[i64]| Tensor::from_slice_on(part, &[count, length], CPU);
    Ok((part(&x)?, part(&y)?))
}

/// Trains for 200 steps and compares each loss with PyTorch's.
fn follows_pytorch(
    name: &str,
    optimizer: &mut dyn Optimizer,
    clip: bool,
    mut loss_of: impl FnMut(usize) -> Result<Tensor>,
) -> Result<()> {
    let text = include_str!("../fixtures/training/losses.json");
    let all: serde_json::Value = serde_json::from_str(text).expect("the fixture is JSON");
    let want = all["losses"][name].as_array().expect("a list of losses");
    assert_eq!(want.len(), 200);
    let mut worst = [0.0f64; 2];
    for (step, want) in want.iter().enumerate() {
        let loss = loss_of(step)?;
        optimizer.zero_grad();
        loss.backward()?;
        if clip {
            clip_grad_norm_(optimizer.parameters(), 1.0, 2.0)?;
        }
        optimizer.step()?;
        let (got, want) = (loss.item()?, want.as_f64().expect("a loss"));
        let relative = (got - want).abs() / want;
        let (bound, part) = if step < 10 { (1e-4, 0) } else { (1e-2, 1) };
        worst[part] = worst[part].max(relative);
        assert!(relative <= bound, "{name}: step {step} has loss {got}, PyTorch {want}");
    }
    println!("{name}: within {:.1e} for 10 steps, {:.1e} for 200", worst[0], worst[1]);
    Ok(())
}

#[test]
fn an_mlp_with_sgd_follows_pytorch() -> Result<()> {
    let model = Sequential::new()
        .with(Linear::new(32, 64, CPU)?)
        .with(Relu)
        .with(Linear::new(64, 10, CPU)?);
    set_weights(&model)?;
    let options = SgdOptions { lr: 0.1, momentum: 0.9, weight_decay: 1e-4, ..Default::default() };
    let mut optimizer = Sgd::new(model.parameters(), options);
    follows_pytorch("mlp", &mut optimizer, false, |step| {
        let (x, y) = points(step, 16, 32)?;
        model.forward(&x)?.cross_entropy(&y, Reduction::Mean)
    })
}

/// A convolution of 3x3 that keeps the size.
#[derive(Module)]
struct Conv3x3 {
    weight: Parameter,
    bias: Parameter,
}

impl Conv3x3 {
    fn new(inputs: usize, outputs: usize) -> Result<Conv3x3> {
        let zeros = |shape: &[usize]| Parameter::new(Tensor::zeros(shape, CPU)?);
        Ok(Conv3x3 { weight: zeros(&[outputs, inputs, 3, 3])?, bias: zeros(&[outputs])? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let conv = Conv { padding: vec![[1, 1]; 2], ..Conv::new(2) };
        x.conv(&self.weight, Some(&self.bias), &conv)?
            .relu()?
            .max_pool(&Window::new(&[2, 2]))
            .map(|(y, _)| y)
    }
}

#[derive(Module)]
struct Cnn {
    conv1: Conv3x3,
    conv2: Conv3x3,
    fc: Linear,
}

#[test]
fn a_cnn_with_adam_follows_pytorch() -> Result<()> {
    let model = Cnn {
        conv1: Conv3x3::new(1, 8)?,
        conv2: Conv3x3::new(8, 16)?,
        fc: Linear::new(64, 10, CPU)?,
    };
    set_weights(&model)?;
    let options = AdamOptions { lr: 3e-3, ..Default::default() };
    let mut optimizer = Adam::new(model.parameters(), options);
    follows_pytorch("cnn", &mut optimizer, false, |step| {
        let (x, y) = points(step, 16, 64)?;
        let h = model.conv1.forward(&x.reshape(&[16, 1, 8, 8])?)?;
        let h = model.conv2.forward(&h)?.flatten(1, -1)?;
        model.fc.forward(&h)?.cross_entropy(&y, Reduction::Mean)
    })
}

#[test]
fn a_transformer_with_adamw_and_clipping_follows_pytorch() -> Result<()> {
    let size =
        GptOptions { vocabulary: 16, context: 12, channels: 32, heads: 4, layers: 2, dropout: 0.0 };
    let model = Gpt::new(&size, CPU)?;
    set_weights(&model)?;
    let options = AdamWOptions { lr: 2e-3, weight_decay: 0.01, ..Default::default() };
    let mut optimizer = AdamW::new(model.parameters(), options);
    follows_pytorch("transformer", &mut optimizer, true, |step| {
        let (x, y) = tokens(step, 8, 12, 16)?;
        assert_eq!(x.dtype(), DType::I64);
        model.forward(&x)?.cross_entropy(&y, Reduction::Mean)
    })
}
