//! The fastest ways to do a job that fit.
//!
//! All meshes are listed whose axes divide the GPUs, the model and the batch, with each microbatch, with and without
//! activation checkpointing and ZeRO-1. What does not fit is left out; the rest is simulated in the order of a lower
//! bound of its time, its own compute and the fill of its pipeline, until the bound is over the best that were found.

use super::cost::{Pass, Unit, Units, units};
use super::job::{Job, Overlap, Strategy};
use super::memory::memory;
use super::mesh::{Axis, Mesh};
use super::{Plan, simulate};
use crate::error::{Error, Result};

/// What of a strategy is given; the rest is searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// The mesh.
    pub mesh: Option<Mesh>,
    /// Sequences of a microbatch.
    pub microbatch: Option<usize>,
    /// Whether layers are computed again in their backwards.
    pub recompute: Option<bool>,
    /// Whether the optimizer's state lies in parts on data parallel ranks.
    pub zero_1: Option<bool>,
    /// Whether whole parameters are given up after a forward.
    pub reshard: Option<bool>,
    /// Whether parameters that fully sharded ranks send are in bf16; they are where it is not given.
    pub half_parameters: Option<bool>,
    /// Whether gradients that they send are; as parameters where it is not given.
    pub half_gradients: Option<bool>,
    /// Which collectives run beside the compute; [`Overlap::Gathers`] where it is not given.
    pub overlap: Option<Overlap>,
}

/// A strategy that fits, before it is simulated.
struct Candidate {
    strategy: Strategy,
    bound: f64,
}

/// Finds the fastest strategies that fit, the fastest first, at most `count` meshes.
///
/// # Errors
/// If what is given can't be, or nothing fits: the error says what takes the memory.
pub fn search(job: &Job, given: &Given, count: usize) -> Result<Vec<Plan>> {
    job.check()?;
    let meshes = match given.mesh {
        Some(mesh) => vec![mesh],
        None => meshes(job),
    };
    let mut candidates = Vec::new();
    let mut refusal = None;
    let mut smallest: Option<Plan> = None;
    for mesh in meshes {
        for microbatch in microbatches(job, given, mesh) {
            let mut does_fit = false;
            for strategy in strategies(given, mesh, microbatch) {
                match candidate(job, strategy) {
                    Ok(Ok(candidate)) => {
                        does_fit = true;
                        candidates.push(candidate);
                    }
                    Ok(Err(large)) => {
                        let is_smaller = |than: &Plan| large.memory.peak < than.memory.peak;
                        if smallest.as_ref().is_none_or(is_smaller) {
                            smallest = Some(large);
                        }
                    }
                    Err(error) => refusal = Some(error),
                }
            }
            // A larger one takes more.
            if !does_fit {
                break;
            }
        }
    }
    candidates.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    let mut best: Vec<Plan> = Vec::new();
    for candidate in candidates {
        let worst = best.get(count.max(1) - 1).map_or(f64::INFINITY, |plan| plan.time.seconds);
        if candidate.bound >= worst {
            break;
        }
        match simulate(job, &candidate.strategy) {
            Ok(plan) => insert(&mut best, plan, count.max(1)),
            Err(error) => refusal = Some(error),
        }
    }
    match (best.is_empty(), smallest, refusal) {
        (false, ..) => Ok(best),
        (true, Some(large), _) => Err(too_large(job, &large)),
        (true, None, Some(error)) => Err(error),
        (true, None, None) => {
            Err(Error::op("plan", format!("no mesh of {} GPUs divides the job", job.gpus)))
        }
    }
}

/// Puts a plan in its place, one of each mesh.
fn insert(best: &mut Vec<Plan>, plan: Plan, count: usize) {
    let is_same = |other: &Plan| other.strategy.mesh == plan.strategy.mesh;
    match best.iter().position(is_same) {
        Some(at) if best[at].time.seconds <= plan.time.seconds => return,
        Some(at) => drop(best.remove(at)),
        None => {}
    }
    let at = best.partition_point(|other| other.time.seconds <= plan.time.seconds);
    best.insert(at, plan);
    best.truncate(count);
}

