//! Layers and their state.

use genesis::io::{load_safetensors, save_safetensors};
use genesis::nn::{Dropout, Gelu, LayerNorm, Linear, Module, Relu, Sequential};
use genesis::random::thread_rng;
use genesis::{Device, Result, Tensor};

const CPU: Device = Device::Cpu;

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
    let _own = thread_rng(1);
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
        "load_state_dict: missing `0.bias`; `5.bias` has shape [3], the module needs [2]; \
         unexpected `extra`"
    );
    Ok(())
}
