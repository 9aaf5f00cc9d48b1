//! The memory of each rank of a mesh.
//!
//! A rank has the shapes of the part of the model that it computes, and a share of what lies in parts:
//!
//! ```text
//! dp      all; with --zero1 a share of the optimizer's state
//! fsdp    a share of weights, gradients and state; whole weights of the layer at work, of the next one, and of
//!         embedding and head, which no layer has
//! tp      a share of heads, hidden channels, vocabulary and of their weights; norms are whole
//! cp      a share of the tokens
//! pp      the layers of its stage; as many batches are under way as there are stages behind it
//! ```

use std::path::Path;

use genesis_kernel::runtime::Device;

use super::super::mesh::{Axis, Layout};
use super::super::options::{Options, Precision};
use super::{Extents, MemoryPlan, Shapes, known};
use crate::error::Result;

/// What each rank of a run on so many will need, in bytes: one plan for each stage of `pp`, whose ranks are alike. See
/// [`plan_memory`](super::plan_memory), of which it is the plan on one rank.
///
/// # Numerics
/// An estimate: what ranks share out is counted, what collectives hold while they run is not.
/// # Errors
/// If options or files can't be used, the ranks do not multiply up, or their combination is not built.
pub fn plan_memory_of_ranks(
    options: &Options,
    path: Option<&Path>,
    device: Device,
    ranks: usize,
) -> Result<Option<Vec<MemoryPlan>>> {
    let layout = Layout::of(options, ranks)?;
    let Some((model, batches)) = known(options, path, device)? else { return Ok(None) };
    let stages = layout.along(Axis::Pipeline);
    let stage = |stage: usize| {
        let (model, is_last) = (model.of_rank(layout, stage, options), stage + 1 == stages);
        let plans =
            batches.iter().map(|batch| model.plan(&batch.of_rank(layout, is_last), options));
        plans.max_by_key(|plan| plan.peak)
    };
    Ok((0..stages).map(stage).collect())
}

impl Extents {
    /// What a rank has of a batch.
    fn of_rank(&self, layout: Layout, is_last: bool) -> Extents {
        let parts = layout.along(Axis::Context);
        Extents {
            tokens: self.tokens.div_ceil(parts),
            learned: if is_last { self.learned.div_ceil(parts) } else { 0 },
            lengths: self.lengths.iter().map(|length| length.div_ceil(parts)).collect(),
        }
    }
}

impl Shapes {
    /// What a rank of a stage has of the model.
    fn of_rank(&self, layout: Layout, stage: usize, options: &Options) -> Shapes {
        let (stages, tensor) = (layout.along(Axis::Pipeline), layout.along(Axis::Tensor));
        let own = self.layers * (stage + 1) / stages - self.layers * stage / stages;
        let in_flight = (stages - stage).min(options.accumulate);
        let state_ranks =
            if options.zero1 { layout.data() * layout.along(Axis::Context) } else { 1 };
        let whole = Shapes { in_flight, state_ranks, ..self.clone() };
        if self.adapters.is_some() || stages * tensor * layout.along(Axis::Shard) == 1 {
            return whole;
        }
        let (is_first, is_last) = (stage == 0, stage + 1 == stages);
        let norm = 4 * self.channels;
        let layer = (self.layer - 2 * norm) / tensor + 2 * norm;
        let table = 4 * self.vocabulary * self.channels / tensor;
        let is_tied = self.embedding == 0;
        let tables = match (is_first, is_last) {
            (true, true) if is_tied => 1,
            (true, true) => 2,
            (true, false) | (false, true) => 1,
            (false, false) => 0,
        };
        let rest = tables * table + if is_last { norm } else { 0 };
        let weights = own * layer + rest;
        let shards = layout.along(Axis::Shard);
        let half = self.is_half && options.param_dtype != Some(Precision::F32)
            || options.param_dtype == Some(Precision::Bf16);
        // Of the layer at work its gradients are whole too.
        let travelling = match options.reshard {
            true => 2 * layer.min(weights) + rest,
            false => weights,
        };
        let gathered = match shards {
            1 => 0,
            _ => travelling / if half { 2 } else { 1 } + layer,
        };
        Shapes {
            layers: own,
            vocabulary: self.vocabulary / tensor,
            hidden: self.hidden / tensor,
            heads: self.heads / tensor,
            kv_heads: self.kv_heads / tensor,
            weights: weights.div_ceil(shards),
            trained: weights.div_ceil(shards),
            short: self.short.min(weights) / shards,
            // Parameters that are gathered in 16 bits are not cast again.
            copies: if shards > 1 && half {
                0
            } else {
                self.copies / tensor * own / self.layers.max(1)
            },
            layer: layer / shards,
            head: if is_last { table } else { 0 },
            embedding: if is_tied || !is_first { 0 } else { table / shards },
            gathered,
            ..whole
        }
    }
}
