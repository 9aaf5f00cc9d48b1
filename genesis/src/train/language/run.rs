//! The loop of a run.
//!
//! All that a step depends on is in its checkpoint: what is trained, the optimizer's state, the generator's place, the
//! loader's place; the learning rate follows from the number of the step. So a run that was killed at any moment and
//! goes on comes to the same losses, bit for bit, as one that was not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use genesis_kernel::runtime::Device;
use serde_json::Value;

use super::batch::{Rows, Sharing, TokenBatch};
use super::encoder::Encoder;
use super::evaluate::{self, Evaluation};
use super::export::{export, export_saved};
use super::keeping::Keeping;
use super::lesson::{Lesson, Lessons, Source};
use super::options::Options;
use super::preference::PairBatch;
use super::ranks::Ranks;
use super::rates::Rates;
use super::records::{Progress, Records};
use super::saves::{Newest, Saves, newest, restore};
use super::schedule::LearningRate;
use super::start::Start;
use super::step::{How, learn};
use super::stepper::Stepper;
use crate::data::DataLoader;
use crate::error::{Error, Result};
use crate::io::{Checkpoint, SavedCheckpoint};
use crate::memory::max_memory_allocated;
use crate::models::{CausalLm, LoadOptions, WeightForm, load, load_adapter, save_adapter};
use crate::nn::merge;
use crate::random::{get_rng_state, set_rng_state};
use crate::tensor::Tensor;
use crate::train::folder::{ADAPTER, CHECKPOINTS, EXPORTED, Output, RESOLVED, RunFolder};

const NAME: &str = "train";

/// What is done with a folder that a run wrote to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Session {
    /// Go on from the newest checkpoint; start anew where there is none.
    pub resume: bool,
    /// Delete what an earlier run wrote.
    pub overwrite: bool,
}

/// What happens in a run.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A step is done.
    Step(Progress),
    /// The model was evaluated after so many steps.
    Evaluated(usize, Evaluation),
    /// The model went on with a prompt.
    Sample {
        /// The prompt.
        prompt: String,
        /// What it wrote.
        text: String,
    },
    /// Something to tell.
    Note(String),
}

/// What a run came to.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The loss of every step of this process.
    pub losses: Vec<f64>,
    /// The last evaluation, where there is data for it.
    pub evaluation: Option<Evaluation>,
    /// Steps done in all.
    pub steps: usize,
    /// Seconds of steps of this process.
    pub seconds: f64,
    /// Inputs a second.
    pub tokens_per_second: f64,
    /// Whether it was stopped early.
    pub stopped: bool,
    /// What it wrote.
    pub files: Vec<PathBuf>,
}

/// Trains until done or `stop` is set, telling `watch` what happens. Where the run ends by itself the model is exported.
///
/// # Errors
/// If data or options can't be used, the loss is not finite, or the output can't be written or gone on from.
pub fn run(
    start: Start,
    options: &Options,
    session: Session,
    stop: &AtomicBool,
    mut watch: impl FnMut(Event),
) -> Result<Outcome> {
    match options.beta {
        None => run_on::<TokenBatch>(start, options, session, stop, &mut watch),
        Some(_) => run_on::<PairBatch>(start, options, session, stop, &mut watch),
    }
}

fn run_on<L: Lesson>(
    start: Start,
    options: &Options,
    session: Session,
    stop: &AtomicBool,
    watch: Watch<'_>,
) -> Result<Outcome> {
    let mut run = Run::<L>::new(start, options, session, watch)?;
    while run.step < run.steps && !run.stops(stop) {
        run.epoch(stop, watch)?;
    }
    let stopped = run.stops(stop);
    run.finish(stopped)
}

type Watch<'w> = &'w mut dyn FnMut(Event);

