//! A step as the programs of its stages: what is computed, gathered, reduced and sent, and in which order.
//!
//! ```text
//! FSDP   gather of a unit started one unit ahead, forward and backward; reduce-scatter behind a unit's backward, in the
//!        order of the compute but for Overlap::Full, and over dp an all-reduce of the part
//! DDP    all-reduce of a unit's gradients started behind its backward, of the last microbatch only; of stages at the end
//! TP     two all-gathers and two reduce-scatters a layer and direction, in the order of the compute
//! CP     keys and values once round the ranks, with their gradients in the backward; in the order of the compute
//! PP     1F1B: results and gradients exchanged with neighbours, in the order of the compute
//! ```
//!
//! At the end all stages meet, since gradients are clipped by their joint norm, and update.

use super::cost::{Pass, Unit, Units, WIDE};
use super::job::{Job, Overlap, Strategy};
use super::mesh::Axis;
use super::network::Span;
use super::timeline::{Message, Op, Usage, run};
use crate::error::{Error, Result};

/// Where the time of a step goes, in seconds; means over stages, which add up to [`StepTime::seconds`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct StepTime {
    /// The whole step.
    pub seconds: f64,
    /// Kernels, the optimizer's included.
    pub compute: f64,
    /// The optimizer's alone.
    pub optimizer: f64,
    /// Communication that the compute waits for, in the order of [`Axis::ALL`].
    pub exposed: [f64; 5],
    /// All communication, hidden or not.
    pub communication: [f64; 5],
    /// Waiting for other stages.
    pub bubble: f64,
}

impl StepTime {
    /// The share of the step that the compute waits for communication.
    pub fn exposed_share(&self) -> f64 {
        self.exposed.iter().sum::<f64>() / self.seconds
    }

    /// The share of the step that stages wait for each other.
    pub fn bubble_share(&self) -> f64 {
        self.bubble / self.seconds
    }
}

/// The most events of a step that are simulated.
const MOST_EVENTS: usize = 2_000_000;

/// The parts of a stage, in the order of a forward.
pub(super) fn stage_units(job: &Job, units: &Units, stage: usize, stages: usize) -> Vec<Unit> {
    let first = (stage == 0).then_some(units.embedding);
    // A stage that has no embedding has a tied head of its own.
    let parameters = if stage == 0 { units.head.parameters } else { units.head.used };
    let last = (stage + 1 == stages).then_some(Unit { parameters, ..units.head });
    let layers = std::iter::repeat_n(units.layer, job.layers_of(stage, stages));
    first.into_iter().chain(layers).chain(last).collect()
}

/// Simulates a step of a strategy that [`Job::microbatches`] takes.
///
/// # Errors
/// If it has more events than are simulated.
pub(super) fn step(
    job: &Job,
    strategy: &Strategy,
    units: &Units,
    parts: usize,
) -> Result<StepTime> {
    let mesh = &strategy.mesh;
    let events = job.model.layers.saturating_mul(parts).saturating_mul(10);
    if events > MOST_EVENTS || mesh.pp.saturating_mul(parts) > MOST_EVENTS / 10 {
        let message = format!(
            "{parts} microbatches of {} layers are more than is simulated: take larger microbatches",
            job.model.layers
        );
        return Err(Error::op("plan", message));
    }
    let send = job.cluster().send(mesh.span(Axis::Pp, job.gpus_per_node), units.boundary);
    let programs: Vec<Vec<Op>> = (0..mesh.pp)
        .map(|stage| {
            let units = stage_units(job, units, stage, mesh.pp);
            let program = Program { units, strategy, ops: Vec::new(), started: [0; 5] };
            program.of_stage(&Place { stage, stages: mesh.pp, parts, send })
        })
        .collect();
    let usages = run(&programs)?;
    Ok(total(job, strategy, units, &usages))
}

/// A part of a model that is gathered and reduced at once, by times that are known: seconds, as they were measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct UnitTimes {
    /// Its kernels in a forward, and in a backward; packing gradients and copying parameters are among them.
    pub forward: f64,
    /// See `forward`.
    pub backward: f64,
    /// A gather of its parameters over [`Axis::Fsdp`].
    pub gather: f64,
    /// The reduction of its gradients over [`Axis::Fsdp`].
    pub reduce: f64,
    /// The all-reduce of its gradients over [`Axis::Dp`].
    pub all_reduce: f64,
}

