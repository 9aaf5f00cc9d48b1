//! Batch norm whose statistics are those of the batches of several ranks.

use std::sync::{Arc, OnceLock};

use genesis_kernel::ir::DType;

use crate::autograd::no_grad;
use crate::error::Result;
use crate::ops::{BatchStats, move_towards};
use crate::tensor::Tensor;

/// The sum of a tensor over ranks, with its gradient.
pub(crate) type SumOver = dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync;

/// How a layer sums over ranks; nothing where it has one.
#[derive(Clone, Default)]
pub(crate) struct Across(OnceLock<Arc<SumOver>>);

impl Across {
    /// Sums by this from now on; the first that is set stays.
    pub(crate) fn set(&self, sum: Arc<SumOver>) {
        self.0.get_or_init(|| sum);
    }

    pub(super) fn get(&self) -> Option<&SumOver> {
        self.0.get().map(|sum| &**sum)
    }
}

impl std::fmt::Debug for Across {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "Across(ranks)" } else { "Across(nothing)" })
    }
}

/// `x` normalized by the mean and variance of each channel over the batches of all ranks, in two sums over
/// ranks: that of the values, and that of squared distances from their mean. Ranks may have batches of
/// different sizes.
pub(super) fn across_ranks(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    stats: &BatchStats<'_>,
    sum: &SumOver,
) -> Result<Tensor> {
    let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let (wide, channels) = (x.to_dtype(dtype)?, x.shape()[1]);
    let others: Vec<i64> = (0..x.rank() as i64).filter(|&axis| axis != 1).collect();
    let mut shape = vec![1; x.rank()];
    shape[1] = channels;
    let count = Tensor::full(&[1], (x.numel() / channels.max(1)) as f64, (dtype, x.device()))?;
    let sums = sum(&Tensor::cat(&[&wide.sum_dims(&others, false)?, &count], 0)?)?;
    let count = sums.narrow(0, channels, 1)?.detach();
    let mean = sums.narrow(0, 0, channels)?.div(&count)?;
    let centered = wide.sub(&mean.reshape(&shape)?)?;
    let squares = sum(&centered.square()?.sum_dims(&others, false)?)?;
    let var = squares.div(&count)?;
    if let Some((running_mean, running_var)) = stats.running {
        no_grad(|| {
            move_towards(running_mean, &mean, stats.momentum)?;
            let unbiased = squares.detach().div(&count.add_scalar(-1.0)?)?;
            move_towards(running_var, &unbiased, stats.momentum)
        })?;
    }
    let scale = var.add_scalar(stats.eps)?.rsqrt()?;
    let affine = |t: &Tensor| t.to_dtype(dtype)?.reshape(&shape);
    let mut y = centered.mul(&scale.reshape(&shape)?)?;
    if let Some(weight) = weight {
        y = y.mul(&affine(weight)?)?;
    }
    if let Some(bias) = bias {
        y = y.add(&affine(bias)?)?;
    }
    y.to_dtype(x.dtype())
}
