//! Products of the same inputs as one in training: their weights lie beside one another and stay parameters of their own.
//!
//! A model whose parameters were converted and converted back has them in memory of their own: it is what the others are
//! compared with.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use genesis::amp::{GradScaler, GradScalerOptions, autocast};
use genesis::autograd::{GradCheck, gradgradcheck};
use genesis::models::{CausalLm, LoadOptions, Pass, initialize};
use genesis::ops::{Gate, Reduction};
use genesis::optim::{
    AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, StepInBackward, clip_grad_norm_,
};
use genesis::profiler::{ProfilerOptions, profile};
use genesis::random::{Generator, thread_rng};
use genesis::{DType, Device, Tensor, graph, no_grad};
use serde_json::{Value, json};

use crate::gpu::devices;
use crate::lm_training::{Named, apart, config, gradients};

/// Kinds of decoders: with biases of queries, keys and values, without, with those of all products, and gated by GELU.
fn kinds() -> [Value; 4] {
    [
        json!({}),
        json!({"model_type": "llama"}),
        json!({"model_type": "llama", "attention_bias": true, "mlp_bias": true}),
        json!({"model_type": "gemma2", "head_dim": 12}),
    ]
}

/// A model whose products are joined, or not.
fn model(change: &Value, at: (DType, Device), joined: bool) -> Result<Arc<dyn CausalLm>> {
    let _own = thread_rng(3);
    let mut config = config(320);
    for (key, value) in change.as_object().into_iter().flatten() {
        config.insert(key.clone(), value.clone());
    }
    let options =
        LoadOptions { trainable: true, device: at.1, dtype: Some(at.0), ..LoadOptions::default() };
    let mut model = initialize(&config, &options)?.model;
    if !joined {
        let values =
            model.parameters().iter().map(Tensor::copy).collect::<genesis::Result<Vec<_>>>()?;
        let own = Arc::get_mut(&mut model).context("nobody else has it")?;
        own.to_dtype(if at.0 == DType::F64 { DType::F32 } else { DType::F64 })?;
        own.to_dtype(at.0)?;
        let all = model.parameters();
        no_grad(|| all.iter().zip(&values).try_for_each(|(own, values)| own.copy_(values)))?;
    }
    // Biases begin as zeros, which shows nothing.
    no_grad(|| {
        let mut bias = 0;
        for (name, parameter) in model.named_parameters() {
            if name.ends_with("bias") {
                bias += 1;
                let values = (0..parameter.numel()).map(|i| ((i * 7 + bias) % 11) as f64 / 11.0);
                let values: Vec<f64> = values.collect();
                parameter.copy_(&Tensor::from_f64(&values, parameter.shape(), at)?)?;
            }
        }
        Ok::<_, genesis::Error>(())
    })?;
    Ok(model)
}

fn tokens(device: Device) -> Result<[Tensor; 2]> {
    let ids = |step: i64| (0..48).map(|i| (i * step + 5) % 320).collect::<Vec<i64>>();
    let inputs = Tensor::from_slice_on(&ids(37), &[2, 24], device)?;
    Ok([inputs, Tensor::from_slice_on(&ids(53), &[48], device)?])
}

fn loss(model: &dyn CausalLm, [inputs, targets]: [&Tensor; 2]) -> genesis::Result<Tensor> {
    let hidden = model.hidden(inputs, &Pass::Whole)?.flatten(0, 1)?;
    model.logits(&hidden)?.to_dtype(DType::F32)?.cross_entropy(targets, Reduction::Mean)
}

/// How many ops of this name run.
fn count<T>(name: &str, f: impl FnOnce() -> genesis::Result<T>) -> Result<(T, usize)> {
    let (value, profile) = profile(ProfilerOptions::default(), |_| f())?;
    let ranges = &profile.events().ranges;
    Ok((value, ranges.iter().filter(|range| range.name == name).count()))
}

