//! How parameters start: tensors that require gradients.

use crate::error::Result;
use crate::tensor::{Creation, Tensor};

/// Uniform in `[low, high)`.
///
/// # Errors
/// If the dtype is not a float, or memory runs out.
pub fn uniform(shape: &[usize], low: f64, high: f64, at: impl Into<Creation>) -> Result<Tensor> {
    Tensor::uniform(shape, low, high, at)?.requires_grad_(true)
}

/// Normal with this mean and standard deviation.
///
/// # Errors
/// If the dtype is not a float, or memory runs out.
pub fn normal(shape: &[usize], mean: f64, std: f64, at: impl Into<Creation>) -> Result<Tensor> {
    Tensor::normal(shape, mean, std, at)?.requires_grad_(true)
}

/// One value.
///
/// # Errors
/// If the dtype is not a float, or memory runs out.
pub fn constant(shape: &[usize], value: f64, at: impl Into<Creation>) -> Result<Tensor> {
    Tensor::full(shape, value, at)?.requires_grad_(true)
}

/// Uniform in `±sqrt(6 / fan_in)` for a weight `[out, in, ..]`: He's rule for ReLU.
///
/// # Errors
/// If the dtype is not a float, or memory runs out.
/// # Source
/// arXiv:1502.01852.
pub fn kaiming_uniform(shape: &[usize], at: impl Into<Creation>) -> Result<Tensor> {
    let fan_in: usize = shape.iter().skip(1).product();
    let bound = (6.0 / fan_in.max(1) as f64).sqrt();
    uniform(shape, -bound, bound, at)
}
