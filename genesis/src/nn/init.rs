//! Initializers: PyTorch's list, written into tensors in place.
//!
//! A name that ends in `_` fills a tensor that is there; the others make a parameter.

mod special;

use super::Parameter;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::tensor::{Creation, Tensor};

pub use special::{orthogonal_, sparse_, trunc_normal_};

/// A parameter uniform in `[low, high)`.
///
/// # Errors
/// If the dtype is not a float, or memory runs out.
pub fn uniform(shape: &[usize], low: f64, high: f64, at: impl Into<Creation>) -> Result<Parameter> {
    Parameter::new(Tensor::uniform(shape, low, high, at)?)
}

/// A normal parameter with this mean and standard deviation.
///
/// # Errors
/// If the dtype is not a float, or memory runs out.
pub fn normal(shape: &[usize], mean: f64, std: f64, at: impl Into<Creation>) -> Result<Parameter> {
    Parameter::new(Tensor::normal(shape, mean, std, at)?)
}

/// A parameter of one value.
///
/// # Errors
/// If the dtype is not a float, or memory runs out.
pub fn constant(shape: &[usize], value: f64, at: impl Into<Creation>) -> Result<Parameter> {
    Parameter::new(Tensor::full(shape, value, at)?)
}

/// Replaces the values, without a gradient.
fn put(t: &Tensor, values: impl FnOnce(Creation) -> Result<Tensor>) -> Result<()> {
    no_grad(|| t.copy_(&values((t.dtype(), t.device()).into())?))
}

/// Fills with values uniform in `[low, high)`.
///
/// # Errors
/// If the dtype is not a float.
pub fn uniform_(t: &Tensor, low: f64, high: f64) -> Result<()> {
    put(t, |at| Tensor::uniform(t.shape(), low, high, at))
}

/// Fills with normal values of this mean and standard deviation.
///
/// # Errors
/// If the dtype is not a float.
pub fn normal_(t: &Tensor, mean: f64, std: f64) -> Result<()> {
    put(t, |at| Tensor::normal(t.shape(), mean, std, at))
}

/// Fills with one value.
///
/// # Errors
/// If a launch fails.
pub fn constant_(t: &Tensor, value: f64) -> Result<()> {
    no_grad(|| t.fill_(value))
}

/// Fills with ones.
///
/// # Errors
/// If a launch fails.
pub fn ones_(t: &Tensor) -> Result<()> {
    constant_(t, 1.0)
}

/// Fills with zeros.
///
/// # Errors
/// If a launch fails.
pub fn zeros_(t: &Tensor) -> Result<()> {
    constant_(t, 0.0)
}

/// Fills a matrix with ones on the diagonal and zeros elsewhere.
///
/// # Errors
/// If it is not a matrix.
pub fn eye_(t: &Tensor) -> Result<()> {
    match *t.shape() {
        [rows, cols] => put(t, |at| Tensor::eye(rows, cols, at)),
        _ => Err(wants("eye_", "a matrix", t)),
    }
}

/// Fills the weight of a convolution so that it hands its channels on, as far as there are any: a one in
/// the middle of each window.
///
/// # Errors
/// If the rank is not 3, 4 or 5, or the groups do not divide the first extent.
pub fn dirac_(t: &Tensor, groups: usize) -> Result<()> {
    let shape = t.shape();
    if !(3..=5).contains(&shape.len()) {
        return Err(wants("dirac_", "the weight of a convolution, of rank 3, 4 or 5", t));
    }
    if groups == 0 || !shape[0].is_multiple_of(groups) {
        let message = format!("{groups} groups do not divide {} channels", shape[0]);
        return Err(Error::op("dirac_", message));
    }
    if t.numel() == 0 {
        return Ok(());
    }
    let mut values = Tensor::host_values("dirac_", t.numel(), |_| 0.0)?;
    let strides = crate::shape::contiguous_strides(shape);
    let middle: i64 = (2..shape.len()).map(|axis| (shape[axis] / 2) as i64 * strides[axis]).sum();
    let each = shape[0] / groups;
    for group in 0..groups {
        for channel in 0..each.min(shape[1]) {
            let row = (group * each + channel) as i64 * strides[0] + channel as i64 * strides[1];
            if let Some(value) = values.get_mut((row + middle) as usize) {
                *value = 1.0;
            }
        }
    }
    put(t, |at| Tensor::from_f64(&values, shape, at))
}

