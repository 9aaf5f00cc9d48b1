//! LAMB: Adam with a trust ratio a layer.

use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Arg;
use kernels::update as device;

use super::rule::{Fused, sign, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::Result;
use crate::launch::{self, pointer};
use crate::tensor::Tensor;

/// Options of [`Lamb`], with the defaults of its authors.
#[derive(Clone, Copy, Debug)]
pub struct LambOptions {
    /// The learning rate.
    pub lr: f64,
    /// Decay of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the root of the second mean.
    pub eps: f64,
    /// The share of the weight that is added to the direction.
    pub weight_decay: f64,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for LambOptions {
    fn default() -> LambOptions {
        LambOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-6,
            weight_decay: 0.0,
            maximize: false,
            master: true,
        }
    }
}

/// LAMB: `w -= lr * |w| / |u| * u`, where `u` is Adam's direction with the weight decay added; the
/// ratio is 1 where one of the norms is 0. For large batches.
///
/// # Cost
/// Three launches a step, and memory for `u` while it lasts.
/// # Source
/// arXiv:1904.00962, with Adam's corrections.
pub type Lamb = Optim<LambOptions>;

impl Rule for LambOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        Ok(vec![("exp_avg", state_like(parameter)?), ("exp_avg_sq", state_like(parameter)?)])
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        for member in &mut batch.members {
            member.states.push(state_like(&member.weight)?);
        }
        let weights = batch.weights();
        let starts = batch.cut().starts(&weights);
        let programs = starts[starts.len() - 1] as usize;
        let at = (batch.dtypes()[1], weights[0].device());
        let sums = Tensor::zeros(&[2 * programs], at)?;
        self.directions(batch, &sums, programs)?;
        let trust = Tensor::ones(&[weights.len()], at)?;
        let starts = batch.tables.get(at.1, starts, <[i64]>::to_vec)?;
        let args = [
            pointer(&sums, false),
            pointer(&starts, false),
            pointer(&trust, true),
            launch::many::count(programs),
        ];
        let (kernel, grid) = (&device::lamb_trust::KERNEL, Grid::x(weights.len()));
        launch::warped(kernel, &trust, grid, &[at.0], &[128], Some(4), &args)?;
        // In a check of bounds tensors come one by one, each to its own ratio.
        let cut = batch.cut();
        let ratio = |first: usize| -> Result<Vec<Arg>> {
            let row = if first == 0 { 0 } else { cut.row(&weights, first) };
            Ok(vec![pointer(&trust.narrow(0, row, trust.numel() - row)?, false)])
        };
        batch.fused(&Fused {
            kernel: &device::lamb_apply::KERNEL,
            consts: &[],
            reads_gradient: false,
            state_dtype: None,
            is_numbered: false,
            states: &[Some(2)],
            exact: &[],
            numbers: &[self.lr],
            rest: &ratio,
        })
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("beta1", (&mut self.betas.0).into()),
            ("beta2", (&mut self.betas.1).into()),
            ("eps", (&mut self.eps).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

impl LambOptions {
    /// Steps the means, and writes the direction of each weight beside its state and the sums of squares
    /// of both.
    fn directions(&self, batch: &mut Batch<'_>, sums: &Tensor, programs: usize) -> Result<()> {
        let (beta1, beta2) = self.betas;
        let own_sums = |first: usize| -> Result<Vec<Arg>> {
            let from = sums.narrow(0, first, sums.numel() - first)?;
            Ok(vec![pointer(&from, true), launch::many::count(programs)])
        };
        batch.fused(&Fused {
            kernel: &device::lamb::KERNEL,
            consts: &[],
            reads_gradient: true,
            state_dtype: None,
            is_numbered: false,
            states: &[Some(0), Some(1), Some(2)],
            exact: &[beta1, beta2],
            numbers: &[sign(self.maximize), self.weight_decay, 1.0 - beta1, 1.0 - beta2, self.eps],
            rest: &own_sums,
        })
    }
}
