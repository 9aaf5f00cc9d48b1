//! `genesis sft`, `genesis pretrain` and `genesis dpo`
//!
//! What a run is asked to do is a table: the usual values, over them those of `--config`, over them the flags.

mod flags;

use std::path::{Path, PathBuf};

use genesis::Device;
use genesis::distributed::{self, ProcessGroup, World};
use genesis::train::language::{
    Event, MemoryPlan, Options, Outcome as Trained, Preferences, Progress, Session, Start, is_new,
    plan_memory_of_ranks, preset_names, run,
};
use serde_json::json;

use self::flags::Flags;
use super::output::{Lines, path_text};
use super::progress::Steps;
use super::signals::Signals;
use super::values::device;
use super::{Failure, Outcome, model, say};

/// Fine-tune a published model on conversations.
#[derive(clap::Args)]
pub(super) struct Sft {
    /// A folder as Hugging Face publishes it, a GGUF file, or a name such as Qwen/Qwen2.5-0.5B; may be in --config.
    model: Option<String>,
    #[command(flatten)]
    flags: Flags,
}

/// Train a language model on texts: from nothing, or on from a published one.
#[derive(clap::Args)]
pub(super) struct Pretrain {
    /// A preset (tiny, 5m, 20m, 60m, 135m, 360m, 1b) or a config.json, which begin from nothing; or a model as of `sft`.
    model: Option<String>,
    #[command(flatten)]
    flags: Flags,
}

/// Teach a language model which of two answers is the better (DPO).
#[derive(clap::Args)]
pub(super) struct Dpo {
    /// A model as of `sft`.
    model: Option<String>,
    /// How much a model that goes away from the first one loses for it; 0.1 without it.
    #[arg(long)]
    beta: Option<f64>,
    /// The probability that a pair's answers are the wrong way round; 0 without it.
    #[arg(long)]
    label_smoothing: Option<f64>,
    #[command(flatten)]
    flags: Flags,
}

pub(super) fn sft(args: &Sft) -> Outcome {
    let options = resolved(&Options::sft(), args.model.as_deref(), &args.flags)?;
    only_texts(&options)?;
    only_trained(&options)?;
    train(&options, &args.flags)
}

pub(super) fn pretrain(args: &Pretrain) -> Outcome {
    let options = resolved(&Options::pretrain(), args.model.as_deref(), &args.flags)?;
    only_texts(&options)?;
    train(&options, &args.flags)
}

pub(super) fn dpo(args: &Dpo) -> Outcome {
    let mut options = resolved(&Options::dpo(), args.model.as_deref(), &args.flags)?;
    options.beta = args.beta.or(options.beta);
    options.label_smoothing = args.label_smoothing.or(options.label_smoothing);
    only_trained(&options)?;
    train(&options, &args.flags)
}

/// Refuses a configuration of `genesis dpo`.
fn only_texts(options: &Options) -> Outcome {
    match options.beta {
        None => Ok(()),
        Some(_) => {
            Err(Failure::Message("beta is of pairs, from which `genesis dpo` learns".into()))
        }
    }
}

/// Refuses a model that begins from nothing.
fn only_trained(options: &Options) -> Outcome {
    if !is_new(&options.model) {
        return Ok(());
    }
    let what = format!("{} is no trained model; `genesis pretrain` begins from it", options.model);
    Err(Failure::Message(what))
}

/// The usual values, those of the file over them, those of flags over both.
fn resolved(usual: &Options, model: Option<&str>, flags: &Flags) -> Result<Options, Failure> {
    let mut options = usual.clone();
    if device(flags.device.as_deref())?.is_cuda() {
        options = options.with(&toml::Table::from_iter([("dtype".to_owned(), "bf16".into())]))?;
    }
    if let Some(path) = &flags.config {
        let named = |what: String| Failure::Message(format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| named(error.to_string().trim_end().to_owned()))?;
        options = options.with(&table).map_err(|error| named(error.to_string()))?;
    }
    let mut table = toml::Table::try_from(flags)
        .map_err(|error| Failure::Message(format!("a flag can't be used: {error}")))?;
    table.extend(model.map(|model| ("model".to_owned(), model.into())));
    let options = options.with(&table)?;
    match options.model.is_empty() {
        true => {
            let what =
                format!("no model is named; name one, or a preset: {}", preset_names().join(", "));
            Err(Failure::Message(what))
        }
        false => Ok(options),
    }
}

