//! `genesis sft` and `genesis pretrain`
//!
//! What a run is asked to do is a table: the usual values, over them those of `--config`, over them the flags.

use std::path::{Path, PathBuf};

use genesis::train::language::{
    Event, Options, Outcome as Trained, Progress, Session, Start, is_new, preset_names, run,
};
use serde::Serialize;
use serde_json::json;

use super::output::{Lines, path_text};
use super::progress::Steps;
use super::signals::Signals;
use super::values::{device, positive};
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

/// Flags of a run; a key of --config has the name of a flag.
#[derive(clap::Args, Serialize)]
struct Flags {
    /// Files to learn from: .jsonl with messages, with prompt and completion, or with text; others are texts.
    #[arg(long, num_args = 1..)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    data: Vec<PathBuf>,
    /// Files to be evaluated on.
    #[arg(long, num_args = 1..)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    eval_data: Vec<PathBuf>,
    /// Where metrics, checkpoints and the model go.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<PathBuf>,
    /// A file of TOML with values of these flags.
    #[arg(long)]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// The folder of the tokenizer; the model's own without it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<PathBuf>,
    /// A file with the chat template; the model's own without it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    chat_template: Option<PathBuf>,
    /// Passes over the data.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    epochs: Option<usize>,
    /// Steps in all, instead of epochs.
    #[arg(long, alias = "max-steps", value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<usize>,
    /// Rows of a forward and backward.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_size: Option<usize>,
    /// Batches of a step.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    accumulate: Option<usize>,
    /// Tokens of a row.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_length: Option<usize>,
    /// Whether samples share rows.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    packing: Option<bool>,
    /// What of a conversation is learned: assistant or all.
    #[arg(long, value_parser = ["assistant", "all"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_on: Option<String>,
    /// The highest learning rate.
    #[arg(long, alias = "lr")]
    #[serde(skip_serializing_if = "Option::is_none")]
    learning_rate: Option<f64>,
    /// The last learning rate, as a share of the highest.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    min_learning_rate: Option<f64>,
    /// How the learning rate falls.
    #[arg(long, value_parser = ["cosine", "linear", "wsd", "constant"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// Steps until the highest learning rate.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    warmup: Option<usize>,
    /// Steps of the decay of wsd.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    decay: Option<usize>,
    /// Decay of matrices.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_decay: Option<f64>,
    /// The largest joint norm of gradients; 0 clips nothing.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    clip: Option<f64>,
    /// What is computed in; bf16 on a GPU, f32 on the CPU without it.
    #[arg(long, value_parser = ["bf16", "f32"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<String>,
    /// The seed of order, new weights and dropout.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
    /// Train low-rank adapters of this rank, and nothing else.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_rank: Option<usize>,
    /// Their updates are multiplied by alpha / rank.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_alpha: Option<f64>,
    /// The probability with which an input of an adapter is dropped.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_dropout: Option<f64>,
    /// The products with adapters, such as q_proj,v_proj; all but the head without it.
    #[arg(long, value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lora_targets: Vec<String>,
    /// What the weights beside adapters are kept as: whole, stored as the files have them, int8 or int4.
    #[arg(long, value_parser = ["whole", "stored", "int8", "int4"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_base: Option<String>,
    /// Steps between evaluations; an epoch without it.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_every: Option<usize>,
    /// Steps between checkpoints; an epoch without it.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    save_every: Option<usize>,
    /// Checkpoints that stay.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<usize>,
    /// A prompt that the model goes on with at each evaluation; may be given several times.
    #[arg(long = "prompt")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prompts: Vec<String>,
    /// The most tokens of what it writes.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<usize>,
    /// What the model is saved in; as it was trained without it.
    #[arg(long, value_parser = ["bf16", "f16", "f32"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    save_dtype: Option<String>,
    /// `cpu`, `cuda` or `cuda:1`; a GPU where there is one.
    #[arg(long)]
    #[serde(skip)]
    device: Option<String>,
    /// Go on from the newest checkpoint in --out.
    #[arg(long)]
    #[serde(skip)]
    resume: bool,
    /// Delete what an earlier run wrote to --out; without this or --resume such a folder is refused.
    #[arg(long, conflicts_with = "resume")]
    #[serde(skip)]
    overwrite: bool,
    /// Print the configuration and end.
    #[arg(long)]
    #[serde(skip)]
    dry_run: bool,
    /// One JSON value at the end instead of lines.
    #[arg(long)]
    #[serde(skip)]
    json: bool,
}

