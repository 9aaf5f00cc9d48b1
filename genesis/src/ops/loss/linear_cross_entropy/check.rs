//! What [`Tensor::linear_cross_entropy`] refuses.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::super::cross_entropy::check_classes;
use super::options::{LinearCrossEntropy, NAME};
use crate::error::{Error, Result};
use crate::ops::wrong_dtype;
use crate::tensor::Tensor;

/// Refuses operands that do not fit each other.
pub(super) fn operands(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    target: &Tensor,
) -> Result<()> {
    let refuse = |message: String| Err(Error::op(NAME, message));
    let (&[v, d], Some((&k, lead))) = (weight.shape(), x.shape().split_last()) else {
        let (x, weight) = (x.shape(), weight.shape());
        return refuse(format!("needs [.., D] and a weight [V, D], got {x:?} and {weight:?}"));
    };
    if k != d || d == 0 || v == 0 {
        let (x, weight) = (x.shape(), weight.shape());
        return refuse(format!("inputs {x:?} do not fit a weight of {weight:?}"));
    }
    for t in [x, weight].into_iter().chain(bias) {
        if !t.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", t.dtype()));
        }
    }
    if let Some(bias) = bias.filter(|bias| bias.shape() != [v]) {
        return refuse(format!("the bias must be [{v}], got {:?}", bias.shape()));
    }
    if target.dtype() != DType::I64 {
        return refuse(format!("the target must be i64, got {}", target.dtype()));
    }
    if target.shape() != lead {
        let (x, target) = (x.shape(), target.shape());
        return refuse(format!("inputs are {x:?}, the target {target:?} must be {lead:?}"));
    }
    let is_elsewhere = |t: &&Tensor| t.device() != x.device();
    match [weight, target].into_iter().chain(bias).find(is_elsewhere) {
        Some(t) => refuse(format!("devices differ, {} and {}", x.device(), t.device())),
        None => Ok(()),
    }
}

/// Refuses options that have no meaning for a weight.
pub(super) fn options(options: &LinearCrossEntropy, weight: &Tensor) -> Result<()> {
    let refuse = |message: String| Err(Error::op(NAME, message));
    let (smoothing, v) = (options.classes.label_smoothing, weight.shape()[0]);
    if !(0.0..=1.0).contains(&smoothing) {
        return refuse(format!("label_smoothing must be in 0..=1, got {smoothing}"));
    }
    if !options.z_loss.is_finite() {
        return refuse(format!("z_loss must be a number, got {}", options.z_loss));
    }
    if let Some(cap) = options.softcap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
        return refuse(format!("softcap must be a positive number, got {cap}"));
    }
    match &options.classes.weight {
        Some(of) if of.shape() != [v] => {
            refuse(format!("the weights of classes must be [{v}], got {:?}", of.shape()))
        }
        Some(of) if !of.dtype().is_arithmetic_float() => {
            Err(wrong_dtype(NAME, "a float", of.dtype()))
        }
        Some(of) if of.device() != weight.device() => {
            refuse(format!("devices differ, {} and {}", weight.device(), of.device()))
        }
        _ => Ok(()),
    }
}

/// Refuses a class that is not there, on the CPU.
pub(super) fn targets(target: &Tensor, v: usize, ignore: i64) -> Result<()> {
    match target.device() {
        Device::Cpu => check_classes(NAME, target, v, ignore),
        Device::Cuda(_) => Ok(()),
    }
}
