//! What the classes of rows lack of a margin below their targets, and the sum of all rows, in one launch.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::elementwise::Tile;
use genesis_kernel::tuning::rows::{step_of_row, warps_of_step};
use kernels::loss as device;

use super::cross_entropy::Reduction;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::ops::index::flag;
use crate::ops::{Op, Saves};
use crate::tensor::Tensor;

/// Rows up to which the launch that makes the losses adds them up as well: the last program does it alone, and the others
/// wait for each other to count themselves.
const SUMMED_ROWS: usize = 512;
/// Columns of a step of a GPU's program.
const STEP: usize = 1024;
/// The name of the op.
const NAME: &str = "multi_margin_loss";

/// The losses of `x: [m, c]` and targets `[m]`, of which there is one at least, or what they are reduced to.
pub(super) struct MultiMarginLoss {
    /// A dense weight for each class, in the dtype of sums.
    pub(super) weight: Option<Tensor>,
    pub(super) is_squared: bool,
    pub(super) margin: f64,
    pub(super) reduction: Reduction,
    /// The dtype of the result.
    pub(super) dtype: DType,
    /// How fast what a row lacks grows, for the backward.
    pub(super) slopes: OnceLock<Tensor>,
}

impl MultiMarginLoss {
    fn weight(&self, like: &Tensor, wide: DType) -> Arg {
        match &self.weight {
            Some(weight) => launch::pointer(weight, false),
            None => launch::no_pointer(like.device(), wide),
        }
    }

    /// The losses as the reduction wants them, and the slopes of the rows.
    fn run(&self, x: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor)> {
        let (m, n, wide) = (x.shape()[0], x.shape()[1], launch::accumulate_dtype(x.dtype()));
        let of = |shape: &[usize], dtype| Tensor::uninitialized(shape, (dtype, x.device()));
        let (losses, slopes, loss) = (of(&[m], wide)?, of(&[m], wide)?, of(&[], self.dtype)?);
        let [flag, code] = flag::args(NAME, x.device(), n)?;
        // The CPU's are of this launch alone.
        let done = launch::counters(x.device(), 1)?;
        let args = [
            launch::view_of(x, false),
            launch::view_of(target, false),
            self.weight(x, wide),
            launch::view_of(&losses, true),
            launch::view_of(&slopes, true),
            launch::pointer(&done, true),
            launch::pointer(&loss, true),
            launch::number(DType::F64, self.margin),
            flag,
            code,
        ];
        // With steps of 4096 columns two programs fill a multiprocessor, each of which waits for its target, for the score of
        // that, and for its row (H200: 1.4 of 4.3 TB/s).
        let cols = match x.device() {
            Device::Cpu => step_of_row(n),
            Device::Cuda(_) => step_of_row(n).min(STEP),
        };
        let is_mean = self.reduction == Reduction::Mean;
        let is_summed = self.reduction != Reduction::None && m <= SUMMED_ROWS;
        let flags = [self.is_squared, self.weight.is_some(), is_summed, is_mean].map(i64::from);
        let consts = [&flags[..], &[cols as i64]].concat();
        let (kernel, dtypes) = (&device::multi_margin::KERNEL, [x.dtype(), wide, self.dtype]);
        let warps = warps_of_step(&chip(x.device()), cols);
        launch::warped(kernel, x, Grid::x(m), &dtypes, &consts, warps, &args)?;
        flag::refuse(x.device())?;
        match self.reduction {
            Reduction::None => Ok((losses.to_dtype(self.dtype)?, slopes)),
            Reduction::Mean | Reduction::Sum if is_summed => Ok((loss, slopes)),
            Reduction::Mean => Ok((losses.mean()?.to_dtype(self.dtype)?, slopes)),
            Reduction::Sum => Ok((losses.sum()?.to_dtype(self.dtype)?, slopes)),
        }
    }

    /// What `dy` is multiplied by in each row.
    fn scale(&self, x: &Tensor) -> f64 {
        let rows = if self.reduction == Reduction::Mean { x.shape()[0] } else { 1 };
        1.0 / (rows as f64 * x.shape()[1] as f64)
    }

    /// The gradient by ops that have gradients themselves.
    fn differentiable(&self, x: &Tensor, target: &Tensor, dy: &Tensor) -> Result<Tensor> {
        let wide = launch::accumulate_dtype(x.dtype());
        let (dtype, x, own) = (x.dtype(), x.to_dtype(wide)?, target.unsqueeze(-1)?);
        let classes = Tensor::arange(0.0, x.shape()[1] as f64, 1.0, (DType::I64, x.device()))?;
        let hot = classes.eq(&own)?.to_dtype(wide)?; // [N, C]
        let lack = x.sub(&x.gather(1, &own)?)?.add_scalar(self.margin)?.relu()?;
        let slope = if self.is_squared { lack.mul_scalar(2.0)? } else { lack.sign()? };
        let slope = slope.mul(&hot.neg()?.add_scalar(1.0)?)?;
        let slope = slope.sub(&hot.mul(&slope.sum_dims(&[-1], true)?)?)?;
        let mut scale = dy.to_dtype(wide)?.mul_scalar(self.scale(&x))?.unsqueeze(-1)?;
        if let Some(weight) = &self.weight {
            scale = scale.mul(&weight.index_select(0, target)?.unsqueeze(-1)?)?;
        }
        slope.mul(&scale)?.to_dtype(dtype)
    }
}

impl Op for MultiMarginLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (loss, slopes) = self.run(inputs[0], inputs[1])?;
        self.slopes.get_or_init(|| slopes);
        Ok(loss)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, target) = (saved.input(0), saved.input(1));
        if is_grad_enabled() {
            return Ok(vec![Some(self.differentiable(x, target, dy)?), None]);
        }
        let slopes = match self.slopes.get() {
            Some(slopes) => slopes.clone(),
            None => self.run(x, target)?.1,
        };
        let (m, n, wide) = (x.shape()[0], x.shape()[1], launch::accumulate_dtype(x.dtype()));
        let dx = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let Tile { rows, cols, warps } = Tile::of(&chip(x.device()), x.dtype().bytes(), m, n);
        let args = [
            launch::view_of(x, false),
            launch::view_of(target, false),
            self.weight(x, wide),
            launch::view_of(&slopes, false),
            launch::view_of(&dy.broadcast_to(&[m])?, false),
            launch::view_of(&dx, true),
            launch::number(DType::F64, self.margin),
            launch::number(DType::F64, self.scale(x)),
        ];
        let flags = [self.is_squared, self.weight.is_some()].map(i64::from);
        let consts = [flags[0], flags[1], rows as i64, cols as i64];
        let grid = Grid::x(m.div_ceil(rows) * n.div_ceil(cols));
        let (kernel, dtypes) = (&device::multi_margin_bwd::KERNEL, [x.dtype(), wide, dy.dtype()]);
        launch::warped(kernel, &dx, grid, &dtypes, &consts, warps, &args)?;
        Ok(vec![Some(dx), None])
    }
}
