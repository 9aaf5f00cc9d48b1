//! Layers, optimizers, clipping, state.

use genesis::io::{load_safetensors, save_safetensors};
use genesis::nn::{Dropout, Gelu, LayerNorm, Linear, Module, Relu, Sequential};
use genesis::optim::{
    Adam, AdamOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm, clip_grad_value,
};
use genesis::{DType, Device, Result, Tensor, manual_seed};

const CPU: Device = Device::Cpu;

fn leaf(values: &[f64]) -> Result<Tensor> {
    Tensor::from_f64(values, &[values.len()], (DType::F64, CPU))?.requires_grad_(true)
}

fn net() -> Result<Sequential> {
    Ok(Sequential::new()
        .with(Linear::new(4, 8, CPU)?)
        .with(Relu)
        .with(LayerNorm::new(8, CPU)?)
        .with(Gelu)
        .with(Dropout::new(0.5))
        .with(Linear::new(8, 2, CPU)?))
}

#[test]
fn names_follow_from_the_structure() -> Result<()> {
    let names: Vec<String> = net()?.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias", "5.weight", "5.bias"]);
    assert_eq!(net()?.num_parameters(), 4 * 8 + 8 + 16 + 16 + 2);
    Ok(())
}

#[test]
fn dropout_is_off_in_eval() -> Result<()> {
    let model = net()?;
    let x = Tensor::randn(&[16, 4], CPU)?;
    model.eval();
    let first = model.forward(&x)?.to_vec::<f32>()?;
    assert_eq!(first, model.forward(&x)?.to_vec::<f32>()?);
    model.train(true);
    assert_ne!(first, model.forward(&x)?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn a_module_survives_a_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    manual_seed(1);
    let (first, second) = (net()?, net()?);
    save_safetensors(&path, &first.state_dict())?;
    second.load_state_dict(&load_safetensors(&path, CPU)?)?;
    first.eval();
    second.eval();
    let x = Tensor::randn(&[3, 4], CPU)?;
    assert_eq!(first.forward(&x)?.to_vec::<f32>()?, second.forward(&x)?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn loading_names_everything_that_does_not_fit() -> Result<()> {
    let model = net()?;
    let mut state = model.state_dict();
    state.remove("0.bias");
    state.insert("extra".to_owned(), Tensor::zeros(&[1], CPU)?);
    state.insert("5.bias".to_owned(), Tensor::zeros(&[3], CPU)?);
    let error = model.load_state_dict(&state).expect_err("three things are wrong");
    assert_eq!(
        error.to_string(),
        "load_state_dict: missing 0.bias; 5.bias has shape [3], the module needs [2]; unknown extra"
    );
    Ok(())
}

/// Steps of an optimizer on `sum(w^2)` beside the same arithmetic in plain f64.
fn against_reference(
    mut optimizer: impl Optimizer,
    w: &Tensor,
    mut reference: impl FnMut(f64, usize) -> f64,
) -> Result<()> {
    let mut want = w.to_f64_vec()?;
    for step in 1..=5 {
        optimizer.zero_grad();
        w.mul(w)?.sum()?.backward()?;
        optimizer.step()?;
        want = want.iter().map(|&v| reference(v, step)).collect();
        for (got, want) in w.to_f64_vec()?.iter().zip(&want) {
            assert!((got - want).abs() < 1e-12, "step {step}: {got} is not {want}");
        }
    }
    Ok(())
}

#[test]
fn sgd_with_momentum() -> Result<()> {
    let w = leaf(&[1.5])?;
    let options = SgdOptions { lr: 0.1, momentum: 0.9, weight_decay: 0.01, ..Default::default() };
    let mut m = 0.0;
    against_reference(Sgd::new(vec![w.clone()], options), &w, |v, step| {
        let g = 2.0 * v + 0.01 * v;
        m = if step == 1 { g } else { 0.9 * m + g };
        v - 0.1 * m
    })
}

#[test]
fn adam_and_adamw() -> Result<()> {
    for decoupled in [false, true] {
        let w = leaf(&[1.5])?;
        let options = AdamOptions { lr: 0.1, weight_decay: 0.1, ..Default::default() };
        let adam = if decoupled { Adam::adamw } else { Adam::new };
        let (mut m, mut s) = (0.0, 0.0);
        against_reference(adam(vec![w.clone()], options), &w, |v, step| {
            let g = 2.0 * v + if decoupled { 0.0 } else { 0.1 * v };
            let v = if decoupled { v - v * (0.1 * 0.1) } else { v };
            m = 0.9 * m + 0.1 * g;
            s = 0.999 * s + 0.001 * g * g;
            let denominator = (s / (1.0 - 0.999f64.powi(step as i32))).sqrt() + 1e-8;
            v - 0.1 / (1.0 - 0.9f64.powi(step as i32)) * m / denominator
        })?;
    }
    Ok(())
}

#[test]
fn clipping_scales_all_gradients_together() -> Result<()> {
    let (a, b) = (leaf(&[3.0])?, leaf(&[4.0])?);
    a.add(&b)?.sum()?.backward()?;
    a.set_grad(Some(Tensor::from_f64(&[3.0], &[1], (DType::F64, CPU))?));
    b.set_grad(Some(Tensor::from_f64(&[4.0], &[1], (DType::F64, CPU))?));
    let norm = clip_grad_norm(&[a.clone(), b.clone()], 1.0)?;
    assert_eq!(norm.item()?, 5.0);
    let (ga, gb) = (a.grad().expect("set").item()?, b.grad().expect("set").item()?);
    assert!((ga - 0.6).abs() < 1e-6 && (gb - 0.8).abs() < 1e-6, "{ga} {gb}");
    clip_grad_value(std::slice::from_ref(&a), 0.25)?;
    assert_eq!(a.grad().expect("set").item()?, 0.25);
    Ok(())
}
