//! Writes into a tensor's own memory. Each counts a version, which is how a backward notices that
//! something it saved is gone.

use genesis_kernel::ir::Scalar;

use super::Tensor;
use crate::autograd::is_grad_enabled;
use crate::error::{Error, Result};
use crate::ops::launch;

impl Tensor {
    /// Replaces the values by those of `source`, broadcast and converted.
    ///
    /// # Errors
    /// If the shape does not broadcast, or gradients are wanted and recorded.
    pub fn copy_(&self, source: &Tensor) -> Result<()> {
        self.check_in_place("copy_")?;
        let source = source.detach().broadcast_to(self.shape())?.to_device(self.device())?;
        launch::cast(&source, self)?;
        self.storage().bump_version();
        Ok(())
    }

    /// Replaces every value.
    ///
    /// # Errors
    /// If gradients are wanted and recorded.
    pub fn fill_(&self, value: f64) -> Result<()> {
        self.check_in_place("fill_")?;
        let scalar = match self.dtype() {
            dtype if dtype.is_float() => Scalar::float(dtype, value),
            dtype => Scalar::int(dtype, value as i64),
        };
        launch::fill(self, scalar)?;
        self.storage().bump_version();
        Ok(())
    }

    /// Replaces every value by zero.
    ///
    /// # Errors
    /// If gradients are wanted and recorded.
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0.0)
    }

    /// Adds `other` to the values.
    ///
    /// # Errors
    /// If the shape does not broadcast, or gradients are wanted and recorded.
    pub fn add_(&self, other: &Tensor) -> Result<()> {
        self.check_in_place("add_")?;
        self.copy_(&self.detach().add(&other.detach())?)
    }

    /// Multiplies the values by `other`.
    ///
    /// # Errors
    /// If the shape does not broadcast, or gradients are wanted and recorded.
    pub fn mul_(&self, other: &Tensor) -> Result<()> {
        self.check_in_place("mul_")?;
        self.copy_(&self.detach().mul(&other.detach())?)
    }

    /// An in-place write may not cut a graph silently: it is refused where it would have to be
    /// recorded.
    fn check_in_place(&self, op: &str) -> Result<()> {
        if is_grad_enabled() && self.requires_grad() {
            let message = "this tensor requires a gradient, so an in-place write would lose it; \
                           write inside no_grad, or use the form that returns a new tensor";
            return Err(Error::op(op, message));
        }
        if self.strides().iter().zip(self.shape()).any(|(&s, &e)| s == 0 && e > 1) {
            return Err(Error::op(op, "several elements share one place in memory; copy it first"));
        }
        Ok(())
    }
}
