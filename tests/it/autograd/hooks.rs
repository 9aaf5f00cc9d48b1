//! Hooks of tensors and leaves, and gradients that are kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use genesis::autograd::{BackwardOptions, GradOptions, grad};
use genesis::{Device, Result, Tensor};

use super::{leaf, slope, values};

/// A list that hooks write to.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().expect("no test panics while it logs").push(line.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test panics while it logs"))
    }
}

#[test]
fn hooks_run_once_in_order_on_the_whole_gradient_and_may_replace_it() -> Result<()> {
    let log = Log::default();
    let w = leaf(&[2.0]);
    let h = (&w * 3.0)?;
    for tensor in [&w, &h] {
        for factor in [10.0, 2.0] {
            let log = log.clone();
            tensor.register_hook(move |dy| {
                log.add(format!("{} * {factor}", dy.item()?));
                dy.mul_scalar(factor).map(Some)
            })?;
        }
    }
    // h is used twice: its hooks see 1 + 4.
    ((&h * 1.0)? + (&h * 4.0)?)?.sum()?.backward()?;
    assert_eq!(log.take(), ["5 * 10", "50 * 2", "300 * 10", "3000 * 2"]);
    assert_eq!(slope(&w), [6000.0]);
    Ok(())
}

/// Hooks may call collectives: the order must be the same in every process, wherever memory lies.
#[test]
fn hooks_of_leaves_that_are_ready_together_run_in_the_order_of_the_inputs() -> Result<()> {
    // Leaves are made in an order that differs from that of their use.
    let made: Vec<Tensor> = (0..24)
        .map(|_| Tensor::ones(&[2], Device::Cpu)?.requires_grad_(true))
        .collect::<Result<_>>()?;
    let order: Vec<usize> = (0..24).map(|i| i * 7 % 24).collect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for (place, &index) in order.iter().enumerate() {
        let seen = seen.clone();
        made[index].register_hook(move |_| {
            seen.lock().expect("no test panicked").push(place);
            Ok(None)
        })?;
    }
    let used: Vec<&Tensor> = order.iter().map(|&index| &made[index]).collect();
    Tensor::cat(&used, 0)?.sum()?.backward()?;
    assert_eq!(*seen.lock().expect("no test panicked"), (0..24).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_removed_hook_is_gone_and_a_dropped_handle_is_not() -> Result<()> {
    let count = Arc::new(AtomicUsize::new(0));
    let w = leaf(&[1.0]);
    let hook = |count: Arc<AtomicUsize>| {
        move |_: &Tensor| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
    };
    let removed = w.register_hook(hook(count.clone()))?;
    drop(w.register_hook(hook(count.clone()))?);
    removed.remove();
    removed.remove();
    (&w * 2.0)?.sum()?.backward()?;
    assert_eq!(count.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn a_hook_that_gives_another_shape_or_fails_is_an_error() -> Result<()> {
    let w = leaf(&[1.0, 2.0]);
    let hook = w.register_hook(|dy| dy.sum().map(Some))?;
    let error = (&w * 2.0)?.sum()?.backward().expect_err("a scalar is no gradient of w");
    assert!(error.to_string().starts_with("register_hook: a hook must give"), "{error}");
    hook.remove();
    w.register_hook(|_| Err(genesis::Error::op("mine", "no")))?;
    let error = (&w * 2.0)?.sum()?.backward().expect_err("the hook fails");
    assert_eq!(error.to_string(), "mine: no");
    assert!(leaf(&[1.0]).detach().register_hook(|_| Ok(None)).is_err());
    Ok(())
}

#[test]
fn accumulate_hooks_fire_once_a_backward_however_often_a_leaf_is_used() -> Result<()> {
    let log = Log::default();
    let w = leaf(&[1.0]);
    let other = log.clone();
    w.register_post_accumulate_grad_hook(move |w| {
        other.add(format!("{}", w.grad().expect("it is there").item()?));
        Ok(())
    })?;
    for _ in 0..2 {
        ((&w * 2.0)? + (&w * &w)?)?.sum()?.backward()?;
    }
    assert_eq!(log.take(), ["4", "8"]);
    assert!((&w * 2.0)?.register_post_accumulate_grad_hook(|_| Ok(())).is_err());
    // `grad` accumulates nothing.
    grad(&[&(&w * 2.0)?], &[&w], GradOptions::default())?;
    assert_eq!(log.take(), [""; 0]);
    Ok(())
}

/// The gradients of the last layers can travel while those of the first are computed.
#[test]
fn a_gradient_is_announced_before_the_backward_has_ended() -> Result<()> {
    let log = Log::default();
    let weights: Vec<Tensor> = (0..4).map(|_| leaf(&[2.0])).collect();
    for (layer, w) in weights.iter().enumerate() {
        let log = log.clone();
        w.register_post_accumulate_grad_hook(move |_| {
            log.add(format!("weight {layer}"));
            Ok(())
        })?;
    }
    let mut y = leaf(&[1.0]);
    for (layer, w) in weights.iter().enumerate() {
        // The first weight is used again at the end.
        y = (&y * w)?;
        let log = log.clone();
        y.register_hook(move |_| {
            log.add(format!("layer {layer}"));
            Ok(None)
        })?;
    }
    (&y * &weights[0])?.sum()?.backward()?;
    let want = [
        "layer 3", "weight 3", "layer 2", "weight 2", "layer 1", "weight 1", "layer 0", "weight 0",
    ];
    assert_eq!(log.take(), want);
    Ok(())
}

#[test]
fn a_leaf_whose_other_uses_get_no_gradient_is_announced_all_the_same() -> Result<()> {
    let log = Log::default();
    let w = leaf(&[2.0]);
    let other = log.clone();
    w.register_post_accumulate_grad_hook(move |_| {
        other.add("w");
        Ok(())
    })?;
    // The slope of a comparison is none, so the way through it never runs.
    let mask = (&w * 3.0)?.gt_scalar(0.0)?;
    let y = mask.where_(&(&w * 5.0)?, &(&w * 7.0)?)?;
    y.sum()?.backward()?;
    assert_eq!(log.take(), ["w"]);
    assert_eq!(slope(&w), [5.0]);
    Ok(())
}

#[test]
fn an_optimizer_step_inside_the_backward_leaves_no_gradient() -> Result<()> {
    let w = leaf(&[3.0]);
    w.register_post_accumulate_grad_hook(|w| {
        let step = w.grad().expect("it is up to date").mul_scalar(-0.25)?;
        w.zero_grad();
        genesis::no_grad(|| w.add_(&step))
    })?;
    (&w * &w)?.sum()?.backward()?;
    assert_eq!(values(&w), [1.5]);
    assert!(w.grad().is_none());
    Ok(())
}

#[test]
fn a_gradient_between_is_kept_where_it_is_asked_for() -> Result<()> {
    let w = leaf(&[2.0]);
    let h = (&w * 3.0)?;
    h.retain_grad()?;
    assert!(h.retains_grad() && !w.retains_grad());
    h.register_hook(|dy| dy.mul_scalar(2.0).map(Some))?;
    let again = BackwardOptions { retain_graph: true, ..Default::default() };
    let y = (&h * 5.0)?.sum()?;
    y.backward_with(None, again)?;
    assert_eq!(slope(&h), [10.0]);
    y.backward()?;
    assert_eq!((slope(&h), slope(&w)), (vec![20.0], vec![60.0]));
    Ok(())
}

/// Two leaves that are sent one gradient must not share its memory.
#[test]
fn gradients_of_two_leaves_are_two_tensors() -> Result<()> {
    let (a, b) = (leaf(&[1.0]), leaf(&[2.0]));
    (&a + &b)?.sum()?.backward()?;
    a.grad().expect("a has one").fill_(100.0)?;
    assert_eq!(slope(&b), [1.0]);
    Ok(())
}

#[test]
fn hooks_of_a_layer_replace_what_goes_in_and_out() -> Result<()> {
    use genesis::nn::{Hooked, Linear, Module, Sequential};
    let log = Log::default();
    let layer = Linear::without_bias(2, 1, genesis::Device::Cpu)?;
    genesis::no_grad(|| layer.weight.fill_(1.0))?;
    let hooked = Hooked::new(layer);
    hooked.register_forward_pre_hook(|_, x| x.mul_scalar(10.0).map(Some));
    let other = log.clone();
    let look = hooked.register_forward_hook(move |layer, x, y| {
        other.add(format!("{:?} {} {}", layer.weight.shape(), x.sum()?.item()?, y.item()?));
        Ok(None)
    });
    let double = hooked.register_forward_hook(|_, _, y| y.mul_scalar(2.0).map(Some));
    let x = Tensor::ones(&[1, 2], genesis::Device::Cpu)?;
    assert_eq!(hooked.forward(&x)?.item()?, 40.0);
    assert_eq!(log.take(), ["[1, 2] 20 20"]);
    double.remove();
    look.remove();
    let net = Sequential::new().with(hooked);
    assert_eq!(net.forward(&x)?.item()?, 20.0);
    assert_eq!(log.take(), [""; 0]);
    // Names are those of the layer.
    let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight"]);
    Ok(())
}
