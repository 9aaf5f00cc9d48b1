//! The norm of rows as an op: its kernels, what it keeps for the backward, and its gradient.
//!
//! The forward keeps the statistics of each row, from which the backward is one more pass over the
//! rows. Where the backward is itself differentiated it is made of ops.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::tuning::rows::{
    ColumnSums, MAX_ROW, RowBlock, programs_of_long_rows, step_of_row,
};
use kernels::{norm as device, norm_bwd as device_bwd};

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::ops::{Op, Saves};
use crate::tensor::Tensor;

/// The kernels of one norm.
pub(super) struct Kernels {
    pub(super) name: &'static str,
    pub(super) name_of_sum: &'static str,
    /// Whether there are a mean and a bias.
    centered: bool,
    short: &'static KernelDef,
    long: &'static KernelDef,
    /// Of a sum.
    of_sum: &'static KernelDef,
    bwd: &'static KernelDef,
    bwd_long: &'static KernelDef,
    params: &'static KernelDef,
}

pub(super) static LAYER_NORM: Kernels = Kernels {
    name: "layer_norm",
    name_of_sum: "add_layer_norm",
    centered: true,
    short: &device::layer_norm::KERNEL,
    long: &device::layer_norm_long::KERNEL,
    of_sum: &device::add_layer_norm::KERNEL,
    bwd: &device_bwd::layer_norm_bwd::KERNEL,
    bwd_long: &device_bwd::layer_norm_bwd_long::KERNEL,
    params: &device_bwd::layer_norm_params::KERNEL,
};

pub(super) static RMS_NORM: Kernels = Kernels {
    name: "rms_norm",
    name_of_sum: "add_rms_norm",
    centered: false,
    short: &device::rms_norm::KERNEL,
    long: &device::rms_norm_long::KERNEL,
    of_sum: &device::add_rms_norm::KERNEL,
    bwd: &device_bwd::rms_norm_bwd::KERNEL,
    bwd_long: &device_bwd::rms_norm_bwd_long::KERNEL,
    params: &device_bwd::rms_norm_params::KERNEL,
};

type Tensors<'a> = Vec<(&'a Tensor, bool)>;

/// A tensor as `[rows, C]`.
#[track_caller]
fn as_rows(t: &Tensor) -> Result<Tensor> {
    let c = t.shape()[t.rank() - 1];
    t.reshape(&[t.numel().checked_div(c).unwrap_or(0), c])
}

/// What a norm of rows gives.
pub(super) struct Normed {
    /// What was added up, of a norm of a sum.
    sum: Option<Tensor>,
    y: Tensor,
    /// The mean where there is one, and one over the deviation, of each row.
    stats: Vec<Tensor>,
}

impl Normed {
    /// The sum and its norm, of a norm of a sum.
    pub(super) fn results(self) -> [Tensor; 2] {
        let sum = self.sum.expect("a norm of a sum gives the sum");
        [sum, self.y]
    }
}

/// The gradient of a norm's result, and one of its input that came another way and is to be added to.
#[derive(Clone, Copy)]
struct Incoming<'a> {
    dy: &'a Tensor,
    onto: Option<&'a Tensor>,
}

impl Kernels {
    /// The block of rows of a program, of rows that are kept in registers.
    fn block(&self, x: &Tensor, m: usize, n: usize) -> RowBlock {
        let block = if self.centered { RowBlock::kept } else { RowBlock::of_one_sum };
        block(&chip(x.device()), m, n)
    }

