//! Writes in place: recorded as PyTorch does, or refused.

use genesis::autograd::{BackwardOptions, inference_mode};
use genesis::{DType, Device, Result, Tensor, no_grad};

use super::{leaf, slope, values};

type Write = fn(&Tensor) -> Result<()>;

#[test]
fn a_result_that_is_scaled_in_place_has_the_gradient_of_both() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let y = (&w * 2.0)?;
    y.mul_(&leaf(&[3.0]).detach())?;
    assert!(!y.is_leaf());
    y.sum()?.backward()?;
    assert_eq!(slope(&w), [6.0, 6.0]);
    Ok(())
}

#[test]
fn an_operand_of_a_write_gets_its_gradient() -> Result<()> {
    let (w, u) = (leaf(&[2.0, 3.0]), leaf(&[5.0, 7.0]));
    let y = (&w * 1.0)?;
    y.mul_(&u)?;
    y.add_(&u)?;
    y.div_(&w)?;
    assert_eq!(values(&y), [7.5, 28.0 / 3.0]);
    y.sum()?.backward()?;
    // y = (w u + u) / w = u + u / w
    assert_eq!(slope(&u), [1.5, 1.0 + 1.0 / 3.0]);
    let want = [-5.0 / 4.0, -7.0 / 9.0];
    assert!(slope(&w).iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{:?}", slope(&w));
    Ok(())
}

#[test]
fn a_plain_tensor_that_is_written_to_joins_the_graph() -> Result<()> {
    let w = leaf(&[2.0]);
    let y = Tensor::zeros(&[3], (DType::F64, Device::Cpu))?;
    y.copy_(&w)?;
    assert!(y.requires_grad() && !y.is_leaf());
    y.sum()?.backward()?;
    assert_eq!(slope(&w), [3.0]);
    Ok(())
}

#[test]
fn a_tensor_filled_by_parts_gives_each_its_gradient() -> Result<()> {
    let (a, b) = (leaf(&[1.0, 2.0]), leaf(&[3.0]));
    let whole = Tensor::zeros(&[3], (DType::F64, Device::Cpu))?;
    whole.narrow(0, 0, 2)?.copy_(&a)?;
    whole.narrow(0, 2, 1)?.copy_(&b)?;
    whole.mul(&whole)?.sum()?.backward()?;
    assert_eq!((slope(&a), slope(&b)), (vec![2.0, 4.0], vec![6.0]));
    Ok(())
}

#[test]
fn a_write_to_a_view_changes_the_gradient_of_its_base_and_of_other_views() -> Result<()> {
    let w = leaf(&[1.0, 2.0, 3.0, 4.0]);
    let y = (&w * 1.0)?;
    let head = y.narrow(0, 0, 2)?;
    let (square, turned) = (y.reshape(&[2, 2])?, y.reshape(&[2, 2])?.t()?);
    head.mul_(&leaf(&[10.0]).detach())?;
    assert_eq!(values(&y), [10.0, 20.0, 3.0, 4.0]);
    // All of them see one tensor: the weights tell the places apart.
    let row = Tensor::from_f64(&[1.0, 2.0, 3.0, 4.0], &[2, 2], (DType::F64, Device::Cpu))?;
    let sum = (square.mul(&row)? + turned.mul(&row)?)?.sum()?;
    (sum + head.sum()?)?.backward()?;
    assert_eq!(slope(&w), [10.0 * 3.0, 10.0 * (2.0 + 3.0 + 1.0), 5.0, 8.0]);
    Ok(())
}

#[test]
fn a_write_to_a_transposed_view_of_a_transposed_result() -> Result<()> {
    let w = leaf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let y = (w.reshape(&[2, 3])? * 1.0)?;
    y.t()?.select(0, 1)?.zero_()?;
    assert_eq!(values(&y), [1.0, 0.0, 3.0, 4.0, 0.0, 6.0]);
    y.sum()?.backward()?;
    assert_eq!(slope(&w), [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]);
    Ok(())
}

#[test]
fn a_result_that_is_filled_passes_zeros_on() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let y = (&w * 2.0)?;
    y.fill_(5.0)?;
    assert!(y.requires_grad());
    y.sum()?.backward()?;
    assert_eq!(slope(&w), [0.0, 0.0]);
    Ok(())
}

#[test]
fn what_was_copied_keeps_a_gradient_of_its_own() -> Result<()> {
    let w = leaf(&[1.0]);
    let y = (&w * 2.0)?;
    let x = Tensor::zeros(&[1], (DType::F64, Device::Cpu))?;
    x.copy_(&y)?;
    x.retain_grad()?;
    (x.sum()? + (&y * 3.0)?.sum()?)?.backward()?;
    assert_eq!((slope(&x), slope(&w)), (vec![1.0], vec![8.0]));
    Ok(())
}

#[test]
fn second_derivatives_go_through_writes() -> Result<()> {
    let w = leaf(&[2.0]);
    let y = (&w * 1.0)?;
    y.mul_(&w)?;
    y.mul_(&w)?;
    let create = BackwardOptions { create_graph: true, ..Default::default() };
    let first = genesis::autograd::grad(&[&y], &[&w], create)?.remove(0).expect("y is w cubed");
    let second = genesis::autograd::grad(&[&first], &[&w], BackwardOptions::default())?;
    assert_eq!(values(&first), [12.0]);
    assert_eq!(values(second[0].as_ref().expect("3 w squared has a slope")), [12.0]);
    Ok(())
}

