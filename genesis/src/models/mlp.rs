//! Gated feed-forward layers.

use super::blueprint::Blueprint;
use super::decoder::FeedForwardLayer;
use super::norm::Norm;
use super::normed::Normed;
use super::projection::Projection;
use super::residual::Residual;
use super::tensor_parallel::TensorParallel;
use crate::error::Result;
use crate::nn::{Layer, Module, is_observed, watch, watch_as};
use crate::ops::{Activation, Gate};
use crate::tensor::Tensor;

/// `down(activation(gate(x)) * up(x))`: SwiGLU with SiLU, GEGLU with GELU.
///
/// # Shapes
/// `[.., C]` -> `[.., C]`
/// # Source
/// arXiv:2002.05202.
#[derive(Debug, Module)]
pub struct GatedMlp {
    /// `[hidden, C]`
    pub gate_proj: Projection,
    /// `[hidden, C]`
    pub up_proj: Projection,
    /// `[C, hidden]`
    pub down_proj: Projection,
    /// The function of the gate.
    #[module(skip)]
    pub activation: Activation,
    /// The ranks that have some of the hidden channels each.
    #[module(skip)]
    pub parallel: Option<TensorParallel>,
}

impl GatedMlp {
    /// A layer of `[channels, hidden]`.
    pub(super) fn new(
        plan: &Blueprint,
        [channels, hidden]: [usize; 2],
        activation: Activation,
        bias: bool,
    ) -> Result<GatedMlp> {
        Ok(GatedMlp {
            gate_proj: plan.projection([channels, hidden], bias)?,
            up_proj: plan.projection([channels, hidden], bias)?,
            down_proj: plan.projection([hidden, channels], bias)?,
            activation,
            parallel: None,
        })
    }

    /// The gated product, projected back.
    ///
    /// # Errors
    /// If the channels are others.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.of_normed(&x.clone().into())
    }

    /// [`GatedMlp::forward`] of what a norm leaves to the products, or makes.
    pub(super) fn of_normed(&self, x: &Normed<'_>) -> Result<Tensor> {
        watch(self, || {
            let gated = self.gated(x)?;
            match &self.parallel {
                Some(parallel) => parallel.product(&self.down_proj, &gated),
                None => self.down_proj.forward(&gated),
            }
        })
    }

    fn gated(&self, x: &Normed<'_>) -> Result<Tensor> {
        if let Some(parallel) = &self.parallel {
            let x = parallel.enter(x.tensor()?)?;
            return self.opened(&self.gate_proj.forward(&x)?, &self.up_proj.forward(&x)?);
        }
        let joined = Projection::joined(&[&self.gate_proj, &self.up_proj])?;
        if let Some((joined, gate)) = joined.zip(Gate::of(self.activation)) {
            if let Some(y) = joined.gated(x, gate)? {
                return Ok(y);
            }
            return joined.of_normed(x)?.gated(gate); // [.., 2 hidden] -> [.., hidden]
        }
        let x = x.tensor()?;
        self.opened(&self.gate_proj.forward(x)?, &self.up_proj.forward(x)?)
    }

    /// `activation(gate) * up`.
    fn opened(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        match Gate::of(self.activation) {
            Some(function) => gate.gate(up, function),
            None => self.activation.apply(gate)?.mul(up),
        }
    }

    /// Lays the weights out so that gate and up are one product.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn pack(&mut self) -> Result<()> {
        Projection::pack(&mut [&mut self.gate_proj, &mut self.up_proj])
    }
}

impl Layer for GatedMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        GatedMlp::forward(self, x)
    }
}

impl FeedForwardLayer for GatedMlp {
    fn onto(&self, x: &Normed<'_>, residual: Residual, next: Option<&Norm>) -> Result<Residual> {
        if is_observed() || self.parallel.is_some() {
            return residual.plus(self.of_normed(x)?);
        }
        let run = || residual.plus_product(&self.down_proj, &self.gated(x)?, next);
        watch_as(self, Residual::sum, run)
    }

    fn defers_norm(&self) -> bool {
        Gate::of(self.activation).is_some()
            && Projection::defer_norms(&[&self.gate_proj, &self.up_proj])
    }

    fn pack(&mut self) -> Result<()> {
        GatedMlp::pack(self)
    }

    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<()> {
        by.check("hidden channels", self.down_proj.weight.shape()[1])?;
        by.cut_outputs(&mut self.gate_proj)?;
        by.cut_outputs(&mut self.up_proj)?;
        by.cut_inputs(&mut self.down_proj)?;
        self.parallel = Some(by.clone());
        Ok(())
    }
}
