//! Cross entropy.

use std::sync::{LazyLock, OnceLock};

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Device, from_bytes};
use genesis_kernel::tuning::rows::{Pieces, step_of_row};
use kernels::loss as device;

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::fuse::{Fused, fuse};
use crate::launch;
use crate::launch::config::chip;
use crate::ops::index::flag;
use crate::ops::{Op, Saves, apply, wrong_dtype};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[("cross_entropy", Precision::Single)];

/// How the losses of a batch become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reduction {
    /// One loss for each row.
    None,
    /// The mean over the rows that count.
    #[default]
    Mean,
    /// The sum.
    Sum,
}

impl Reduction {
    /// One loss of many, or all of them.
    pub(crate) fn of(self, losses: &Tensor) -> Result<Tensor> {
        match self {
            Reduction::None => Ok(losses.clone()),
            Reduction::Mean => losses.mean(),
            Reduction::Sum => losses.sum(),
        }
    }
}

const NAME: &str = "cross_entropy";

/// A target that says a row does not count, as in PyTorch.
pub(crate) const IGNORE: i64 = -100;

impl Tensor {
    /// The cross entropy of rows of logits against class indices.
    ///
    /// # Shapes
    /// `[.., C]` with `target: [..]` gives `[]`, or `[..]` without a reduction.
    /// # Numerics
    /// Computed in f32 for 16-bit dtypes and returned in the logits' dtype.
    /// # Errors
    /// If the target is not i64 or of another shape, the logits are not floats, or a class is outside of
    /// `0..C` and not -100 (a row that does not count). On a GPU that is told at the next read.
    pub fn cross_entropy(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        if self.rank() == 0 {
            return Err(Error::op(NAME, "needs at least 1 dimension(s), got shape []"));
        }
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", self.dtype()));
        }
        if target.dtype() != DType::I64 {
            return Err(Error::op(NAME, format!("the target must be i64, got {}", target.dtype())));
        }
        if target.device() != self.device() {
            let message = format!("devices differ, {} and {}", self.device(), target.device());
            return Err(Error::op(NAME, message));
        }
        let (lead, c) = (&self.shape()[..self.rank() - 1], self.shape()[self.rank() - 1]);
        if target.shape() != lead || c == 0 {
            let message = format!(
                "logits are {:?}, the target {:?} must be {lead:?}",
                self.shape(),
                target.shape()
            );
            return Err(Error::op(NAME, message));
        }
        let rows = self.reshape(&[crate::shape::product(lead.iter()), c])?;
        let flat = target.detach().reshape(&[rows.shape()[0]])?.contiguous()?;
        if flat.device() == Device::Cpu {
            check_classes(NAME, &flat, c, IGNORE)?;
        }
        let losses = apply(CrossEntropy::default(), &[&rows, &flat])?;
        let result = match reduction {
            Reduction::None => losses.reshape(lead)?,
            Reduction::Sum => losses.sum()?,
            Reduction::Mean => {
                let counts = COUNTED.call(&[&flat])?.to_dtype(losses.dtype())?;
                losses.sum()?.div(&counts)?
            }
        };
        result.to_dtype(crate::dispatch::autocast::dtype_of(NAME, self))
    }
}

/// Refuses a class that is not there, of dense targets on the CPU.
pub(super) fn check_classes(
    op: &'static str,
    targets: &Tensor,
    c: usize,
    ignore: i64,
) -> Result<()> {
    let mut bytes = vec![0; 8 * targets.numel()];
    if !bytes.is_empty() {
        targets.storage().buffer().read(8 * targets.layout().offset(), &mut bytes)?;
    }
    let is_wrong = |&t: &i64| t != ignore && !(0..c as i64).contains(&t);
    match from_bytes::<i64>(bytes).into_iter().find(is_wrong) {
        Some(wrong) => Err(Error::op(op, format!("class {wrong} is out of range for {c} classes"))),
        None => Ok(()),
    }
}

/// How many targets count.
static COUNTED: LazyLock<Fused> = LazyLock::new(|| {
    fuse(|targets| targets[0].ne_scalar(IGNORE as f64)?.to_dtype(DType::F32)?.sum())
});

/// Losses of rows, in the wide dtype.
#[derive(Default)]
struct CrossEntropy {
    /// The logarithms of the sums, for the backward.
    lse: OnceLock<Tensor>,
}