#[test]
fn gradients_are_those_of_products_apart() -> Result<()> {
    for device in devices("joined products") {
        let [inputs, targets] = tokens(device)?;
        for kind in &kinds() {
            for (dtype, half) in [
                (DType::F64, None),
                (DType::F32, None),
                (DType::BF16, None),
                (DType::F16, None),
                (DType::F32, Some(DType::BF16)),
                (DType::F32, Some(DType::F16)),
            ] {
                let what = format!("{kind} in {dtype}, {half:?} on {device}");
                let of = |joined| -> Result<(Vec<Named>, usize)> {
                    let model = model(kind, (dtype, device), joined)?;
                    let forward = || loss(&*model, [&inputs, &targets]);
                    let (loss, joins) = match half {
                        Some(half) => count("joined", || autocast(half, forward))?,
                        None => count("joined", forward)?,
                    };
                    loss.backward()?;
                    Ok((gradients(&*model)?, joins))
                };
                let ((ours, joins), (wanted, none)) = (of(true)?, of(false)?);
                let biases =
                    ours.iter().filter(|(name, _)| name.contains("0.") && name.ends_with("bias"));
                let joined = match biases.count() {
                    0 => 2,
                    3..=4 => 3,
                    _ => 4,
                };
                ensure!((joins, none) == (2 * joined, 0), "{what}: {joins} and {none} are joined");
                let within = match (dtype, half) {
                    (DType::F64, _) => 1e-12,
                    (DType::F32, None) => 2e-4,
                    (DType::BF16, _) | (_, Some(DType::BF16)) => 4e-2,
                    // Of the bias of keys, whose gradient is small.
                    _ => 3e-2,
                };
                let off = apart(&wanted, &ours);
                ensure!(off < within, "{what}: gradients are off by {off}");
            }
        }
    }
    Ok(())
}

/// Steps of a kind of training; gives the parameters behind them.
type Train = fn(&Arc<dyn CausalLm>, [&Tensor; 2]) -> Result<()>;

/// Two backwards a step, whose gradients are added, and their norm clipped.
fn accumulated(model: &Arc<dyn CausalLm>, tokens: [&Tensor; 2]) -> Result<()> {
    let mut optimizer = AdamW::new(model.named_parameters(), AdamWOptions::default());
    for _ in 0..3 {
        optimizer.zero_grad();
        loss(&**model, tokens)?.backward()?;
        loss(&**model, tokens)?.mul_scalar(0.5)?.backward()?;
        clip_grad_norm_(&model.parameters(), 0.1, 2.0)?;
        optimizer.step()?;
    }
    Ok(())
}

fn scaled(model: &Arc<dyn CausalLm>, tokens: [&Tensor; 2]) -> Result<()> {
    let options = SgdOptions { lr: 0.05, momentum: 0.9, ..SgdOptions::default() };
    let mut optimizer = Sgd::new(model.named_parameters(), options);
    let mut scaler = GradScaler::new(GradScalerOptions::default(), tokens[0].device())?;
    for _ in 0..3 {
        optimizer.zero_grad();
        scaler.scale(&loss(&**model, tokens)?)?.backward()?;
        scaler.step(&mut optimizer)?;
        scaler.update()?;
    }
    Ok(())
}

fn in_backward(model: &Arc<dyn CausalLm>, tokens: [&Tensor; 2]) -> Result<()> {
    let inner = AdamW::new(model.named_parameters(), AdamWOptions::default());
    let optimizer = StepInBackward::new(inner)?;
    for _ in 0..3 {
        loss(&**model, tokens)?.backward()?;
    }
    ensure!(model.parameters().iter().all(|p| p.grad().is_none()), "gradients are freed");
    drop(optimizer);
    Ok(())
}

fn captured(model: &Arc<dyn CausalLm>, [inputs, targets]: [&Tensor; 2]) -> Result<()> {
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default());
    let mut step = graph(|optimizer: &mut AdamW, args: &[Tensor]| {
        optimizer.zero_grad();
        let loss = loss(&**model, [&args[0], &args[1]])?;
        loss.backward()?;
        optimizer.step()?;
        Ok(vec![loss.detach()])
    });
    for _ in 0..4 {
        step.call(&mut optimizer, &[inputs, targets])?;
    }
    Ok(())
}

/// That parameters behind training are those of a model whose products are apart.
fn same_steps(ways: &[(&str, Train)]) -> Result<()> {
    for device in devices("steps of joined products") {
        let [inputs, targets] = tokens(device)?;
        for (name, train) in ways {
            let of = |joined| -> Result<Vec<Named>> {
                let model = model(&kinds()[0], (DType::F32, device), joined)?;
                train(&model, [&inputs, &targets])?;
                let values = |(name, tensor): (String, Tensor)| Ok((name, tensor.to_f64_vec()?));
                model.named_parameters().into_iter().map(values).collect()
            };
            let off = apart(&of(false)?, &of(true)?);
            ensure!(off < 1e-3, "{name} on {device}: parameters are off by {off}");
        }
    }
    Ok(())
}

#[test]
fn steps_are_those_of_products_apart() -> Result<()> {
    same_steps(&[
        ("accumulated", accumulated),
        ("scaled", scaled),
        ("in the backward", in_backward),
    ])
}

