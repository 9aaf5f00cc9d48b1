//! What the parts of a model cost a rank: the time of their kernels, and what they send.
//!
//! Kernels of a layer, of N tokens of a rank and T of a sequence, as the decoders of [`crate::models`] launch them under
//! autocast with weights in f32; `tp` divides heads and I, and N of what lies between products:
//!
//! ```text
//!                      forward                      backward
//! q, k, v              N x C x (H + 2 G) D          twice that, and 6 bytes of each weight: its gradient in f32
//! attention            2 N T H D FLOP               2.5 times that
//! o                    N x H D x C                  twice that
//! gate, up, down       3 of N x C x I               twice that
//! sum and norm, two    12 bytes of N C              14
//! rotation             4 bytes of N (H + G) D       the same
//! gate(x) up(x)        6 bytes of N I               10
//! sums of gradients                                 18 bytes of N C
//! weights to bf16      6 bytes of each
//! ```
//!
//! The head is its product and the cross entropy: 6 bytes of each logit, 60 where ranks share classes.

use super::job::{Job, Strategy};
use super::mesh::Axis;
use super::network::{Cluster, Span};
use super::shape::{Biases, ModelShape};

/// Bytes of an element of weights, gradients and state.
pub(super) const WIDE: f64 = 4.0;

/// Bytes of an element of products.
pub(super) const HALF: f64 = 2.0;

/// Seconds of a direction through a part of a model.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Pass {
    pub(super) compute: f64,
    /// Collectives in the order of the compute.
    pub(super) tp: f64,
    pub(super) cp: f64,
}

impl Pass {
    pub(super) fn seconds(&self) -> f64 {
        self.compute + self.tp + self.cp
    }

    pub(super) fn plus(self, other: Pass) -> Pass {
        Pass {
            compute: self.compute + other.compute,
            tp: self.tp + other.tp,
            cp: self.cp + other.cp,
        }
    }
}

/// A part of a model that is gathered and reduced at once: a layer, the embedding, the head.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Unit {
    /// Parameters of a tensor parallel rank.
    pub(super) parameters: f64,
    /// Elements that are gathered: the parameters, or those of a tied head.
    pub(super) used: f64,
    /// Matrices among them.
    pub(super) matrices: f64,
    pub(super) forward: Pass,
    pub(super) backward: Pass,
    /// What parameters in bf16 take: conversions, and copies of what was gathered.
    pub(super) copies: f64,
    /// What adding to the gradients of earlier microbatches takes.
    pub(super) accumulate: f64,
    /// What packing gradients for an all-reduce takes.
    pub(super) pack: f64,
    /// Collectives of [`Axis::Fsdp`]: gathers in the forward and in the backward, and reductions.
    pub(super) gather: f64,
    pub(super) gather_again: f64,
    pub(super) reduce: f64,
    /// The all-reduce over ranks that have the same part.
    pub(super) all_reduce: f64,
}

/// The parts of a model on a rank.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Units {
    pub(super) embedding: Unit,
    pub(super) layer: Unit,
    pub(super) head: Unit,
    /// Bytes that a stage sends on.
    pub(super) boundary: f64,
}

/// Gradients that one all-reduce sums, in bytes: the default of
/// [`DdpOptions`](crate::distributed::DdpOptions).
const BUCKET: f64 = 26_214_400.0;

/// What everything here follows from.
struct Costs<'j> {
    job: &'j Job,
    strategy: &'j Strategy,
    model: &'j ModelShape,
    cluster: Cluster,
    /// Tokens of a rank, and those between products.
    tokens: f64,
    few: f64,
    tp: f64,
}

/// The costs of a strategy that [`Job::microbatches`] takes.
pub(super) fn units(job: &Job, strategy: &Strategy) -> Units {
    let tokens = (strategy.microbatch * job.sequence) as f64 / strategy.mesh.cp as f64;
    let tp = strategy.mesh.tp as f64;
    let (model, cluster) = (&job.model, job.cluster());
    let costs = Costs { job, strategy, model, cluster, tokens, few: tokens / tp, tp };
    let [mut embedding, layer, mut head] = [costs.embedding(), costs.layer(), costs.head()];
    if strategy.mesh.pp == 1 && strategy.mesh.fsdp > 1 {
        // One unit that stays whole from the forward to the end of the backward.
        let head_used = if model.is_tied { head.parameters } else { head.used };
        let root =
            costs.collectives([embedding.used + head_used, embedding.parameters + head_used, 2.0]);
        embedding = Unit { gather_again: 0.0, ..root.onto(embedding) };
        head = Unit { gather: 0.0, gather_again: 0.0, reduce: 0.0, all_reduce: 0.0, ..head };
    }
    let boundary = WIDE * costs.few * costs.channels();
    Units { embedding, layer, head, boundary }
}

