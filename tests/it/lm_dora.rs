//! DoRA against its definition in f64: values, gradients by differences, files, merged weights.

use anyhow::{Context, Result, ensure};
use genesis::models::{Projection, load_adapter, save_adapter};
use genesis::nn::{Adapted, LoraOptions, Module, Parameter, Weight, adapt, adapters, merge};
use genesis::random::thread_rng;
use genesis::{DType, Device, Tensor, no_grad};
use serde_json::Value;

use crate::lm_training::model;

const OUT: usize = 5;
const IN: usize = 4;
const RANK: usize = 2;
const ROWS: usize = 3;
const SCALE: f64 = 1.5;

/// Numbers without a pattern.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1000) as f64 / 500.0 - 0.97).collect()
}

/// What a product is made of, as rows.
#[derive(Clone)]
struct Numbers {
    w: Vec<f64>,
    a: Vec<f64>,
    b: Vec<f64>,
    m: Vec<f64>,
    x: Vec<f64>,
    bias: Vec<f64>,
}

impl Numbers {
    fn new() -> Numbers {
        Numbers {
            w: numbers(OUT * IN, 1),
            a: numbers(RANK * IN, 2),
            b: numbers(OUT * RANK, 3),
            m: numbers(OUT, 4).iter().map(|m| m.abs() + 0.5).collect(),
            x: numbers(ROWS * IN, 5),
            bias: numbers(OUT, 6),
        }
    }

    /// `W + scale B A`
    fn updated(&self) -> Vec<f64> {
        let update = |i: usize, j: usize| -> f64 {
            (0..RANK).map(|k| self.b[i * RANK + k] * self.a[k * IN + j]).sum()
        };
        let at = |p: usize| self.w[p] + SCALE * update(p / IN, p % IN);
        (0..OUT * IN).map(at).collect()
    }

    fn lengths(&self) -> Vec<f64> {
        self.updated().chunks(IN).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt()).collect()
    }

    /// The product, with rows divided by these lengths.
    fn product(&self, lengths: &[f64]) -> Vec<f64> {
        let v = self.updated();
        let of = |t: usize, i: usize| -> f64 {
            let dot: f64 = (0..IN).map(|j| self.x[t * IN + j] * v[i * IN + j]).sum();
            dot * self.m[i] / lengths[i] + self.bias[i]
        };
        (0..ROWS * OUT).map(|p| of(p / OUT, p % OUT)).collect()
    }

    /// A sum of the results with weights; lengths of rows are those of `at`, which do not count as variables.
    fn loss(&self, at: &Numbers) -> f64 {
        let y = self.product(&at.lengths());
        y.iter().zip(numbers(ROWS * OUT, 7)).map(|(y, g)| y * g).sum()
    }

    /// The gradient of one of the lists, by central differences.
    fn gradient(&self, list: fn(&mut Numbers) -> &mut Vec<f64>) -> Vec<f64> {
        let count = list(&mut self.clone()).len();
        let moved = |p: usize, by: f64| {
            let mut other = self.clone();
            list(&mut other)[p] += by;
            other.loss(self)
        };
        (0..count).map(|p| (moved(p, 1e-5) - moved(p, -1e-5)) / 2e-5).collect()
    }
}

fn tensor(values: &[f64], shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::from_f64(values, shape, (DType::F64, Device::Cpu))?)
}

/// A product with an adapter that has these numbers.
fn adapted(numbers: &Numbers, dropout: f64) -> Result<(Projection, Adapted)> {
    let weight = Weight::Whole(Parameter::new(tensor(&numbers.w, &[OUT, IN])?)?);
    let bias = Some(Parameter::new(tensor(&numbers.bias, &[OUT])?)?);
    let mut layer = Projection { weight, bias };
    let targets = vec!["weight".to_owned()];
    let options =
        LoraOptions { rank: RANK, alpha: SCALE * RANK as f64, dropout, targets, dora: true };
    adapt(&mut layer, &options)?;
    let (_, adapter) = adapters(&layer).pop().context("an adapter")?;
    Ok((layer, adapter))
}

fn set(parameter: &Parameter, values: &[f64]) -> Result<()> {
    let values = tensor(values, parameter.shape())?;
    Ok(no_grad(|| parameter.detach().copy_(&values))?)
}

fn near(found: &Tensor, wanted: &[f64], within: f64) -> Result<()> {
    let found = found.contiguous()?.to_f64_vec()?;
    let off = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    ensure!(found.len() == wanted.len() && off < within, "{found:?}, not {wanted:?}");
    Ok(())
}

