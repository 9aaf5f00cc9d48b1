//! `genesis plan`: what training on many GPUs will take, as tables or JSON.

use std::fmt::Write;
use std::path::Path;

use clap::ValueEnum;
use genesis::plan::{
    Axis, Check, Given, Gpu, Job, MEASURED, MODEL_NAMES, Measured, ModelShape, Network, Overlap,
    Plan, checks, mesh_of, search,
};
use serde_json::{Value, json};

use super::{Failure, Outcome, say};

/// Say what training on many GPUs will take: memory, time and communication of a step.
///
/// Without a mesh the fastest are searched for. Numbers of several GPUs are predictions: docs/scaling.md says from what.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A folder with config.json, or GPT-2, Qwen2.5-0.5B, Llama-3-8B, Llama-3-70B.
    #[arg(required_unless_present = "rates")]
    model: Option<String>,
    /// GPUs; of several numbers, as in 8,64,1024, the best plan of each.
    #[arg(long, value_name = "N", required_unless_present = "rates", value_delimiter = ',')]
    gpus: Vec<usize>,
    /// What they are: h200, h100.
    #[arg(long, default_value = "h200")]
    gpu: String,
    /// GPUs that NVLink joins.
    #[arg(long, value_name = "N", default_value_t = 8)]
    gpus_per_node: usize,
    /// What joins nodes: nvlink, ib-400 (a GPU), ethernet-100 (a node).
    #[arg(long, default_value = "ib-400")]
    network: String,
    /// Data parallel ranks; what is left over where other axes are given.
    #[arg(long, value_name = "N")]
    dp: Option<usize>,
    /// Ranks that share parameters, gradients and state.
    #[arg(long, value_name = "N")]
    fsdp: Option<usize>,
    /// Tensor parallel ranks.
    #[arg(long, value_name = "N")]
    tp: Option<usize>,
    /// Context parallel ranks.
    #[arg(long, value_name = "N")]
    cp: Option<usize>,
    /// Pipeline stages.
    #[arg(long, value_name = "N")]
    pp: Option<usize>,
    /// Sequences a step; as many as GPUs without it.
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Tokens of a sequence; 8192, or the positions that the model has.
    #[arg(long, value_name = "N")]
    sequence: Option<usize>,
    /// Sequences of a microbatch.
    #[arg(long, value_name = "N")]
    microbatch: Option<usize>,
    /// Compute layers again in their backwards (activation checkpointing), or not.
    #[arg(long, value_name = "BOOL")]
    recompute: Option<bool>,
    /// Keep the optimizer's state in parts on data parallel ranks (ZeRO-1), or not.
    #[arg(long, value_name = "BOOL")]
    zero_1: Option<bool>,
    /// Give whole parameters up after a forward (ZeRO-3), or after the backward (ZeRO-2).
    #[arg(long, value_name = "BOOL")]
    reshard: Option<bool>,
    /// What parameters of fully sharded ranks are gathered in.
    #[arg(long, value_enum, default_value_t = Width::Bf16)]
    param_dtype: Width,
    /// What their gradients are added up in; as parameters without it.
    #[arg(long, value_enum)]
    reduce_dtype: Option<Width>,
    /// Which collectives run beside the compute.
    #[arg(long, value_enum, default_value_t = Beside::Gathers)]
    overlap: Beside,
    /// How many meshes to show.
    #[arg(long, value_name = "N", default_value_t = 3)]
    best: usize,
    /// Show what plans are made of instead: rates of kernels, and what was measured beside what is computed.
    #[arg(long, exclusive = true)]
    rates: bool,
    /// One JSON value instead of tables.
    #[arg(long)]
    json: bool,
}

/// Values of `--overlap`.
#[derive(Clone, Copy, ValueEnum)]
enum Beside {
    /// None.
    None,
    /// Gradients of data parallel ranks.
    Gradients,
    /// Those, and gathers of parameters one module ahead: what Genesis does.
    Gathers,
    /// Those, and reductions of sharded gradients.
    Full,
}

/// Values of `--param-dtype`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Width {
    /// That of products.
    Bf16,
    /// That of weights.
    F32,
}