fn train(options: &Options, flags: &Flags) -> Outcome {
    // A signal ends a rank that waits for others: there is nothing to save yet.
    let group = ranks(flags)?;
    if !flags.dry_run {
        options.check_ranks(group.as_ref().map_or(1, ProcessGroup::size))?;
    }
    let signals = Signals::take()?;
    let is_first = group.as_ref().is_none_or(|group| group.rank() == 0);
    let lines = Lines::new(flags.json, options.out.is_some());
    if is_first {
        lines.line(options.to_toml()?.trim_end());
    }
    let device = match &group {
        Some(group) => group.device(),
        None => device(flags.device.as_deref())?,
    };
    let path = match is_new(&options.model) {
        true => None,
        false => Some(found(&options.model)?),
    };
    if flags.dry_run {
        let ranks = options.ranks_named().max(World::from_env()?.size);
        let plans = plan_memory_of_ranks(options, path.as_deref(), device, ranks)?;
        lines.end()?;
        return tell(plans.as_deref(), (device, ranks), flags.json);
    }
    let is_cut = group.is_some() && options.has_parts();
    let to = if is_cut { Device::Cpu } else { device };
    let start = Start::open(options, path.as_deref(), to)?;
    let all = start.model.parameters();
    let count = |trained: bool| -> usize {
        all.iter().filter(|p| !trained || p.requires_grad()).map(genesis::Tensor::numel).sum()
    };
    let among = group.as_ref().map_or(String::new(), |of| format!(" and {} others", of.size() - 1));
    if is_first {
        lines.line(format!(
            "{} on {device}{among}: {} parameters, {} of them trained",
            start.config.model_type,
            count(false),
            count(true)
        ));
    }
    drop(all);
    let start = match &group {
        Some(group) => start.on_ranks(group),
        None => start,
    };
    let progress = Steps::new(&lines, 10, flags.json);
    let session = Session { resume: flags.resume, overwrite: flags.overwrite };
    // What all ranks would say alike, the first says.
    let show = |event| {
        if is_first {
            show(&progress, event)
        }
    };
    let outcome = run(start, options, session, signals.stop(), show)?;
    progress.finish();
    lines.end()?;
    if is_first {
        report(&outcome, flags.json)?;
    }
    match signals.status() {
        Some(status) if outcome.stopped => Err(Failure::Stopped(status)),
        _ => Ok(()),
    }
}

/// The group of all ranks, where a launcher started several; the GPU of each is the one of its number.
fn ranks(flags: &Flags) -> Result<Option<ProcessGroup>, Failure> {
    if flags.dry_run || World::from_env()?.size == 1 {
        return Ok(None);
    }
    match flags.device.as_deref() {
        None => Ok(Some(distributed::init()?)),
        Some("cpu") => Ok(Some(distributed::init_world(World::from_env()?, Device::Cpu)?)),
        Some(name) => {
            let what = format!("--device {name}: each of several ranks has the GPU of its number");
            Err(Failure::Message(what))
        }
    }
}

/// Tells what memory a run will need: of each stage's ranks, which are alike.
fn tell(plans: Option<&[MemoryPlan]>, (device, ranks): (Device, usize), is_json: bool) -> Outcome {
    let Some((plans, largest)) = plans.and_then(|p| Some((p, p.iter().max_by_key(|p| p.peak)?)))
    else {
        let what = "what memory this model or its quantized weights need is not known";
        return say(if is_json {
            json!({ "peak_bytes": null }).to_string()
        } else {
            what.to_owned()
        });
    };
    if is_json {
        let mut told = numbers(largest);
        if ranks > 1 {
            told["ranks"] = ranks.into();
            told["stages"] = plans.iter().map(numbers).collect();
        }
        return say(told);
    }
    for (stage, plan) in plans.iter().enumerate() {
        let whose = match (ranks, plans.len()) {
            (1, _) => String::new(),
            (ranks, 1) => format!(" of each of {ranks} ranks"),
            (ranks, stages) => {
                format!(" of each of {} ranks of stage {} of {stages}", ranks / stages, stage + 1)
            }
        };
        line(plan, device, &whose)?;
    }
    Ok(())
}

