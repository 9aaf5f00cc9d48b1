//! Softmax and log-softmax along any dimension.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::tuning::rows::{KeptRows, Pieces, RowBlock};
use genesis_kernel::tuning::shared::vector_elements;
use kernels::softmax as device;

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{Precision, Precisions};
use crate::dispatch::trace;
use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::ops::{Differentiated, Op, Saves, apply, gradients, wrong_dtype};
use crate::shape;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("softmax", Precision::Single), ("log_softmax", Precision::Single)];

impl Tensor {
    /// `exp(x - max) / sum(exp(x - max))` along `dim`.
    ///
    /// # Numerics
    /// f16 and bf16 are computed in f32 and rounded once.
    /// # Errors
    /// If there is no such dimension, or the dtype is not a float.
    /// # Source
    /// arXiv:1805.02867.
    #[track_caller]
    pub fn softmax(&self, dim: i64) -> Result<Tensor> {
        along(&SOFTMAX, self, dim)
    }

    /// The logarithm of the softmax along `dim`, computed without the softmax.
    ///
    /// # Errors
    /// If there is no such dimension, or the dtype is not a float.
    #[track_caller]
    pub fn log_softmax(&self, dim: i64) -> Result<Tensor> {
        along(&LOG_SOFTMAX, self, dim)
    }
}

/// What the two differ in.
struct Row {
    name: &'static str,
    short: &'static KernelDef,
    long: &'static KernelDef,
    /// Of dense rows that begin anywhere in a vector.
    unaligned: &'static KernelDef,
    /// The gradient of rows that a program keeps, and of any by ops.
    short_bwd: &'static KernelDef,
    grad: fn(&Tensor, &Tensor) -> Result<Tensor>,
}

static SOFTMAX: Row = Row {
    name: "softmax",
    short: &device::softmax::KERNEL,
    long: &device::softmax_long::KERNEL,
    unaligned: &device::softmax_unaligned::KERNEL,
    short_bwd: &device::softmax_bwd::KERNEL,
    grad: |y, dy| {
        let product = y.mul(dy)?;
        // 1 but for rounding, as in the kernel.
        let total = y.detach().sum_dims(&[-1], true)?.clamp(0.5, f64::INFINITY)?;
        product.sub(&y.mul(&product.sum_dims(&[-1], true)?.div(&total)?)?)
    },
};

static LOG_SOFTMAX: Row = Row {
    name: "log_softmax",
    short: &device::log_softmax::KERNEL,
    long: &device::log_softmax_long::KERNEL,
    unaligned: &device::log_softmax_unaligned::KERNEL,
    short_bwd: &device::log_softmax_bwd::KERNEL,
    grad: |y, dy| dy.sub(&y.exp()?.mul(&dy.sum_dims(&[-1], true)?)?),
};

#[track_caller]
fn along(row: &'static Row, x: &Tensor, dim: i64) -> Result<Tensor> {
    let axis = shape::axis(row.name, dim, x.shape())?;
    if !x.dtype().is_arithmetic_float() {
        return Err(wrong_dtype(row.name, "a float", x.dtype()));
    }
    if axis + 1 == x.rank() {
        return apply(Last { row }, &[x]);
    }
    let axis = axis as i64;
    apply(Last { row }, &[&x.transpose(axis, -1)?])?.transpose(axis, -1)
}

/// Along the last axis.
struct Last {
    row: &'static Row,
}

impl Last {
    /// The gradient of rows each of which a program reads once; none where they are too long.
    fn kept_gradient(&self, y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let n = y.shape()[y.rank() - 1];
        let m = y.numel().checked_div(n).unwrap_or(0);
        let wide = launch::accumulate_dtype(y.dtype());
        let block = RowBlock::of_two(&chip(y.device()), m, n, wide.bytes());
        let Some(block) = block.filter(|_| y.dtype() == dy.dtype() && m > 0) else {
            return Ok(None);
        };
        let dx = Tensor::uninitialized(y.shape(), (y.dtype(), y.device()))?;
        let rows = |t: &Tensor| t.reshape(&[m, n]);
        let (y, dy, out) = (rows(y)?, rows(dy)?, rows(&dx)?);
        let tensors = [(&y, false), (&dy, false), (&out, true)];
        let consts = [block.rows as i64, block.cols as i64];
        let (kernel, grid) = (self.row.short_bwd, Grid::x(m.div_ceil(block.rows)));
        launch::warped_views(
            kernel,
            grid,
            &[y.dtype(), wide],
            &consts,
            block.warps,
            &tensors,
            &[],
        )?;
        Ok(Some(dx))
    }
}

