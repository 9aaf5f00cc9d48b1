//! The loop of every sample.
//!
//! All that a step depends on is in its checkpoint: weights, the optimizer's state, the generator's
//! place, the loader's place; the learning rate follows from the number of the step. So a run that was
//! killed and goes on comes to the same weights, bit for bit, as one that was not.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::folder::{CHECKPOINTS, Output, RunFolder, WEIGHTS};
use super::record::Record;
use super::{Config, Event, Metric, Outcome, Progress, Shown, Task};
use crate::error::{Error, Result};
use crate::io::{Best, Checkpoint, Checkpoints, Keep, OnSaveError, save_safetensors};
use crate::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use crate::random::{get_rng_state, set_rng_state};
use crate::tensor::Tensor;

/// The largest joint norm of the gradients of a step.
const CLIP: f64 = 1.0;

/// Trains until done or `stop` is set, telling `watch` what happens.
///
/// # Errors
/// If a launch fails, or the output can't be written or gone on from, or another run writes to it or has.
pub fn run(
    task: &dyn Task,
    config: &Config,
    stop: &AtomicBool,
    mut watch: impl FnMut(Event),
) -> Result<Outcome> {
    let mut run = Run::start(task, config, &mut watch)?;
    while run.step < run.steps && !stop.load(Ordering::Relaxed) {
        task.model().train(true);
        for batch in task.loader().iter()? {
            let progress = run.train(&batch?)?;
            let last = run.step == run.steps;
            let metric = (last || run.step.is_multiple_of(run.per_epoch)).then(|| run.evaluate());
            let progress = Progress { metric: metric.transpose()?, ..progress };
            let written = run.record.write(&progress);
            run.accept(written, &mut watch)?;
            watch(Event::Step(progress));
            let saved = run.save_if_due(progress.metric);
            run.accept(saved, &mut watch)?;
            if last || stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    if stop.load(Ordering::Relaxed) {
        // Whoever asked may not wait for an evaluation.
        let saved = run.save(None).and_then(|()| run.saved());
        run.accept(saved, &mut watch)?;
    }
    run.finish(&mut watch)
}

struct Run<'t> {
    task: &'t dyn Task,
    config: &'t Config,
    optimizer: AdamW,
    checkpoints: Option<Checkpoints>,
    record: Record,
    step: usize,
    steps: usize,
    per_epoch: usize,
    losses: Vec<f64>,
    samples: usize,
    seconds: f64,
    metric: Option<(usize, Metric)>,
    saved_at: Option<usize>,
    unwritten: Vec<String>,
    // The last field: the folder is left when everything is written.
    _folder: Option<RunFolder>,
}

impl<'t> Run<'t> {
    fn start(
        task: &'t dyn Task,
        config: &'t Config,
        watch: &mut impl FnMut(Event),
    ) -> Result<Run<'t>> {
        let per_epoch = task.loader().len().unwrap_or(0);
        if per_epoch == 0 {
            return Err(Error::op("train", "there is no batch to train on"));
        }
        let options = AdamWOptions { lr: config.lr, ..AdamWOptions::default() };
        let Config { resume, overwrite, .. } = *config;
        let output = Output { out: config.out.as_deref(), resume, overwrite };
        let folder = RunFolder::take(output, |note| watch(Event::Note(note)))?;
        let keep = Keep { last: 2, best: Some(Best::Largest(1)) };
        let open = |out: &PathBuf| Checkpoints::open(out.join(CHECKPOINTS), keep);
        let mut run = Run {
            task,
            config,
            optimizer: AdamW::new(task.model().named_parameters(), options),
            checkpoints: config.out.as_ref().map(open).transpose()?,
            record: Record::default(),
            step: 0,
            steps: config.steps.unwrap_or(usize::MAX).min(per_epoch.saturating_mul(config.epochs)),
            per_epoch,
            losses: Vec::new(),
            samples: 0,
            seconds: 0.0,
            metric: None,
            saved_at: None,
            unwritten: Vec::new(),
            _folder: folder,
        };
        if config.resume {
            run.resume(watch)?;
        }
        run.record = Record::open(config.out.as_deref(), run.step)?;
        Ok(run)
    }

    /// Takes the newest checkpoint that is whole.
    fn resume(&mut self, watch: &mut impl FnMut(Event)) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else {
            return Err(Error::op("train", "to go on, name the folder that the run wrote to"));
        };
        let Some(resumed) = checkpoints.latest(self.config.device)? else {
            watch(Event::Note("no checkpoint yet: starting anew".to_owned()));
            return Ok(());
        };
        resumed.refused.into_iter().for_each(|message| watch(Event::Note(message)));
        let checkpoint = resumed.checkpoint;
        let (own, saved) = (self.describe(), &checkpoint.config);
        if own != *saved {
            let message = format!("the checkpoint is of another run: {saved}, this one is {own}");
            return Err(Error::op("train", message));
        }
        self.task.model().load_state_dict(&checkpoint.model)?;
        self.optimizer.load_state_dict(checkpoint.state("optimizer")?)?;
        let missing = || Error::op("train", "the checkpoint lacks its random state or place");
        set_rng_state(checkpoint.rng.ok_or_else(missing)?);
        self.task.loader().set_state(checkpoint.data.ok_or_else(missing)?)?;
        self.step = checkpoint.step as usize;
        self.saved_at = Some(self.step);
        watch(Event::Note(format!("going on from {}", resumed.path.display())));
        Ok(())
    }

    /// What must be the same for a run to be gone on with.
    fn describe(&self) -> Value {
        let Config { batch, lr, seed, .. } = self.config;
        json!({ "task": self.task.name(), "batch": batch, "lr": lr, "seed": seed, "steps": self.steps })
    }

    /// One step: forward, backward, clip, update.
    fn train(&mut self, batch: &(Tensor, Tensor)) -> Result<Progress> {
        let (start, lr) = (Instant::now(), self.lr());
        self.optimizer.set_lr(lr);
        let loss = self.task.loss(batch)?;
        self.optimizer.zero_grad();
        loss.backward()?;
        clip_grad_norm_(self.optimizer.parameters(), CLIP, 2.0)?;
        self.optimizer.step()?;
        let loss = loss.item()?;
        if !loss.is_finite() {
            let message =
                format!("the loss of step {} is {loss}; try a smaller --lr", self.step + 1);
            return Err(Error::op("train", message));
        }
        self.step += 1;
        self.losses.push(loss);
        self.samples += batch.0.dim(0)?;
        self.seconds += start.elapsed().as_secs_f64();
        Ok(Progress { step: self.step, steps: self.steps, loss, lr, metric: None })
    }

    /// The learning rate of the next step, by its number only.
    fn lr(&self) -> f64 {
        let warmup = (self.steps / 20).clamp(1, 100);
        let rise = ((self.step + 1) as f64 / warmup as f64).min(1.0);
        let done = self.step as f64 / self.steps as f64;
        self.config.lr * rise * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
    }

    fn evaluate(&mut self) -> Result<Metric> {
        // What an evaluation draws must not change what the next step draws.
        let rng = get_rng_state();
        self.task.model().eval();
        let metric = crate::no_grad(|| self.task.evaluate())?;
        self.task.model().train(true);
        set_rng_state(rng);
        self.metric = Some((self.step, metric));
        Ok(metric)
    }

    fn save_if_due(&mut self, metric: Option<Metric>) -> Result<()> {
        let every = self.config.save_every.unwrap_or(self.per_epoch);
        let due = self.step.is_multiple_of(every);
        if due { self.save(metric) } else { Ok(()) }
    }

    /// Hands a checkpoint to the thread that writes it.
    fn save(&mut self, metric: Option<Metric>) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        if self.saved_at == Some(self.step) {
            return Ok(());
        }
        let checkpoint = Checkpoint {
            step: self.step as u64,
            model: self.task.model().state_dict(),
            states: [("optimizer".to_owned(), self.optimizer.state_dict()?)].into(),
            rng: Some(get_rng_state()),
            data: Some(self.task.loader().state()),
            config: self.describe(),
            // The best is the largest: a loss counts by its distance below zero.
            metric: metric.map(|m| if m.name.ends_with("loss") { -m.value } else { m.value }),
        };
        // That the one before could not be written says nothing of this one.
        let before = checkpoints.wait().map(drop);
        checkpoints.save_async(&checkpoint)?;
        self.saved_at = Some(self.step);
        before
    }

    /// Waits for the checkpoint that is being written.
    fn saved(&self) -> Result<()> {
        self.checkpoints.as_ref().map_or(Ok(()), |checkpoints| checkpoints.wait().map(drop))
    }

    /// Takes it that something could not be written, where the run is to go on.
    fn accept(&mut self, written: Result<()>, watch: &mut impl FnMut(Event)) -> Result<()> {
        let Err(error) = written else { return Ok(()) };
        if self.config.on_save_error == OnSaveError::Stop {
            return Err(error);
        }
        let message = error.to_string();
        // A disk stays full for many steps.
        if self.unwritten.last() != Some(&message) {
            watch(Event::Note(format!("warning: {message}")));
            self.unwritten.push(message);
        }
        Ok(())
    }

    fn finish(mut self, watch: &mut impl FnMut(Event)) -> Result<Outcome> {
        let metric = match self.metric {
            Some((step, metric)) if step == self.step => metric,
            _ => self.evaluate()?,
        };
        let saved = self.save(Some(metric)).and_then(|()| self.saved());
        self.accept(saved, watch)?;
        let recorded = self.record.flush();
        self.accept(recorded, watch)?;
        let mut files = Vec::new();
        if let Some(checkpoints) = &self.checkpoints {
            files.extend(checkpoints.list()?.pop().map(|newest| newest.path));
        }
        let out = self.config.out.as_deref();
        if let Some(path) = out.map(|out| out.join(WEIGHTS)) {
            let written = save_safetensors(&path, &self.task.model().state_dict());
            if written.is_ok() {
                files.push(path);
            }
            self.accept(written, watch)?;
        }
        self.task.model().eval();
        let shown = match crate::no_grad(|| self.task.show(out)) {
            Ok(shown) => shown,
            Err(error) => {
                self.accept(Err(error), watch)?;
                Shown::default()
            }
        };
        files.extend(shown.files);
        Ok(Outcome {
            metric,
            seconds: self.seconds,
            samples_per_second: self.samples as f64 / self.seconds.max(f64::MIN_POSITIVE),
            stopped: self.step < self.steps,
            losses: self.losses,
            files,
            text: shown.text,
            unwritten: self.unwritten,
        })
    }
}
