//! CTC losses by kernels that walk the frames of a labeling, in place of ops for each frame.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use kernels::ctc as device;

use super::ctc_places::{Labelings, losses_by_ops};
use crate::autograd::{GradOptions, SavedTensors, grad, is_grad_enabled};
use crate::error::Result;
use crate::launch;
use crate::ops::index::flag;
use crate::ops::{Op, Saves, apply};
use crate::tensor::Tensor;

const NAME: &str = "ctc_loss";
/// Places of a labeling, at most, that a program keeps.
pub(super) const MOST_PLACES: usize = 4096;

/// The negative log-probability of each labeling, `[N]`, of log-probabilities `[T, N, C]` of f32 or f64.
#[track_caller]
pub(super) fn losses(log_probs: &Tensor, of: Labelings) -> Result<Tensor> {
    let targets = of.targets.contiguous()?;
    let (of, lengths) = (Labelings { targets, ..of.clone() }, of.lengths()?);
    apply(Losses { of, lengths, walked: OnceLock::new() }, &[log_probs])
}

struct Losses {
    of: Labelings,
    lengths: Tensor,
    /// Of each frame and place the logarithm of the probability to be there, and the class of each place.
    walked: OnceLock<[Tensor; 2]>,
}

impl Losses {
    fn places(&self) -> [i64; 1] {
        [self.of.width().next_power_of_two().max(16) as i64]
    }

    /// The gradient, by what each place gets of it.
    fn slope(&self, log_probs: &Tensor, losses: &Tensor, dy: &Tensor) -> Result<Tensor> {
        let at = (log_probs.dtype(), log_probs.device());
        let [frames, batch] = [log_probs.shape()[0], log_probs.shape()[1]];
        let zeros = Tensor::zeros(log_probs.shape(), at)?;
        let Some([alphas, classes]) = self.walked.get().filter(|_| log_probs.numel() > 0) else {
            return Ok(zeros);
        };
        let width = self.of.width();
        let slopes = Tensor::uninitialized(&[frames, batch, width], at)?;
        let (losses, dy) = (losses.contiguous()?, dy.contiguous()?);
        let args = [
            launch::view_of(log_probs, false),
            launch::view_of(&self.lengths, false),
            launch::pointer(alphas, false),
            launch::pointer(classes, false),
            launch::pointer(&losses, false),
            launch::pointer(&dy, false),
            launch::pointer(&slopes, true),
            launch::number(DType::I64, width as f64),
            launch::number(DType::I64, self.of.blank as f64),
        ];
        let (kernel, grid) = (&device::ctc_slopes::KERNEL, Grid::x(batch));
        launch::warped(kernel, &slopes, grid, &[at.0], &self.places(), None, &args)?;
        zeros.scatter_add(2, &classes.broadcast_to(slopes.shape())?, &slopes)
    }
}

impl Op for Losses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let log_probs = inputs[0];
        let (dtype, on) = (log_probs.dtype(), log_probs.device());
        let [frames, batch, classes] = [0, 1, 2].map(|axis| log_probs.shape()[axis]);
        let losses = Tensor::uninitialized(&[batch], (dtype, on))?;
        if batch == 0 {
            return Ok(losses);
        }
        let width = self.of.width();
        let alphas = Tensor::uninitialized(&[batch, frames, width], (dtype, on))?;
        let own = Tensor::uninitialized(&[batch, width], (DType::I64, on))?;
        let args = [
            launch::view_of(log_probs, false),
            launch::pointer(&self.of.targets, false),
            launch::view_of(&self.lengths, false),
            launch::pointer(&alphas, true),
            launch::pointer(&own, true),
            launch::pointer(&losses, true),
            launch::number(DType::I64, width as f64),
            launch::number(DType::I64, self.of.blank as f64),
        ];
        let args = [&args[..], &flag::args(NAME, on, classes)?].concat();
        let (kernel, grid) = (&device::ctc_alphas::KERNEL, Grid::x(batch));
        launch::warped(kernel, &losses, grid, &[dtype], &self.places(), None, &args)?;
        flag::refuse(on)?;
        self.walked.get_or_init(|| [alphas, own]);
        Ok(losses)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 1, output: true }
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let log_probs = saved.input(0);
        if !is_grad_enabled() {
            return Ok(vec![Some(self.slope(log_probs, saved.output(), dy)?)]);
        }
        let y = losses_by_ops(log_probs, &self.of)?;
        let options = GradOptions {
            grad_outputs: &[Some(dy)],
            create_graph: true,
            allow_unused: true,
            ..GradOptions::default()
        };
        grad(&[&y], &[log_probs], options)
    }
}