fn refusal(result: Result<()>) -> String {
    result.expect_err("the write is refused").to_string()
}

#[test]
fn writes_that_would_lose_a_gradient_are_refused() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let text = "requires a gradient, so an in-place write would lose it; write inside no_grad, or use \
                the form that returns a new tensor";
    assert_eq!(refusal(w.add_(&w)), format!("add_: this tensor {text}"));
    assert_eq!(
        refusal(w.narrow(0, 0, 1)?.zero_()),
        format!("fill_: the leaf that this is a view of {text}")
    );
    no_grad(|| w.narrow(0, 0, 1)?.zero_())?;
    assert_eq!(values(&w), [0.0, 2.0]);

    let y = (&w * 2.0)?;
    let hidden = no_grad(|| y.narrow(0, 0, 1))?;
    let error = refusal(hidden.copy_(&leaf(&[1.0])));
    assert!(error.starts_with("copy_: this view was made where nothing is recorded"), "{error}");
    let spread = y.sum()?.broadcast_to(&[3])?;
    let error = refusal(spread.fill_(1.0));
    assert!(error.starts_with("fill_: several elements share one place"), "{error}");
    let windows = (&leaf(&[1.0, 2.0, 3.0]) * 1.0)?.as_strided(&[2, 2], &[1, 1], 0)?;
    let error = refusal(windows.mul_(&leaf(&[1.0])));
    assert!(error.starts_with("mul_: elements of this view share places in memory"), "{error}");
    let counts = Tensor::zeros(&[2], (DType::I64, Device::Cpu))?;
    let error = refusal(counts.copy_(&w));
    assert_eq!(error, "copy_: a tensor of i64 has no gradient to record");
    Ok(())
}

#[test]
fn a_saved_tensor_that_is_written_to_is_noticed_in_every_way() -> Result<()> {
    let cases: [(&str, Write); 4] = [
        ("itself", |h| h.add_(&leaf(&[1.0]).detach())),
        ("a view of it", |h| h.narrow(0, 1, 1)?.fill_(0.0)),
        ("without history", |h| h.detach().zero_()),
        ("inside no_grad", |h| no_grad(|| h.mul_(&h.detach()))),
    ];
    for (what, write) in cases {
        let w = leaf(&[1.0, 2.0]);
        let h = (&w * 2.0)?;
        let y = (&h * &h)?.sum()?;
        write(&h)?;
        let error = y.backward().expect_err(what).to_string();
        assert!(error.starts_with("mul: backward needs an input of shape [2]"), "{what}: {error}");
        assert!(w.grad().is_none(), "{what}");
    }
    // The operand that nothing reads may change.
    let w = leaf(&[1.0, 2.0]);
    let plain = Tensor::ones(&[2], (DType::F64, Device::Cpu))?;
    let y = (&w + &plain)?.sum()?;
    plain.zero_()?;
    y.backward()?;
    Ok(())
}

#[test]
fn a_tensor_can_forget_its_history() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let y = (&w * 2.0)?;
    y.detach_()?;
    assert!(y.is_leaf() && !y.requires_grad());
    let view = (&w * 2.0)?.narrow(0, 0, 1)?;
    assert!(view.detach_().is_err());
    Ok(())
}

#[test]
fn inference_tensors_stay_out_of_graphs() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let x = inference_mode(|| {
        let x = genesis::enable_grad(|| &w * 2.0)?;
        x.add_(&w)?;
        Ok::<_, genesis::Error>(x)
    })?;
    assert!(x.is_inference() && x.narrow(0, 0, 1)?.is_inference() && !x.requires_grad());
    let error = w.mul(&x).expect_err("mul saves x").to_string();
    assert!(error.starts_with("mul: an inference tensor of shape [2] can't be saved"), "{error}");
    let error = refusal(x.zero_());
    assert!(error.starts_with("fill_: an inference tensor can't be changed"), "{error}");
    assert!(x.clone().requires_grad_(true).is_err());
    // Nothing of it is saved here, and a copy is like any other tensor.
    w.add(&x)?.sum()?.backward()?;
    w.mul(&x.copy()?)?.sum()?.backward()?;
    assert_eq!(slope(&w), [1.0 + 3.0, 1.0 + 6.0]);
    Ok(())
}

#[test]
fn a_tensor_may_be_copied_onto_itself_turned() -> Result<()> {
    let w = leaf(&[1.0, 2.0, 3.0]);
    let y = (&w * 1.0)?;
    y.copy_(&y.flip(&[0])?)?;
    assert_eq!(values(&y), [3.0, 2.0, 1.0]);
    y.narrow(0, 1, 2)?.copy_(&y.narrow(0, 0, 2)?)?;
    assert_eq!(values(&y), [3.0, 3.0, 2.0]);
    y.mul(&leaf(&[1.0, 10.0, 100.0]).detach())?.sum()?.backward()?;
    assert_eq!(slope(&w), [0.0, 100.0, 11.0]);
    Ok(())
}

#[test]
fn a_view_that_is_spread_out_follows_its_base() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let y = (&w * 1.0)?;
    let spread = y.unsqueeze(0)?.broadcast_to(&[3, 2])?;
    y.mul_(&leaf(&[5.0]).detach())?;
    spread.sum()?.backward()?;
    assert_eq!(slope(&w), [15.0, 15.0]);
    Ok(())
}