/// What of a plan takes more memory than there is.
fn too_large(job: &Job, plan: &Plan) -> Error {
    let gb = |bytes: f64| bytes / 1e9;
    let memory = &plan.memory;
    let message = format!(
        "{} on {} x {} ({}): needs {:.1} GB of {:.1} GB a GPU: weights {:.1}, gradients {:.1}, \
         optimizer {:.1}, activations {:.1}, buffers {:.1}",
        job.model.name,
        job.gpus,
        job.gpu.name,
        plan.strategy.mesh,
        gb(memory.peak),
        gb(job.gpu.usable()),
        gb(memory.weights),
        gb(memory.gradients),
        gb(memory.optimizer),
        gb(memory.activations),
        gb(memory.buffers)
    );
    Error::op("plan", message)
}

/// The numbers that divide `n`, in order.
fn divisors(n: usize) -> Vec<usize> {
    let small: Vec<usize> = (1..=n.isqrt()).filter(|d| n.is_multiple_of(*d)).collect();
    let large = small.iter().rev().map(|d| n / d).filter(|d| d * d != n);
    small.iter().copied().chain(large).collect()
}

/// Every mesh of the GPUs whose tensor parallel ranks are in one node and whose other axes the job allows.
fn meshes(job: &Job) -> Vec<Mesh> {
    let mut found = Vec::new();
    let within = |n: usize, most: usize| divisors(n).into_iter().filter(move |&d| d <= most);
    for tp in within(job.gpus, job.gpus_per_node.min(job.model.kv_heads)) {
        for pp in within(job.gpus / tp, job.model.layers) {
            for cp in within(job.gpus / tp / pp, job.sequence) {
                let replicas = job.gpus / tp / pp / cp;
                if replicas > job.batch {
                    continue;
                }
                for fsdp in divisors(replicas) {
                    found.push(Mesh { dp: replicas / fsdp, fsdp, tp, cp, pp });
                }
            }
        }
    }
    found
}

/// Sequences of a microbatch: the one that is given, or the powers of two that divide a replica's part of the batch.
fn microbatches(job: &Job, given: &Given, mesh: Mesh) -> Vec<usize> {
    let replicas = mesh.dp.saturating_mul(mesh.fsdp).max(1);
    let own = job.batch / replicas;
    let powers = (0..usize::BITS).map(|bit| 1usize << bit);
    match given.microbatch {
        Some(microbatch) => vec![microbatch],
        None => powers.take_while(|&n| n == 1 || own.is_multiple_of(n) && n <= own).collect(),
    }
}

/// What is left to choose for a mesh.
fn strategies(given: &Given, mesh: Mesh, microbatch: usize) -> Vec<Strategy> {
    let both = |given: Option<bool>, is_open: bool, usual: bool| match given {
        Some(value) => vec![value],
        None if is_open => vec![false, true],
        None => vec![usual],
    };
    let can_shard = mesh.dp > 1 && mesh.fsdp == 1;
    let overlap = given.overlap.unwrap_or(Overlap::Gathers);
    let half_parameters = given.half_parameters.unwrap_or(true);
    let half_gradients = given.half_gradients.unwrap_or(half_parameters);
    let mut found = Vec::new();
    for recompute in both(given.recompute, true, false) {
        for zero_1 in both(given.zero_1, can_shard, false) {
            for reshard in both(given.reshard, mesh.fsdp > 1, true) {
                let own = Strategy {
                    mesh,
                    microbatch,
                    recompute,
                    zero_1,
                    reshard,
                    ..Strategy::default()
                };
                found.push(Strategy { half_parameters, half_gradients, overlap, ..own });
            }
        }
    }
    found
}

/// A strategy with its bound, or the plan of one that does not fit.
fn candidate(job: &Job, strategy: Strategy) -> Result<std::result::Result<Candidate, Plan>> {
    let parts = job.microbatches(&strategy)?;
    let units = units(job, &strategy);
    let memory = memory(job, &strategy, &units, parts);
    if memory.peak > job.gpu.usable() {
        return Ok(Err(Plan { strategy, microbatches: parts, memory, time: Default::default() }));
    }
    let bound = bound(job, &strategy, &units, parts);
    Ok(Ok(Candidate { strategy, bound }))
}

