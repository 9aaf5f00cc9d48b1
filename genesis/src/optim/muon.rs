//! Muon: momentum, orthogonalized by Newton-Schulz iterations.

use genesis_kernel::ir::DType;

use super::rule::{Member, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::tensor::Tensor;

/// How Muon's learning rate follows the shape of a matrix of `m` by `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AdjustLr {
    /// `sqrt(max(1, m / n))`
    #[default]
    Original,
    /// `0.2 * sqrt(max(m, n))`: steps as long as AdamW's, whose learning rate fits then.
    MatchRmsAdamW,
    /// `sqrt(m / n)`
    SpectralUnclamped,
}

/// Options of [`Muon`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct MuonOptions {
    /// The learning rate.
    pub lr: f64,
    /// The share of the weight that is taken from it, times the learning rate.
    pub weight_decay: f64,
    /// Decay of the running mean of the gradient.
    pub momentum: f64,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// The coefficients of an iteration: of the matrix, and of its third and fifth power.
    pub coefficients: (f64, f64, f64),
    /// The least norm that is divided by.
    pub eps: f64,
    /// Iterations.
    pub iterations: u32,
    /// How the learning rate follows the shape.
    pub adjust_lr: AdjustLr,
    /// Multiplies matrices in bf16, which is PyTorch's way and several times as fast on a GPU; else in
    /// the dtype of the state.
    pub bf16: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for MuonOptions {
    fn default() -> MuonOptions {
        MuonOptions {
            lr: 1e-3,
            weight_decay: 0.1,
            momentum: 0.95,
            nesterov: true,
            coefficients: (3.4445, -4.775, 2.0315),
            eps: 1e-7,
            iterations: 5,
            adjust_lr: AdjustLr::Original,
            bf16: true,
            master: true,
        }
    }
}

/// Muon, for the matrices between a network's first and last layer; give the other parameters to
/// [`AdamW`](super::AdamW).
///
/// # Errors
/// A step refuses parameters that are no matrices.
/// # Cost
/// Fifteen matrix products a parameter with the default five iterations.
/// # Source
/// Jordan et al., <https://kellerjordan.github.io/posts/muon>; same conventions as `torch.optim.Muon`.
pub type Muon = Optim<MuonOptions>;

impl Rule for MuonOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        Ok(vec![("momentum_buffer", state_like(parameter)?)])
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        if let Some(member) = batch.members().iter().find(|member| member.weight.rank() != 2) {
            let shape = member.weight.shape();
            return Err(Error::op("muon", format!("needs matrices, got shape {shape:?}")));
        }
        for member in batch.members() {
            self.step_one(batch, member)?;
        }
        Ok(())
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("momentum", (&mut self.momentum).into()),
            ("nesterov", (&mut self.nesterov).into()),
            ("eps", (&mut self.eps).into()),
            ("bf16", (&mut self.bf16).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

impl MuonOptions {
    fn step_one(&self, batch: &Batch<'_>, member: &Member) -> Result<()> {
        let weight = member.weight()?;
        if weight.numel() == 0 {
            return Ok(());
        }
        let (gradient, old) = (member.gradient()?, member.state(0));
        let rest = 1.0 - self.momentum;
        let buffer = old.add(&gradient.sub(old)?.mul_scalar(rest)?)?;
        batch.set_state(member, 0, &buffer)?;
        let update = if self.nesterov {
            gradient.add(&buffer.sub(&gradient)?.mul_scalar(self.momentum)?)?
        } else {
            buffer
        };
        let update = self.orthogonal(&update)?.to_dtype(weight.dtype())?;
        let (m, n) = (weight.shape()[0] as f64, weight.shape()[1] as f64);
        let ratio = match self.adjust_lr {
            AdjustLr::Original => (m / n).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamW => 0.2 * m.max(n).sqrt(),
            AdjustLr::SpectralUnclamped => (m / n).sqrt(),
        };
        let kept = weight.mul_scalar(1.0 - self.lr * self.weight_decay)?;
        batch.set_weight(member, &kept.sub(&update.mul_scalar(self.lr * ratio)?)?)
    }

    /// Nearly the nearest matrix whose rows, or columns, are orthonormal, by the iteration of Newton and
    /// Schulz: singular values of about 1.
    fn orthogonal(&self, x: &Tensor) -> Result<Tensor> {
        let is_tall = x.shape()[0] > x.shape()[1];
        let x = if self.bf16 { x.to_dtype(DType::BF16)? } else { x.clone() };
        let mut x = if is_tall { x.t()? } else { x };
        let norm = x.to_dtype(accumulate_dtype(x.dtype()))?.square()?.sum()?.sqrt()?;
        x = x.div(&norm.maximum_scalar(self.eps)?.to_dtype(x.dtype())?)?;
        let (a, b, c) = self.coefficients;
        for _ in 0..self.iterations {
            let gram = x.matmul(&x.t()?)?;
            let mixed = gram.addmm(&gram, &gram, c, b)?;
            x = x.addmm(&mixed, &x, 1.0, a)?;
        }
        if is_tall { x.t() } else { Ok(x) }
    }
}