pub(super) fn run(args: &Args) -> Outcome {
    if args.rates {
        return say(rates()?);
    }
    let model = args.model()?;
    if let [gpus] = args.gpus[..] {
        let job = args.job(&model, gpus)?;
        let plans = search(&job, &args.given(gpus), args.best)?;
        return match args.json {
            true => say(plans.iter().map(|plan| as_json(&job, plan)).collect::<Value>()),
            false => say(table(&job, &plans)),
        };
    }
    let jobs = args.gpus.iter().map(|&gpus| args.job(&model, gpus));
    let jobs = jobs.collect::<Result<Vec<Job>, Failure>>()?;
    let found: Vec<_> =
        jobs.iter().map(|job| (job, search(job, &args.given(job.gpus), 1))).collect();
    if args.json {
        let row = |(job, plans): &(&Job, genesis::Result<Vec<Plan>>)| match plans {
            Ok(plans) => as_json(job, &plans[0]),
            Err(error) => json!({ "gpus": job.gpus, "error": error.to_string() }),
        };
        return say(found.iter().map(row).collect::<Value>());
    }
    let mut text = format!("{}\n{:>5}  {HEAD}", title(&model, &jobs), "GPUs");
    for (job, plans) in found {
        match plans {
            Ok(plans) => write!(text, "\n{:>5}  {}", job.gpus, row(job, &plans[0]))?,
            Err(error) => write!(text, "\n{:>5}  {error}", job.gpus)?,
        }
    }
    say(text)
}

impl Args {
    fn model(&self) -> Result<ModelShape, Failure> {
        let model = self.model.as_deref().unwrap_or_default();
        let path = Path::new(model);
        match ModelShape::named(model) {
            _ if path.is_dir() => Ok(ModelShape::read(path)?),
            Some(shape) => Ok(shape),
            None => Err(Failure::Message(format!(
                "`{model}` is no folder, and no shape that is built in: {}",
                MODEL_NAMES.join(", ")
            ))),
        }
    }

    fn job(&self, model: &ModelShape, gpus: usize) -> Result<Job, Failure> {
        let most = model.positions.unwrap_or(SEQUENCE);
        Ok(Job {
            model: model.clone(),
            gpu: Gpu::named(&self.gpu)?,
            gpus,
            gpus_per_node: self.gpus_per_node,
            network: Network::named(&self.network)?,
            batch: self.batch.unwrap_or(gpus),
            sequence: self.sequence.unwrap_or(most.min(SEQUENCE)),
        })
    }

    fn given(&self, gpus: usize) -> Given {
        Given {
            mesh: mesh_of([self.dp, self.fsdp, self.tp, self.cp, self.pp], gpus),
            microbatch: self.microbatch,
            recompute: self.recompute,
            zero_1: self.zero_1,
            reshard: self.reshard,
            half_parameters: Some(self.param_dtype == Width::Bf16),
            half_gradients: self.reduce_dtype.map(|width| width == Width::Bf16),
            overlap: Some(match self.overlap {
                Beside::None => Overlap::None,
                Beside::Gradients => Overlap::Gradients,
                Beside::Gathers => Overlap::Gathers,
                Beside::Full => Overlap::Full,
            }),
        }
    }
}

/// Tokens of a sequence where none are given.
const SEQUENCE: usize = 8192;

/// What stands over [`row`]s.
const HEAD: &str = "mesh                      microbatch  how                        ms  tokens/s/GPU   MFU %  exposed %  bubble %     GB";

/// What all plans of a table share.
fn title(model: &ModelShape, jobs: &[Job]) -> String {
    let Some(job) = jobs.first() else { return String::new() };
    let billions = model.parameters() / 1e9;
    let batches: Vec<String> = jobs.iter().map(|job| job.batch.to_string()).collect();
    format!(
        "{}, {billions:.2} B parameters; {}, {} a node, {} between nodes; {} sequences of {} tokens a step",
        model.name,
        job.gpu.name,
        job.gpus_per_node,
        job.network.name,
        batches.join(", "),
        job.sequence
    )
}

/// A plan in a line.
fn row(job: &Job, plan: &Plan) -> String {
    let strategy = &plan.strategy;
    let words = [
        (strategy.recompute, "recompute"),
        (strategy.zero_1, "zero-1"),
        (strategy.mesh.fsdp > 1 && !strategy.reshard, "no reshard"),
    ];
    let words: Vec<&str> = words.iter().filter(|(is_so, _)| *is_so).map(|(_, w)| *w).collect();
    let time = &plan.time;
    format!(
        "{:<24} {:>5} x {:<4}  {:<21} {:>8.1}  {:>12.0}  {:>6.1}  {:>9.1}  {:>8.1}  {:>5.1}",
        strategy.mesh,
        plan.microbatches,
        strategy.microbatch,
        words.join(", "),
        time.seconds * 1e3,
        plan.tokens_per_second(job) / job.gpus as f64,
        plan.mfu(job) * 100.0,
        time.exposed_share() * 100.0,
        time.bubble_share() * 100.0,
        plan.memory.peak / 1e9
    )
}