impl UnitTimes {
    fn unit(&self) -> Unit {
        let pass = |compute| Pass { compute, ..Pass::default() };
        Unit {
            parameters: 1.0,
            forward: pass(self.forward),
            backward: pass(self.backward),
            gather: self.gather,
            gather_again: self.gather,
            reduce: self.reduce,
            all_reduce: self.all_reduce,
            ..Unit::default()
        }
    }
}

/// Simulates the forward and the backward of units, in the order of the forward, of one microbatch on one stage: what
/// [`simulate`](super::simulate) does with times that it computes, without the end of the step.
///
/// # Errors
/// If the mesh has stages.
pub fn simulate_units(units: &[UnitTimes], strategy: &Strategy) -> Result<StepTime> {
    if strategy.mesh.pp > 1 {
        return Err(Error::op("plan", "units whose times are known are those of one stage"));
    }
    let units = units.iter().map(UnitTimes::unit).collect();
    let program = Program { units, strategy, ops: Vec::new(), started: [0; 5] };
    let program = program.of_stage(&Place { stage: 0, stages: 1, parts: 1, send: 0.0 });
    let usage = run(&[program])?.into_iter().next().unwrap_or_default();
    let Usage { compute, exposed, communication, bubble, end } = usage;
    Ok(StepTime { seconds: end, compute, optimizer: 0.0, exposed, communication, bubble })
}

/// Adds what happens once all stages have met.
fn total(job: &Job, strategy: &Strategy, units: &Units, usages: &[Usage]) -> StepTime {
    let mesh = &strategy.mesh;
    let end = usages.iter().map(|usage| usage.end).fold(0.0, f64::max);
    let ends: Vec<End> = (0..mesh.pp).map(|stage| End::of(job, strategy, units, stage)).collect();
    let longest = ends.iter().map(End::seconds).fold(0.0, f64::max);
    // The joint norm of gradients that lie on several ranks.
    let owners = mesh.fsdp * mesh.tp * mesh.pp;
    let near = owners.min(job.gpus_per_node);
    let norm = match owners {
        1 => 0.0,
        _ => job.cluster().all_reduce(Span { near, nodes: owners.div_ceil(near) }, WIDE),
    };
    let of_norm = [Axis::Fsdp, Axis::Tp, Axis::Pp].into_iter().find(|&axis| mesh.along(axis) > 1);
    let mut time = StepTime { seconds: end + norm + longest, ..StepTime::default() };
    for (usage, own) in usages.iter().zip(&ends) {
        let share = 1.0 / usages.len() as f64;
        time.compute += share * (usage.compute + own.update);
        time.optimizer += share * own.update;
        let waits = (end - usage.end) + (longest - own.seconds());
        time.bubble += share * (usage.bubble + waits.max(0.0));
        let mut add = |axis: Axis, exposed: f64, all: f64| {
            time.exposed[axis as usize] += share * exposed;
            time.communication[axis as usize] += share * all;
        };
        for axis in Axis::ALL {
            add(axis, usage.exposed[axis as usize], usage.communication[axis as usize]);
        }
        add(Axis::Dp, own.shared, own.shared);
        add(Axis::Pp, own.tied, own.tied);
        if let Some(axis) = of_norm {
            add(axis, norm, norm);
        }
    }
    time
}

/// The end of a step on a stage.
struct End {
    /// Clipping and the optimizer's update.
    update: f64,
    /// What ranks that own parts of the state give each other.
    shared: f64,
    /// The sum of the gradients of a table that the first and the last stage have.
    tied: f64,
}

impl End {
    fn seconds(&self) -> f64 {
        self.update + self.shared + self.tied
    }

