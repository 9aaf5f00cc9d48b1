//! Scans along a dimension: `cumsum`, `cummax`, `logcumsumexp`.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::scan as device;

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::Result;
use crate::launch;
use crate::ops::{Op, Saves, apply, composite, wrong_dtype};
use crate::shape;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("cumsum", Precision::Single), ("logcumsumexp", Precision::Single)];

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
    fn running(
        &self,
        op: &'static str,
        dim: i64,
        kernel: &'static KernelDef,
    ) -> Result<(Tensor, Tensor)> {
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
        let at = Tensor::arange(0.0, x.dim(-1)? as f64, 1.0, (DType::I64, x.device()))?;
        let at = composite(op, &[], [&x, &best, &at], |[x, best, at], _| {
            let is_best = x.eq(best)?.logical_or(&x.isnan()?)?;
            is_best.where_(at, &Tensor::zeros(&[], (DType::I64, x.device()))?)
        })?;
        let index = by_rows(&device::cummax_rows::KERNEL, &[DType::I64], &at)?;
        let values = self.transpose(axis, -1)?;
        let values = apply(Extremes { name: op, index: index.clone() }, &[&values])?;
        Ok((values.transpose(axis, -1)?, index.transpose(axis, -1)?.contiguous()?))
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
    by_rows_with(kernel, dtypes, x, None)
}

/// [`by_rows`] of a kernel that reads another tensor of the same shape too.
#[track_caller]
fn by_rows_with(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    x: &Tensor,
    other: Option<&Tensor>,
) -> Result<Tensor> {
    let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
    let n = x.dim(-1)?;
    let shape = [x.numel() / n, n];
    let other = other.map(|other| other.reshape(&shape)).transpose()?;
    launch::scan(kernel, dtypes, (&x.reshape(&shape)?, other.as_ref()), &y.reshape(&shape)?)?;
    Ok(y)
}

/// Running extremes along the last axis, whose places are known.
struct Extremes {
    name: &'static str,
    index: Tensor,
}

impl Op for Extremes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        inputs[0].gather(-1, &self.index)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        if is_grad_enabled() || dy.dim(-1)? >= 1 << 31 {
            let zeros = Tensor::zeros(dy.shape(), (dy.dtype(), dy.device()))?;
            return Ok(vec![Some(zeros.scatter_add(-1, &self.index, dy)?)]);
        }
        let dtypes = [dy.dtype(), launch::accumulate_dtype(dy.dtype())];
        let kernel = &device::running_extreme_bwd::KERNEL;
        by_rows_with(kernel, &dtypes, dy, Some(&self.index)).map(|dx| vec![Some(dx)])
    }
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

/// The running sums along the last axis from its end.
#[track_caller]
pub(super) fn cumsum_from_end(x: &Tensor) -> Result<Tensor> {
    along(x, -1, true)
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

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, Sample, columns, cpu};

    /// The running fold of a column.
    fn running(column: &[f64], f: fn(f64, f64) -> f64) -> Vec<f64> {
        let mut kept = f64::NAN;
        let step = |(index, &v): (usize, &f64)| {
            kept = if index == 0 { v } else { f(kept, v) };
            kept
        };
        column.iter().enumerate().map(step).collect()
    }

    /// The running sum along `dim` of a tensor of rank 3.
    fn cumsum(x: &Dense, dim: usize) -> Dense {
        Dense::from_fn(&x.shape, |at| {
            let mut from = at.to_vec();
            let terms = (0..=at[dim]).map(|j| {
                from[dim] = j;
                x.at(&from)
            });
            terms.sum()
        })
    }

    const SUMS: &[Sample] = &[&[&[2, 3, 4]], &[&[1, 1, 1]], &[&[0, 2, 3]], &[&[3, 40, 70]]];
    const ADDED: &[DType] =
        &[DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32];

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
OpInfo::new("cumsum/dim=0", Family::Sum, |x| x[0].cumsum(0), |x| cumsum(&x[0], 0), SUMS).peer("torch.cumsum(x[0], 0)")
    .within(-3.0, 3.0)
    .of(ADDED)
    .refusing(&[
        (|| cpu(&[2], DType::F32)?.cumsum(1), "cumsum: dimension 1 is out of range for shape [2]"),
        (
            || cpu(&[2], DType::F8E5M2)?.cumsum(0),
            "cumsum: needs a number dtype, got f8e5m2, which is for storage: convert it with `to_dtype`",
        ),
    ]),
OpInfo::new("cumsum/dim=1", Family::Sum, |x| x[0].cumsum(1), |x| cumsum(&x[0], 1), SUMS).peer("torch.cumsum(x[0], 1)")
    .within(-3.0, 3.0)
    .of(ADDED),
OpInfo::new("cumsum/dim=2", Family::Sum, |x| x[0].cumsum(2), |x| cumsum(&x[0], 2), SUMS).peer("torch.cumsum(x[0], 2)")
    .within(-3.0, 3.0)
    .of(ADDED),
OpInfo::new("cummax", Family::Exact, |x| Ok(x[0].cummax(0)?.0), |x| columns(&x[0], |c| running(c, f64::max)), &[&[&[40, 3]]],).peer("torch.cummax(x[0], 0)[0]"),
OpInfo::new("cummin/index", Family::Exact, |x| Ok(x[0].cummin(0)?.1), |x| {
            columns(&x[0], |c| {
                let low = running(c, f64::min);
                let last = |j: usize| (0..=j).rev().find(|&i| c[i] == low[j]).unwrap_or(0);
                (0..c.len()).map(|j| last(j) as f64).collect()
            })
        }, &[&[&[9, 3]]],).peer("torch.cummin(x[0], 0)[1]").of(&[DType::F32, DType::BF16, DType::I64]).flat(),
OpInfo::new("logcumsumexp", Family::Softmax, |x| x[0].logcumsumexp(0), |x| columns(&x[0], |c| running(c, |a, b| (a.exp() + b.exp()).ln())), &[&[&[20, 3]]],).peer("torch.logcumsumexp(x[0], 0)").within(-3.0, 3.0).refusing(&[(|| cpu(&[2], DType::I64)?.logcumsumexp(0), "logcumsumexp: needs a float dtype, got i64")]),
];
}