struct Run<'o, L> {
    start: Start,
    /// None where there is one rank.
    ranks: Option<Ranks>,
    /// Whether a rank was told to stop, as all of them know after a step.
    is_told_to_stop: bool,
    options: &'o Options,
    device: Device,
    train: Arc<DataLoader<L>>,
    test: Option<DataLoader<L>>,
    optimizer: Stepper,
    keeping: Keeping,
    lr: LearningRate,
    saves: Option<Saves>,
    records: Records,
    rates: Rates,
    step: usize,
    steps: usize,
    per_epoch: usize,
    /// Whether prompts are what a user says.
    is_chat: bool,
    saved_at: Option<usize>,
    /// The last evaluation, and after which step it was.
    evaluation: Option<(usize, Evaluation)>,
    losses: Vec<f64>,
    // The last field: the folder is left when everything is written.
    _folder: Option<RunFolder>,
}

impl<'o, L: Lesson> Run<'o, L> {
    fn new(
        start: Start,
        options: &'o Options,
        session: Session,
        watch: Watch<'_>,
    ) -> Result<Run<'o, L>> {
        options.check_for(&*start.model)?;
        let Session { resume, overwrite } = session;
        let out = options.out.as_ref().filter(|_| start.is_writer());
        let output = Output { out: out.map(PathBuf::as_path), resume, overwrite };
        let folder = RunFolder::take(output, |note| watch(Event::Note(note)))?;
        if let Some(group) = &start.group {
            // Nobody reads a folder that the first rank has not looked at.
            group.barrier()?;
        }
        let device = match &start.group {
            Some(group) => group.device(),
            None => start.model.parameters().first().map(Tensor::device).unwrap_or_default(),
        };
        let rates = Rates::new(&start, (options.sequence_length, options.dtype), device);
        let (start, ranks) = match start.group.clone() {
            Some(group) => {
                let (ranks, start) = Ranks::new(start, options, &group)?;
                (start, Some(ranks))
            }
            None => {
                options.check_ranks(1)?;
                (start, None)
            }
        };
        let sharing = ranks.as_ref().map(Ranks::sharing).unwrap_or_default();
        let Data { train, test, is_chat } = Data::read(&start, options, (device, sharing), watch)?;
        let of_step = options.accumulate * ranks.as_ref().map_or(1, Ranks::size);
        let per_epoch = train.len().unwrap_or(0).div_ceil(of_step).max(1);
        let steps = options.steps.unwrap_or(per_epoch.saturating_mul(options.epochs));
        let mut run = Run {
            optimizer: Stepper::new(&*start.model, options, ranks.as_ref())?,
            keeping: Keeping::of(options),
            lr: options.learning_rates(steps),
            saves: Saves::open(options, ranks.as_ref(), start.is_writer())?,
            records: Records::default(),
            rates,
            step: 0,
            saved_at: None,
            evaluation: None,
            losses: Vec::new(),
            _folder: folder,
            ranks,
            is_told_to_stop: false,
            start,
            options,
            device,
            train: Arc::new(train),
            test,
            steps,
            per_epoch,
            is_chat,
        };
        if resume {
            run.resume(watch)?;
        }
        let out = out.map(PathBuf::as_path);
        run.records = Records::open(out, run.step, options.tensorboard)?;
        if let Some(path) = out.map(|out| out.join(RESOLVED)) {
            fs::write(&path, options.to_toml()?).map_err(|error| cannot_write(&path, &error))?;
        }
        Ok(run)
    }

    /// Takes the newest checkpoint that is whole.
    fn resume(&mut self, watch: Watch<'_>) -> Result<()> {
        let Some(out) = &self.options.out else {
            return Err(Error::op(NAME, "to go on, name the folder that the run wrote to"));
        };
        let Newest { found, refused } = newest(&out.join(CHECKPOINTS), self.ranks.as_ref())?;
        refused.into_iter().for_each(|message| watch(Event::Note(message)));
        let Some((path, saved)) = found else {
            watch(Event::Note("no checkpoint yet: starting anew".to_owned()));
            return Ok(());
        };
        let own = self.describe()?;
        if own != saved.config {
            return Err(Error::op(NAME, differences(&own, &saved.config)));
        }
        let has_all = self.ranks.as_ref().is_none_or(|ranks| ranks.stages.is_none());
        restore(&saved, &*self.start.model, self.optimizer.get(), has_all)?;
        let missing = || Error::op(NAME, "the checkpoint lacks its random state or place");
        set_rng_state(saved.rng.ok_or_else(missing)?);
        self.train.set_state(saved.data.ok_or_else(missing)?)?;
        self.step = saved.step as usize;
        self.saved_at = Some(self.step);
        watch(Event::Note(format!("going on from {}", path.display())));
        if let Some(saves) = &mut self.saves {
            saves.newest = Some(path);
        }
        Ok(())
    }

    /// What must be the same for a run to be gone on with.
    fn describe(&self) -> Result<Value> {
        let mut described = serde_json::to_value(self.options)
            .map_err(|error| Error::io(format!("configuration: {error}")))?;
        if let Some(keys) = described.as_object_mut() {
            for free in [
                "out",
                "eval_data",
                "eval_every",
                "save_every",
                "keep",
                "prompts",
                "prompt_tokens",
                "save_dtype",
                "tensorboard",
                // Gradients are the same, whatever is kept and wherever.
                "checkpoint",
                "checkpoint_budget",
                "offload",
                // Any ranks go on with what others wrote.
                "dp",
                "fsdp",
                "zero1",
                "param_dtype",
                "reduce_dtype",
                "reshard",
                "tp",
                "cp",
                "pp",
                "sequence_parallel",
                "ordered_reductions",
            ] {
                keys.remove(free);
            }
            // They count by what they come to.
            keys.remove("epochs");
            keys.insert("steps".to_owned(), self.steps.into());
            keys.insert("batches".to_owned(), self.train.len().into());
            keys.insert("accumulate".to_owned(), self.batches_of_step().into());
        }
        Ok(described)
    }

    /// Batches of a step on all ranks.
    fn batches_of_step(&self) -> usize {
        self.options.accumulate * self.ranks.as_ref().map_or(1, Ranks::size)
    }

    /// What is left of the epoch.
    fn epoch(&mut self, stop: &AtomicBool, watch: Watch<'_>) -> Result<()> {
        self.start.model.train(true);
        let train = self.train.clone();
        let mut batches = train.iter()?;
        let of_step = self.batches_of_step();
        while self.step < self.steps && !self.stops(stop) {
            self.rates.begin();
            let some = batches.by_ref().take(of_step);
            let some = some.collect::<Result<Vec<L>>>()?;
            if some.is_empty() {
                break;
            }
            self.train_on(&some, watch)?;
            self.is_told_to_stop = self.is_stopped(stop.load(Ordering::Relaxed))?;
            let is_end = self.step == self.steps;
            let due = |every: Option<usize>| {
                self.step.is_multiple_of(every.unwrap_or(self.per_epoch)) || is_end
            };
            let (evaluates, saves) = (due(self.options.eval_every), due(self.options.save_every));
            if evaluates {
                self.evaluate(watch)?;
            }
            if saves {
                self.save()?;
            }
        }
        if self.stops(stop) {
            self.save()?;
        }
        Ok(())
    }

    /// Whether the run is to stop: on several ranks all of them after the same step.
    fn stops(&self, stop: &AtomicBool) -> bool {
        match self.ranks {
            Some(_) => self.is_told_to_stop,
            None => stop.load(Ordering::Relaxed),
        }
    }

    /// Whether this process is told to stop, or on several ranks any of them.
    fn is_stopped(&mut self, stop: bool) -> Result<bool> {
        match (&self.ranks, &mut self.saves) {
            (None, _) => Ok(stop),
            (Some(ranks), Some(saves)) => saves.after_step(ranks, stop),
            (Some(ranks), None) => Ok(ranks.count([stop])? > [0]),
        }
    }

    fn train_on(&mut self, batches: &[L], watch: Watch<'_>) -> Result<()> {
        let lr = self.lr.at(self.step);
        self.optimizer.get().set_lr(lr);
        let (half, clip) = (self.options.autocast(), self.options.clip);
        let how = How { half, clip, keeping: &self.keeping };
        let (model, optimizer) = (&self.start.model, self.optimizer.get());
        let trained = learn(model, optimizer, batches, &how, self.ranks.as_ref())
            .map_err(|error| named_step(error, self.step + 1))?;
        self.step += 1;
        self.losses.push(trained.loss);
        let (tokens_per_second, utilization) = self.rates.end(trained.inputs);
        let memory = self.device.is_cuda().then(|| max_memory_allocated(self.device));
        let progress = Progress {
            step: self.step,
            steps: self.steps,
            trained,
            lr,
            tokens_per_second,
            utilization,
            memory: memory.transpose()?,
        };
        self.records.step(&progress)?;
        watch(Event::Step(progress));
        Ok(())
    }

    /// The loss on the other data, and what the model writes.
    fn evaluate(&mut self, watch: Watch<'_>) -> Result<()> {
        // What an evaluation draws must not change what the next step draws.
        let rng = get_rng_state();
        self.start.model.eval();
        let half = self.options.autocast();
        if let Some(test) = &self.test {
            let found = evaluate::evaluate(&self.start.model, test, half, self.ranks.as_ref())?;
            self.evaluation = Some((self.step, found));
            self.records.evaluation(self.step, &found)?;
            watch(Event::Evaluated(self.step, found));
        }
        let Options { prompts, prompt_tokens, .. } = self.options;
        if !prompts.is_empty() && self.start.is_writer() {
            let texts = evaluate::samples(&self.start, (prompts, self.is_chat), *prompt_tokens)?;
            for (prompt, text) in prompts.iter().zip(texts) {
                self.records.sample(self.step, prompt, &text)?;
                watch(Event::Sample { prompt: prompt.clone(), text });
            }
        }
        self.start.model.train(true);
        set_rng_state(rng);
        Ok(())
    }

    /// Hands a checkpoint to the thread that writes it.
    fn save(&mut self) -> Result<()> {
        if self.saves.is_none() || self.saved_at == Some(self.step) {
            return Ok(());
        }
        self.saved_at = Some(self.step);
        let metric = self.evaluation.filter(|(at, _)| *at == self.step);
        let rest = Checkpoint {
            step: self.step as u64,
            rng: Some(get_rng_state()),
            data: Some(self.train.state()),
            config: self.describe()?,
            metric: metric.map(|(_, evaluation)| evaluation.loss),
            ..Checkpoint::default()
        };
        let Some(saves) = &mut self.saves else { return Ok(()) };
        saves.save(rest, (&*self.start.model, self.optimizer.get()), self.ranks.as_ref())
    }

    /// Waits for what is being written, and exports the model of a run that is done.
    fn finish(mut self, stopped: bool) -> Result<Outcome> {
        let is_done = self.step >= self.steps;
        if let Some(saves) = &mut self.saves {
            saves.wait(self.ranks.as_ref())?;
        }
        self.records.flush()?;
        let is_writer = self.start.is_writer();
        let has_parts = self.ranks.take().is_some_and(|ranks| ranks.mesh.has_parts());
        let mut files = Vec::new();
        if let Some(out) = self.options.out.as_deref().filter(|_| is_done && is_writer) {
            self.start.model.eval();
            files = match has_parts {
                true => self.export_parts(out)?,
                false => self.export(out)?,
            };
        }
        Ok(Outcome {
            evaluation: self.evaluation.map(|(_, evaluation)| evaluation),
            steps: self.step,
            seconds: self.rates.seconds(),
            tokens_per_second: self.rates.mean(),
            stopped: stopped && !is_done,
            losses: self.losses,
            files,
        })
    }

    /// Writes a model of which this rank has a part, out of the last checkpoint: no memory holds it.
    fn export_parts(&self, out: &Path) -> Result<Vec<PathBuf>> {
        let newest = self.saves.as_ref().and_then(|saves| saves.newest.as_deref());
        let newest = newest.ok_or_else(|| Error::op(NAME, "the last checkpoint is not there"))?;
        let (folder, saved) = (out.join(EXPORTED), SavedCheckpoint::open(newest)?);
        export_saved(&folder, &self.start, self.options, &saved)?;
        Ok(vec![folder])
    }

    /// Writes the model, and its adapters beside it.
    fn export(&mut self, out: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        if let Some(lora) = &self.start.lora {
            let folder = out.join(ADAPTER);
            save_adapter(&folder, &*self.start.model, lora, &self.options.model)?;
            files.push(folder);
            // Updates are put into whole weights, since rounding them to few bits would lose most of an update.
            if let Some(base) = &self.start.base {
                let whole = LoadOptions {
                    dtype: Some(self.start.config.dtype),
                    device: self.device,
                    trainable: true,
                    weights: WeightForm::Whole,
                    apart: false,
                };
                self.start.model = load(base, &whole)?.model;
                load_adapter(out.join(ADAPTER), unique(&mut self.start.model)?)?;
            }
            merge(unique(&mut self.start.model)?)?;
        }
        let folder = out.join(EXPORTED);
        export(&folder, &self.start, self.options.save_dtype)?;
        files.push(folder);
        Ok(files)
    }
}

