//! What a rank holds, part by part.
//!
//! Weights, gradients and AdamW's two moments are f32: 4, 4 and 8 bytes of each parameter of the stage, over `tp` and
//! `fsdp`. A layer saves, of N tokens of the rank, what `genesis sft --dry-run` counts on a GPU
//! ([`plan_memory`](crate::train::language::plan_memory)):
//!
//! ```text
//! f32    2 N C + 2 N                                        the residual stream, statistics of norms
//! bf16   5 N C + 4 N I + 4 N H D + 3 N G D                  what products and attention read
//! ```
//!
//! of which `tp` divides all but the two inputs of column parallel layers, which are gathered and kept: `2 N C` of bf16.
//! A stage of 1F1B has at most as many microbatches under way as there are stages from it on. With activation
//! checkpointing a layer keeps its input, and one layer at a time has what it saves.

use super::cost::{HALF, Units, WIDE};
use super::job::{Job, Strategy};

/// What a rank of the fullest stage holds, in bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Memory {
    /// Weights.
    pub weights: f64,
    /// Their gradients.
    pub gradients: f64,
    /// The optimizer's state.
    pub optimizer: f64,
    /// What forwards saved for their backwards.
    pub activations: f64,
    /// Copies of weights in bf16, gathered parameters and their gradients, logits, buckets.
    pub buffers: f64,
    /// The most at a time. With one microbatch a step, gradients come as activations go, so that it is less than the
    /// sum.
    pub peak: f64,
}

/// Logits in memory at a time on a GPU where one rank has all classes, in bytes.
const LOGITS: f64 = 192.0 * 1_048_576.0;

/// Logits in memory at a time where ranks share classes.
const SHARED_LOGITS: f64 = 134_217_728.0;

/// What the loss of so many tokens takes: logits of a chunk of them and the gradient of what they are made of. Where
/// ranks share classes there are copies in f32.
fn logits(job: &Job, strategy: &Strategy, tokens: f64) -> f64 {
    let own = tokens * job.model.vocabulary as f64 / strategy.mesh.tp as f64;
    let hidden = HALF * tokens * job.model.channels as f64;
    match strategy.mesh.tp {
        1 => hidden + LOGITS.min(HALF * own),
        _ => hidden + (HALF + 4.0 * WIDE) * SHARED_LOGITS.min(own),
    }
}

/// The memory of the fullest stage; `microbatches` are those of a rank in a step.
pub(super) fn memory(job: &Job, strategy: &Strategy, units: &Units, microbatches: usize) -> Memory {
    let stages = strategy.mesh.pp;
    let of = |stage| of_stage(job, strategy, units, (stage, microbatches));
    let fullest = (0..stages).map(of).max_by(|a, b| a.peak.total_cmp(&b.peak));
    fullest.unwrap_or_default()
}

/// What a layer saves of a microbatch, and what it keeps where it is computed again, in bytes.
pub(super) fn saved(job: &Job, strategy: &Strategy) -> [f64; 2] {
    let model = &job.model;
    let n = (strategy.microbatch * job.sequence) as f64 / strategy.mesh.cp as f64;
    let (c, tp) = (model.channels as f64, strategy.mesh.tp as f64);
    // Gate, what it lets through and the product; of one product, it and its function.
    let products = if model.has_gate { 3.0 } else { 2.0 } * model.hidden as f64;
    let norms = if model.has_head_norms { 1.0 } else { 0.0 };
    let heads = (3.0 + norms) * (model.queries() + model.keys());
    let wide = 2.0 * c + 2.0 + norms * (model.heads + model.kv_heads) as f64;
    let divided = WIDE * wide + HALF * (products + heads);
    [n * (divided / tp + HALF * 2.0 * c), n * WIDE * c / tp]
}

fn of_stage(
    job: &Job,
    strategy: &Strategy,
    units: &Units,
    (stage, microbatches): (usize, usize),
) -> Memory {
    let (mesh, model) = (&strategy.mesh, &job.model);
    let layers = job.layers_of(stage, mesh.pp) as f64;
    let (is_first, is_last) = (stage == 0, stage + 1 == mesh.pp);
    let of = |is_here: bool, bytes: f64| if is_here { bytes } else { 0.0 };
    let layer = units.layer.parameters;
    let table = units.embedding.parameters;
    // A stage that has no embedding has a tied head of its own.
    let head = if is_first { units.head.parameters } else { units.head.used };
    let whole = layers * layer + of(is_first, table) + of(is_last, head);
    let owned = whole / mesh.fsdp as f64;
    let shares = if strategy.zero_1 { mesh.dp as f64 } else { 1.0 };
    let (weights, gradients, optimizer) = (WIDE * owned, WIDE * owned, 2.0 * WIDE * owned / shares);
    let tokens = (strategy.microbatch * job.sequence) as f64 / mesh.cp as f64;
    let [saved, kept] = saved(job, strategy);
    let under_way = (mesh.pp - stage).min(microbatches) as f64;
    let stream = WIDE * tokens * model.channels as f64 / mesh.tp as f64;
    let ends = of(is_first, stream) + of(is_last, stream);
    let activations = match strategy.recompute {
        true => under_way * (layers * kept + ends) + saved,
        false => under_way * (layers * saved + ends),
    };
    // Gradients of the feed-forward layer while its products are differentiated.
    let backward = 2.0 * HALF * tokens * model.hidden as f64 / mesh.tp as f64;
    let used = layers * layer + of(is_last, units.head.used);
    let largest = layer.max(of(is_last, units.head.used)).max(of(is_first, table));
    let [width, summed] = [strategy.half_parameters, strategy.half_gradients]
        .map(|half| if half { HALF } else { WIDE });
    let root = if mesh.pp == 1 { table + units.head.parameters } else { 0.0 };
    // What was gathered in f32 is converted for products.
    let copied = if strategy.half_parameters { 0.0 } else { HALF * used };
    let parameters = match (mesh.fsdp > 1, strategy.reshard) {
        // The unit at work and the next, the gradients of one and their rows; the root, which stays.
        (true, true) => width * (3.0 * largest + root) + summed * largest + copied,
        (true, false) => width * (whole + largest) + summed * largest + copied,
        (false, _) => HALF * used,
    };
    let bucket = if mesh.dp * mesh.cp > 1 { WIDE * largest / mesh.fsdp as f64 } else { 0.0 };
    let logits = of(is_last, logits(job, strategy, tokens));
    let buffers = parameters + bucket + logits + backward;
    let most = match microbatches {
        1 => {
            // At the loss all activations and the head's gradient; at the end all gradients and one layer's.
            let at_loss = activations + WIDE * of(is_last, units.head.used) / mesh.fsdp as f64;
            at_loss.max(gradients + saved)
        }
        _ => gradients + activations,
    };
    let peak = weights + optimizer + buffers + most;
    Memory { weights, gradients, optimizer, activations, buffers, peak }
}