impl Op for Last {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let n = x.shape()[x.rank() - 1];
        if x.numel() == 0 {
            return Ok(y);
        }
        let (x_rows, out) = (x.reshape(&[x.numel() / n, n])?, y.reshape(&[x.numel() / n, n])?);
        let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
        let (m, tensors) = (x_rows.shape()[0], [(&x_rows, false), (&out, true)]);
        let chip = &chip(x.device());
        if let Some(kept) = KeptRows::of(chip, m, n, x.dtype().bytes()) {
            launch::kept_rows(self.row.short, &dtypes, kept, &tensors, &[])?;
            return Ok(y);
        }
        let pieces = Pieces::of_row(chip, n, x.dtype().bytes(), true);
        let grid = Grid::x(m);
        let (mut consts, warps) = (pieces.consts().to_vec(), pieces.warps);
        let vector = vector_elements(x.dtype().bytes());
        let is_unaligned = m > 1 && !n.is_multiple_of(vector) && !chip.is_cpu();
        if !(is_unaligned && x.is_contiguous()) {
            launch::warped_views(self.row.long, grid, &dtypes, &consts, warps, &tensors, &[])?;
            return Ok(y);
        }
        consts.push(vector as i64);
        let (all, out) = (x.reshape(&[x.numel()])?, y.reshape(&[x.numel()])?);
        let (tensors, n) = ([(&all, false), (&out, true)], launch::number(DType::I64, n as f64));
        launch::warped_views(self.row.unaligned, grid, &dtypes, &consts, warps, &tensors, &[n])?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::OUTPUT
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let is_kept = !is_grad_enabled() && !trace::is_on();
        if is_kept && let Some(dx) = self.kept_gradient(saved.output(), dy)? {
            return Ok(vec![Some(dx)]);
        }
        let grad = self.row.grad;
        let op = Differentiated { name: self.row.name, numbers: &[], by: grad as usize };
        gradients(&op, saved, dy, move |saved, dy| {
            // Products of 16-bit floats are rounded once, at the end.
            let wide = launch::accumulate_dtype(dy.dtype());
            let dx = grad(&saved.output().to_dtype(wide)?, &dy.to_dtype(wide)?)?;
            Ok(vec![Some(dx.to_dtype(dy.dtype())?)])
        })
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Family, OpInfo, Sample, by_row, cpu, largest};

    fn softmax(row: &[f64]) -> Vec<f64> {
        let top = largest(row);
        let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
        row.iter().map(|v| (v - top).exp() / total).collect()
    }

    pub(in crate::ops) fn log_softmax(row: &[f64]) -> Vec<f64> {
        let top = largest(row);
        let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
        row.iter().map(|v| v - top - total.ln()).collect()
    }

    const SAMPLES: &[Sample] = &[&[&[1]], &[&[3, 7]], &[&[2, 3, 130]], &[&[0, 4]], &[&[2, 17000]]];

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "softmax",
            Family::Softmax,
            |x| x[0].softmax(-1),
            |x| by_row(&x[0], softmax),
            SAMPLES,
        )
        .peer("torch.softmax(x[0], -1)")
        .within(-8.0, 8.0)
        .refusing(&[
            (
                || cpu(&[], DType::F32)?.softmax(-1),
                "softmax: dimension -1 is out of range for shape []",
            ),
            (|| cpu(&[2], DType::I64)?.softmax(-1), "softmax: needs a float dtype, got i64"),
        ]),
        OpInfo::new(
            "log_softmax",
            Family::Softmax,
            |x| x[0].log_softmax(-1),
            |x| by_row(&x[0], log_softmax),
            SAMPLES,
        )
        .peer("torch.log_softmax(x[0], -1)")
        .within(-8.0, 8.0)
        .refusing(&[
            (
                || cpu(&[], DType::F32)?.log_softmax(-1),
                "log_softmax: dimension -1 is out of range for shape []",
            ),
            (
                || cpu(&[2], DType::I64)?.log_softmax(-1),
                "log_softmax: needs a float dtype, got i64",
            ),
        ]),
    ];
}