    fn of(job: &Job, strategy: &Strategy, units: &Units, stage: usize) -> End {
        let mesh = &strategy.mesh;
        let rates = &job.gpu.rates;
        let own = stage_units(job, units, stage, mesh.pp);
        let parameters: f64 = own.iter().map(|unit| unit.parameters).sum();
        let matrices: f64 = own.iter().map(|unit| unit.matrices).sum();
        let owned = parameters / mesh.fsdp as f64;
        let states = if strategy.zero_1 { owned / mesh.dp as f64 } else { owned };
        // Squares read gradients, clipping rewrites them; an update reads four tensors and writes three.
        let moved = 3.0 * WIDE * owned + 7.0 * WIDE * states;
        let update = 2.0 * matrices * rates.start + moved / rates.optimizer;
        let span = mesh.span(Axis::Dp, job.gpus_per_node);
        let tied = match job.model.is_tied && mesh.pp > 1 && (stage == 0 || stage + 1 == mesh.pp) {
            true => {
                let near = if job.gpus > job.gpus_per_node { 1 } else { 2 };
                let bytes = WIDE * units.embedding.parameters / mesh.fsdp as f64;
                job.cluster().all_reduce(Span { near, nodes: 2 / near }, bytes)
            }
            false => 0.0,
        };
        let shared = match strategy.zero_1 {
            true => matrices * job.cluster().broadcast(span, WIDE * owned / matrices.max(1.0)),
            false => 0.0,
        };
        End { update, shared, tied }
    }
}

/// Where a program runs.
struct Place {
    stage: usize,
    stages: usize,
    parts: usize,
    /// Seconds of a transfer to a neighbour.
    send: f64,
}

impl Place {
    /// A transfer from a stage to its neighbour.
    fn message(&self, from: usize, to: usize, number: usize) -> Message {
        Message { from, to, number, seconds: self.send }
    }
}

/// What a stage's streams are given.
struct Program<'s> {
    units: Vec<Unit>,
    strategy: &'s Strategy,
    ops: Vec<Op>,
    /// Collectives given to each stream.
    started: [usize; 5],
}

