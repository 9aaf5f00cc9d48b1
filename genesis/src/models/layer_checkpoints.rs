//! Layers of a decoder under checkpoints, one each.
//!
//! A checkpoint runs its part again when the forward is long over, so it needs a handle of the model, which a forward that
//! borrows it has not. [`checkpoint_layers`] gives the thread one: within it a forward runs each layer for the first
//! time as it would anyway, and leaves on the tape how the handle runs it again.

use std::cell::RefCell;
use std::sync::Arc;

use super::rotation::Rotation;
use super::{CausalLm, Packed, Pass, not_built};
use crate::autograd::{CheckpointPolicy, is_grad_enabled, run_first};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The model whose layers are checkpointed, and what is kept of each.
type Region = (Arc<dyn CausalLm>, CheckpointPolicy);

thread_local! {
    static REGION: RefCell<Option<Region>> = const { RefCell::new(None) };
}

/// Runs `f`, in which forwards of `model` keep of each layer its input and what `policy` says; a backward runs the rest of
/// it again.
///
/// # Numerics
/// Gradients are those without it, bit for bit.
/// # Errors
/// If `f` refuses, or the model is of a kind whose layers do not run by themselves.
/// # Cost
/// Memory for the hidden states between layers and one layer's saved tensors, beside what is kept; the time of one more
/// forward of what is not.
pub fn checkpoint_layers<T>(
    model: &Arc<dyn CausalLm>,
    policy: &CheckpointPolicy,
    f: impl FnOnce() -> Result<T>,
) -> Result<T> {
    /// Also where `f` panics.
    struct Restore(Option<Region>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let ended = REGION.replace(self.0.take());
            drop(ended);
        }
    }
    if !model.has_layers() {
        return Err(not_built("checkpoint_layers", &model.kind()));
    }
    let _restore = Restore(REGION.replace(Some((model.clone(), policy.clone()))));
    f()
}

/// The checkpoints of the layers of a forward.
pub(super) struct LayerCheckpoints {
    model: Arc<dyn CausalLm>,
    policy: CheckpointPolicy,
    /// None of whole rows.
    packed: Option<Packed>,
    rotations: Arc<[Rotation]>,
}

impl LayerCheckpoints {
    /// Those of a forward, where it has some.
    pub(super) fn of(pass: &Pass<'_>, rotations: &Arc<[Rotation]>) -> Option<LayerCheckpoints> {
        let packed = match pass {
            Pass::Whole => None,
            Pass::Packed(packed) => Some((*packed).clone()),
            Pass::Paged { .. } => return None,
        };
        let (model, policy) = REGION.with_borrow(Clone::clone).filter(|_| is_grad_enabled())?;
        Some(LayerCheckpoints { model, policy, packed, rotations: rotations.clone() })
    }

    /// A layer, which `first` runs for the first time.
    pub(super) fn run(
        &self,
        layer: usize,
        x: &Tensor,
        first: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (model, packed) = (self.model.clone(), self.packed.clone());
        let rotations = self.rotations.clone();
        let again = move |x: &[Tensor]| {
            let pass = packed.as_ref().map_or(Pass::Whole, Pass::Packed);
            Ok(vec![model.run_layer(layer, &x[0], &pass, &rotations)?])
        };
        let first = |x: &[Tensor]| Ok(vec![first(&x[0])?]);
        let mut y = run_first(first, Box::new(again), &[x], Some(&self.policy))?;
        y.pop()
            .ok_or_else(|| Error::op("checkpoint_layers", "a layer gave nothing, which is a bug"))
    }
}
