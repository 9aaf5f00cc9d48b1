//! Writes into a tensor's own memory.
//!
//! Each counts a version, which is how a backward notices that something it saved is gone. Each is an
//! ordinary op whose result takes the place of the values, so that where gradients are wanted it is
//! recorded like one; a leaf that wants a gradient, or a view of one, refuses it.

use std::sync::Arc;

use genesis_kernel::ir::Scalar;

use crate::autograd::is_grad_enabled;
use crate::error::Result;
use crate::launch;
use crate::tensor::Tensor;

impl Tensor {
    /// Replaces the values by those of `source`, broadcast and converted.
    ///
    /// # Errors
    /// If the shape does not broadcast, or the tensor is a leaf whose gradient is wanted and recorded.
    pub fn copy_(&self, source: &Tensor) -> Result<()> {
        self.check_in_place("copy_")?;
        let source = source.broadcast_to(self.shape())?.to_device(self.device())?;
        // Elements that are read after they were written would be others.
        let is_shared = Arc::ptr_eq(source.storage(), self.storage());
        let source =
            if is_shared && source.layout() != self.layout() { source.copy()? } else { source };
        if is_grad_enabled() && (self.requires_grad() || source.requires_grad()) {
            return self.overwrite("copy_", source);
        }
        launch::cast(&source.detach(), self)?;
        self.storage().bump_version();
        Ok(())
    }

    /// Replaces every value.
    ///
    /// # Errors
    /// If the tensor is a leaf whose gradient is wanted and recorded.
    pub fn fill_(&self, value: f64) -> Result<()> {
        self.check_in_place("fill_")?;
        if is_grad_enabled() && self.requires_grad() {
            let at = (self.dtype(), self.device());
            return self.overwrite("fill_", Tensor::full(self.shape(), value, at)?);
        }
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
    /// As [`Tensor::fill_`].
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0.0)
    }
}
