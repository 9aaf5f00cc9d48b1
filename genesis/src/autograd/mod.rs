//! Reverse-mode differentiation over a tape of nodes.
//!
//! Every differentiable op that sees an input with `requires_grad` leaves a node: the op, where
//! its inputs' gradients go, and the tensors its backward reads. A node's sequence number is greater
//! than those of all it depends on, so `backward` takes nodes from a queue by falling number and
//! never recurses. The backward of an op is made of ops, so with `create_graph` it is differentiable.
//!
//! | file | what |
//! |---|---|
//! | `op`, `apply` | what a differentiable operation is, and what runs one |
//! | `tape`, `saved` | the tape: what a tensor, an op and a saved tensor are in it |
//! | `rebuilt` | saved tensors whose memory is given up until a backward reads them |
//! | `offload` | saved tensors that wait in the memory of the host |
//! | `policy` | what a checkpoint keeps beside its inputs |
//! | `record`, `in_place` | what ops and writes in place put on it |
//! | `backward` | the walk |
//! | `hooks`, `callback`, [`Function`], [`checkpoint()`], [`gradcheck`], [`detect_anomaly`] | what users reach for |
//!
//! Any number of threads may run a backward at once. Gradients of a leaf that they share are summed, in
//! the order in which they come; on a graph that they share each but the last must retain it.

pub(crate) mod anomaly;
mod apply;
mod backward;
mod callback;
mod checkpoint;
mod function;
mod gradcheck;
mod hook_list;
mod hooks;
mod in_place;
mod offload;
pub(crate) mod op;
pub(crate) mod parts;
mod policy;
mod rebuilt;
mod record;
mod saved;
mod tape;

pub use crate::mode::{
    ModeGuard, enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad,
    set_grad_enabled,
};
pub use anomaly::{Anomaly, detect_anomaly};
pub(crate) use apply::{apply, apply_joined};
pub use backward::{BackwardOptions, GradOptions, grad};
pub use callback::after_backward;
pub(crate) use checkpoint::run_first;
pub use checkpoint::{checkpoint, checkpoint_many, checkpoint_with};
pub use function::{Context, Function};
pub use gradcheck::{GradCheck, gradcheck, gradgradcheck};
pub use hooks::HookHandle;
pub use offload::save_on_cpu;
pub(crate) use op::Kinds;
pub use op::SavedTensors;
pub use policy::{CheckpointPolicy, KeepBudget, KeptResults};
pub(crate) use rebuilt::{Rebuilt, giving_up};
pub(crate) use record::record;
pub(crate) use saved::is_running_again;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// Whether gradients of this tensor are wanted.
    pub fn requires_grad(&self) -> bool {
        let Some(meta) = self.known_meta() else { return false };
        if meta.view().is_some() {
            self.refresh();
        }
        meta.requires_grad()
    }

    /// Whether it was made by the user and not by a differentiable op.
    pub fn is_leaf(&self) -> bool {
        !self.requires_grad() || !self.meta().has_history()
    }

    /// Whether it was made in [`inference_mode`], or is a view of what was.
    pub fn is_inference(&self) -> bool {
        self.storage().is_inference()
    }

    /// Asks for gradients of this leaf, or stops asking; gives the tensor back.
    ///
    /// # Errors
    /// If the dtype is not a float, or the tensor was made by a differentiable op, or in
    /// [`inference_mode`] and that has ended.
    pub fn requires_grad_(self, requires: bool) -> Result<Tensor> {
        const NAME: &str = "requires_grad_";
        if requires && !self.dtype().is_arithmetic_float() {
            let message = format!("only floats have gradients, this is {}", self.dtype());
            return Err(Error::op(NAME, message));
        }
        if requires && self.is_inference() && !is_inference_mode_enabled() {
            return Err(Error::op(NAME, "an inference tensor can't require gradients; copy it"));
        }
        if !self.is_leaf() && !requires {
            return Err(Error::op(NAME, "only leaf tensors change; use detach"));
        }
        if requires {
            self.storage().set_parameter();
        }
        self.meta().set_requires_grad(requires);
        Ok(self)
    }

    /// Forgets the history of this tensor: it is a leaf that requires no gradient from now on.
    ///
    /// # Errors
    /// If it is a view of a tensor that keeps its history; [`Tensor::detach`] gives another view.
    pub fn detach_(&self) -> Result<()> {
        if self.meta().view().is_some() {
            let message = "a view can't forget the history of what it is a view of; use detach";
            return Err(Error::op("detach_", message));
        }
        self.meta().rewrite(None);
        Ok(())
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
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        self.backward_with(None, BackwardOptions::default())
    }

    /// Adds the gradient of `sum(self * dy)` to every leaf it depends on.
    ///
    /// # Errors
    /// As [`Tensor::backward`], or if `dy` has another shape.
    #[track_caller]
    pub fn backward_with(&self, dy: Option<&Tensor>, options: BackwardOptions) -> Result<()> {
        backward::run(self, dy, options)
    }
}