/// A plan as JSON has it.
fn numbers(plan: &MemoryPlan) -> serde_json::Value {
    let MemoryPlan { weights, gradients, optimizer, activations, offloaded, peak } = *plan;
    json!({
        "weights_bytes": weights,
        "gradients_bytes": gradients,
        "optimizer_bytes": optimizer,
        "activations_bytes": activations,
        "offloaded_bytes": offloaded,
        "peak_bytes": peak,
    })
}

/// A plan as a line.
fn line(plan: &MemoryPlan, device: Device, whose: &str) -> Outcome {
    let MemoryPlan { weights, gradients, optimizer, activations, offloaded, peak } = *plan;
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let host = match offloaded {
        0 => String::new(),
        bytes => format!("; {} in the memory of the host", mib(bytes)),
    };
    say(format_args!(
        "memory{whose} on {device}: weights {}, gradients {}, optimizer {}, activations {}; at most {} at a time{host}",
        mib(weights),
        mib(gradients),
        mib(optimizer),
        mib(activations),
        mib(peak)
    ))
}

/// Where the files of a model are, downloaded if they must be.
pub(super) fn found(name: &str) -> Result<PathBuf, Failure> {
    let files = model::find_named(name)?;
    let path = files.folder().or(files.gguf()).map(Path::to_owned);
    path.ok_or_else(|| Failure::Message(format!("{name}: no model")))
}

fn report(outcome: &Trained, is_json: bool) -> Outcome {
    let Trained { losses, evaluation, steps, seconds, tokens_per_second, stopped, files } = outcome;
    let preferences = evaluation.and_then(|evaluation| evaluation.preferences);
    if is_json {
        return say(json!({
            "steps": steps,
            "loss": losses.last(),
            "eval_loss": evaluation.map(|evaluation| evaluation.loss),
            "perplexity": evaluation
                .filter(|evaluation| evaluation.preferences.is_none())
                .map(|evaluation| evaluation.perplexity()),
            "reward_accuracy": preferences.map(|found| found.accuracy),
            "reward_margin": preferences.map(|found| found.margin),
            "seconds": seconds,
            "tokens_per_second": tokens_per_second,
            "stopped": stopped,
            "files": files.iter().map(|path| path_text(path)).collect::<Vec<_>>(),
        }));
    }
    let loss = losses.last().map_or_else(String::new, |loss| format!(", loss {loss:.4}"));
    say(format_args!("{steps} steps in {seconds:.1} s, {tokens_per_second:.0} tokens/s{loss}"))?;
    files.iter().try_for_each(|path| say(format_args!("saved {}", path.display())))
}

/// Tells an event of the run.
fn show(progress: &Steps<'_>, event: Event) {
    match event {
        Event::Note(note) => progress.line(note),
        Event::Step(step) => progress.step(step.step, step.steps, message(&step)),
        Event::Evaluated(step, found) => {
            let rest = match found.preferences {
                None => format!("perplexity {:.2}", found.perplexity()),
                Some(Preferences { accuracy, margin, .. }) => {
                    format!("accuracy {:.0}%, margin {margin:.3}", accuracy * 100.0)
                }
            };
            progress.line(format!("step {step}: eval loss {:.4}, {rest}", found.loss));
        }
        Event::Sample { prompt, text } => progress.line(format!("> {prompt}\n{text}")),
    }
}

/// What is told of a step.
fn message(step: &Progress) -> String {
    let Progress { trained, lr, tokens_per_second, utilization, memory, .. } = step;
    let mut message =
        format!("loss {:.4} lr {lr:.1e} {tokens_per_second:.0} tokens/s", trained.loss);
    if let Some(Preferences { accuracy, margin, .. }) = trained.preferences {
        message.push_str(&format!(" accuracy {:.0}% margin {margin:.3}", accuracy * 100.0));
    }
    if let Some(share) = utilization {
        message.push_str(&format!(" MFU {:.0}%", share * 100.0));
    }
    if let Some(bytes) = memory {
        message.push_str(&format!(" {:.1} GiB", *bytes as f64 / f64::from(1 << 30)));
    }
    message
}