/// An extent that is a product, if it is a number.
pub(super) fn extent(op: &str, factors: &[usize]) -> Result<usize> {
    crate::shape::numel(op, factors)
}

/// The most layers of a stack, four times as many as were ever trained: making more would only take time.
const MOST_LAYERS: usize = 1 << 12;

/// Refuses stacks that nobody wants to wait for.
pub(super) fn check_layers(op: &str, layers: usize) -> Result<()> {
    if layers <= MOST_LAYERS {
        return Ok(());
    }
    Err(Error::op(op, format!("{layers} layers, the most is {MOST_LAYERS}")))
}

fn wants(op: &str, what: &str, t: &Tensor) -> Error {
    Error::op(op, format!("needs {what}, got shape {:?}", t.shape()))
}

/// Which nonlinearity follows a layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Nonlinearity {
    /// None: linear layers, convolutions and the sigmoid.
    Linear,
    /// The hyperbolic tangent.
    Tanh,
    /// ReLU.
    Relu,
    /// ReLU with this slope below zero.
    LeakyRelu(f64),
    /// SELU.
    Selu,
}

/// The factor by which a nonlinearity's weights are larger than a linear layer's.
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => 2f64.sqrt(),
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}

/// The numbers of values that go into an output and that an input goes into, of a weight
/// `[out, in, ..]`.
fn fans(op: &str, t: &Tensor) -> Result<(f64, f64)> {
    match t.shape() {
        [outputs, inputs, window @ ..] => {
            let window: f64 = window.iter().map(|&extent| extent as f64).product::<f64>();
            Ok((*inputs as f64 * window, *outputs as f64 * window))
        }
        _ => Err(wants(op, "at least 2 dimension(s)", t)),
    }
}

/// Which fan keeps its variance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FanMode {
    /// That of the forward.
    #[default]
    FanIn,
    /// That of the backward.
    FanOut,
}

/// Glorot's rule: uniform in `±gain * sqrt(6 / (fan_in + fan_out))`.
///
/// # Errors
/// If the rank is below 2.
pub fn xavier_uniform_(t: &Tensor, gain: f64) -> Result<()> {
    let (fan_in, fan_out) = fans("xavier_uniform_", t)?;
    let bound = gain * (6.0 / (fan_in + fan_out)).sqrt();
    uniform_(t, -bound, bound)
}

/// Glorot's rule: normal with the deviation `gain * sqrt(2 / (fan_in + fan_out))`.
///
/// # Errors
/// If the rank is below 2.
pub fn xavier_normal_(t: &Tensor, gain: f64) -> Result<()> {
    let (fan_in, fan_out) = fans("xavier_normal_", t)?;
    normal_(t, 0.0, gain * (2.0 / (fan_in + fan_out)).sqrt())
}

fn kaiming_std(op: &str, t: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<f64> {
    let (fan_in, fan_out) = fans(op, t)?;
    let fan = if mode == FanMode::FanIn { fan_in } else { fan_out };
    Ok(calculate_gain(nonlinearity) / fan.max(1.0).sqrt())
}

/// He's rule: uniform in `±gain * sqrt(3 / fan)`.
///
/// # Errors
/// If the rank is below 2.
/// # Source
/// arXiv:1502.01852.
pub fn kaiming_uniform_(t: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    let bound = 3f64.sqrt() * kaiming_std("kaiming_uniform_", t, mode, nonlinearity)?;
    uniform_(t, -bound, bound)
}

/// He's rule: normal with the deviation `gain / sqrt(fan)`.
///
/// # Errors
/// If the rank is below 2.
/// # Source
/// arXiv:1502.01852.
pub fn kaiming_normal_(t: &Tensor, mode: FanMode, nonlinearity: Nonlinearity) -> Result<()> {
    normal_(t, 0.0, kaiming_std("kaiming_normal_", t, mode, nonlinearity)?)
}
