//! Anomaly mode: which op, where in the result, where in the program.

use genesis::autograd::{Anomaly, detect_anomaly};
use genesis::nn::{self, Linear, Relu, Sequential};
use genesis::{DType, Device, Result, Tensor};

use super::{leaf, slope};

#[test]
fn the_op_that_makes_the_first_nan_is_named_with_its_place() -> Result<()> {
    let x = leaf(&[1.0, -4.0, 9.0, -1.0]).detach().reshape(&[2, 2])?;
    let line = line!() + 2;
    let error = detect_anomaly(|| {
        let y = x.sqrt()?;
        y.exp()
    });
    let text = error.expect_err("a root of -4").to_string();
    let want = "sqrt: made NaN at [0, 1], the first of 2, of its result of shape [2, 2] from finite inputs, at ";
    assert!(text.starts_with(want), "{text}");
    assert!(text.contains(&format!("autograd/anomaly.rs:{line}:")), "{text}");
    Ok(())
}

#[test]
fn the_backward_that_makes_nan_names_the_place_of_its_forward() -> Result<()> {
    let x = leaf(&[4.0, 0.0]);
    let line = line!() + 2;
    let error = detect_anomaly(|| {
        let y = x.sqrt()?;
        y.mul_scalar(2.0)?.sum()?.backward()
    });
    let text = error.expect_err("the slope of a root at 0").to_string();
    assert!(
        text.starts_with("sqrt: its backward made inf at [1] of the gradient of input 0"),
        "{text}"
    );
    assert!(text.contains(&format!("autograd/anomaly.rs:{line}:")), "{text}");
    Ok(())
}

#[test]
fn the_module_is_named() -> Result<()> {
    let at = (DType::F32, Device::Cpu);
    let (first, last) = (Linear::new(2, 3, at)?, Linear::new(3, 2, at)?);
    let names = [("first", &first), ("layers.1.last", &last)]
        .map(|(name, layer)| (format!("{name}.weight"), layer.weight.tensor().clone()))
        .to_vec();
    genesis::no_grad(|| {
        first.weight.fill_(10.0)?;
        last.weight.fill_(f64::from(f32::MAX))
    })?;
    let x = Tensor::ones(&[1, 2], at)?;
    let line = line!() + 3;
    let error = Anomaly { names, ..Anomaly::default() }.detect(|| {
        let h = first.forward(&x)?.relu()?;
        last.forward(&h)
    });
    let text = error.expect_err("the sum is over the largest f32").to_string();
    assert!(text.contains("module `layers.1.last`"), "{text}");
    // Lines of calls inside the library come from its line tables, which a release build lacks.
    let has_line = text.contains("anomaly.rs") && text.contains(&format!(":{line}:"));
    assert!(has_line || !cfg!(debug_assertions), "{text}");
    Ok(())
}

/// Without names: the layers at work, or their path where the model is observed.
#[test]
fn the_layer_at_work_is_named() -> Result<()> {
    let at = (DType::F32, Device::Cpu);
    let layer = Linear::new(2, 3, at)?;
    genesis::no_grad(|| layer.weight.fill_(f64::from(f32::MAX)))?;
    let net = Sequential::new().with(Relu).with(layer);
    let x = Tensor::ones(&[1, 2], at)?;
    let text = detect_anomaly(|| net.forward(&x)).expect_err("the sum is too large").to_string();
    assert!(text.ends_with("in module `Sequential > Linear`"), "{text}");
    let observed = || nn::observe(&net, |_| Ok(()), || net.forward(&x));
    let text = detect_anomaly(observed).expect_err("the sum is too large").to_string();
    assert!(text.ends_with("in module `1`"), "{text}");
    Ok(())
}

#[test]
fn what_was_there_before_is_not_blamed() -> Result<()> {
    let x = leaf(&[f64::NEG_INFINITY, 1.0]);
    // A mask of minus infinity is made by nobody: softmax takes it.
    let y = detect_anomaly(|| x.softmax(-1)?.sum())?;
    assert_eq!(y.item()?, 1.0);
    let passes = Anomaly { nan_only: true, ..Anomaly::default() };
    assert_eq!(passes.detect(|| leaf(&[0.0]).log())?.item()?, f64::NEG_INFINITY);
    // Off again.
    assert!(leaf(&[-1.0]).sqrt()?.item()?.is_nan());
    detect_anomaly(|| (&x * 2.0)?.sum()?.backward())?;
    assert_eq!(slope(&x), [2.0, 2.0]);
    Ok(())
}
