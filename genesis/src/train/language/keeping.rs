//! What a run keeps for its backwards, and where: checkpoints of layers, and pinned memory of the host.

use std::sync::Arc;

use super::options::{LayerKeeps, Options};
use crate::autograd::{CheckpointPolicy, KeepBudget, KeptResults, save_on_cpu};
use crate::error::{Error, Result};
use crate::models::{CausalLm, checkpoint_layers};

/// What a run keeps for its backwards.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeping {
    /// Of each layer; all where there is none.
    layers: Option<CheckpointPolicy>,
    /// Whether it waits in the memory of the host.
    offload: bool,
}

impl Keeping {
    pub(super) fn of(options: &Options) -> Keeping {
        let policy = |keeps| CheckpointPolicy {
            keep: match keeps {
                LayerKeeps::Block => KeptResults::Nothing,
                LayerKeeps::Products => KeptResults::Products,
            },
            budget: options.checkpoint_budget.map(KeepBudget::new),
        };
        Keeping { layers: options.checkpoint.map(policy), offload: options.offload }
    }

    /// Runs a forward that keeps this.
    pub(super) fn run<T>(
        &self,
        model: &Arc<dyn CausalLm>,
        f: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let layers = || match &self.layers {
            Some(policy) => checkpoint_layers(model, policy, f),
            None => f(),
        };
        if self.offload { save_on_cpu(layers) } else { layers() }
    }
}

impl Options {
    /// Refuses what can't be meant, a budget of nothing, and checkpoints of models whose layers do not run by themselves.
    pub(super) fn check_for(&self, model: &dyn CausalLm) -> Result<()> {
        self.check()?;
        let refuse = |what: String| Err(Error::op("train", what));
        match self.checkpoint {
            Some(LayerKeeps::Block) | None if self.checkpoint_budget.is_some() => refuse(
                "checkpoint_budget is of kept products: it needs checkpoint = products".into(),
            ),
            Some(_) if !model.has_layers() => {
                refuse(format!("checkpoint is not built for {}", model.kind()))
            }
            _ => Ok(()),
        }
    }
}