pub(super) fn sft(args: &Sft) -> Outcome {
    let options = resolved(&Options::sft(), args.model.as_deref(), &args.flags)?;
    if is_new(&options.model) {
        let what =
            format!("{} is no trained model; `genesis pretrain` begins from it", options.model);
        return Err(Failure::Message(what));
    }
    train(&options, &args.flags)
}

pub(super) fn pretrain(args: &Pretrain) -> Outcome {
    let options = resolved(&Options::pretrain(), args.model.as_deref(), &args.flags)?;
    train(&options, &args.flags)
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
    let signals = Signals::take()?;
    let lines = Lines::new(flags.json, options.out.is_some());
    lines.line(options.to_toml()?.trim_end());
    if flags.dry_run {
        return lines.end();
    }
    let device = device(flags.device.as_deref())?;
    let path = match is_new(&options.model) {
        true => None,
        false => Some(found(&options.model)?),
    };
    let start = Start::open(options, path.as_deref(), device)?;
    let all = start.model.parameters();
    let count = |trained: bool| -> usize {
        all.iter().filter(|p| !trained || p.requires_grad()).map(genesis::Tensor::numel).sum()
    };
    lines.line(format!(
        "{} on {device}: {} parameters, {} of them trained",
        start.config.model_type,
        count(false),
        count(true)
    ));
    drop(all);
    let progress = Steps::new(&lines, 10, flags.json);
    let session = Session { resume: flags.resume, overwrite: flags.overwrite };
    let outcome = run(start, options, session, signals.stop(), |event| show(&progress, event))?;
    progress.finish();
    lines.end().and_then(|()| report(&outcome, flags.json))?;
    match signals.status() {
        Some(status) if outcome.stopped => Err(Failure::Stopped(status)),
        _ => Ok(()),
    }
}

/// Where the files of a model are, downloaded if they must be.
fn found(name: &str) -> Result<PathBuf, Failure> {
    let files = model::find_named(name)?;
    let path = files.folder().or(files.gguf()).map(Path::to_owned);
    path.ok_or_else(|| Failure::Message(format!("{name}: no model")))
}

fn report(outcome: &Trained, is_json: bool) -> Outcome {
    let Trained { losses, evaluation, steps, seconds, tokens_per_second, stopped, files } = outcome;
    if is_json {
        return say(json!({
            "steps": steps,
            "loss": losses.last(),
            "eval_loss": evaluation.map(|evaluation| evaluation.loss),
            "perplexity": evaluation.map(|evaluation| evaluation.perplexity()),
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
        Event::Evaluated(step, found) => progress.line(format!(
            "step {step}: eval loss {:.4}, perplexity {:.2}",
            found.loss,
            found.perplexity()
        )),
        Event::Sample { prompt, text } => progress.line(format!("> {prompt}\n{text}")),
    }
}

/// What is told of a step.
fn message(step: &Progress) -> String {
    let Progress { trained, lr, tokens_per_second, utilization, memory, .. } = step;
    let mut message =
        format!("loss {:.4} lr {lr:.1e} {tokens_per_second:.0} tokens/s", trained.loss);
    if let Some(share) = utilization {
        message.push_str(&format!(" MFU {:.0}%", share * 100.0));
    }
    if let Some(bytes) = memory {
        message.push_str(&format!(" {:.1} GiB", *bytes as f64 / f64::from(1 << 30)));
    }
    message
}