impl Program<'_> {
    /// The step of a stage: 1F1B, as [`Pipeline::step`](crate::distributed::Pipeline::step) does it.
    fn of_stage(mut self, place: &Place) -> Vec<Op> {
        let &Place { stage, stages, parts, .. } = place;
        let (is_first, is_last) = (stage == 0, stage + 1 == stages);
        let warmup = (stages - stage - 1).min(parts);
        let steady = parts - warmup;
        let comes = |n: usize| (!is_first).then(|| place.message(stage - 1, stage, n));
        let goes = |n: usize| (!is_last).then(|| place.message(stage, stage + 1, n));
        let gradient_comes = |n: usize| (!is_last).then(|| place.message(stage + 1, stage, n));
        let gradient_goes = |n: usize| (!is_first).then(|| place.message(stage, stage - 1, n));
        for n in 0..warmup {
            self.exchange([comes(n), None]);
            self.forward();
            self.exchange([goes(n), None]);
        }
        if steady > 0 {
            self.exchange([comes(warmup), None]);
        }
        for n in 0..steady {
            self.forward();
            self.exchange([goes(warmup + n), gradient_comes(n)]);
            self.backward(n, parts);
            let next = if n + 1 < steady { comes(warmup + n + 1) } else { None };
            self.exchange([gradient_goes(n), next]);
        }
        for n in steady..parts {
            self.exchange([gradient_comes(n), None]);
            self.backward(n, parts);
            self.exchange([gradient_goes(n), None]);
        }
        if self.has_replicas() && !self.is_sharded() && stages > 1 {
            for unit in self.units.clone() {
                self.ops.push(Op::Compute(unit.pack));
                self.ops.push(Op::Inline(Axis::Dp, unit.all_reduce));
            }
        }
        for axis in [Axis::Fsdp, Axis::Dp] {
            if let Some(number) = self.started[axis as usize].checked_sub(1) {
                self.ops.push(Op::Wait { axis, number });
            }
        }
        self.ops
    }

    fn exchange(&mut self, messages: [Option<Message>; 2]) {
        let messages: Vec<Message> = messages.into_iter().flatten().collect();
        if !messages.is_empty() {
            self.ops.push(Op::Exchange(messages));
        }
    }

    fn is_sharded(&self) -> bool {
        self.strategy.mesh.fsdp > 1
    }

    /// Whether other ranks have the same part of the same parameters.
    fn has_replicas(&self) -> bool {
        self.strategy.mesh.dp * self.strategy.mesh.cp > 1
    }

    fn pass(&mut self, pass: Pass) {
        self.ops.push(Op::Compute(pass.compute));
        for (axis, seconds) in [(Axis::Tp, pass.tp), (Axis::Cp, pass.cp)] {
            if seconds > 0.0 {
                self.ops.push(Op::Inline(axis, seconds));
            }
        }
    }

    /// Gives a collective to the stream of its group; its number there.
    fn start(&mut self, axis: Axis, seconds: f64, after: Option<Axis>) -> usize {
        self.ops.push(Op::Start { axis, seconds, after });
        self.started[axis as usize] += 1;
        self.started[axis as usize] - 1
    }

    fn forward(&mut self) {
        if !self.is_sharded() {
            let all = self.units.iter().fold(Pass::default(), |all, unit| {
                all.plus(unit.forward).plus(Pass { compute: unit.copies, ..Pass::default() })
            });
            return self.pass(all);
        }
        let units = self.units.clone();
        let gather = |unit: &Unit| unit.gather;
        self.gathered(&units, gather, |program, unit| program.pass(unit.forward));
    }

    /// Does something with each unit while its parameters are whole.
    fn gathered(
        &mut self,
        units: &[Unit],
        gather: impl Fn(&Unit) -> f64,
        mut of: impl FnMut(&mut Self, &Unit),
    ) {
        let is_ahead = self.strategy.overlap >= Overlap::Gathers;
        let mut ahead = None;
        for (at, unit) in units.iter().enumerate() {
            if is_ahead {
                let number = match ahead {
                    Some(number) => number,
                    None => self.start(Axis::Fsdp, gather(unit), None),
                };
                ahead = units.get(at + 1).map(|next| self.start(Axis::Fsdp, gather(next), None));
                self.ops.push(Op::Wait { axis: Axis::Fsdp, number });
            } else {
                self.ops.push(Op::Inline(Axis::Fsdp, gather(unit)));
            }
            self.ops.push(Op::Compute(unit.copies));
            of(self, unit);
        }
    }

    /// The backward of microbatch `number` of `parts`.
    fn backward(&mut self, number: usize, parts: usize) {
        let is_last = number + 1 == parts;
        let is_sharded = self.is_sharded();
        let is_at_once = self.strategy.mesh.pp == 1 && is_last;
        let reduces = self.has_replicas() && (is_at_once || is_sharded);
        let backward = |program: &mut Self, unit: &Unit| {
            let mut pass = unit.backward;
            // Embedding and head are not computed again.
            if program.strategy.recompute && unit.matrices > 1.0 {
                pass = pass.plus(unit.forward);
            }
            pass.compute += if number > 0 { unit.accumulate } else { 0.0 };
            pass.compute += if reduces && !is_sharded { unit.pack } else { 0.0 };
            program.pass(pass);
            program.reduce(unit, reduces);
        };
        if !is_sharded && !reduces {
            let mut all = Program { ops: Vec::new(), units: Vec::new(), ..*self };
            self.units.iter().rev().for_each(|unit| backward(&mut all, unit));
            return self.ops.extend(merged(all.ops));
        }
        let units: Vec<Unit> = self.units.iter().rev().copied().collect();
        match is_sharded && self.strategy.reshard {
            true => self.gathered(&units, |unit| unit.gather_again, backward),
            false => units.iter().for_each(|unit| backward(self, unit)),
        }
    }

    /// The collectives of a unit's gradients.
    fn reduce(&mut self, unit: &Unit, reduces: bool) {
        let is_sharded = self.is_sharded() && unit.parameters > 0.0;
        let least = if is_sharded { Overlap::Full } else { Overlap::Gradients };
        let is_beside = self.strategy.overlap >= least;
        for (axis, seconds, is_done) in
            [(Axis::Fsdp, unit.reduce, is_sharded), (Axis::Dp, unit.all_reduce, reduces)]
        {
            let after = (axis == Axis::Dp && is_sharded).then_some(Axis::Fsdp);
            match (is_done, is_beside) {
                (false, _) => {}
                (true, true) => drop(self.start(axis, seconds, after)),
                (true, false) => self.ops.push(Op::Inline(axis, seconds)),
            }
        }
    }
}

