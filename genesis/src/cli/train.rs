//! `genesis train`

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Subcommand, ValueEnum};
use genesis::Device;
use genesis::train::fashion_mnist::{self, Config, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Failure, Outcome, say};

/// Train a model.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// A classifier of 28x28 images of clothes.
    FashionMnist(FashionMnistArgs),
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    /// 784-256-128-10 with ReLU and dropout.
    Mlp,
}

/// A classifier of 28x28 images of clothes.
#[derive(clap::Args)]
struct FashionMnistArgs {
    /// The network.
    #[arg(long, value_enum, default_value = "mlp")]
    model: Model,
    /// Passes over the training images.
    #[arg(long, default_value_t = Config::default().epochs)]
    epochs: usize,
    /// Images of one step.
    #[arg(long, default_value_t = Config::default().batch, value_parser = positive)]
    batch: usize,
    /// The learning rate at the start.
    #[arg(long, default_value_t = Config::default().lr)]
    lr: f64,
    /// `cpu`, `cuda` or `cuda:1`; a GPU where there is one.
    #[arg(long)]
    device: Option<String>,
    /// The seed of weights, dropout and order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A folder with the data set's files, if not where Debian puts them.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Where metrics.jsonl and the checkpoint go.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Stop after so many steps.
    #[arg(long)]
    max_steps: Option<usize>,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number from 1".to_owned()),
        Ok(n) => Ok(n),
    }
}

/// Set by Ctrl-C; the run saves and ends at the next step.
static STOP: AtomicBool = AtomicBool::new(false);

pub(super) fn run(args: &Args) -> Outcome {
    let Task::FashionMnist(args) = &args.task;
    let Model::Mlp = args.model;
    let config = Config {
        epochs: args.epochs,
        batch: args.batch,
        lr: args.lr,
        seed: args.seed,
        device: device(args.device.as_deref())?,
        data: args.data.clone(),
        out: args.out.clone(),
        max_steps: args.max_steps,
    };
    // A second Ctrl-C ends the process at once.
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    say(format_args!("training on {}, seed {}", config.device, config.seed));
    let bar = Bar::new();
    let outcome = fashion_mnist::train(&config, &STOP, |progress| bar.show(progress))?;
    bar.finish();
    report(&config, &outcome)
}

fn report(config: &Config, outcome: &fashion_mnist::Outcome) -> Outcome {
    let steps = outcome.losses.len();
    say(format_args!(
        "test accuracy {:.4} after {steps} steps in {:.1} s",
        outcome.accuracy, outcome.seconds
    ));
    if let Some(path) = &outcome.checkpoint {
        say(format_args!("saved {}", path.display()));
    }
    say("see the PTX of a kernel that just ran: genesis inspect adam --emit ptx");
    if outcome.stopped && config.max_steps.is_none() {
        return Err(Failure::Stopped);
    }
    Ok(())
}

/// The device with this name, or the default.
fn device(name: Option<&str>) -> Result<Device, Failure> {
    let Some(name) = name else { return Ok(Device::default()) };
    let device = Device::from_name(name).ok_or_else(|| {
        Failure::Message(format!("no device is called {name}; there are cpu, cuda, cuda:1"))
    })?;
    match (device.is_cuda(), Device::cuda_problem()) {
        (true, Some(problem)) => Err(problem.into()),
        _ => Ok(device),
    }
}

/// A progress bar on a terminal, a line each hundred steps elsewhere.
struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new() -> Bar {
        let style = "{elapsed_precise} {bar:32} {pos}/{len} {msg} eta {eta}";
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template(style).expect("the template is constant and valid");
            ProgressBar::new(0).with_style(style)
        });
        Bar { bar }
    }

    fn show(&self, progress: Progress) {
        let Progress { step, steps, loss, accuracy } = progress;
        if let Some(bar) = &self.bar {
            bar.set_length(steps as u64);
            bar.set_position(step as u64);
            bar.set_message(format!("loss {loss:.4}"));
        } else if step % 100 == 0 {
            say(format_args!("step {step}/{steps} loss {loss:.4}"));
        }
        if let Some(accuracy) = accuracy {
            let line = format!("step {step}/{steps} test accuracy {accuracy:.4}");
            match &self.bar {
                Some(bar) => bar.println(line),
                None => say(line),
            }
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
