//! `genesis train`

use std::path::PathBuf;
use std::time::Instant;

use clap::{Subcommand, ValueEnum};
use genesis::io::OnSaveError;
use genesis::profiler::{GroupBy, Profiler, ProfilerOptions, Schedule, SortBy};
use genesis::train::{
    self, Autoencoder, Classifier, Config, Event, Network, Progress, Task, TextModel,
};
use serde_json::json;

use super::output::{Lines, path_text};
use super::progress::Steps;
use super::signals::Signals;
use super::values::device;
use super::{Failure, Outcome, say};

/// Train a model.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    sample: Sample,
}

#[derive(Subcommand)]
enum Sample {
    /// A classifier of 28x28 images of clothes.
    FashionMnist {
        /// The network.
        #[arg(long, value_enum, default_value = "mlp")]
        model: Model,
        #[command(flatten)]
        options: Options,
    },
    /// A transformer over patches of the same images.
    Vit(Options),
    /// A transformer that writes like the King James Bible, letter by letter.
    Text(Options),
    /// An autoencoder of the same images, with pictures that it makes up.
    Vae(Options),
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    /// 784-256-128-10 with ReLU and dropout.
    Mlp,
    /// Two convolutions and two fully connected layers.
    Cnn,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnError {
    /// The run ends with the error; what was saved before stays.
    Stop,
    /// The run goes on without.
    Continue,
}

#[derive(clap::Args)]
struct Options {
    /// Passes over the training data.
    #[arg(long, value_parser = positive)]
    epochs: Option<usize>,
    /// Stop after so many steps in all.
    #[arg(long, alias = "max-steps", value_parser = positive)]
    steps: Option<usize>,
    /// Samples of one step.
    #[arg(long, alias = "batch", value_parser = positive)]
    batch_size: Option<usize>,
    /// The highest learning rate.
    #[arg(long, value_parser = rate)]
    lr: Option<f64>,
    /// The seed of weights, dropout and order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// `cpu`, `cuda` or `cuda:1`; a GPU where there is one.
    #[arg(long)]
    device: Option<String>,
    /// The data set's folder or file, if not where Debian puts it.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Where metrics, checkpoints and results go.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Go on from the newest checkpoint in --out.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Delete what an earlier run wrote to --out; without this or --resume such a folder is refused.
    #[arg(long, requires = "out", conflicts_with = "resume")]
    overwrite: bool,
    /// What is done where a checkpoint or metrics can't be written, as on a full disk. A run that goes on
    /// ends with exit code 1.
    #[arg(long, value_enum, default_value = "stop")]
    on_save_error: OnError,
    /// Steps between checkpoints; an epoch without it.
    #[arg(long, value_parser = positive)]
    save_every: Option<usize>,
    /// Write a trace of some steps here, for Perfetto or chrome://tracing, and print what they spent.
    #[arg(long)]
    profile: Option<PathBuf>,
    /// One JSON value at the end instead of lines.
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number from 1".to_owned()),
        Ok(n) => Ok(n),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("must be a number from 0".to_owned()),
    }
}

/// Epochs, batch size and learning rate that a sample's figure was measured with.
struct Defaults(usize, usize, f64);