/// Ops without collectives of their own streams, as one of each kind.
fn merged(ops: Vec<Op>) -> Vec<Op> {
    let (mut compute, mut inline) = (0.0, [0.0; 5]);
    for op in ops {
        match op {
            Op::Compute(seconds) => compute += seconds,
            Op::Inline(axis, seconds) => inline[axis as usize] += seconds,
            Op::Start { .. } | Op::Wait { .. } | Op::Exchange(_) => {}
        }
    }
    let inline = Axis::ALL
        .into_iter()
        .filter(|&axis| inline[axis as usize] > 0.0)
        .map(|axis| Op::Inline(axis, inline[axis as usize]));
    std::iter::once(Op::Compute(compute)).chain(inline).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mesh;

    /// The usage of stages of equal parts of one unit each, whose transfers cost nothing.
    fn pipeline(stages: usize, parts: usize) -> Vec<Usage> {
        let mesh = Mesh { pp: stages, ..Mesh::default() };
        let strategy = Strategy { mesh, ..Strategy::default() };
        let pass = |compute| Pass { compute, ..Pass::default() };
        let unit = Unit { forward: pass(1.0), backward: pass(2.0), ..Unit::default() };
        let program = |stage| {
            let program =
                Program { units: vec![unit], strategy: &strategy, ops: vec![], started: [0; 5] };
            program.of_stage(&Place { stage, stages, parts, send: 0.0 })
        };
        run(&(0..stages).map(program).collect::<Vec<_>>()).expect("stages that end")
    }

    #[test]
    fn the_bubble_of_1f1b_is_that_of_its_formula() {
        for (p, m) in [(1, 1), (2, 1), (4, 4), (4, 16), (8, 3), (16, 64)] {
            let usages = pipeline(p, m);
            let end = usages.iter().map(|usage| usage.end).fold(0.0, f64::max);
            assert_eq!(end, 3.0 * (m + p - 1) as f64, "{p} stages, {m} microbatches");
            for usage in usages {
                let bubble = usage.bubble + end - usage.end;
                let share = (p - 1) as f64 / (m + p - 1) as f64;
                assert!((bubble / end - share).abs() < 1e-12, "{p} stages, {m} microbatches");
            }
        }
    }

    #[test]
    fn gathers_ahead_are_hidden_behind_longer_units() {
        let mesh = Mesh { fsdp: 8, ..Mesh::default() };
        let pass = |compute| Pass { compute, ..Pass::default() };
        let unit = Unit {
            parameters: 1.0,
            forward: pass(4.0),
            backward: pass(8.0),
            gather: 1.0,
            gather_again: 1.0,
            reduce: 2.0,
            ..Unit::default()
        };
        let exposed = |overlap| {
            let strategy = Strategy { mesh, overlap, ..Strategy::default() };
            let (units, ops) = (vec![unit; 10], Vec::new());
            let program = Program { units, strategy: &strategy, ops, started: [0; 5] };
            let program = program.of_stage(&Place { stage: 0, stages: 1, parts: 1, send: 0.0 });
            run(&[program]).unwrap()[0].exposed[Axis::Fsdp as usize]
        };
        let times =
            UnitTimes { forward: 4.0, backward: 8.0, gather: 1.0, reduce: 2.0, all_reduce: 0.0 };
        let strategy = Strategy { mesh, ..Strategy::default() };
        let time = simulate_units(&[times; 10], &strategy).unwrap();
        assert_eq!(time.seconds, 120.0 + exposed(Overlap::Gathers));
        // The first gather of the forward and of the backward, and the last reduction.
        assert_eq!(exposed(Overlap::Full), 1.0 + 1.0 + 2.0);
        assert_eq!(exposed(Overlap::Gathers), 1.0 + 1.0 + 20.0);
        assert_eq!(exposed(Overlap::Gradients), 20.0 + 20.0);
        assert_eq!(exposed(Overlap::None), 20.0 + 20.0);
    }
}