    /// The norm of `x`, or of `x + added`, whose rows are kept in registers; `params` are the weight and the bias.
    pub(super) fn forward(
        &self,
        (x, added): (&Tensor, Option<&Tensor>),
        params: &[&Tensor],
        eps: f64,
        out: DType,
    ) -> Result<Normed> {
        let fresh = |dtype| Tensor::uninitialized(x.shape(), (dtype, x.device()));
        let y = fresh(out)?;
        let sum = added.map(|_| fresh(x.dtype())).transpose()?;
        let rows = as_rows(x)?;
        let (m, n) = (rows.shape()[0], rows.shape()[1]);
        let wide = launch::accumulate_dtype(x.dtype());
        let stat = || Tensor::uninitialized(&[m], (wide, x.device()));
        let stats = if self.centered { vec![stat()?, stat()?] } else { vec![stat()?] };
        if x.numel() == 0 {
            return Ok(Normed { sum, y, stats });
        }
        let added = added.map(as_rows).transpose()?;
        let outs = sum.iter().chain([&y]).map(as_rows).collect::<Result<Vec<_>>>()?;
        let mut tensors: Tensors<'_> = vec![(&rows, false)];
        tensors.extend(added.iter().map(|t| (t, false)));
        tensors.extend(params.iter().map(|&t| (t, false)));
        tensors.extend(outs.iter().chain(&stats).map(|t| (t, true)));
        let mut dtypes = vec![x.dtype()];
        dtypes.extend(added.iter().map(Tensor::dtype));
        dtypes.extend([params[0].dtype(), out, wide]);
        let eps = [launch::number(wide, eps)];
        if n > MAX_ROW {
            let consts = [step_of_row(n) as i64];
            launch::views(self.long, Grid::x(m), &dtypes, &consts, &tensors, &eps)?;
        } else {
            let RowBlock { rows, cols, warps } = self.block(x, m, n);
            let (grid, consts) = (Grid::x(m.div_ceil(rows)), [rows as i64, cols as i64]);
            let kernel = if added.is_some() { self.of_sum } else { self.short };
            launch::warped_views(kernel, grid, &dtypes, &consts, warps, &tensors, &eps)?;
        }
        Ok(Normed { sum, y, stats })
    }

    /// The gradients of `x`, the weight and, where there is one, the bias.
    fn backward(
        &self,
        (x, weight): (&Tensor, &Tensor),
        stats: &[Tensor],
        incoming: Incoming<'_>,
    ) -> Result<Vec<Option<Tensor>>> {
        let dx = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let n_params = if self.centered { 2 } else { 1 };
        let params = if x.numel() == 0 {
            Tensor::zeros(&[n_params, weight.numel()], (weight.dtype(), x.device()))?
        } else {
            let (dy, onto) = (as_rows(incoming.dy)?, incoming.onto.map(as_rows).transpose()?);
            let incoming = Incoming { dy: &dy, onto: onto.as_ref() };
            self.launch_backward((&as_rows(x)?, weight), stats, incoming, &as_rows(&dx)?)?
        };
        let param = |index: usize| params.select(0, index).map(Some);
        let mut grads = vec![Some(dx)];
        for index in 0..n_params {
            grads.push(param(index)?);
        }
        Ok(grads)
    }

    /// Writes `dx` and gives the gradients of weight and bias as `[1 or 2, C]`.
    #[track_caller]
    fn launch_backward(
        &self,
        (x, weight): (&Tensor, &Tensor),
        stats: &[Tensor],
        Incoming { dy, onto }: Incoming<'_>,
        dx: &Tensor,
    ) -> Result<Tensor> {
        let (m, n) = (x.shape()[0], x.shape()[1]);
        let wide = launch::accumulate_dtype(x.dtype());
        let n_params = if self.centered { 2 } else { 1 };
        let dtypes = [x.dtype(), weight.dtype(), dy.dtype(), wide];
        let is_added = i64::from(onto.is_some());
        let mut row_tensors: Tensors<'_> = vec![(x, false), (weight, false)];
        row_tensors.extend(stats.iter().map(|t| (t, false)));
        // Where there is nothing to add to, the kernel does not look at what stands in its place.
        row_tensors.extend([(dy, false), (onto.unwrap_or(x), false), (dx, true)]);
        let chip = &chip(x.device());
        // What registers have room for beside the sums of a column, two of LayerNorm, and a gradient to add to.
        let most_ahead = match (self.centered, onto) {
            _ if x.dtype().bytes().max(dy.dtype().bytes()) > 2 => 0,
            (true, Some(_)) => 0,
            (true, None) => 4096,
            (false, _) => 8192,
        };
        let partial = match ColumnSums::of(chip, m, n, wide.bytes(), most_ahead) {
            Some(ColumnSums { block, programs, loads_ahead }) => {
                let RowBlock { rows, cols, warps } = block;
                let shape = [n_params, programs, n];
                let partial = Tensor::uninitialized(&shape, (wide, x.device()))?;
                row_tensors.push((&partial, true));
                let consts = [rows as i64, cols as i64, is_added, i64::from(loads_ahead)];
                let grid = Grid::x(programs);
                launch::warped_views(self.bwd, grid, &dtypes, &consts, warps, &row_tensors, &[])?;
                partial
            }
            None => {
                let step = [step_of_row(n) as i64, is_added];
                launch::views(self.bwd_long, Grid::x(m), &dtypes, &step, &row_tensors, &[])?;
                let programs = programs_of_long_rows(m);
                let shape = [n_params, programs, n];
                let partial = Tensor::uninitialized(&shape, (wide, x.device()))?;
                let mut tensors: Tensors<'_> = vec![(x, false)];
                tensors.extend(stats.iter().map(|t| (t, false)));
                tensors.extend([(dy, false), (&partial, true)]);
                let grid = Grid::xy(n.div_ceil(128), programs);
                let dtypes = [x.dtype(), dy.dtype(), wide];
                launch::views(self.params, grid, &dtypes, &[32, 128], &tensors, &[])?;
                partial
            }
        };
        let params = Tensor::uninitialized(&[n_params, n], (weight.dtype(), x.device()))?;
        launch::sum(&partial, &params, 1.0)?;
        Ok(params)
    }
}

