//! What is to be trained on what, and in which way: the two inputs of a plan.

use super::gpu::Gpu;
use super::mesh::{Axis, Mesh};
use super::network::{Cluster, Network};
use super::shape::{Biases, ModelShape};
use crate::error::{Error, Result};

/// The most GPUs that are planned for.
const MOST_GPUS: usize = 1 << 20;

/// The most sequences, and the most tokens of one, that are planned for.
const MOST_TOKENS: usize = 1 << 24;

/// A model, the GPUs that train it, and what a step is.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The model.
    pub model: ModelShape,
    /// What each rank computes on.
    pub gpu: Gpu,
    /// How many there are.
    pub gpus: usize,
    /// How many of them NVLink joins.
    pub gpus_per_node: usize,
    /// What joins nodes.
    pub network: Network,
    /// Sequences a step, over all ranks.
    pub batch: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
}

/// Which collectives run beside the compute; each has those before it too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Overlap {
    /// None: every collective runs in the order of the compute.
    None,
    /// All-reduces of [`Axis::Dp`], as buckets of gradients are full.
    Gradients,
    /// Gathers of [`Axis::Fsdp`], one module ahead of the compute: what Genesis does.
    Gathers,
    /// Reductions of [`Axis::Fsdp`] too.
    Full,
}

/// How a job is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strategy {
    /// The ranks along each axis.
    pub mesh: Mesh,
    /// Sequences of a microbatch, for the ranks that share a replica.
    pub microbatch: usize,
    /// Whether a layer's forward is computed again in its backward (activation checkpointing).
    pub recompute: bool,
    /// Whether the optimizer's state lies in parts on the ranks of [`Axis::Dp`] (ZeRO-1).
    pub zero_1: bool,
    /// Whether [`Axis::Fsdp`] gives whole parameters up after a forward (ZeRO-3), or only after the backward (ZeRO-2).
    pub reshard: bool,
    /// Whether parameters of [`Axis::Fsdp`] travel in bf16
    /// ([`FullyShardOptions::param_dtype`](crate::distributed::FullyShardOptions)), or in f32.
    pub half_parameters: bool,
    /// Whether their gradients do ([`FullyShardOptions::reduce_dtype`](crate::distributed::FullyShardOptions)).
    pub half_gradients: bool,
    /// Which collectives run beside the compute.
    pub overlap: Overlap,
}

impl Default for Strategy {
    fn default() -> Strategy {
        Strategy {
            mesh: Mesh::default(),
            microbatch: 1,
            recompute: false,
            zero_1: false,
            reshard: true,
            half_parameters: true,
            half_gradients: true,
            overlap: Overlap::Gathers,
        }
    }
}

fn refused<T>(message: String) -> Result<T> {
    Err(Error::op("plan", message))
}

/// Refuses a part that does not divide a whole.
fn divides(axis: Axis, n: usize, whole: usize, what: &str) -> Result<()> {
    match n > 0 && whole.is_multiple_of(n) {
        true => Ok(()),
        false => refused(format!("{} {n} does not divide {whole} {what}", axis.name())),
    }
}

impl Job {
    pub(super) fn cluster(&self) -> Cluster {
        Cluster { network: self.network, gpus_per_node: self.gpus_per_node }
    }

    /// Tokens of a step.
    pub fn tokens(&self) -> f64 {
        self.batch as f64 * self.sequence as f64
    }

    /// Refuses what no mesh could do.
    pub(super) fn check(&self) -> Result<()> {
        let Job { gpus, gpus_per_node, batch, sequence, .. } = *self;
        self.model.clone().checked()?;
        if !(1..=MOST_GPUS).contains(&gpus) {
            return refused(format!("{gpus} GPUs are not 1 to {MOST_GPUS}"));
        }
        if !(1..=MOST_GPUS).contains(&gpus_per_node) {
            return refused(format!("{gpus_per_node} GPUs a node are not 1 to {MOST_GPUS}"));
        }
        if gpus > gpus_per_node && !gpus.is_multiple_of(gpus_per_node) {
            return refused(format!("{gpus} GPUs do not fill nodes of {gpus_per_node}"));
        }
        for (n, what) in [(batch, "sequences a step"), (sequence, "tokens a sequence")] {
            if !(1..=MOST_TOKENS).contains(&n) {
                return refused(format!("{n} {what} are not 1 to {MOST_TOKENS}"));
            }
        }
        match self.model.positions.filter(|&positions| sequence > positions) {
            None => Ok(()),
            Some(most) => refused(format!(
                "a sequence of {sequence} tokens is longer than the {most} positions of {}",
                self.model.name
            )),
        }
    }

    /// The microbatches of a rank in a step.
    ///
    /// # Errors
    /// If the mesh is not one of these GPUs, or the model, the batch or the sequence is not in equal parts.
    pub fn microbatches(&self, strategy: &Strategy) -> Result<usize> {
        self.check()?;
        let (mesh, model) = (&strategy.mesh, &self.model);
        let size = mesh.size()?;
        if size != self.gpus {
            let axes = Axis::ALL.map(|axis| format!("{} {}", axis.name(), mesh.along(axis)));
            let axes = axes.join(" x ");
            return refused(format!("{axes} are {size} ranks, not {} GPUs", self.gpus));
        }
        divides(Axis::Tp, mesh.tp, model.kv_heads, "heads of keys")?;
        divides(Axis::Tp, mesh.tp, model.hidden, "channels of the feed-forward layer")?;
        divides(Axis::Tp, mesh.tp, model.vocabulary, "tokens of the vocabulary")?;
        if mesh.cp > 1 && !self.sequence.is_multiple_of(2 * mesh.cp) {
            let pieces = 2 * mesh.cp;
            let length = self.sequence;
            return refused(format!("cp {}: {length} tokens are not in {pieces} pieces", mesh.cp));
        }
        if mesh.tp > 1 {
            divides(Axis::Tp, mesh.tp, self.sequence / mesh.cp, "tokens of a rank's sequence")?;
        }
        if mesh.pp > model.layers {
            return refused(format!("pp {} is more than {} layers", mesh.pp, model.layers));
        }
        let cuts = [Axis::Fsdp, Axis::Tp, Axis::Pp];
        let cut = cuts.into_iter().find(|&axis| mesh.along(axis) > 1);
        if let (Some(axis), Biases::All) = (cut, model.biases) {
            let (axis, n) = (axis.name(), mesh.along(axis));
            return refused(format!("{axis} {n}: {} can't be shared out, but by dp", model.name));
        }
        let replicas = mesh.dp * mesh.fsdp;
        let of_microbatches = replicas.saturating_mul(strategy.microbatch);
        if of_microbatches == 0 || !self.batch.is_multiple_of(of_microbatches) {
            return refused(format!(
                "{} sequences are no multiple of dp {} x fsdp {} x {} of a microbatch",
                self.batch, mesh.dp, mesh.fsdp, strategy.microbatch
            ));
        }
        Ok(self.batch / of_microbatches)
    }

    /// The layers of a stage: the first stages have one more where they are not in equal parts.
    pub(super) fn layers_of(&self, stage: usize, stages: usize) -> usize {
        self.model.layers / stages + usize::from(stage < self.model.layers % stages)
    }
}