#[test]
fn values_and_gradients_are_those_of_the_definition() -> Result<()> {
    let numbers = Numbers::new();
    let (mut layer, adapter) = adapted(&numbers, 0.0)?;
    let magnitude = adapter.magnitude.as_ref().context("DoRA has magnitudes")?;
    // They begin as the lengths of the rows.
    let begin = Numbers { b: vec![0.0; OUT * RANK], ..numbers.clone() };
    near(magnitude, &begin.lengths(), 1e-12)?;
    set(&adapter.lora_a, &numbers.a)?;
    set(&adapter.lora_b, &numbers.b)?;
    set(magnitude, &numbers.m)?;
    let x = tensor(&numbers.x, &[ROWS, IN])?.requires_grad_(true)?;
    let y = layer.forward(&x)?;
    near(&y, &numbers.product(&numbers.lengths()), 1e-12)?;
    y.mul(&tensor(&self::numbers(ROWS * OUT, 7), &[ROWS, OUT])?)?.sum()?.backward()?;
    type Part = fn(&mut Numbers) -> &mut Vec<f64>;
    let lists: [(&Tensor, Part); 4] = [
        (&adapter.lora_a, |n| &mut n.a),
        (&adapter.lora_b, |n| &mut n.b),
        (magnitude, |n| &mut n.m),
        (&x, |n| &mut n.x),
    ];
    for (tensor, list) in lists {
        near(&tensor.grad().context("a gradient")?, &numbers.gradient(list), 1e-7)?;
    }
    ensure!(layer.parameters().iter().filter(|p| p.requires_grad()).count() == 3);
    assert_eq!(merge(&mut layer)?, 1);
    near(&layer.forward(&x)?, &numbers.product(&numbers.lengths()), 1e-12)
}

/// Where nothing has changed, what is dropped is dropped of nothing.
#[test]
fn a_new_adapter_changes_nothing_with_dropout() -> Result<()> {
    let _own = thread_rng(9);
    let numbers = Numbers::new();
    let (layer, adapter) = adapted(&numbers, 0.5)?;
    let begin = Numbers { b: vec![0.0; OUT * RANK], ..numbers.clone() };
    let plain = Numbers { m: begin.lengths(), ..begin };
    let x = tensor(&numbers.x, &[ROWS, IN])?;
    layer.train(true);
    near(&layer.forward(&x)?, &plain.product(&plain.lengths()), 1e-12)?;
    // With another magnitude it drops in training, and only there.
    set(adapter.magnitude.as_ref().context("magnitudes")?, &numbers.m)?;
    let other = Numbers { m: numbers.m.clone(), ..plain };
    let whole = other.product(&other.lengths());
    ensure!(near(&layer.forward(&x)?, &whole, 1e-6).is_err(), "nothing was dropped");
    layer.eval();
    near(&layer.forward(&x)?, &whole, 1e-12)
}

#[test]
fn files_are_those_of_peft() -> Result<()> {
    let mut adapted = model(Device::Cpu)?;
    let options = LoraOptions { dora: true, ..LoraOptions::default() };
    let owner = std::sync::Arc::get_mut(&mut adapted).context("one owner")?;
    adapt(owner, &options)?;
    let folder = tempfile::tempdir()?;
    save_adapter(folder.path(), &*adapted, &options, "tiny")?;
    let config = std::fs::read(folder.path().join("adapter_config.json"))?;
    let mut config: Value = serde_json::from_slice(&config)?;
    ensure!(config["use_dora"] == true, "{config}");
    let file = folder.path().join("adapter_model.safetensors");
    let tensors = genesis::io::load_safetensors(&file, Device::Cpu)?;
    let name = "base_model.model.model.layers.1.self_attn.k_proj.lora_magnitude_vector";
    ensure!(tensors[name].shape() == [24] && tensors.len() == 3 * 14, "{:?}", tensors.keys());
    // The same tensors are no LoRA.
    config["use_dora"] = false.into();
    std::fs::write(folder.path().join("adapter_config.json"), config.to_string())?;
    let mut other = model(Device::Cpu)?;
    let owner = std::sync::Arc::get_mut(&mut other).context("one owner")?;
    let said = load_adapter(folder.path(), owner).unwrap_err().to_string();
    ensure!(said.ends_with("42 tensors are not the 28 of 14 adapters"), "{said}");
    Ok(())
}

#[test]
fn a_row_without_a_direction_is_refused() -> Result<()> {
    let mut numbers = Numbers::new();
    numbers.w[..IN].fill(0.0);
    let said = adapted(&numbers, 0.0).err().context("a row is 0")?.to_string();
    assert_eq!(said, "lora: a row of a weight is 0, and has no direction for DoRA");
    Ok(())
}
