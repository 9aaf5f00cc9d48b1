//! Ops of the user.

use genesis::autograd::{
    Context, Function, GradCheck, GradOptions, grad, gradcheck, gradgradcheck,
};
use genesis::{DType, Device, Result, Tensor};

use super::{leaf, slope};

/// Quotient and remainder-like pair with a count: two results with gradients and one without.
struct Split;

impl Function for Split {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let (x, y) = (inputs[0], inputs[1]);
        let product = x.mul(y)?;
        let whole = x.floor()?;
        ctx.save_for_backward(&[x, y]);
        ctx.mark_non_differentiable(&[&whole]);
        Ok(vec![product, x.exp()?, whole, x.to_dtype(DType::I64)?])
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let [x, y] = ctx.saved_tensors() else { unreachable!("two were saved") };
        assert_eq!(grads.len(), 4);
        let dx = (grads[0].mul(y)? + grads[1].mul(&x.exp()?)?)?;
        let needed = ctx.needs_input_grad()[1];
        Ok(vec![Some(dx), needed.then(|| grads[0].mul(x)).transpose()?])
    }
}

#[test]
fn several_results_some_without_gradients() -> Result<()> {
    let (x, y) = (leaf(&[1.5]), leaf(&[4.0]));
    let results = Split.apply_many(&[&x, &y])?;
    assert!(results[0].requires_grad() && results[1].requires_grad());
    assert!(!results[2].requires_grad() && !results[3].requires_grad());
    // Only the second is used: the first comes as zeros.
    results[1].sum()?.backward()?;
    assert_eq!((slope(&x), slope(&y)), (vec![1.5f64.exp()], vec![0.0]));
    let plain = Split.apply_many(&[&x.detach(), &y.detach()])?;
    assert!(plain.iter().all(|result| !result.requires_grad()));
    Ok(())
}

#[test]
fn gradients_of_both_orders_agree_with_differences() -> Result<()> {
    let (x, y) = (leaf(&[0.3, 1.2]), leaf(&[0.7, -0.4]));
    let f =
        |x: &[Tensor]| Split.apply_many(&[&x[0], &x[1]]).map(|mut all| all.drain(..2).collect());
    gradcheck(f, &[&x, &y], GradCheck::default())?;
    gradgradcheck(f, &[&x, &y], GradCheck::default())
}

struct Once;

impl Function for Once {
    const ONCE_DIFFERENTIABLE: bool = true;

    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let y = inputs[0].exp()?;
        ctx.save_for_backward(&[&y]);
        Ok(vec![y])
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grads[0].mul(&ctx.saved_tensors()[0])?)])
    }
}

#[test]
fn a_gradient_that_has_none_says_so() -> Result<()> {
    let x = leaf(&[1.0]);
    let create = GradOptions { create_graph: true, ..GradOptions::default() };
    let first = grad(&[&Once.apply(&[&x])?], &[&x], create)?.remove(0).expect("it has a slope");
    assert!((first.item()? - 1f64.exp()).abs() < 1e-12);
    let error = grad(&[&first], &[&x], GradOptions::default()).expect_err("once is enough");
    let want = "Once: its gradient can't be differentiated: it is once differentiable";
    assert_eq!(error.to_string(), want);
    Ok(())
}

/// A function with a mistake in its backward.
struct Wrong(fn(&Tensor) -> Result<Vec<Option<Tensor>>>);

impl Function for Wrong {
    fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].exp()?])
    }

    fn backward(&self, _: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        (self.0)(&grads[0])
    }
}

#[test]
fn mistakes_in_a_backward_are_errors() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let run = |back| Wrong(back).apply(&[&x])?.sum()?.backward();
    let error = run(|_| Ok(vec![])).expect_err("a gradient is missing");
    assert_eq!(error.to_string(), "Wrong: gave 0 gradients for 1 inputs");
    let error = run(|dy| Ok(vec![Some(dy.sum()?)])).expect_err("the shape is wrong");
    assert_eq!(error.to_string(), "Wrong: the gradient of input 0 has shape [], the input [2]");
    let error = Split.apply(&[&x, &x]).expect_err("it has four results");
    assert_eq!(error.to_string(), "Split: gave 4 results, `apply` is for one");
    Ok(())
}

/// Gives its input back, and keeps its result.
struct Same;

impl Function for Same {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[inputs[0]]);
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grads[0].mul_scalar(3.0)?)])
    }
}

#[test]
fn an_input_that_is_given_back_is_another_tensor() -> Result<()> {
    let x = leaf(&[1.0]);
    let y = Same.apply(&[&x])?;
    assert!(x.is_leaf() && !y.is_leaf());
    y.sum()?.backward()?;
    assert_eq!(slope(&x), [3.0]);
    // It lies in the memory of x, which a write would have to record.
    assert!(Same.apply(&[&x])?.fill_(0.0).is_err());
    let zeros = Tensor::zeros(&[1], (DType::F64, Device::Cpu))?;
    assert!(!Same.apply(&[&zeros])?.requires_grad());
    Ok(())
}
