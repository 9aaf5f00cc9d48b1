//! Gradients by the tape: order, freeing, in-place misuse.

use genesis::autograd::{BackwardOptions, grad};
use genesis::{DType, Device, Result, Tensor, no_grad};

fn leaf(values: &[f64]) -> Tensor {
    let x = Tensor::from_f64(values, &[values.len()], (DType::F64, Device::Cpu));
    x.and_then(|x| x.requires_grad_(true)).expect("a float tensor can require gradients")
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_f64_vec().expect("a CPU tensor can be read")
}

#[test]
fn a_tensor_used_twice_gets_the_sum() -> Result<()> {
    let x = leaf(&[3.0]);
    let y = (&x + &x * &x)?;
    y.sum()?.backward()?;
    assert_eq!(values(&x.grad().expect("x has one")), [7.0]);
    Ok(())
}

#[test]
fn gradients_accumulate_until_they_are_zeroed() -> Result<()> {
    let x = leaf(&[2.0]);
    (&x * 3.0)?.sum()?.backward()?;
    (&x * 4.0)?.sum()?.backward()?;
    assert_eq!(values(&x.grad().expect("x has one")), [7.0]);
    x.zero_grad();
    assert!(x.grad().is_none());
    Ok(())
}

#[test]
fn no_grad_records_nothing() -> Result<()> {
    let x = leaf(&[2.0]);
    let y = no_grad(|| &x * &x)?;
    assert!(!y.requires_grad());
    let error = y.sum()?.backward().expect_err("nothing was recorded");
    assert_eq!(error.to_string(), "backward: the tensor requires no gradient: no input of it does");
    Ok(())
}

#[test]
fn a_second_backward_needs_retain_graph() -> Result<()> {
    let x = leaf(&[2.0]);
    let y = (&x * &x)?.sum()?;
    y.backward_with(None, BackwardOptions { retain_graph: true, ..Default::default() })?;
    y.backward()?;
    assert_eq!(values(&x.grad().expect("x has one")), [8.0]);
    let error = y.backward().expect_err("the second freed it");
    assert!(error.to_string().contains("retain_graph"), "{error}");
    Ok(())
}

#[test]
fn second_derivatives() -> Result<()> {
    let x = leaf(&[0.7]);
    let y = x.tanh()?.sum()?;
    let create = BackwardOptions { create_graph: true, ..Default::default() };
    let first = grad(&[&y], &[&x], create)?.remove(0).expect("y depends on x");
    let second = grad(&[&first.sum()?], &[&x], BackwardOptions::default())?;
    let t = 0.7f64.tanh();
    let want = -2.0 * t * (1.0 - t * t);
    let got = values(second[0].as_ref().expect("the gradient depends on x"))[0];
    assert!((got - want).abs() < 1e-12, "{got} is not {want}");
    assert!(x.grad().is_none(), "grad leaves .grad() alone");
    Ok(())
}

#[test]
fn a_change_of_a_saved_tensor_is_caught() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let h = (&x * 2.0)?;
    let y = (&h * &h)?;
    no_grad(|| h.add_(&leaf(&[1.0])))?;
    let error = y.sum()?.backward().expect_err("h was changed");
    assert!(error.to_string().starts_with("mul: backward needs an input of shape [2]"), "{error}");
    Ok(())
}

#[test]
fn a_change_through_a_view_is_caught() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let h = (&x * 2.0)?;
    let y = h.exp()?;
    no_grad(|| y.narrow(0, 0, 1)?.fill_(0.0))?;
    let error = y.sum()?.backward().expect_err("y was changed through a view");
    assert!(error.to_string().starts_with("exp: backward needs the result"), "{error}");
    Ok(())
}

#[test]
fn an_in_place_write_that_would_cut_the_graph_is_refused() {
    let x = leaf(&[1.0]);
    let error = x.fill_(0.0).expect_err("x requires a gradient");
    assert!(error.to_string().starts_with("fill_: this tensor requires a gradient"), "{error}");
}

#[test]
fn a_graph_of_100_000_ops_needs_no_deep_stack() -> Result<()> {
    let x = leaf(&[1.0]);
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.neg()?;
    }
    y.sum()?.backward()?;
    assert_eq!(values(&x.grad().expect("x has one")), [1.0]);
    let mut dropped = x.clone();
    for _ in 0..100_000 {
        dropped = dropped.neg()?;
    }
    drop(dropped);
    Ok(())
}

#[test]
fn backward_of_a_vector_needs_dy() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let error = (&x * 2.0)?.backward().expect_err("the result is no scalar");
    assert_eq!(
        error.to_string(),
        "backward: needs dy for a tensor that is not a scalar, shape [2]"
    );
    Ok(())
}