impl CrossEntropy {
    /// The losses and the logarithms of the sums.
    fn run(rows: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor)> {
        let wide = launch::accumulate_dtype(rows.dtype());
        let m = rows.shape()[0];
        let loss = Tensor::uninitialized(&[m], (wide, rows.device()))?;
        let lse = Tensor::uninitialized(&[m], (wide, rows.device()))?;
        if m > 0 {
            let pieces =
                Pieces::of_row(&chip(rows.device()), rows.shape()[1], rows.dtype().bytes(), false);
            let tensors = [(rows, false), (target, false), (&loss, true), (&lse, true)];
            let [flag, code] = flag::args(NAME, rows.device(), rows.shape()[1])?;
            let numbers = [launch::number(DType::I64, IGNORE as f64), flag, code];
            let (dtypes, consts) = ([rows.dtype(), wide], pieces.consts());
            let kernel = &device::cross_entropy::KERNEL;
            let warps = pieces.warps;
            launch::warped_views(kernel, Grid::x(m), &dtypes, &consts, warps, &tensors, &numbers)?;
        }
        Ok((loss, lse))
    }
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (loss, lse) = CrossEntropy::run(inputs[0], inputs[1])?;
        self.lse.get_or_init(|| lse);
        Ok(loss)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, target) = (saved.input(0), saved.input(1));
        if is_grad_enabled() {
            // Made of ops, so that it can be differentiated again.
            let wide = launch::accumulate_dtype(x.dtype());
            let classes = Tensor::arange(0.0, x.shape()[1] as f64, 1.0, (DType::I64, x.device()))?;
            let hot = classes.eq(&target.unsqueeze(-1)?)?.to_dtype(wide)?;
            let counts = target.ne_scalar(IGNORE as f64)?.to_dtype(wide)?;
            let dy = dy.mul(&counts)?.unsqueeze(-1)?;
            let dx = x.to_dtype(wide)?.softmax(-1)?.sub(&hot)?.mul(&dy)?;
            return Ok(vec![Some(dx.to_dtype(x.dtype())?), None]);
        }
        let lse = match self.lse.get() {
            Some(lse) => lse.clone(),
            None => CrossEntropy::run(x, target)?.1,
        };
        let dx = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        if x.numel() > 0 {
            let block = step_of_row(x.shape()[1]);
            let grid = Grid::xy(x.shape()[0], x.shape()[1].div_ceil(block));
            let tensors = [(x, false), (target, false), (&lse, false), (dy, false), (&dx, true)];
            let ignore = [launch::number(DType::I64, IGNORE as f64)];
            let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
            let kernel = &device::cross_entropy_bwd::KERNEL;
            launch::views(kernel, grid, &dtypes, &[block as i64], &tensors, &ignore)?;
        }
        Ok(vec![Some(dx), None])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;
    use genesis_kernel::runtime::Device;

    use crate::ops::Reduction;
    use crate::ops::info::{Family, OpInfo, cpu, scalar};
    use crate::ops::norm::log_softmax_reference as log_softmax;
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "cross_entropy",
        Family::Softmax,
        |x| x[0].cross_entropy(&x[1], Reduction::Mean),
        |x| {
            let losses =
                x[1].data.iter().enumerate().map(|(i, &t)| -log_softmax(x[0].row(i))[t as usize]);
            scalar(losses.sum::<f64>() / x[1].data.len() as f64)
        },
        &[&[&[1, 7], &[1]], &[&[5, 7], &[5]], &[&[2, 3, 130], &[2, 3]], &[&[2, 5000], &[2]]],
    )
    .peer("F.cross_entropy(x[0], x[1])")
    .within(-5.0, 5.0)
    .indexed(&[(1, 7)])
    .refusing(&[
        (
            || {
                let target = cpu(&[2], DType::F32)?;
                cpu(&[2, 3], DType::F32)?.cross_entropy(&target, Reduction::Mean)
            },
            "cross_entropy: the target must be i64, got f32",
        ),
        (
            || {
                let target = cpu(&[3], DType::I64)?;
                cpu(&[2, 3], DType::F32)?.cross_entropy(&target, Reduction::Mean)
            },
            "cross_entropy: logits are [2, 3], the target [3] must be [2]",
        ),
        (
            || {
                let target = Tensor::from_slice_on(&[0i64, -100, 3], &[3], Device::Cpu)?;
                cpu(&[3, 3], DType::F32)?.cross_entropy(&target, Reduction::Mean)
            },
            "cross_entropy: class 3 is out of range for 3 classes",
        ),
    ])];
}