/// Seconds that a step takes at least: of the slowest stage all it computes, behind the first microbatch of the stages
/// before it.
fn bound(job: &Job, strategy: &Strategy, units: &Units, parts: usize) -> f64 {
    let stages = strategy.mesh.pp;
    let of = |unit| of_microbatch(unit, strategy);
    let [embedding, layer, head] = [&units.embedding, &units.layer, &units.head].map(of);
    let (mut filled, mut most) = (0.0, 0.0f64);
    for stage in 0..stages {
        let ends = if stage == 0 { embedding } else { 0.0 };
        let ends = ends + if stage + 1 == stages { head } else { 0.0 };
        let own = ends + layer * job.layers_of(stage, stages) as f64;
        most = most.max(filled + own * parts as f64);
        filled += own;
    }
    most
}

/// Seconds of a unit's forward and backward, collectives beside them left out.
fn of_microbatch(unit: &Unit, strategy: &Strategy) -> f64 {
    let again =
        if strategy.recompute && unit.matrices > 1.0 { unit.forward } else { Pass::default() };
    unit.forward.seconds() + unit.backward.seconds() + again.seconds()
}

/// The mesh of so many GPUs whose axes are given, in the order of [`Axis::ALL`], as those of `genesis sft` are: others have one
/// rank, but for `dp`, which has what is left over.
///
/// None where no axis is given.
pub fn mesh_of(axes: [Option<usize>; 5], gpus: usize) -> Option<Mesh> {
    axes.iter().find(|axis| axis.is_some())?;
    let along = |axis: Axis| axes[axis as usize].unwrap_or(1);
    let [fsdp, tp, cp, pp] = [Axis::Fsdp, Axis::Tp, Axis::Cp, Axis::Pp].map(along);
    let parts = [tp, cp, pp].iter().try_fold(fsdp, |all, n| all.checked_mul(*n));
    let left = parts.filter(|&parts| parts > 0 && gpus.is_multiple_of(parts));
    let dp = axes[Axis::Dp as usize].or(left.map(|parts| gpus / parts)).unwrap_or(1);
    Some(Mesh { dp, fsdp, tp, cp, pp })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Gpu, ModelShape, Network};

    #[test]
    fn divisors_are_all_and_in_order() {
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(97), [1, 97]);
    }

    #[test]
    fn data_parallel_ranks_are_what_is_left_over() {
        let mesh = |axes, gpus| mesh_of(axes, gpus).map(|mesh| mesh.to_string());
        assert_eq!(mesh([None; 5], 8), None);
        assert_eq!(mesh([None, Some(2), Some(2), None, None], 16).unwrap(), "dp 4, fsdp 2, tp 2");
        assert_eq!(mesh([Some(2), Some(2), None, None, None], 16).unwrap(), "dp 2, fsdp 2");
        assert_eq!(mesh([None, None, Some(3), None, None], 16).unwrap(), "tp 3");
        assert!(mesh([None, Some(usize::MAX), Some(2), None, None], 16).is_some());
    }

    /// A search that stopped at a bound over the time itself would leave out what is faster.
    #[test]
    fn no_step_is_shorter_than_its_bound() {
        let job = Job {
            model: ModelShape::named("Llama-3-8B").expect("a built-in shape"),
            gpu: Gpu::H200,
            gpus: 16,
            gpus_per_node: 8,
            network: Network::ETHERNET_100,
            batch: 16,
            sequence: 4096,
        };
        let mut count = 0;
        for mesh in meshes(&job) {
            for microbatch in microbatches(&job, &Given::default(), mesh) {
                for strategy in strategies(&Given::default(), mesh, microbatch) {
                    let Ok(plan) = simulate(&job, &strategy) else { continue };
                    let bound = bound(&job, &strategy, &units(&job, &strategy), plan.microbatches);
                    assert!(bound <= plan.time.seconds * (1.0 + 1e-9), "{strategy:?}: {bound}");
                    count += 1;
                }
            }
        }
        assert!(count > 500, "{count} strategies");
    }
}
