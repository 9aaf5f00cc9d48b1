//! Gradients by the tape: order, freeing, in-place misuse.

mod anomaly;
mod checkpoint;
mod function;
mod hooks;
mod inplace;
mod long;
mod threads;
mod walk;

use genesis::autograd::{
    BackwardOptions, GradOptions, ModeGuard, grad, is_grad_enabled, set_grad_enabled,
};
use genesis::{DType, Device, Result, Tensor, no_grad};

pub(super) fn leaf(values: &[f64]) -> Tensor {
    let x = Tensor::from_f64(values, &[values.len()], (DType::F64, Device::Cpu));
    x.and_then(|x| x.requires_grad_(true)).expect("a float tensor can require gradients")
}

pub(super) fn values(x: &Tensor) -> Vec<f64> {
    x.to_f64_vec().expect("a CPU tensor can be read")
}

/// The gradient of a tensor that has one.
pub(super) fn slope(x: &Tensor) -> Vec<f64> {
    values(&x.grad().expect("a backward ended here"))
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
fn backward_of_a_vector_needs_dy() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let error = (&x * 2.0)?.backward().expect_err("the result is no scalar");
    assert_eq!(
        error.to_string(),
        "backward: needs dy for a tensor that is not a scalar, shape [2]"
    );
    Ok(())
}

#[test]
fn grad_takes_seeds_and_says_what_is_unused() -> Result<()> {
    let (x, y) = (leaf(&[1.0, 2.0]), leaf(&[3.0]));
    let outputs = [(&x * &x)?, (&x * 5.0)?];
    let [a, b] = &outputs;
    let seed = leaf(&[10.0, 100.0]).detach();
    let options = GradOptions { grad_outputs: &[Some(&seed), Some(&seed)], ..Default::default() };
    let got = grad(&[a, b], &[&x], GradOptions { retain_graph: true, ..options })?;
    assert_eq!(values(got[0].as_ref().expect("both depend on x")), [70.0, 900.0]);
    let unused = grad(&[a, b], &[&x, &y], GradOptions { retain_graph: true, ..options });
    let message =
        "grad: no output depends on input 1 of shape [1]; set allow_unused if that may be";
    assert_eq!(unused.expect_err("nothing depends on y").to_string(), message);
    let allowed = GradOptions { retain_graph: true, allow_unused: true, ..options };
    assert!(grad(&[a, b], &[&x, &y], allowed)?[1].is_none());
    let zeros = GradOptions { materialize_grads: true, ..options };
    let zeros = grad(&[a, b], &[&x, &y], zeros)?;
    assert_eq!(values(zeros[1].as_ref().expect("zeros instead")), [0.0]);
    let none = grad(&[a], &[&x.detach()], options).expect_err("it requires none");
    assert_eq!(none.to_string(), "grad: 2 grad_outputs for 1 outputs");
    let none = grad(&[a], &[&x.detach()], GradOptions::default()).expect_err("it requires none");
    assert_eq!(none.to_string(), "grad: input 0 requires no gradient");
    Ok(())
}

/// What lies beyond the inputs is neither computed nor freed.
#[test]
fn grad_by_something_between_stops_there() -> Result<()> {
    let x = leaf(&[2.0]);
    let h = (&x * &x)?;
    let y = (&h * &h)?;
    let dh = grad(&[&y], &[&h], GradOptions::default())?.remove(0).expect("y depends on h");
    assert_eq!(values(&dh), [8.0]);
    h.backward()?;
    assert_eq!(slope(&x), [4.0]);
    Ok(())
}

#[test]
fn views_expansions_and_repeated_uses_add_up() -> Result<()> {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0]);
    let square = x.reshape(&[2, 2])?;
    let spread = square.unsqueeze(0)?.broadcast_to(&[3, 2, 2])?; // 3 times each
    let turned = square.t()?.narrow(0, 0, 1)?; // elements 0 and 2
    let every = x.step(0, 3)?; // elements 0 and 3
    let sum = (spread.sum()? + turned.sum()?)?;
    (sum + every.sum()?)?.backward()?;
    assert_eq!(slope(&x), [5.0, 3.0, 4.0, 4.0]);
    Ok(())
}

#[test]
fn modes_nest_and_end_with_their_guards() {
    assert!(is_grad_enabled());
    {
        let _off = ModeGuard::no_grad();
        assert!(!is_grad_enabled());
        {
            let _on = ModeGuard::enable_grad();
            assert!(is_grad_enabled());
            let _inference = ModeGuard::inference();
            assert!(!genesis::enable_grad(is_grad_enabled));
        }
        assert!(!is_grad_enabled());
    }
    assert!(is_grad_enabled());
    no_grad(|| set_grad_enabled(true));
    set_grad_enabled(false);
    assert!(!is_grad_enabled() && std::thread::spawn(is_grad_enabled).join().expect("it ends"));
    set_grad_enabled(true);
}

/// A slice of nothing begins where another slice does, whichever comes first.
#[test]
fn slices_of_nothing_leave_the_gradients_of_others() -> Result<()> {
    let x = Tensor::ones(&[4, 3], Device::Cpu)?.requires_grad_(true)?;
    let scaled = x.mul_scalar(1.0)?;
    for start in [0, 1] {
        let parts =
            [scaled.narrow(0, start, 0)?, scaled.narrow(0, start, 2)?, scaled.narrow(0, start, 0)?];
        let sum = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?.sum()?;
        let options = GradOptions { retain_graph: true, ..GradOptions::default() };
        let grads = grad(&[&sum], &[&x], options)?;
        let wanted: Vec<f64> =
            (0..12).map(|i| f64::from(u8::from((start..start + 2).contains(&(i / 3))))).collect();
        let got = grads[0].as_ref().expect("the sum depends on x");
        assert_eq!(got.to_f64_vec()?, wanted, "from {start}");
    }
    let nothing = grad(&[&scaled.narrow(0, 1, 0)?.sum()?], &[&x], GradOptions::default())?;
    assert_eq!(nothing[0].as_ref().expect("the sum depends on x").to_f64_vec()?, [0.0; 12]);
    Ok(())
}
