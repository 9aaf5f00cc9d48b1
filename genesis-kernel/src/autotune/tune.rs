//! From a kernel and a problem to the fastest configuration: the whole search on one screen.

use rayon::prelude::*;

use super::contest::{Contest, DeviceContest, Trial};
use super::example::Example;
use super::search::{Outcome, Plan, Progress, search};
use crate::compile::launch_cost;
use crate::configs::{Config, Problem, Record, Tuning};
use crate::diag::Error;
use crate::front::Hints;
use crate::ir::{DType, Func, Op, OpKind};
use crate::kernel::{KernelDef, Launch};
use crate::launch;
use crate::runtime::{Arg, Buffer, Device, Stream};
use crate::tuning::{Machine, Unit, Work};

/// What to tune, and how hard to try.
#[derive(Clone, Copy, Debug)]
pub struct TuneRequest<'a> {
    /// The kernel.
    pub kernel: &'a KernelDef,
    /// Where.
    pub stream: &'a Stream,
    /// The dtypes, in the order of the kernel's type parameters.
    pub dtypes: &'a [DType],
    /// Which optional parameters are there, in the kernel's order.
    pub present: &'a [bool],
    /// How much is measured.
    pub plan: Plan,
    /// How many configurations are compiled.
    pub shortlist: usize,
}

/// A configuration and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// The configuration.
    pub config: Config,
    /// The model's estimate, in microseconds.
    pub estimate_us: f64,
    /// Registers of one thread and shared bytes of one program, once it is compiled for a GPU.
    pub footprint: Option<(u32, u32)>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub struct TuneReport {
    /// Every configuration that makes sense, the fastest first, then the model's order.
    pub candidates: Vec<Candidate>,
    /// The time that no configuration can beat, by the model, in microseconds.
    pub bound_us: f64,
    record: Option<Record>,
}

impl TuneReport {
    /// The fastest candidate, if any is right.
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.first().filter(|candidate| candidate.outcome.us().is_some())
    }

    /// The best candidate as the database keeps it.
    pub fn record(&self) -> Option<Record> {
        self.record.clone()
    }
}