/// The best plans, and where memory and time of the first go.
fn table(job: &Job, plans: &[Plan]) -> String {
    let mut lines = vec![title(&job.model, std::slice::from_ref(job)), HEAD.to_owned()];
    lines.extend(plans.iter().map(|plan| row(job, plan)));
    let Some(Plan { strategy, memory, time, .. }) = plans.first() else { return lines.join("\n") };
    lines.push(format!("\n{}", strategy.mesh));
    lines.push(format!(
        "memory, GB   weights {:.1}, gradients {:.1}, optimizer {:.1}, activations {:.1}, buffers {:.1}; \
         at most {:.1} of {:.1}",
        memory.weights / 1e9,
        memory.gradients / 1e9,
        memory.optimizer / 1e9,
        memory.activations / 1e9,
        memory.buffers / 1e9,
        memory.peak / 1e9,
        job.gpu.usable() / 1e9
    ));
    lines.push(format!(
        "step, ms     compute {:.1}, of which the optimizer {:.1}; bubbles {:.1}",
        (time.compute) * 1e3,
        time.optimizer * 1e3,
        time.bubble * 1e3
    ));
    let used = Axis::ALL.into_iter().filter(|&axis| time.communication[axis as usize] > 0.0);
    let of = |axis: Axis| {
        let [all, seen] = [time.communication, time.exposed].map(|of| of[axis as usize] * 1e3);
        format!("{} {seen:.1} of {all:.1}", axis.name())
    };
    let words: Vec<String> = used.map(of).collect();
    if !words.is_empty() {
        lines.push(format!("exposed, ms  {}", words.join(", ")));
    }
    lines.join("\n")
}

/// The rates of an H200 and where they are from; what was measured beside what is computed.
fn rates() -> genesis::Result<String> {
    let mut lines = vec![format!("{:<29} {:<55} {:>13}", "rate of an h200", "measured by", "rate")];
    for Measured { rate, case, value } in MEASURED {
        let is_flops = rate.starts_with("product") || rate.starts_with("attention");
        let shown = match is_flops {
            true => format!("{:.0} TFLOP/s", value / 1e12),
            false => format!("{:.0} GB/s", value / 1e9),
        };
        lines.push(format!("{rate:<29} {case:<55} {shown:>13}"));
    }
    lines.push(format!("\n{:<29} {:<55} {:>13}", "link", "from", "rate"));
    for (network, of) in [
        (Network::NVLINK, "all-reduce of 1 GiB, 2 GPUs; of 450 a GPU"),
        (Network::IB_400, "assumed: 90 % of 50 a GPU"),
        (Network::ETHERNET_100, "assumed: 90 % of 12.5 a node"),
    ] {
        let rate = format!("{:.1} GB/s", network.bandwidth / 1e9);
        lines.push(format!("{:<29} {of:<55} {rate:>13}", network.name));
    }
    lines.push(format!(
        "\n{:<37} {:<55} {:>11} {:>11} {:>6}",
        "what", "measured by", "measured ms", "computed ms", "off %"
    ));
    for check in checks()? {
        let Check { what, source, measured, computed } = check;
        let off = check.off() * 100.0;
        let (measured, computed) = (measured * 1e3, computed * 1e3);
        lines
            .push(format!("{what:<37} {source:<55} {measured:>11.4} {computed:>11.4} {off:>+6.1}"));
    }
    Ok(lines.join("\n"))
}

/// Values by the names of axes.
fn by_axis(of: impl Fn(Axis) -> Value) -> Value {
    Axis::ALL.into_iter().map(|axis| (axis.name().to_owned(), of(axis))).collect()
}

/// A plan with its units in the names of its keys.
fn as_json(job: &Job, plan: &Plan) -> Value {
    let Plan { strategy, microbatches, memory, time } = plan;
    let dtype = |is_half: bool| if is_half { "bf16" } else { "f32" };
    json!({
        "model": job.model.name,
        "parameters": job.model.parameters(),
        "gpu": job.gpu.name,
        "gpus": job.gpus,
        "gpus_per_node": job.gpus_per_node,
        "network": job.network.name,
        "batch": job.batch,
        "sequence": job.sequence,
        "mesh": by_axis(|axis| json!(strategy.mesh.along(axis))),
        "microbatch": strategy.microbatch,
        "microbatches": microbatches,
        "recompute": strategy.recompute,
        "zero_1": strategy.zero_1,
        "reshard": strategy.reshard,
        "param_dtype": dtype(strategy.half_parameters),
        "reduce_dtype": dtype(strategy.half_gradients),
        "step_ms": time.seconds * 1e3,
        "compute_ms": time.compute * 1e3,
        "optimizer_ms": time.optimizer * 1e3,
        "bubble_ms": time.bubble * 1e3,
        "exposed_ms": by_axis(|axis| json!(time.exposed[axis as usize] * 1e3)),
        "communication_ms": by_axis(|axis| json!(time.communication[axis as usize] * 1e3)),
        "tokens_per_second": plan.tokens_per_second(job),
        "mfu": plan.mfu(job),
        "memory_bytes": {
            "weights": memory.weights,
            "gradients": memory.gradients,
            "optimizer": memory.optimizer,
            "activations": memory.activations,
            "buffers": memory.buffers,
            "peak": memory.peak,
            "usable": job.gpu.usable(),
        },
    })
}
