//! What a checkpoint keeps of a part beside its inputs.
//!
//! A result that is kept is not computed again: the part runs again around it.
//!
//! ```text
//! part               keeps nothing                 keeps products
//! h = x W            computed twice                kept
//! y = silu(h)        computed twice                computed twice
//! z = y V            computed twice                kept only where something behind it is read
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tensor::Tensor;

/// Which results of a part a checkpoint keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeptResults {
    /// None: all of the part is computed again.
    #[default]
    Nothing,
    /// Those of products with a matrix (`matmul`, `matmul_bias`), which take most of the time of a network; batches of
    /// matrices, such as scores of attention, are computed again.
    Products,
}

impl KeptResults {
    /// Whether the result of this op is one of them.
    pub(super) fn has(self, op: &str, inputs: &[&Tensor]) -> bool {
        match self {
            KeptResults::Nothing => false,
            KeptResults::Products => {
                matches!(op, "matmul" | "matmul_bias")
                    && inputs.get(1).is_some_and(|matrix| matrix.rank() == 2)
            }
        }
    }
}

/// Bytes that checkpoints may keep, shared by its clones: what one keeps the others can't, until its backward has
/// gone through it.
#[derive(Clone, Debug)]
pub struct KeepBudget(Arc<AtomicUsize>);

impl KeepBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> KeepBudget {
        KeepBudget(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Takes bytes, if so many are left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// What a checkpoint keeps of a part beside its inputs.
#[derive(Clone, Debug, Default)]
pub struct CheckpointPolicy {
    /// Which results.
    pub keep: KeptResults,
    /// As many of them, in the order in which they are computed, as these bytes hold; all without it.
    pub budget: Option<KeepBudget>,
}

impl CheckpointPolicy {
    /// Takes the bytes of a result, if it may be kept.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.budget.as_ref().is_none_or(|budget| budget.take(bytes))
    }

    pub(super) fn give_back(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.give_back(bytes);
        }
    }
}
