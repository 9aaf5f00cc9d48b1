//! Negative log-likelihood: the losses, their weights and the sums of both in one launch.
//!
//! ```text
//! programs      rows of targets       partial                     the last program
//! 0             0..512, 1024..1536    sums of losses, of weights  \
//! 1             512..1024, ..         sums of losses, of weights  /  loss = losses / weights
//! ```

use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::elementwise::Tile;
use kernels::loss as device;

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::Result;
use crate::launch;
use crate::launch::config::chip;
use crate::ops::index::flag;
use crate::ops::{Op, Saves};
use crate::tensor::Tensor;

/// Rows that a program looks at at once, and the most programs of a sum.
const BLOCK: usize = 512;
const MOST_PROGRAMS: usize = 256;

/// The name of the op.
const NAME: &str = "nll_loss";

/// The sum of the losses of `x: [m, c]` and targets `[m]`, or their mean by weights.
pub(super) struct NllLoss {
    /// A weight for each class, in the dtype of sums.
    weight: Option<Tensor>,
    ignore: i64,
    is_mean: bool,
    /// The sum of the weights, for the backward.
    total: OnceLock<Tensor>,
}

impl NllLoss {
    /// By dense weights of the classes, in the dtype of sums.
    pub(super) fn new(weight: Option<Tensor>, ignore: i64, is_mean: bool) -> NllLoss {
        NllLoss { weight, ignore, is_mean, total: OnceLock::new() }
    }

    fn weight(&self, like: &Tensor, wide: DType) -> Arg {
        match &self.weight {
            Some(weight) => launch::pointer(weight, false),
            None => launch::no_pointer(like.device(), wide),
        }
    }

    fn run(&self, x: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor)> {
        let (m, wide) = (x.shape()[0], launch::accumulate_dtype(x.dtype()));
        let parts = m.div_ceil(BLOCK).min(MOST_PROGRAMS);
        let of = |shape: &[usize], dtype| Tensor::uninitialized(shape, (dtype, x.device()));
        let (loss, total, partial) = (of(&[], x.dtype())?, of(&[], wide)?, of(&[2, parts], wide)?);
        let [flag, code] = flag::args(NAME, x.device(), x.shape()[1])?;
        // The CPU's are of this launch alone.
        let done = launch::counters(x.device(), 1)?;
        let args = [
            launch::view_of(x, false),
            launch::view_of(target, false),
            self.weight(x, wide),
            launch::view_of(&partial, true),
            launch::pointer(&done, true),
            launch::pointer(&loss, true),
            launch::pointer(&total, true),
            launch::number(DType::I64, self.ignore as f64),
            flag,
            code,
        ];
        let flags = [i64::from(self.is_mean), i64::from(self.weight.is_some())];
        let consts = [flags[0], flags[1], BLOCK as i64, parts.next_power_of_two() as i64];
        let (kernel, dtypes) = (&device::nll_loss::KERNEL, [x.dtype(), wide, x.dtype()]);
        launch::warped(kernel, x, Grid::x(parts), &dtypes, &consts, None, &args)?;
        flag::refuse(x.device())?;
        Ok((loss, total))
    }
}

impl Op for NllLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (loss, total) = self.run(inputs[0], inputs[1])?;
        self.total.get_or_init(|| total);
        Ok(loss)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, target) = (saved.input(0), saved.input(1));
        let total = match self.total.get() {
            Some(total) => total.clone(),
            None => self.run(x, target)?.1,
        };
        let wide = launch::accumulate_dtype(x.dtype());
        if is_grad_enabled() {
            // Made of ops, so that it can be differentiated again.
            let classes = Tensor::arange(0.0, x.shape()[1] as f64, 1.0, (DType::I64, x.device()))?;
            let counts = target.ne_scalar(self.ignore as f64)?.unsqueeze(-1)?;
            let hot = classes.eq(&target.unsqueeze(-1)?)?.logical_and(&counts)?.to_dtype(wide)?;
            let weights = match &self.weight {
                Some(weight) => hot.mul(weight)?,
                None => hot,
            };
            let dy = dy.to_dtype(wide)?;
            let slope = if self.is_mean { dy.div(&total)? } else { dy };
            return Ok(vec![Some(weights.mul(&slope.neg()?)?.to_dtype(x.dtype())?), None]);
        }
        let dx = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let (m, n) = (x.shape()[0], x.shape()[1]);
        let Tile { rows, cols, warps } = Tile::of(&chip(x.device()), x.dtype().bytes(), m, n);
        let dy = dy.contiguous()?;
        let args = [
            launch::view_of(target, false),
            self.weight(x, wide),
            launch::pointer(&total, false),
            launch::pointer(&dy, false),
            launch::view_of(&dx, true),
            launch::number(DType::I64, self.ignore as f64),
        ];
        let flags = [i64::from(self.is_mean), i64::from(self.weight.is_some())];
        let consts = [flags[0], flags[1], rows as i64, cols as i64];
        let grid = Grid::x(m.div_ceil(rows) * n.div_ceil(cols));
        let (kernel, dtypes) = (&device::nll_loss_bwd::KERNEL, [x.dtype(), wide, dy.dtype()]);
        launch::warped(kernel, &dx, grid, &dtypes, &consts, warps, &args)?;
        Ok(vec![Some(dx), None])
    }
}