impl<'a> TuneRequest<'a> {
    /// A request with the usual effort.
    pub fn new(kernel: &'a KernelDef, stream: &'a Stream, dtypes: &'a [DType]) -> TuneRequest<'a> {
        let plan = Plan::default();
        TuneRequest { kernel, stream, dtypes, present: &[], plan, shortlist: 12 }
    }
}

/// Finds the fastest configuration for arguments. Memory that the kernel writes is left as it is:
/// results go elsewhere.
///
/// # Safety
/// As [`KernelDef::launch`], for every configuration of the kernel's space.
/// # Errors
/// If the kernel has no `#[autotune]`, no configuration fits, or the device fails.
pub unsafe fn tune(
    request: &TuneRequest<'_>,
    args: &[Arg],
    report: &mut dyn FnMut(Progress),
) -> Result<TuneReport, Error> {
    run(request, args, report)
}

/// [`tune()`] with arguments of our own, of a kernel that does nothing unchecked. Optional parameters are there where
/// the example has them.
///
/// # Errors
/// As [`tune()`], and if the kernel's launch is `unsafe`.
pub fn tune_example(
    request: &TuneRequest<'_>,
    example: &Example,
    report: &mut dyn FnMut(Progress),
) -> Result<TuneReport, Error> {
    if request.kernel.is_unchecked() {
        return Err(Error::launch(format!(
            "{}: the kernel takes pointers or makes promises, which an example can't keep",
            request.kernel.ast.name
        )));
    }
    run(&TuneRequest { present: example.present(), ..*request }, example.args(), report)
}

/// The search. What it runs the caller answers for, or the kernel checks.
fn run(
    request: &TuneRequest<'_>,
    args: &[Arg],
    report: &mut dyn FnMut(Progress),
) -> Result<TuneReport, Error> {
    let TuneRequest { kernel, stream, dtypes, present, .. } = *request;
    let name = kernel.ast.name;
    let tuning = kernel
        .tuning
        .ok_or_else(|| Error::launch(format!("{name}: the kernel has no #[autotune]")))?;
    let machine = Machine::of(stream.device())?;
    let sizes = (tuning.sizes)(args);
    let problem = Problem { machine: &machine, dtypes, sizes: &sizes, present, args };
    let (mut candidates, work) = ordered(kernel, tuning, &problem, request.shortlist)?;
    let (bound_us, is_cold) = (work.bound_us(&machine), work.is_memory_bound(&machine));
    let compiled = candidates.len().min(request.shortlist);
    compile(request, args, &mut candidates[..compiled], report);
    let legal: Vec<usize> =
        (0..compiled).filter(|&i| candidates[i].outcome == Outcome::Untried).collect();
    let configs: Vec<Config> = legal.iter().map(|&i| candidates[i].config.clone()).collect();
    let mut contest = DeviceContest {
        kernel,
        tuning,
        stream,
        dtypes,
        present,
        configs: &configs,
        trials: Vec::new(),
        flush: Buffer::uninit(stream, flush_bytes(stream.device()))?,
        is_cold,
    };
    if let Some(small) = small_trial(request, tuning, &problem)? {
        contest.trials.push(small);
    }
    contest.trials.push(Trial::new("the problem", stream, args)?);
    let outcomes = search(&mut contest as &mut dyn Contest, configs.len(), &request.plan, report)?;
    for (&i, outcome) in legal.iter().zip(outcomes) {
        candidates[i].outcome = outcome;
    }
    refuse_disagreement(name, &candidates)?;
    let us = |candidate: &Candidate| candidate.outcome.us().unwrap_or(f64::INFINITY);
    candidates.sort_by(|a, b| us(a).total_cmp(&us(b)));
    let record = candidates.first().and_then(|best| {
        let best = (&best.config, best.outcome.us()?);
        Some(Record::new(kernel.ast, tuning.key, &problem, best))
    });
    Ok(TuneReport { candidates, bound_us, record })
}

/// What [`tune()`] would try on a machine, in this order, with the bound; nothing is compiled or run, so
/// that the machine need not be there.
///
/// # Errors
/// If the kernel has no `#[autotune]`, or no configuration fits.
pub fn forecast(
    kernel: &KernelDef,
    machine: &Machine,
    dtypes: &[DType],
    example: &Example,
) -> Result<TuneReport, Error> {
    let (args, present) = (example.args(), example.present());
    let tuning = kernel.tuning.ok_or_else(|| {
        Error::launch(format!("{}: the kernel has no #[autotune]", kernel.ast.name))
    })?;
    let sizes = (tuning.sizes)(args);
    let problem = Problem { machine, dtypes, sizes: &sizes, present, args };
    let (candidates, work) = ordered(kernel, tuning, &problem, usize::MAX)?;
    Ok(TuneReport { candidates, bound_us: work.bound_us(machine), record: None })
}

/// Candidates in the order in which they are tried, and what the first of them does.
fn ordered(
    kernel: &KernelDef,
    tuning: &Tuning,
    problem: &Problem<'_>,
    shortlist: usize,
) -> Result<(Vec<Candidate>, Work), Error> {
    let ranked = rank(kernel, tuning, problem);
    let Some(&(_, work)) = ranked.first() else {
        let name = kernel.ast.name;
        return Err(Error::launch(format!("{name}: no configuration fits the problem")));
    };
    let candidate = |(config, work): (Config, Work)| Candidate {
        config,
        estimate_us: work.estimate_us(problem.machine),
        footprint: None,
        outcome: Outcome::Untried,
    };
    let mut candidates = ranked.into_iter().map(candidate).collect();
    prefer_heuristic(&mut candidates, tuning, problem, shortlist);
    Ok((candidates, work))
}

/// Configurations that make sense for a problem with what they do, the model's best first.
pub(super) fn rank(
    kernel: &KernelDef,
    tuning: &Tuning,
    problem: &Problem<'_>,
) -> Vec<(Config, Work)> {
    let configs = tuning.configs(kernel.ast);
    let allowed: Vec<Config> =
        configs.into_iter().filter(|config| tuning.allows(config, problem)).collect();
    let mut ranked: Vec<(Config, Work)> = allowed
        .into_par_iter()
        .filter_map(|config| {
            let work = work(kernel, tuning, &config, problem)?;
            Some((config, work))
        })
        .collect();
    let us = |work: &Work| work.estimate_us(problem.machine);
    // Of equal ones, which the model cannot tell apart, more loads in flight come first.
    ranked.sort_by(|(a, x), (b, y)| {
        us(x).total_cmp(&us(y)).then(b.options.num_stages.cmp(&a.options.num_stages))
    });
    ranked
}

/// What a configuration does for a problem, counted in its tile IR; none if it has none.
fn work(
    kernel: &KernelDef,
    tuning: &Tuning,
    config: &Config,
    problem: &Problem<'_>,
) -> Option<Work> {
    let hints = Hints::contiguous(kernel.ast).with_options(config.options);
    let special =
        kernel.specialize(problem.dtypes, &config.consts_with(problem.present), &hints).ok()?;
    let grid = (tuning.grid)(&config.consts, problem.args);
    let cost = launch_cost(&special.func, grid, problem.args);
    // A cluster is a program of several blocks, of which each multiprocessor has one.
    let blocks = config.options.cluster.unwrap_or(1).max(1);
    let [whole, part] = [1, blocks].map(|blocks| stage_bytes(&special.func, blocks));
    let share = match (whole, part) {
        (Some(whole), Some(part)) if whole > 0 => f64::from(part) / f64::from(whole),
        _ => 1.0 / f64::from(blocks),
    };
    Some(Work {
        programs: f64::from(blocks) * grid.x as f64 * grid.y as f64 * grid.z as f64,
        flops: cost.flops as f64 / f64::from(blocks),
        bytes: cost.bytes as f64 * share,
        argument_bytes: problem.args.iter().map(argument_bytes).sum(),
        unit: unit(&special.func),
        shared_bytes: part
            .zip(config.options.num_stages)
            .map(|(bytes, stages)| bytes.saturating_mul(stages)),
        num_warps: config.options.num_warps.unwrap_or(4),
    })
}

/// Bytes of the operands of a kernel's first product, which shared memory holds once for each stage: of
/// the left one a block of a cluster has its part.
fn stage_bytes(func: &Func, blocks: u32) -> Option<u32> {
    let is_dot = |op: &Op| matches!(func.op(*op).kind, OpKind::Dot { .. });
    let dot = func.walk().into_iter().find(is_dot)?;
    let [left, right] = [0, 1].map(|i| {
        let tile = func.ty(func.op(dot).operands[i]).as_tile()?;
        Some(tile.shape.numel() * tile.dtype().bytes())
    });
    u32::try_from(left? / blocks as usize + right?).ok()
}

fn unit(func: &Func) -> Unit {
    let of_dot = |op| match &func.op(op).kind {
        OpKind::Dot { precision } => {
            let operand = func.ty(func.op(op).operands[0]).as_tile()?;
            Some(Unit::of(operand.dtype(), *precision))
        }
        _ => None,
    };
    func.walk().into_iter().find_map(of_dot).unwrap_or(Unit::Single)
}

/// The bytes that an argument reaches: an axis of stride 0 counts once.
fn argument_bytes(arg: &Arg) -> f64 {
    match arg {
        Arg::Scalar(_) => 0.0,
        Arg::Ptr(ptr) => ptr.bytes as f64,
        Arg::Views(all) => all.ptr.bytes as f64,
        Arg::View(view) => {
            let axes = view.dims().iter().zip(view.strides());
            let numel: f64 =
                axes.filter(|&(_, &stride)| stride != 0).map(|(&dim, _)| dim as f64).product();
            numel * view.ptr.dtype.bytes() as f64
        }
    }
}

/// Puts the heuristic's choice among those that are compiled, at the end if the model thinks little of
/// it: what tuning finds is never slower than no tuning.
fn prefer_heuristic(
    candidates: &mut Vec<Candidate>,
    tuning: &Tuning,
    problem: &Problem<'_>,
    shortlist: usize,
) {
    let Some(heuristic) = tuning.heuristic else { return };
    let config = heuristic(problem);
    let last = shortlist.saturating_sub(1).min(candidates.len());
    let candidate = match candidates.iter().position(|other| other.config == config) {
        Some(at) if at <= last => return,
        Some(at) => candidates.remove(at),
        None => {
            Candidate { config, estimate_us: f64::NAN, footprint: None, outcome: Outcome::Untried }
        }
    };
    candidates.insert(last, candidate);
}

/// Compiles candidates on all cores; what does not compile, and what spills registers, is illegal.
fn compile(
    request: &TuneRequest<'_>,
    args: &[Arg],
    candidates: &mut [Candidate],
    report: &mut dyn FnMut(Progress),
) {
    let total = candidates.len();
    report(Progress { stage: "compiling", done: 0, total });
    candidates.par_iter_mut().for_each(|candidate| {
        let consts = candidate.config.consts_with(request.present);
        let launch = Launch {
            stream: request.stream,
            grid: crate::runtime::Grid::x(1),
            dtypes: request.dtypes,
            consts: &consts,
            options: candidate.config.options,
            args,
        };
        match launch::prepare(request.kernel, &launch) {
            Ok(footprint) => {
                if request.stream.device().is_cuda() {
                    candidate.footprint = Some((footprint.registers, footprint.shared_bytes));
                }
                if footprint.spill_bytes > 0 {
                    let why = format!("spills {} bytes a thread", footprint.spill_bytes);
                    candidate.outcome = Outcome::Illegal(why);
                }
            }
            Err(error) => candidate.outcome = Outcome::Illegal(error.to_string()),
        }
    });
    let spills =
        |c: &Candidate| matches!(&c.outcome, Outcome::Illegal(why) if why.starts_with("spills"));
    // Where everything spills, the fastest that does is what there is.
    if candidates.iter().all(|c| c.outcome != Outcome::Untried) {
        candidates.iter_mut().filter(|c| spills(c)).for_each(|c| c.outcome = Outcome::Untried);
    }
    report(Progress { stage: "compiling", done: total, total });
}

/// A problem of at most 384 along each size, computed by the CPU back end; none if the kernel has no
/// example to make it from, or none with an optional parameter that is there.
fn small_trial(
    request: &TuneRequest<'_>,
    tuning: &Tuning,
    problem: &Problem<'_>,
) -> Result<Option<Trial>, Error> {
    if tuning.example.is_none() {
        return Ok(None);
    }
    let TuneRequest { kernel, dtypes, present, .. } = *request;
    // A size that is no multiple of 16 stays so, that the same code runs.
    let clip = |&size: &i64| match size {
        ..=384 => size,
        size if size % 16 == 0 => 384,
        size => 368 + size % 16,
    };
    let sizes: Vec<i64> = problem.sizes.iter().map(clip).collect();
    let transposed: Vec<&str> = transposed(kernel, problem.args);
    let host = Device::Cpu.stream();
    let example = Example::new(&host, kernel.ast, tuning, dtypes, &sizes, &transposed)?;
    let Some(example) = example.with_present(kernel.ast, present) else { return Ok(None) };
    let cpu = Machine::of(Device::Cpu)?;
    let small = Problem { machine: &cpu, dtypes, sizes: &sizes, present, args: example.args() };
    let config = match tuning.heuristic {
        Some(heuristic) => heuristic(&small),
        None => tuning.configs(kernel.ast).into_iter().next().unwrap_or_default(),
    };
    let reference = Trial::new("a small problem", &host, example.args())?;
    let configs = [config];
    let on_cpu = DeviceContest {
        kernel,
        tuning,
        stream: &host,
        dtypes,
        present,
        configs: &configs,
        trials: Vec::new(),
        flush: Buffer::uninit(&host, 0)?,
        is_cold: false,
    };
    on_cpu.run(0, &reference)?;
    let expected = reference.results(request.stream)?;
    let example = example.to_stream(request.stream)?;
    let mut trial = Trial::owning("a small problem", request.stream, example)?;
    trial.expected = Some(expected);
    Ok(Some(trial))
}

/// The parameters whose views lie in columns.
fn transposed(kernel: &KernelDef, args: &[Arg]) -> Vec<&'static str> {
    let params = kernel.ast.params.iter().zip(args);
    let is_transposed = |arg: &Arg| match arg {
        Arg::View(view) if view.rank > 1 => {
            let (dims, strides, n) = (view.dims(), view.strides(), view.rank as usize);
            strides[n - 2] == 1 && strides[n - 1] != 1 && dims[n - 1] > 1
        }
        _ => false,
    };
    params
        .filter(|(_, arg)| is_transposed(arg))
        .filter_map(|(param, _)| match param.pattern {
            crate::front::ast::PatternAst::Name(name) => Some(*name),
            _ => None,
        })
        .collect()
}

/// Bytes written to empty the cache.
fn flush_bytes(device: Device) -> usize {
    if device.is_cuda() { 256 << 20 } else { 1 << 20 }
}

/// An error if more candidates are wrong than right: then nobody knows which is which.
fn refuse_disagreement(name: &str, candidates: &[Candidate]) -> Result<(), Error> {
    let wrong: Vec<&String> = candidates
        .iter()
        .filter_map(|candidate| match &candidate.outcome {
            Outcome::Wrong(why) => Some(why),
            _ => None,
        })
        .collect();
    let right = candidates.iter().filter(|candidate| candidate.outcome.us().is_some()).count();
    match wrong.first() {
        Some(why) if wrong.len() > right => Err(Error::launch(format!(
            "{name}: {} of {} configurations are wrong; the first: {why}",
            wrong.len(),
            wrong.len() + right
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
