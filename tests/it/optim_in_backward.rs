//! Steps in the backward.

use genesis::nn::{Linear, Module, Relu, Sequential};
use genesis::optim::{AdamW, AdamWOptions, Optimizer, StepInBackward};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, Tensor};

fn net() -> Result<Sequential> {
    let _own = thread_rng(1);
    let layer = |[inputs, outputs]: [usize; 2]| Linear::new(inputs, outputs, Device::Cpu);
    Ok(Sequential::new().with(layer([8, 16])?).with(Relu).with(layer([16, 8])?))
}

fn backward(net: &Sequential, step: u64) -> Result<()> {
    let _own = thread_rng(10 + step);
    let x = Tensor::randn(&[4, 8], (DType::F32, Device::Cpu))?;
    net.forward(&x)?.sub(&x)?.square()?.mean()?.backward()
}

#[test]
fn steps_are_those_of_the_optimizer_and_gradients_are_freed() -> Result<()> {
    let (usual, own) = (net()?, net()?);
    let mut optimizer = AdamW::new(usual.named_parameters(), AdamWOptions::default());
    let inner = AdamW::new(own.named_parameters(), AdamWOptions::default());
    let mut in_backward = StepInBackward::new(inner)?;
    // When the gradient of the first layer comes, those behind it are freed.
    let (first, others) = (own.parameters()[0].clone(), own.parameters()[2..].to_vec());
    let _hook = first.register_post_accumulate_grad_hook(move |_| {
        assert!(others.iter().all(|other| other.grad().is_none()));
        Ok(())
    })?;
    for step in 0..4 {
        let lr = 1e-2 / (step + 1) as f64;
        optimizer.set_lr(lr);
        in_backward.set_lr(lr);
        optimizer.zero_grad();
        backward(&usual, step)?;
        optimizer.step()?;
        backward(&own, step)?;
        for (usual, own) in usual.parameters().iter().zip(own.parameters()) {
            assert!(own.grad().is_none());
            assert_eq!(own.to_vec::<f32>()?, usual.to_vec::<f32>()?, "after step {step}");
        }
    }
    let (usual, own) = (optimizer.state_dict()?, in_backward.state_dict()?);
    assert_eq!(usual.numbers, own.numbers);
    for (name, tensor) in &usual.tensors {
        assert_eq!(tensor.to_vec::<f32>()?, own.tensors[name].to_vec::<f32>()?, "{name}");
    }
    Ok(())
}

#[test]
fn dropped_it_leaves_gradients_alone() -> Result<()> {
    let net = net()?;
    drop(StepInBackward::new(AdamW::new(net.parameters(), AdamWOptions::default()))?);
    backward(&net, 0)?;
    assert!(net.parameters().iter().all(|parameter| parameter.grad().is_some()));
    let frozen = Tensor::ones(&[2], Device::Cpu)?;
    let refused = StepInBackward::new(AdamW::new(vec![frozen], AdamWOptions::default()));
    assert!(refused.is_err(), "a parameter without gradients has no backward to step in");
    Ok(())
}
