//! Reverse-mode differentiation over a tape of nodes.
//!
//! Every differentiable op that sees an input with `requires_grad` leaves a node: the op, where
//! its inputs' gradients go, and the tensors its backward reads. A node's sequence number is greater
//! than those of all it depends on, so `backward` takes nodes from a queue by falling number and
//! never recurses. The backward of an op is made of ops, so with `create_graph` it is differentiable.

mod backward;
mod mode;
mod node;

pub use backward::{BackwardOptions, grad};
pub use mode::{enable_grad, is_grad_enabled, no_grad};
pub use node::SavedTensors;
pub(crate) use node::{GradMeta, Node, Saved};

use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// Whether gradients of this tensor are wanted.
    pub fn requires_grad(&self) -> bool {
        self.meta().requires_grad()
    }

    /// Whether it was made by the user and not by a differentiable op.
    pub fn is_leaf(&self) -> bool {
        self.meta().node().is_none()
    }

    /// Asks for gradients of this leaf, or stops asking; gives the tensor back.
    ///
    /// # Errors
    /// If the dtype is not a float, or the tensor was made by a differentiable op.
    pub fn requires_grad_(self, requires: bool) -> Result<Tensor> {
        if requires && !self.dtype().is_arithmetic_float() {
            let message = format!("only floats have gradients, this is {}", self.dtype());
            return Err(Error::op("requires_grad_", message));
        }
        if !self.is_leaf() && !requires {
            return Err(Error::op("requires_grad_", "only leaf tensors change; use detach"));
        }
        self.meta().set_requires_grad(requires);
        Ok(self)
    }

    /// The gradient accumulated so far.
    pub fn grad(&self) -> Option<Tensor> {
        self.meta().grad()
    }

    /// Replaces the gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        self.meta().set_grad(grad);
    }

    /// Forgets the gradient.
    pub fn zero_grad(&self) {
        self.set_grad(None);
    }

    /// Adds the gradient of this scalar to every leaf it depends on.
    ///
    /// # Errors
    /// If it is not a scalar, requires no gradient, was freed by an earlier backward, or a tensor
    /// needed for it was changed in place since.
    pub fn backward(&self) -> Result<()> {
        self.backward_with(None, BackwardOptions::default())
    }

    /// Adds the gradient of `sum(self * dy)` to every leaf it depends on.
    ///
    /// # Errors
    /// As [`Tensor::backward`], or if `dy` has another shape.
    pub fn backward_with(&self, dy: Option<&Tensor>, options: BackwardOptions) -> Result<()> {
        backward::run(self, dy, options)
    }
}