/// What the collectives of a unit take.
struct Collectives {
    gather: f64,
    reduce: f64,
    all_reduce: f64,
}

impl Collectives {
    fn onto(self, unit: Unit) -> Unit {
        let Collectives { gather, reduce, all_reduce } = self;
        Unit { gather, gather_again: gather, reduce, all_reduce, ..unit }
    }
}

impl Costs<'_> {
    fn channels(&self) -> f64 {
        self.model.channels as f64
    }

    fn span(&self, axis: Axis) -> Span {
        self.strategy.mesh.span(axis, self.job.gpus_per_node)
    }

    fn moved(&self, bytes: f64) -> f64 {
        self.job.gpu.elementwise(bytes)
    }

    /// A norm of the residual stream with the sum in front of it, forward or backward.
    fn norm(&self, direction: usize) -> f64 {
        let bytes = [12.0, 14.0][direction] * self.few * self.channels();
        self.job.gpu.rates.start + bytes / self.job.gpu.rates.norm[direction]
    }

    /// An all-gather, or a reduce-scatter, of what ranks hold between products.
    fn joined(&self, width: f64) -> f64 {
        self.cluster.gather(self.span(Axis::Tp), width * self.tokens * self.channels())
    }

    fn layer(&self) -> Unit {
        let (model, gpu, n, c) = (self.model, &self.job.gpu, self.tokens, self.channels());
        let hidden = model.hidden as f64 / self.tp;
        let [queries, keys] = [model.queries() / self.tp, model.keys() / self.tp];
        let gates = if model.has_gate { 2.0 } else { 1.0 };
        let mut products = vec![(c, queries), (c, keys), (c, keys), (queries, c), (hidden, c)];
        products.extend((0..gates as usize).map(|_| (c, hidden)));
        let product = |&(k, m): &(f64, f64)| gpu.product(n, k, m);
        let forward: f64 = products.iter().map(product).sum();
        let gradients: f64 =
            products.iter().map(|&(k, m)| gpu.product(n, m, k) + gpu.product(k, n, m)).sum();
        let heads = [queries, model.head_dim as f64];
        let [seen, unseen] = gpu.attention(n, self.job.sequence as f64, heads);
        let is_rotary = model.positions.is_none();
        let turned = if is_rotary { 2.0 * self.moved(2.0 * n * (queries + keys)) } else { 0.0 };
        let wide = n * hidden;
        let acts = [2.0 * (gates + 1.0), 2.0 * (2.0 * gates + 1.0)].map(|b| self.moved(b * wide));
        let [around, back] = self.ring(queries, keys);
        let between = 3.0 * self.moved(6.0 * n * c);
        let shared = model.layer_matrices() + model.layer_biases();
        let parameters = shared / self.tp + model.layer_vectors();
        let norms = [0, 1].map(|direction| 2.0 * self.norm(direction));
        let pass = |compute, tp, cp| Pass { compute, tp, cp };
        let collectives = 4.0 * self.joined(HALF);
        let vectors = self.cluster.all_reduce(self.span(Axis::Tp), WIDE * c);
        let unit = Unit {
            parameters,
            used: parameters,
            matrices: model.matrices(),
            forward: pass(
                forward + seen + turned + acts[0] + norms[0] + around.compute,
                collectives,
                around.cp,
            ),
            backward: pass(
                gradients + unseen + turned + acts[1] + norms[1] + between + back.compute,
                collectives + 2.0 * vectors,
                back.cp,
            ),
            ..Unit::default()
        };
        self.with_parameters(unit)
    }

    /// Keys and values on their way round the ranks, and what joins their parts.
    fn ring(&self, queries: f64, keys: f64) -> [Pass; 2] {
        let size = self.strategy.mesh.cp as f64;
        if size < 2.0 {
            return [Pass::default(); 2];
        }
        let (span, pair) = (self.span(Axis::Cp), 2.0 * self.tokens * keys);
        let send = |bytes| self.cluster.send(span, bytes);
        let join = |bytes: f64| (size - 1.0) * self.moved(bytes * self.tokens * queries);
        let pass = |compute, cp| Pass { compute, tp: 0.0, cp };
        let back = (size - 1.0) * send((HALF + WIDE) * pair) + send(WIDE * pair);
        [pass(join(20.0), (size - 1.0) * send(HALF * pair)), pass(join(12.0), back)]
    }

    fn embedding(&self) -> Unit {
        let (model, c) = (self.model, self.channels());
        let table = model.table() / self.tp;
        let parameters = table + model.position_table();
        let rows = 2.0 * WIDE * self.tokens * c;
        let pass = |compute, tp| Pass { compute, tp, cp: 0.0 };
        let unit = Unit {
            parameters,
            used: parameters,
            matrices: 1.0,
            forward: pass(self.moved(rows), self.joined(WIDE)),
            backward: pass(self.moved(rows + WIDE * parameters), self.joined(WIDE)),
            ..Unit::default()
        };
        let unit = self.with_parameters(unit);
        match self.strategy.mesh.fsdp {
            // Rows are read in f32: nothing is converted.
            1 => Unit { copies: 0.0, ..unit },
            _ => unit,
        }
    }

    fn head(&self) -> Unit {
        let (model, gpu, n, c) = (self.model, &self.job.gpu, self.tokens, self.channels());
        let classes = model.vocabulary as f64 / self.tp;
        let forward = gpu.product(n, c, classes);
        let gradients = gpu.product(n, classes, c) + gpu.product(c, n, classes);
        let losses = match self.strategy.mesh.tp {
            1 => gpu.rates.start + 6.0 * n * classes / gpu.rates.cross_entropy,
            // Some ten kernels in f32, of chunks whose logits are computed again.
            _ => forward + 10.0 * self.moved(6.0 * n * classes),
        };
        let table = model.table() / self.tp;
        let norm = if model.biases == Biases::All { 2.0 * c } else { c };
        let sums = 3.0 * self.cluster.all_reduce(self.span(Axis::Tp), WIDE * n);
        let pass = |compute, tp| Pass { compute, tp, cp: 0.0 };
        let unit = Unit {
            parameters: if model.is_tied { norm } else { table + norm },
            used: table + norm,
            matrices: 1.0,
            forward: pass(forward + losses / 3.0 + self.norm(0), self.joined(HALF) + sums),
            backward: pass(gradients + losses * 2.0 / 3.0 + self.norm(1), self.joined(HALF)),
            ..Unit::default()
        };
        self.with_parameters(unit)
    }

    /// Adds what is done with the parameters of a unit: conversions, copies and collectives.
    fn with_parameters(&self, unit: Unit) -> Unit {
        let (mesh, used) = (&self.strategy.mesh, unit.used);
        let parts = mesh.fsdp as f64;
        let moved = |bytes: f64| {
            let starts = self.job.gpu.rates.start * unit.matrices;
            starts + bytes / self.job.gpu.rates.elementwise
        };
        let mut backward = unit.backward;
        let copies = if mesh.fsdp > 1 {
            // The part to what is gathered, and that copied to its shape; what is gathered in f32 is converted behind that.
            // The gradients, converted where they are not what they are summed in, as rows of all ranks; the part of their
            // sum to f32.
            let &Strategy { half_parameters, half_gradients, .. } = self.strategy;
            let converted = |is: bool| if is { WIDE + HALF } else { 0.0 };
            let gathered = 2.0 * width(half_parameters) + converted(!half_parameters);
            let back = converted(!half_parameters) + converted(half_parameters != half_gradients);
            let rows = 2.0 * width(half_gradients) + back;
            backward.compute += moved(rows * used + 6.0 * used / parts);
            moved(6.0 * used / parts + gathered * used)
        } else {
            backward.compute += moved(6.0 * used);
            moved(6.0 * used)
        };
        let owned = unit.parameters / parts;
        let unit = self.collectives([used, unit.parameters, unit.matrices]).onto(unit);
        Unit {
            backward,
            copies,
            accumulate: moved(3.0 * WIDE * owned),
            pack: moved(2.0 * WIDE * owned),
            ..unit
        }
    }

    /// The collectives of a unit that uses so many parameters and owns so many, in so many matrices.
    fn collectives(&self, [used, owned, matrices]: [f64; 3]) -> Collectives {
        let mesh = &self.strategy.mesh;
        let (fsdp, replicas) = (self.span(Axis::Fsdp), mesh.replicas(self.job.gpus_per_node));
        let (gathered, summed) =
            (width(self.strategy.half_parameters), width(self.strategy.half_gradients));
        let all_reduce = match mesh.fsdp {
            1 => {
                let bytes = WIDE * owned;
                let buckets = (bytes / BUCKET).ceil().clamp(1.0, matrices);
                buckets * self.cluster.all_reduce(replicas, bytes / buckets)
            }
            parts => self.cluster.all_reduce(replicas, summed * owned / parts as f64),
        };
        let [gather, reduce] =
            [gathered, summed].map(|width| self.cluster.gather(fsdp, width * used));
        Collectives { gather, reduce, all_reduce }
    }
}

/// Bytes of an element of what [`Axis::Fsdp`] sends.
fn width(is_half: bool) -> f64 {
    if is_half { HALF } else { WIDE }
}
