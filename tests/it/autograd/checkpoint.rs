//! Checkpoints: the same bits, less memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genesis::autograd::{BackwardOptions, GradOptions, checkpoint, checkpoint_many, grad};
use genesis::random::thread_rng;
use genesis::{DType, Device, Result, Tensor, manual_seed};

use super::{leaf, slope, values};

fn f32_leaf(seed: u64, shape: &[usize]) -> Result<Tensor> {
    manual_seed(seed);
    Tensor::randn(shape, (DType::F32, Device::Cpu))?.requires_grad_(true)
}

/// A layer with dropout, two weights and a residual.
fn layer(x: &Tensor, w: &[Tensor]) -> Result<Tensor> {
    let h = x.matmul(&w[0])?.gelu()?.dropout(0.3)?;
    x + h.matmul(&w[1])?
}

struct Net {
    x: Tensor,
    weights: Vec<Tensor>,
}

impl Net {
    fn new() -> Result<Net> {
        let weights = (0..6).map(|i| f32_leaf(i, &[8, 8])).collect::<Result<_>>()?;
        Ok(Net { x: f32_leaf(7, &[4, 8])?, weights })
    }

    /// The bits of the loss and of all gradients.
    fn bits(&self, run: impl Fn(&Tensor, &[Tensor]) -> Result<Tensor>) -> Result<Vec<Vec<f32>>> {
        manual_seed(99);
        let loss = run(&self.x, &self.weights)?.square()?.mean()?;
        loss.backward()?;
        let mut bits = vec![loss.to_vec::<f32>()?];
        for leaf in self.weights.iter().chain([&self.x]) {
            bits.push(leaf.grad().expect("each has a gradient").to_vec::<f32>()?);
            leaf.zero_grad();
        }
        // What is drawn next is the same too.
        bits.push(Tensor::rand(&[4], (DType::F32, Device::Cpu))?.to_vec::<f32>()?);
        Ok(bits)
    }
}

fn plain(x: &Tensor, w: &[Tensor]) -> Result<Tensor> {
    let x = layer(x, &w[0..2])?;
    let x = layer(&x, &w[2..4])?;
    layer(&x, &w[4..6])
}

/// Weights captured by the closure, as those of a module are.
fn one_layer(x: &Tensor, w: &[Tensor]) -> Result<Tensor> {
    let w = w.to_vec();
    checkpoint(move |x| layer(&x[0], &w), &[x])
}

#[test]
fn gradients_are_those_of_the_plain_run_bit_for_bit() -> Result<()> {
    let _own = thread_rng(0);
    let net = Net::new()?;
    let want = net.bits(plain)?;
    let each = net.bits(|x, w| {
        let x = one_layer(x, &w[0..2])?;
        let x = one_layer(&x, &w[2..4])?;
        one_layer(&x, &w[4..6])
    })?;
    let nested = net.bits(|x, w| {
        let w = w.to_vec();
        let outer = move |x: &[Tensor]| {
            let w = w.clone();
            let y = one_layer(&x[0], &w[0..2])?;
            let inner = move |x: &[Tensor]| one_layer(&layer(&x[0], &w[2..4])?, &w[4..6]);
            checkpoint(inner, &[&y])
        };
        checkpoint(outer, &[x])
    })?;
    assert_eq!(each, want);
    assert_eq!(nested, want);
    Ok(())
}

#[test]
fn second_derivatives_grad_and_hooks_work_through_it() -> Result<()> {
    let w = leaf(&[0.3, -0.7]);
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    w.register_post_accumulate_grad_hook(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })?;
    let y = checkpoint(|x| x[0].tanh()?.mul(&x[0])?.sum(), &[&w])?;
    let create = GradOptions { create_graph: true, ..GradOptions::default() };
    let first = grad(&[&y], &[&w], create)?.remove(0).expect("y depends on w");
    let keep = GradOptions { retain_graph: true, ..GradOptions::default() };
    let second = grad(&[&first.sum()?], &[&w], keep)?.remove(0);
    let second = values(&second.expect("so does its slope"));
    for (x, got) in [0.3f64, -0.7].into_iter().zip(second) {
        let t = x.tanh();
        let want = (1.0 - t * t) * (2.0 - 2.0 * x * t);
        assert!((got - want).abs() < 1e-12, "{got} is not {want}");
    }
    y.backward()?;
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn several_results_and_inputs_without_gradients() -> Result<()> {
    let (w, data) = (leaf(&[1.0, 2.0]), leaf(&[3.0, 4.0]).detach());
    let two = checkpoint_many(|x| Ok(vec![(&x[0] * &x[1])?, x[0].exp()?]), &[&w, &data])?;
    (two[0].sum()? + two[1].sum()?)?.backward()?;
    let want = [3.0 + 1f64.exp(), 4.0 + 2f64.exp()];
    assert!(slope(&w).iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12));
    Ok(())
}

#[test]
fn the_part_runs_again_once_for_a_backward_and_once_more_if_it_is_retained() -> Result<()> {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let w = leaf(&[1.0]);
    let part = move |x: &[Tensor]| {
        count.fetch_add(1, Ordering::Relaxed);
        x[0].exp()?.exp()?.exp()
    };
    let y = checkpoint(part, &[&w])?;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    y.backward_with(None, BackwardOptions { retain_graph: true, ..Default::default() })?;
    y.backward()?;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    Ok(())
}

#[test]
fn a_part_that_changes_its_mind_is_an_error() -> Result<()> {
    let runs = AtomicUsize::new(0);
    let w = leaf(&[1.0, 2.0]);
    let part = move |x: &[Tensor]| {
        let first = runs.fetch_add(1, Ordering::Relaxed) == 0;
        let y = if first { x[0].exp()? } else { x[0].exp()?.exp()? };
        y.sum()
    };
    let error = checkpoint(part, &[&w])?.backward().expect_err("it saves more the second time");
    let want = "checkpoint: the part saved 2 tensors when it ran again and 1 the first time";
    assert!(error.to_string().starts_with(want), "{error}");
    Ok(())
}

#[test]
fn an_input_that_was_changed_is_noticed() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let h = (&w * 2.0)?;
    let y = checkpoint(|x| x[0].exp()?.sum(), &[&h])?;
    genesis::no_grad(|| h.zero_())?;
    let error = y.backward().expect_err("h was changed");
    assert!(error.to_string().starts_with("checkpoint: backward needs an input"), "{error}");
    Ok(())
}