/// The batches of a run.
struct Data<L> {
    train: DataLoader<L>,
    test: Option<DataLoader<L>>,
    /// Whether there are conversations among them.
    is_chat: bool,
}

impl<L: Lesson> Data<L> {
    fn read(
        start: &Start,
        options: &Options,
        (device, sharing): (Device, Sharing),
        watch: Watch<'_>,
    ) -> Result<Data<L>> {
        let rows = Rows {
            length: options.sequence_length,
            batch: options.batch_size,
            packing: options.packing,
            seed: Some(options.seed),
            device,
            sharing,
        };
        let encoder = Encoder::new(start.text.clone(), options.loss_on);
        let source = Source { start, options, encoder: &encoder, is_outlined: false };
        let mut read = |paths: &[PathBuf], rows| -> Result<(DataLoader<L>, bool)> {
            let Lessons { loader, is_chat, notes } = L::read(&source, paths, rows)?;
            notes.into_iter().for_each(|note| watch(Event::Note(note)));
            Ok((loader, is_chat))
        };
        let (train, is_chat) = read(&options.data, rows.clone())?;
        let test = match options.eval_data.is_empty() {
            true => None,
            false => Some(read(&options.eval_data, Rows { seed: None, ..rows })?.0),
        };
        Ok(Data { train, test, is_chat })
    }
}

/// The model, to be changed.
fn unique(model: &mut Arc<dyn CausalLm>) -> Result<&mut dyn CausalLm> {
    Arc::get_mut(model).ok_or_else(|| Error::op(NAME, "the model is in use elsewhere"))
}

fn named_step(error: Error, step: usize) -> Error {
    match error.op_name() {
        Some(NAME) => {
            let text = error.to_string();
            Error::op(NAME, format!("step {step}: {}", text.trim_start_matches("train: ")))
        }
        _ => error,
    }
}

/// In which keys two runs differ.
fn differences(own: &Value, saved: &Value) -> String {
    let keys = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (own, saved) = (keys(own), keys(saved));
    let names: std::collections::BTreeSet<&String> = own.keys().chain(saved.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or("not set".to_owned(), Value::to_string);
    let differs = |name: &&String| own.get(*name) != saved.get(*name);
    let all: Vec<String> = names
        .into_iter()
        .filter(differs)
        .map(|name| format!("{name} was {}, is {}", shown(saved.get(name)), shown(own.get(name))))
        .collect();
    format!("the checkpoint is of another run: {}", all.join("; "))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("can't write {}: {error}", path.display()))
}
