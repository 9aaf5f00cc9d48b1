//! Optimizer steps: parameters and state are written in place.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::runtime::Arg;
use kernels::update as device;

use super::launch::{self, accumulate_dtype, number};
use crate::error::Result;
use crate::tensor::Tensor;

/// `w -= lr * (g + decay * w)`
pub(crate) fn sgd(w: &Tensor, g: &Tensor, lr: f64, decay: f64) -> Result<()> {
    let wide = accumulate_dtype(w.dtype());
    let numbers = [number(wide, lr), number(wide, decay)];
    let tensors = [(w, true), (g, false)];
    launch::dense(&device::sgd::KERNEL, &[w.dtype(), wide], &[], &tensors, &numbers)?;
    w.storage().bump_version();
    Ok(())
}

/// The numbers of a step of SGD with momentum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Momentum {
    pub(crate) lr: f64,
    pub(crate) decay: f64,
    pub(crate) momentum: f64,
    pub(crate) dampening: f64,
    pub(crate) nesterov: bool,
    pub(crate) first: bool,
}

pub(crate) fn sgd_momentum(w: &Tensor, g: &Tensor, m: &Tensor, step: Momentum) -> Result<()> {
    let wide = accumulate_dtype(w.dtype());
    let numbers = [
        number(wide, step.lr),
        number(wide, step.decay),
        number(wide, step.momentum),
        number(wide, step.dampening),
        Arg::Scalar(Scalar::int(DType::I64, i64::from(step.first))),
    ];
    let tensors = [(w, true), (g, false), (m, true)];
    let (kernel, consts) = (&device::sgd_momentum::KERNEL, [i64::from(step.nesterov)]);
    launch::dense(kernel, &[w.dtype(), wide], &consts, &tensors, &numbers)?;
    w.storage().bump_version();
    m.storage().bump_version();
    Ok(())
}

/// The numbers of a step of Adam or AdamW.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) lr: f64,
    pub(crate) betas: (f64, f64),
    pub(crate) eps: f64,
    pub(crate) decay: f64,
    pub(crate) decoupled: bool,
    pub(crate) step: u64,
}

pub(crate) fn adam(w: &Tensor, g: &Tensor, m: &Tensor, v: &Tensor, step: Moments) -> Result<()> {
    let wide = accumulate_dtype(w.dtype());
    let correction = |beta: f64| 1.0 - beta.powi(step.step.min(i32::MAX as u64) as i32);
    let numbers = [
        step.lr,
        step.betas.0,
        step.betas.1,
        step.eps,
        step.decay,
        step.lr / correction(step.betas.0),
        1.0 / correction(step.betas.1).sqrt(),
    ]
    .map(|value| number(wide, value));
    let tensors = [(w, true), (g, false), (m, true), (v, true)];
    let (kernel, consts) = (&device::adam::KERNEL, [i64::from(step.decoupled)]);
    launch::dense(kernel, &[w.dtype(), wide], &consts, &tensors, &numbers)?;
    for written in [w, m, v] {
        written.storage().bump_version();
    }
    Ok(())
}
