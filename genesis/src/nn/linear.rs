//! Fully connected layers.

use super::calls::is_observed;
use super::layer::layers;
use super::{Module, Parameter, count_flops, flops, init, watch};
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::ops::Activation;
use crate::tensor::{Creation, Tensor};

/// `y = x W^T + b`
///
/// # Shapes
/// `[.., in]` -> `[.., out]`, with `weight: [out, in]` and `bias: [out]`.
#[derive(Debug, Module)]
pub struct Linear {
    /// `[out, in]`
    pub weight: Parameter,
    /// `[out]`
    pub bias: Option<Parameter>,
}

impl Linear {
    /// A layer with a bias, both uniform in `±1 / sqrt(in)` as PyTorch starts them.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(inputs: usize, outputs: usize, at: impl Into<Creation>) -> Result<Linear> {
        let at = at.into();
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let weight = init::uniform(&[outputs, inputs], -bound, bound, at)?;
        let bias = Some(init::uniform(&[outputs], -bound, bound, at)?);
        Ok(Linear { weight, bias })
    }

    /// A layer without a bias.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn without_bias(inputs: usize, outputs: usize, at: impl Into<Creation>) -> Result<Linear> {
        Ok(Linear { bias: None, ..Linear::new(inputs, outputs, at)? })
    }

    /// The product of the input and the weight, plus the bias.
    ///
    /// # Errors
    /// If the last extent is not that of the weight, or dtypes or devices differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let weight = self.weight.t()?; // [in, out]
            let y = match &self.bias {
                Some(bias) => x.matmul_bias(&weight, bias)?, // [.., out]
                None => x.matmul(&weight)?,
            };
            count_flops(|| flops(&[2, y.numel(), self.weight.shape()[1]]));
            Ok(y)
        })
    }

    /// [`forward`](Linear::forward) and a function of its output: on GPUs one kernel, where that is faster.
    ///
    /// That is so for a layer with a bias under ReLU, and under GELU and SiLU where no gradient is
    /// recorded. While the layer is observed, as by [`observe`](super::observe) and summaries, the function
    /// is an op of its own, so that observers hear what the layer alone gave.
    ///
    /// # Numerics
    /// As [`Tensor::matmul_bias_activation`]: in one kernel 16-bit floats are rounded after the function
    /// only.
    /// # Errors
    /// As [`forward`](Linear::forward), and those of the function.
    pub fn forward_with(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        match self.joined(x, activation)? {
            Some(y) => Ok(y),
            None => activation.apply(&self.forward(x)?),
        }
    }

    /// Layer and function in one kernel; none where two are right.
    pub(super) fn joined(&self, x: &Tensor, activation: Activation) -> Result<Option<Tensor>> {
        let joins = |bias: &&Parameter| activation.joins([x, &self.weight, bias]);
        let Some(bias) = self.bias.as_ref().filter(joins) else { return Ok(None) };
        if is_observed() {
            return Ok(None);
        }
        let both = || x.matmul_bias_activation(&self.weight.t()?, bias, activation);
        watch(self, both).map(Some)
    }
}

layers!(Linear);

/// `y = x1^T W x2 + b` for each output.
///
/// # Shapes
/// `[.., in1]` and `[.., in2]` -> `[.., out]`, with `weight: [out, in1, in2]` and `bias: [out]`.
#[derive(Debug, Module)]
pub struct Bilinear {
    /// `[out, in1, in2]`
    pub weight: Parameter,
    /// `[out]`
    pub bias: Option<Parameter>,
}

impl Bilinear {
    /// A layer with a bias, both uniform in `±1 / sqrt(in1)` as PyTorch starts them.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        [in1, in2]: [usize; 2],
        outputs: usize,
        at: impl Into<Creation>,
    ) -> Result<Bilinear> {
        let at = at.into();
        let bound = 1.0 / (in1.max(1) as f64).sqrt();
        let weight = init::uniform(&[outputs, in1, in2], -bound, bound, at)?;
        Ok(Bilinear { weight, bias: Some(init::uniform(&[outputs], -bound, bound, at)?) })
    }

    /// A layer without a bias.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn without_bias(
        inputs: [usize; 2],
        outputs: usize,
        at: impl Into<Creation>,
    ) -> Result<Bilinear> {
        Ok(Bilinear { bias: None, ..Bilinear::new(inputs, outputs, at)? })
    }

    /// The bilinear form of both inputs for each output, plus the bias.
    ///
    /// # Errors
    /// If the inputs do not fit each other or the weight.
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        let &[outputs, in1, in2] = self.weight.shape() else {
            let message =
                format!("the weight must be [out, in1, in2], got {:?}", self.weight.shape());
            return Err(Error::op("bilinear", message));
        };
        let lead = &x1.shape()[..x1.rank().saturating_sub(1)];
        let fits = x1.shape().last() == Some(&in1)
            && x2.shape().last() == Some(&in2)
            && x2.shape()[..x2.rank() - 1] == *lead;
        if !fits {
            let (a, b) = (x1.shape(), x2.shape());
            let message =
                format!("{a:?} and {b:?} do not fit a weight of {:?}", self.weight.shape());
            return Err(Error::op("bilinear", message));
        }
        watch(self, || {
            let rows = init::extent("bilinear", lead)?;
            let columns = init::extent("bilinear", &[outputs, in2])?;
            count_flops(|| flops(&[2, rows, outputs, in2, in1.saturating_add(1)]));
            // The product of two factors is not rounded to 16 bits before the third, nor is its gradient.
            let (dtype, wide) = (x1.dtype(), accumulate_dtype(x1.dtype()));
            let is_one = x2.dtype() == dtype && self.weight.dtype() == dtype;
            let wide = |t: &Tensor| if is_one { t.to_dtype(wide) } else { Ok(t.clone()) };
            let by_first = wide(&self.weight)?.permute(&[1, 0, 2])?.reshape(&[in1, columns])?;
            let half = wide(x1)?.reshape(&[rows, in1])?.matmul(&by_first)?; // [rows, out * in2]
            let half = half.reshape(&[rows, outputs, in2])?;
            let y = half.matmul(&wide(x2)?.reshape(&[rows, in2, 1])?)?; // [rows, out, 1]
            let y = y.reshape(&[lead, &[outputs]].concat())?;
            // Under autocast it is of 16 bits as it is.
            let is_wide = is_one && y.dtype() == accumulate_dtype(dtype);
            let y = if is_wide { y.to_dtype(dtype)? } else { y };
            match &self.bias {
                Some(bias) => y.add(&bias.to_dtype(y.dtype())?),
                None => Ok(y),
            }
        })
    }
}

/// Gives its input back.
#[derive(Clone, Copy, Debug, Default, Module)]
pub struct Identity;

impl Identity {
    /// The input.
    ///
    /// # Errors
    /// Never.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || Ok(x.clone()))
    }
}

layers!(Identity);