/// The norm of rows: inputs are `x: [.., C]`, the weight and, where the norm has one, the bias.
pub(super) struct RowNorm {
    kernels: &'static Kernels,
    eps: f64,
    /// The dtype of the result; that of `x` where none is named.
    out: Option<DType>,
    stats: OnceLock<Vec<Tensor>>,
}

impl RowNorm {
    pub(super) fn new(kernels: &'static Kernels, eps: f64, out: Option<DType>) -> RowNorm {
        RowNorm { kernels, eps, out, stats: OnceLock::new() }
    }

    /// The op that gave this, to be recorded.
    pub(super) fn that_ran(self, normed: &Normed) -> RowNorm {
        self.stats.get_or_init(|| normed.stats.clone());
        self
    }

    /// The gradients by the kernels; none where they are differentiated.
    fn launched(
        &self,
        saved: &SavedTensors,
        incoming: Incoming<'_>,
    ) -> Result<Option<Vec<Option<Tensor>>>> {
        match self.stats.get() {
            Some(stats) if !is_grad_enabled() => {
                let operands = (saved.input(0), saved.input(1));
                self.kernels.backward(operands, stats, incoming).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Op for RowNorm {
    fn name(&self) -> &'static str {
        self.kernels.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let out = self.out.unwrap_or(inputs[0].dtype());
        let normed = self.kernels.forward((inputs[0], None), &inputs[1..], self.eps, out)?;
        self.stats.get_or_init(|| normed.stats);
        Ok(normed.y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    /// With d = x - mean, or x, h = d rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)), without `mean(g)` where
    /// nothing is subtracted.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        if let Some(grads) = self.launched(saved, Incoming { dy, onto: None })? {
            return Ok(grads);
        }
        let [dtype, of_weight] = [0, 1].map(|input| saved.input(input).dtype());
        let wide = launch::accumulate_dtype(dtype);
        let (x, weight) = (saved.input(0).to_dtype(wide)?, saved.input(1).to_dtype(wide)?);
        let dy = dy.to_dtype(wide)?;
        let from_mean = |t: &Tensor| match self.kernels.centered {
            true => t.sub(&t.mean_dims(&[-1], true)?),
            false => Ok(t.clone()),
        };
        let d = from_mean(&x)?;
        let rstd = d.square()?.mean_dims(&[-1], true)?.add_scalar(self.eps)?.rsqrt()?;
        let h = d.mul(&rstd)?;
        let g = dy.mul(&weight)?;
        let correction = h.mul(&g.mul(&h)?.mean_dims(&[-1], true)?)?;
        let dx = from_mean(&g)?.sub(&correction)?.mul(&rstd)?.to_dtype(dtype)?;
        let dw = sum_rows(&dy.mul(&h)?)?.to_dtype(of_weight)?;
        match self.kernels.centered {
            true => Ok(vec![Some(dx), Some(dw), Some(sum_rows(&dy)?.to_dtype(of_weight)?)]),
            false => Ok(vec![Some(dx), Some(dw)]),
        }
    }

    fn adds_to(&self) -> Option<usize> {
        Some(0)
    }

    fn backward_onto(
        &self,
        saved: &SavedTensors,
        dy: &Tensor,
        onto: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        let is_alike = onto.dtype() == x.dtype() && onto.shape() == x.shape();
        if is_alike && let Some(grads) = self.launched(saved, Incoming { dy, onto: Some(onto) })? {
            return Ok(grads);
        }
        let mut grads = self.backward(saved, dy)?;
        grads[0] = grads[0].take().map(|dx| onto.add(&dx)).transpose()?;
        Ok(grads)
    }
}

/// The sum of `t` over all axes but the last, as `[C]`.
#[track_caller]
fn sum_rows(t: &Tensor) -> Result<Tensor> {
    let axes: Vec<i64> = (0..t.rank() as i64 - 1).collect();
    t.sum_dims(&axes, false)
}
