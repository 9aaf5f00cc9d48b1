//! Variances and standard deviations, and the means with them.

use super::fold::root;
use super::sum::Dims;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast;
use crate::dispatch::trace;
use crate::error::Result;
use crate::launch;
use crate::ops::{Op, Saves, apply, composite};
use crate::tensor::Tensor;

impl Tensor {
    /// The mean of squared distances from the mean over `dims`, with the divisor `n - correction`:
    /// 1 for the unbiased estimate, 0 for the biased one.
    ///
    /// # Errors
    /// If there are no such dimensions, one is named twice, or the dtype is not a float.
    #[track_caller]
    pub fn var_dims(&self, dims: &[i64], correction: f64, keep: bool) -> Result<Tensor> {
        self.spread_over("var", dims, correction, keep, false)
    }

    /// The square root of [`Tensor::var_dims`]; the gradient at 0 is 0.
    ///
    /// # Errors
    /// As [`Tensor::var_dims`].
    #[track_caller]
    pub fn std_dims(&self, dims: &[i64], correction: f64, keep: bool) -> Result<Tensor> {
        self.spread_over("std", dims, correction, keep, true)
    }

    /// Variance and mean over `dims`; see [`Tensor::var_dims`].
    ///
    /// # Errors
    /// As [`Tensor::var_dims`].
    #[track_caller]
    pub fn var_mean(&self, dims: &[i64], correction: f64, keep: bool) -> Result<(Tensor, Tensor)> {
        self.spread_and_mean("var", dims, correction, keep, false)
    }

    /// Standard deviation and mean over `dims`; see [`Tensor::std_dims`].
    ///
    /// # Errors
    /// As [`Tensor::std_dims`].
    #[track_caller]
    pub fn std_mean(&self, dims: &[i64], correction: f64, keep: bool) -> Result<(Tensor, Tensor)> {
        self.spread_and_mean("std", dims, correction, keep, true)
    }

    #[track_caller]
    fn spread_over(
        &self,
        name: &'static str,
        dims: &[i64],
        correction: f64,
        keep: bool,
        root: bool,
    ) -> Result<Tensor> {
        if let Some(cast) = autocast::cast_inputs(name, &[self])? {
            return cast[0].spread_over(name, dims, correction, keep, root);
        }
        let op = Variance::new(name, self, (dims, keep), correction, root)?;
        if self.numel() == 0 || !self.dtype().is_arithmetic_float() || trace::is_on() {
            return op.of_ops(self);
        }
        apply(op, &[self])
    }

    /// Both of one pass, but where gradients are wanted: then of two ops.
    #[track_caller]
    fn spread_and_mean(
        &self,
        name: &'static str,
        dims: &[i64],
        correction: f64,
        keep: bool,
        root: bool,
    ) -> Result<(Tensor, Tensor)> {
        let is_recorded = is_grad_enabled() && self.requires_grad() || trace::is_on();
        let casts = autocast::cast_inputs(name, &[self])?.is_some();
        let is_plain = self.numel() > 0 && self.dtype().is_arithmetic_float();
        if is_recorded || casts || !is_plain {
            let spread = self.spread_over(name, dims, correction, keep, root)?;
            return Ok((spread, self.mean_dims(dims, keep)?));
        }
        self.storage().wait_arrived()?;
        let [spread, mean] =
            Variance::new(name, self, (dims, keep), correction, root)?.with_mean(self)?;
        Ok((spread, mean))
    }
}

/// The mean of squared distances from the mean, or its square root.
struct Variance {
    name: &'static str,
    dims: Dims,
    divisor: f64,
    root: bool,
}

impl Variance {
    #[track_caller]
    fn new(
        name: &'static str,
        x: &Tensor,
        (dims, keep): (&[i64], bool),
        correction: f64,
        root: bool,
    ) -> Result<Variance> {
        let dims = Dims::new(name, dims, keep, x.shape())?;
        let divisor = (dims.count(x.shape()) as f64 - correction).max(0.0);
        Ok(Variance { name, dims, divisor, root })
    }

    /// Made of other ops.
    #[track_caller]
    fn of_ops(&self, x: &Tensor) -> Result<Tensor> {
        // The mean of 16-bit floats is kept in f32, so that distances from it are not those from a rounded one.
        let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
        let dims = self.dims.numbers();
        let distance = wide.sub(&wide.mean_dims(&dims, true)?)?;
        let sum = distance.square()?.sum_dims(&dims, self.dims.keeps())?;
        let divisor = Tensor::full(&[], self.divisor, (sum.dtype(), sum.device()))?;
        let variance = sum.div(&divisor)?;
        let result = if self.root { root(&variance)? } else { variance };
        result.to_dtype(x.dtype())
    }

    /// The result and the mean.
    #[track_caller]
    fn with_mean(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let mut mean = None;
        let spread = self.dims.reduced(x, |x| {
            let make =
                || Tensor::uninitialized(&[x.shape()[0], x.shape()[2]], (x.dtype(), x.device()));
            let (spread, center) = (make()?, make()?);
            launch::variance(x, [&spread, &center], self.divisor, self.root)?;
            mean = Some(center);
            Ok(spread)
        })?;
        let mean = mean.expect("a reduction is done once").reshape(spread.shape())?;
        Ok([spread, mean])
    }
}

impl Op for Variance {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [spread, _] = self.with_mean(inputs[0])?;
        Ok(spread)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 1, output: self.root }
    }

    /// `dx = 2 (x - mean) dy / divisor`, of a root that divided by twice the root, and 0 where that is 0.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        let kept = self.dims.kept(x.shape());
        let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
        let mean = wide.mean_dims(&self.dims.numbers(), true)?;
        let dy = dy.reshape(&kept)?;
        let numbers = [self.divisor];
        let dx = if self.root {
            let root = saved.output().reshape(&kept)?;
            composite(
                "std_backward",
                &numbers,
                [x, &mean, &dy, &root],
                |[x, mean, dy, root], n| {
                    let root = root.to_dtype(mean.dtype())?;
                    let is_zero = root.detach().eq_scalar(0.0)?;
                    let divisor = is_zero.where_(&number(mean, 1.0)?, &root)?.mul_scalar(n[0])?;
                    let slope = dy.to_dtype(mean.dtype())?.div(&divisor)?;
                    sloped(x, mean, &is_zero.where_(&number(mean, 0.0)?, &slope)?)
                },
            )?
        } else {
            composite("var_backward", &numbers, [x, &mean, &dy], |[x, mean, dy], n| {
                sloped(x, mean, &dy.to_dtype(mean.dtype())?.mul_scalar(2.0 / n[0])?)
            })?
        };
        Ok(vec![Some(dx)])
    }
}

/// The distance from the mean times a slope.
#[track_caller]
fn sloped(x: &Tensor, mean: &Tensor, slope: &Tensor) -> Result<Tensor> {
    x.to_dtype(mean.dtype())?.sub(mean)?.mul(slope)?.to_dtype(x.dtype())
}

/// A number beside a tensor.
fn number(x: &Tensor, value: f64) -> Result<Tensor> {
    Tensor::full(&[], value, (x.dtype(), x.device()))
}
