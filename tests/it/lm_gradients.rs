//! Gradients of language models against `transformers`: the sums that `tests/parity/training_golden.py` has written
//! down, of rows and of packed sequences.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use genesis::io::load_safetensors;
use genesis::models::{CausalLm, LoadOptions, Packed, Pass, load};
use genesis::ops::Reduction;
use genesis::{DType, Device, Tensor};
use serde_json::Value;

use crate::models::{DECODERS, folder};

/// How far a gradient may be off, as a share of its norm.
const NEAR: f64 = 1e-3;

/// What transformers gives: the norm of each gradient and its sums with signs.
fn golden() -> Result<Value> {
    Ok(serde_json::from_str(include_str!("../fixtures/training/gradients.json"))?)
}

/// +1 or -1 for each index, the same as `signs` of the script.
fn signs(count: usize, pattern: u64) -> Vec<f64> {
    let sign = |index: u64| {
        let mut z = (index + 1).wrapping_add(pattern * 1_000_003);
        z = z.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z ^= z >> 31;
        z = z.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z ^= z >> 29;
        if z >> 63 == 1 { -1.0 } else { 1.0 }
    };
    (0..count as u64).map(sign).collect()
}

/// The cross entropy of each token but the first of its row, and the gradients of all parameters.
fn step(
    model: &dyn CausalLm,
    tokens: &Tensor,
    is_packed: bool,
) -> Result<(f64, BTreeMap<String, Vec<f64>>)> {
    model.zero_grad();
    let (rows, length) = (tokens.shape()[0], tokens.shape()[1]);
    let inputs = tokens.narrow(1, 0, length - 1)?.contiguous()?;
    let targets = tokens.narrow(1, 1, length - 1)?.contiguous()?.flatten(0, -1)?;
    let hidden = match is_packed {
        false => model.hidden(&inputs, &Pass::Whole)?.flatten(0, 1)?,
        true => {
            // Padding behind the last sequence changes nothing.
            let total = inputs.numel() + 3;
            let packed = Packed::new(&vec![length - 1; rows], total, tokens.device())?;
            let padding = Tensor::zeros(&[3], (DType::I64, tokens.device()))?;
            let inputs = Tensor::cat(&[&inputs.flatten(0, 1)?, &padding], 0)?;
            model.hidden(&inputs, &Pass::Packed(&packed))?.narrow(0, 0, total - 3)?
        }
    };
    // Of packed rows without all logits in memory.
    let loss = match is_packed {
        true => model.cross_entropy(&hidden, &targets, Reduction::Mean)?.context("a whole head")?,
        false => model.logits(&hidden)?.cross_entropy(&targets, Reduction::Mean)?,
    };
    loss.backward()?;
    let gradient = |(name, tensor): (String, Tensor)| {
        let values = match tensor.grad() {
            Some(gradient) => gradient.contiguous()?.to_f64_vec()?,
            // An expert that no token went to.
            None if name.contains(".experts.") => vec![0.0; tensor.numel()],
            None => anyhow::bail!("{name} has no gradient"),
        };
        Ok((name, values))
    };
    let gradients = model.named_parameters().into_iter().map(gradient);
    Ok((loss.item()?, gradients.collect::<Result<_>>()?))
}

/// transformers has the experts of a layer as one tensor.
fn stacked(mut own: BTreeMap<String, Vec<f64>>) -> BTreeMap<String, Vec<f64>> {
    let names: Vec<String> =
        own.keys().filter(|name| name.contains(".experts.")).cloned().collect();
    let mut order: Vec<(String, usize, String)> = names
        .iter()
        .filter_map(|name| {
            let (layer, rest) = name.split_once(".experts.")?;
            let (expert, part) = rest.split_once('.')?;
            Some((layer.to_owned(), expert.parse().ok()?, part.to_owned()))
        })
        .collect();
    // Of each expert the gate comes before what it opens.
    order.sort();
    for (layer, expert, part) in order {
        let gradient = own.remove(&format!("{layer}.experts.{expert}.{part}")).unwrap_or_default();
        let stack = match part.starts_with("down") {
            true => "down_proj",
            false => "gate_up_proj",
        };
        own.entry(format!("{layer}.experts.{stack}")).or_default().extend(gradient);
    }
    own
}

fn check(name: &str, expected: &Value, found: (f64, BTreeMap<String, Vec<f64>>)) -> Result<()> {
    let (loss, gradients) = found;
    let wanted = expected["loss"].as_f64().context("a loss")?;
    ensure!((loss - wanted).abs() < 1e-4 * wanted, "{name}: the loss is {loss}, not {wanted}");
    let gradients = stacked(gradients);
    let names: Vec<&String> =
        expected.as_object().context("an object")?.keys().filter(|key| *key != "loss").collect();
    ensure!(names.len() == gradients.len(), "{name}: {:?}, not {names:?}", gradients.keys());
    for parameter in names {
        let own = gradients.get(parameter).with_context(|| format!("{name}: no {parameter}"))?;
        let expected: Vec<f64> = serde_json::from_value(expected[parameter.as_str()].clone())?;
        let norm = own.iter().map(|g| g * g).sum::<f64>().sqrt();
        let sums = (0..3).map(|k| signs(own.len(), k).iter().zip(own).map(|(s, g)| s * g).sum());
        let all: Vec<f64> = [norm].into_iter().chain(sums).collect();
        for (own, expected_sum) in all.iter().zip(&expected) {
            let off = (own - expected_sum).abs() / expected[0].max(1e-6);
            ensure!(off < NEAR, "{name}: {parameter} is off by {off}: {all:?}, not {expected:?}");
        }
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_transformers() -> Result<()> {
    let golden = golden()?;
    for name in DECODERS {
        let options =
            LoadOptions { trainable: true, device: Device::Cpu, ..LoadOptions::default() };
        let model = load(folder(name), &options)?.model;
        let tokens = load_safetensors(folder(name).join("expected.safetensors"), Device::Cpu)?;
        for is_packed in [false, true] {
            let what = format!("{name}, packed: {is_packed}");
            let found =
                step(&*model, &tokens["tokens"], is_packed).with_context(|| what.clone())?;
            check(&what, &golden[name], found)?;
        }
    }
    Ok(())
}