#[test]
fn captured_steps_are_those_of_products_apart() -> Result<()> {
    same_steps(&[("captured", captured)])
}

/// A gradient is its parameter's alone, and what is written to one parameter is seen by those that read it.
#[test]
fn parameters_are_tensors_of_their_own() -> Result<()> {
    let device = Device::Cpu;
    let [inputs, targets] = tokens(device)?;
    let model = model(&kinds()[0], (DType::F32, device), true)?;
    let named = |end: &str| {
        let mut all = model.named_parameters().into_iter();
        let found = all.find(|(name, _)| name.contains("layers.0") && name.ends_with(end));
        found.map(|(_, tensor)| tensor).with_context(|| format!("no {end}"))
    };
    let [q, k] = [named("q_proj.weight")?, named("k_proj.weight")?];
    loss(&*model, [&inputs, &targets])?.backward()?;
    let (dq, dk) = (q.grad().context("dq")?, k.grad().context("dk")?);
    let before = dk.to_vec::<f32>()?;
    dq.zero_()?;
    ensure!(dk.to_vec::<f32>()? == before && dk.version() == 0, "one gradient is not another");

    let read = loss(&*model, [&inputs, &targets])?;
    no_grad(|| q.mul_(&Tensor::scalar(2.0, (DType::F32, device))?).map(drop))?;
    ensure!(k.version() == 0, "nobody wrote to k");
    let refused = read.backward().err().context("q was changed")?.to_string();
    ensure!(refused.contains("was changed in place since"), "{refused}");
    // A new forward reads the new values.
    loss(&*model, [&inputs, &targets])?.backward()?;
    Ok(())
}

#[test]
fn a_part_that_is_frozen_is_a_product_of_its_own() -> Result<()> {
    let [inputs, targets] = tokens(Device::Cpu)?;
    let model = model(&kinds()[0], (DType::F32, Device::Cpu), true)?;
    let frozen = |name: &str| name.ends_with("k_proj.weight") || name.ends_with("up_proj.weight");
    for (name, parameter) in model.named_parameters() {
        if frozen(&name) {
            parameter.requires_grad_(false)?;
        }
    }
    let (loss, joins) = count("joined", || loss(&*model, [&inputs, &targets]))?;
    // The biases alone, which nobody froze.
    ensure!(joins == 2, "{joins} are joined");
    loss.backward()?;
    for (name, parameter) in model.named_parameters() {
        ensure!(parameter.grad().is_some() != frozen(&name), "{name}");
    }
    Ok(())
}

#[test]
fn gates_are_differentiated_twice() -> Result<()> {
    let random = Generator::new(4);
    let x = random.randn(&[3, 10], (DType::F64, Device::Cpu))?.requires_grad_(true)?;
    for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
        let of = |args: &[Tensor]| Ok(vec![args[0].gated(gate)?]);
        gradgradcheck(of, &[&x], GradCheck::default())?;
    }
    Ok(())
}

/// The gradient of a gate in one launch is that of the halves.
#[test]
fn gates_have_the_gradients_of_their_halves() -> Result<()> {
    let random = Generator::new(5);
    for device in devices("gradients of gates") {
        for (dtype, within) in [(DType::F32, 1e-5), (DType::BF16, 2e-2), (DType::F16, 3e-3)] {
            for shape in [&[3, 10][..], &[2, 5, 256], &[7, 1400], &[0, 8], &[2, 0]] {
                let x = random.randn(shape, Device::Cpu)?.to_dtype(dtype)?.to_device(device)?;
                let width = shape[shape.len() - 1] / 2;
                for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
                    let of = |f: &dyn Fn(&Tensor) -> genesis::Result<Tensor>| -> Result<Vec<f64>> {
                        let x = x.copy()?.requires_grad_(true)?;
                        let y = f(&x)?;
                        y.mul(&y.detach())?.sum()?.backward()?;
                        Ok(x.grad().context("it depends on x")?.to_f64_vec()?)
                    };
                    let ours = of(&|x| x.gated(gate))?;
                    let wanted =
                        of(&|x| x.narrow(-1, 0, width)?.gate(&x.narrow(-1, width, width)?, gate))?;
                    for (a, b) in ours.iter().zip(&wanted) {
                        let off = (a - b).abs() / b.abs().max(1.0);
                        ensure!(off < within, "{device} {dtype} {shape:?} {gate:?}: {a} {b}");
                    }
                }
            }
        }
    }
    Ok(())
}
