//! Running sums, extremes and logarithms of sums along a dimension.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::scan as device;

use super::{Op, Saves, apply, wrong_dtype};
use crate::autograd::SavedTensors;
use crate::dispatch::autocast;
use crate::error::Result;
use crate::launch;
use crate::shape;
use crate::tensor::Tensor;

impl Tensor {
    /// The running sum along `dim`: element `j` is the sum of the elements up to and with `j`. Integers
    /// and bools give i64.
    ///
    /// # Numerics
    /// f16 and bf16 are added in f32 and rounded once.
    /// # Errors
    /// If there is no such dimension, or the dtype is for storage only.
    #[track_caller]
    pub fn cumsum(&self, dim: i64) -> Result<Tensor> {
        match self.dtype().is_float() {
            true => along(self, dim, false),
            false => along(&self.to_dtype(DType::I64)?, dim, false),
        }
    }

    /// The largest element up to and with each along `dim`, and where the last of them stands; i64. NaN
    /// wins.
    ///
    /// # Errors
    /// If there is no such dimension, or the dtype is for storage only.
    #[track_caller]
    pub fn cummax(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        self.running("cummax", dim, &device::cummax_rows::KERNEL)
    }

    /// The smallest element up to and with each along `dim`, and where the last of them stands; i64. NaN
    /// wins.
    ///
    /// # Errors
    /// If there is no such dimension, or the dtype is for storage only.
    #[track_caller]
    pub fn cummin(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        self.running("cummin", dim, &device::cummin_rows::KERNEL)
    }

    #[track_caller]
    fn running(&self, op: &str, dim: i64, kernel: &'static KernelDef) -> Result<(Tensor, Tensor)> {
        let axis = shape::axis_or_scalar(op, dim, self.shape())? as i64;
        let x = self.detach().as_countable();
        if !x.dtype().is_number() {
            return Err(wrong_dtype(op, "a number", x.dtype()));
        }
        if self.numel() == 0 || self.rank() == 0 {
            return Ok((self.clone(), Tensor::zeros(self.shape(), (DType::I64, self.device()))?));
        }
        let x = x.transpose(axis, -1)?;
        let best = by_rows(kernel, &[x.dtype()], &x)?;
        // An element that is the best so far is where the best stands until a later one is.
        let is_best = x.eq(&best)?.logical_or(&x.isnan()?)?;
        let at = Tensor::arange(0.0, x.dim(-1)? as f64, 1.0, (DType::I64, x.device()))?;
        let at = is_best.where_(&at, &Tensor::zeros(&[], (DType::I64, x.device()))?)?;
        let index = by_rows(&device::cummax_rows::KERNEL, &[DType::I64], &at)?;
        let index = index.transpose(axis, -1)?.contiguous()?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// The logarithm of the running sum of exponentials along `dim`, which does not overflow.
    ///
    /// # Numerics
    /// f16 and bf16 are computed in f32 and rounded once.
    /// # Errors
    /// If there is no such dimension, or the dtype is not a float.
    #[track_caller]
    pub fn logcumsumexp(&self, dim: i64) -> Result<Tensor> {
        const NAME: &str = "logcumsumexp";
        let axis = shape::axis_or_scalar(NAME, dim, self.shape())? as i64;
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", self.dtype()));
        }
        if let Some(cast) = autocast::cast_inputs("logcumsumexp", &[self])? {
            return cast[0].logcumsumexp(dim);
        }
        if self.numel() == 0 || self.rank() == 0 {
            return Ok(self.clone());
        }
        apply(LogCumSumExp, &[&self.transpose(axis, -1)?])?.transpose(axis, -1)
    }
}

/// A kernel of rows on the last axis of a tensor that is not empty.
#[track_caller]
fn by_rows(kernel: &'static KernelDef, dtypes: &[DType], x: &Tensor) -> Result<Tensor> {
    let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
    let n = x.dim(-1)?;
    let shape = [x.numel() / n, n];
    launch::scan(kernel, dtypes, &x.reshape(&shape)?, &y.reshape(&shape)?)?;
    Ok(y)
}

/// Along the last axis.
struct LogCumSumExp;

impl Op for LogCumSumExp {
    fn name(&self) -> &'static str {
        "logcumsumexp"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let dtype = inputs[0].dtype();
        let kernel = &device::logcumsumexp_rows::KERNEL;
        by_rows(kernel, &[dtype, launch::accumulate_dtype(dtype)], inputs[0])
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 1, output: true }
    }

    /// `dx_k = sum over j >= k of dy_j exp(x_k - y_j)`, a running sum of exponentials from the end, of
    /// what is above 0 and what is below.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let zero = Tensor::zeros(&[], (dy.dtype(), dy.device()))?;
        // A sum of nothing but zeros has no share to give, and infinities would not cancel.
        let (x, y) = (saved.input(0), saved.output());
        let y = &y.gt_scalar(f64::NEG_INFINITY)?.where_(y, &zero)?;
        let part = |dy: &Tensor| -> Result<Tensor> {
            let logs = dy.log()?.sub(y)?.flip(&[-1])?.logcumsumexp(-1)?.flip(&[-1])?;
            logs.add(x)?.exp()
        };
        let above = part(&dy.gt_scalar(0.0)?.where_(dy, &zero)?)?;
        let below = part(&dy.lt_scalar(0.0)?.where_(&dy.neg()?, &zero)?)?;
        Ok(vec![Some(above.sub(&below)?)])
    }
}

#[track_caller]
fn along(x: &Tensor, dim: i64, reverse: bool) -> Result<Tensor> {
    let axis = shape::axis_or_scalar("cumsum", dim, x.shape())? as i64;
    if !x.dtype().is_number() {
        return Err(wrong_dtype("cumsum", "a number", x.dtype()));
    }
    if x.rank() == 0 {
        return Ok(x.clone());
    }
    if axis + 1 == x.rank() as i64 {
        return apply(Cumsum { reverse }, &[x]);
    }
    apply(Cumsum { reverse }, &[&x.transpose(axis, -1)?])?.transpose(axis, -1)
}

/// Along the last axis; from its end where `reverse`.
struct Cumsum {
    reverse: bool,
}

impl Op for Cumsum {
    fn name(&self) -> &'static str {
        "cumsum"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        if x.numel() > 0 {
            let n = x.shape()[x.rank() - 1];
            let rows = x.reshape(&[x.numel() / n, n])?;
            launch::cumsum(&rows, &y.reshape(&[x.numel() / n, n])?, self.reverse)?;
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::NOTHING
    }

    /// An element goes into every sum from its own on.
    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(along(dy, -1, !self.reverse)?)])
    }
}