impl Options {
    fn config(&self, defaults: &Defaults) -> Result<Config, Failure> {
        let &Defaults(epochs, batch, lr) = defaults;
        Ok(Config {
            epochs: self.epochs.unwrap_or(epochs),
            steps: self.steps,
            batch: self.batch_size.unwrap_or(batch),
            lr: self.lr.unwrap_or(lr),
            seed: self.seed,
            device: device(self.device.as_deref())?,
            data: self.data.clone(),
            out: self.out.clone(),
            resume: self.resume,
            overwrite: self.overwrite,
            on_save_error: match self.on_save_error {
                OnError::Stop => OnSaveError::Stop,
                OnError::Continue => OnSaveError::Continue,
            },
            save_every: self.save_every,
        })
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let (options, defaults) = match &args.sample {
        Sample::FashionMnist { model: Model::Mlp, options } => (options, Defaults(6, 128, 2e-3)),
        Sample::FashionMnist { model: Model::Cnn, options } => (options, Defaults(6, 128, 1e-3)),
        Sample::Vit(options) => (options, Defaults(4, 128, 1e-3)),
        Sample::Text(options) => (options, Defaults(1, 32, 1e-3)),
        Sample::Vae(options) => (options, Defaults(5, 128, 1e-3)),
    };
    let config = options.config(&defaults)?;
    let signals = Signals::take()?;
    let lines = Lines::new(options.json, options.out.is_some() || options.profile.is_some());
    lines.line(format!("training on {}, seed {}", config.device, config.seed));
    genesis::manual_seed(config.seed);
    let task: Box<dyn Task> = match &args.sample {
        Sample::FashionMnist { model: Model::Mlp, .. } => {
            Box::new(Classifier::fashion_mnist(Network::Mlp, &config)?)
        }
        Sample::FashionMnist { model: Model::Cnn, .. } => {
            Box::new(Classifier::fashion_mnist(Network::Cnn, &config)?)
        }
        Sample::Vit(_) => Box::new(Classifier::fashion_mnist(Network::Vit, &config)?),
        Sample::Text(_) => Box::new(TextModel::bible(&config)?),
        Sample::Vae(_) => Box::new(Autoencoder::fashion_mnist(&config)?),
    };
    lines.line(format!("{}: {} parameters", task.name(), task.model().num_parameters()));
    let mut watch = Watch::new(&lines, options.json);
    let mut profiler = match &options.profile {
        Some(path) => Some(profiler(path.clone())?),
        None => None,
    };
    let mut failed = None;
    let outcome = train::run(&*task, &config, signals.stop(), |event| {
        if let (Event::Step(_), Some(profiler)) = (&event, &mut profiler) {
            failed = failed.take().or(profiler.step().err());
        }
        watch.show(event);
    })?;
    watch.steps.finish();
    if let Some(profiler) = profiler {
        let profile = profiler.stop()?;
        lines.line(format!(
            "\n{}\n{}",
            profile.key_averages(GroupBy::Name).table(SortBy::DeviceTotal, 20),
            profile.summary()
        ));
    }
    let reported = lines.end().and_then(|()| report(options, &outcome));
    if let Some(error) = failed {
        return Err(error.into());
    }
    if let Some(message) = outcome.unwritten.last() {
        return Err(Failure::Message(format!("not everything was written: {message}")));
    }
    reported?;
    match signals.status() {
        Some(status) if outcome.stopped => Err(Failure::Stopped(status)),
        _ => Ok(()),
    }
}

/// Records some steps, once what happens only at first is over, and writes the trace.
fn profiler(path: PathBuf) -> Result<Profiler, Failure> {
    // Whether it can be written is known before the run, not after it.
    std::fs::File::create(&path)
        .map_err(|error| Failure::Message(format!("can't write {}: {error}", path.display())))?;
    let schedule = Schedule { skip_first: 5, wait: 0, warmup: 2, active: 20, repeat: 1 };
    let options = ProfilerOptions {
        schedule: Some(schedule),
        on_trace_ready: Some(Box::new(move |profile| profile.export_chrome_trace(&path))),
        record_shapes: true,
        profile_memory: true,
        with_modules: true,
        ..ProfilerOptions::default()
    };
    Ok(Profiler::start(options)?)
}

fn report(options: &Options, outcome: &train::Outcome) -> Outcome {
    let train::Outcome { metric, losses, seconds, samples_per_second, files, text, .. } = outcome;
    if options.json {
        return say(json!({
            metric.name: metric.value,
            "steps": losses.len(),
            "loss": losses.last(),
            "seconds": seconds,
            "samples_per_second": samples_per_second,
            "stopped": outcome.stopped,
            "files": files.iter().map(|path| path_text(path)).collect::<Vec<_>>(),
            "text": text,
            "unwritten": outcome.unwritten,
        }));
    }
    say(format_args!(
        "test {} {:.4} after {} steps in {seconds:.1} s, {samples_per_second:.0} samples/s",
        metric.name,
        metric.value,
        losses.len()
    ))?;
    files.iter().try_for_each(|path| say(format_args!("saved {}", path.display())))?;
    text.iter().try_for_each(|text| say(format_args!("\n{text}\n")))?;
    say("see the PTX of a kernel that just ran: genesis inspect adam --emit ptx")
}

/// How far a run is, and how fast.
struct Watch<'l> {
    steps: Steps<'l>,
    start: Instant,
    first: Option<usize>,
}

impl<'l> Watch<'l> {
    fn new(lines: &'l Lines, quiet: bool) -> Watch<'l> {
        Watch { steps: Steps::new(lines, 100, quiet), start: Instant::now(), first: None }
    }

    fn show(&mut self, event: Event) {
        match event {
            Event::Note(note) => self.steps.line(note),
            Event::Step(progress) => self.step(progress),
        }
    }

    fn step(&mut self, progress: Progress) {
        let Progress { step, steps, loss, metric, .. } = progress;
        let first = *self.first.get_or_insert(step);
        let speed = (step - first) as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        self.steps.step(step, steps, format!("loss {loss:.4} {speed:.1} steps/s"));
        if let Some(metric) = metric {
            let line = format!("step {step}/{steps} test {} {:.4}", metric.name, metric.value);
            self.steps.line(line);
        }
    }
}
