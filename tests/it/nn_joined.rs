//! Linear layers and the activations after them: one kernel where that is right, and the same values.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use genesis::nn::{self, Activation, Gelu, Hooked, Linear, Relu, Sequential, Silu};
use genesis::profiler::{ProfilerOptions, profile};
use genesis::{DType, Device, Result, Tensor, no_grad};

use crate::gpu::gpu;

const ALL: [Activation; 4] =
    [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Silu];

/// `x`, weight and bias of a product that has results on both sides of 0.
fn operands(at: (DType, Device)) -> Result<[Tensor; 3]> {
    let tensor = |shape: &[usize], step: usize| {
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|i| (i * step % 23) as f64 / 11.0 - 1.0).collect();
        Tensor::from_f64(&values, shape, at)?.requires_grad_(true)
    };
    Ok([tensor(&[5, 8], 7)?, tensor(&[8, 6], 5)?, tensor(&[6], 3)?])
}

/// The result of `f` and the gradients of its operands for the sum of its square.
fn with_gradients(
    operands: &[Tensor; 3],
    f: impl Fn(&[Tensor; 3]) -> Result<Tensor>,
) -> Result<Vec<Vec<f64>>> {
    operands.iter().for_each(Tensor::zero_grad);
    let y = f(operands)?;
    y.square()?.sum()?.backward()?;
    let gradients = operands.iter().filter_map(Tensor::grad);
    [y.detach()].into_iter().chain(gradients).map(|t| t.to_f64_vec()).collect()
}

#[track_caller]
fn check_close(ours: &[Vec<f64>], theirs: &[Vec<f64>], tolerance: f64) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        let largest = theirs.iter().fold(1.0f64, |a, b| a.max(b.abs()));
        for (a, b) in ours.iter().zip(theirs) {
            assert!((a - b).abs() <= tolerance * largest, "{a} and {b}, of up to {largest}");
        }
    }
}

fn check_activations(device: Device) -> Result<()> {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::BF16, 2e-2)] {
        for activation in ALL {
            let operands = operands((dtype, device))?;
            let joined =
                with_gradients(&operands, |[x, w, b]| x.matmul_bias_activation(w, b, activation))?;
            let apart =
                with_gradients(&operands, |[x, w, b]| activation.apply(&x.matmul_bias(w, b)?))?;
            check_close(&joined, &apart, tolerance);
        }
    }
    Ok(())
}

#[test]
fn values_and_gradients_are_those_of_two_ops() -> Result<()> {
    check_activations(Device::Cpu)
}

#[test]
fn values_and_gradients_on_a_gpu_are_those_of_two_ops() -> Result<()> {
    gpu("products with activations").map_or(Ok(()), check_activations)
}

#[test]
fn any_function_may_follow_a_layer() -> Result<()> {
    let layer = Linear::new(4, 3, Device::Cpu)?;
    let x = Tensor::ones(&[2, 4], Device::Cpu)?;
    let ours = layer.forward_with(&x, Activation::Other(Tensor::tanh))?;
    assert_eq!(ours.to_f64_vec()?, layer.forward(&x)?.tanh()?.to_f64_vec()?);
    Ok(())
}

/// The kernels of a forward.
fn kernels(net: &Sequential, x: &Tensor) -> Result<Vec<&'static str>> {
    let (_, profile) = profile(ProfilerOptions::default(), |_| net.forward(x))?;
    Ok(profile.events().launches.iter().map(|launch| launch.kernel).collect())
}

fn row(activation: impl nn::Layer + 'static, device: Device) -> Result<Sequential> {
    Ok(Sequential::new().with(Linear::new(8, 6, device)?).with(activation))
}

#[test]
fn a_layer_and_its_activation_are_one_launch() -> Result<()> {
    let Some(device) = gpu("layers with activations") else { return Ok(()) };
    let x = Tensor::ones(&[5, 8], device)?;
    // As many rows as columns or fewer: the bias lies along the rows of the swapped product.
    let relu = row(Relu, device)?;
    assert_eq!(
        kernels(&relu, &x)?,
        ["matmul_bias_relu_down"],
        "its gradient follows from its result"
    );
    let [gelu, silu] = [row(Gelu, device)?, row(Silu, device)?];
    for (net, name) in [(&gelu, "matmul_bias_gelu_down"), (&silu, "matmul_bias_silu_down")] {
        assert_eq!(no_grad(|| kernels(net, &x))?, [name]);
        assert_eq!(kernels(net, &x)?.len(), 2, "the gradient needs what the function was given");
    }
    Ok(())
}

#[test]
fn hooks_hear_each_layer() -> Result<()> {
    let device = gpu("hooks of joined layers").unwrap_or(Device::Cpu);
    let x = Tensor::ones(&[5, 8], device)?;
    let net = row(Relu, device)?;
    let heard = Rc::new(Cell::new(0));
    let counter = heard.clone();
    let hook = move |_: &nn::Call<'_>| {
        counter.set(counter.get() + 1);
        Ok(())
    };
    let observed = nn::observe(&net, hook, || net.forward(&x))?;
    assert_eq!(heard.get(), 3, "the linear layer, the activation and the row");
    check_close(&[observed.to_f64_vec()?], &[net.forward(&x)?.to_f64_vec()?], 1e-6);

    let layer = Hooked::new(Linear::new(8, 6, device)?);
    let calls = Arc::new(AtomicU32::new(0));
    let counter = calls.clone();
    layer.register_forward_hook(move |_, _, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    });
    let net = Sequential::new().with(layer).with(Relu);
    net.forward(&x)?;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    Ok(())
}
