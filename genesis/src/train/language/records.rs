//! What a run writes of what it measures: `metrics.jsonl`, `samples.jsonl`, and events for TensorBoard.

use std::path::Path;

use serde_json::json;

use super::evaluate::Evaluation;
use super::lesson::Preferences;
use super::step::Trained;
use crate::error::Result;
use crate::train::folder::SAMPLES;
use crate::train::record::Record;
use crate::train::tensorboard::EventFile;

/// What a step tells whoever watches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// What the step did.
    pub trained: Trained,
    /// The learning rate of the step.
    pub lr: f64,
    /// Inputs a second.
    pub tokens_per_second: f64,
    /// The share of the device's products that this takes (*MFU*), where it is known.
    pub utilization: Option<f64>,
    /// The most bytes of the device's memory so far.
    pub memory: Option<usize>,
}

/// The files of a run, where it writes any.
#[derive(Default)]
pub(super) struct Records {
    metrics: Record,
    samples: Record,
    events: EventFile,
}

impl Records {
    /// Opens the files of a run that has done `step` steps.
    pub(super) fn open(out: Option<&Path>, step: usize, tensorboard: bool) -> Result<Records> {
        let events = match out.filter(|_| tensorboard) {
            Some(out) => EventFile::create(out, step)?,
            None => EventFile::default(),
        };
        let (metrics, samples) = (Record::open(out, step)?, Record::open_as(SAMPLES, out, step)?);
        Ok(Records { metrics, samples, events })
    }

    /// Writes what a step did.
    pub(super) fn step(&mut self, progress: &Progress) -> Result<()> {
        let &Progress { step, trained, lr, tokens_per_second, utilization, memory, .. } = progress;
        let mut line = json!({
            "step": step,
            "loss": trained.loss,
            "lr": lr,
            "grad_norm": trained.grad_norm,
            "learned_tokens": trained.learned,
            "tokens_per_second": tokens_per_second.round(),
            "mfu": utilization,
            "memory_bytes": memory,
        });
        let mut scalars = vec![
            ("train/loss", trained.loss),
            ("train/learning_rate", lr),
            ("train/grad_norm", trained.grad_norm),
            ("train/tokens_per_second", tokens_per_second),
        ];
        scalars.extend(utilization.map(|share| ("train/mfu", share)));
        scalars.extend(memory.map(|bytes| ("train/memory_bytes", bytes as f64)));
        if let Some(Preferences { accuracy, margin, chosen, rejected }) = trained.preferences {
            line["reward_accuracy"] = accuracy.into();
            line["reward_margin"] = margin.into();
            line["chosen_reward"] = chosen.into();
            line["rejected_reward"] = rejected.into();
            scalars.extend([
                ("train/rewards/accuracy", accuracy),
                ("train/rewards/margin", margin),
                ("train/rewards/chosen", chosen),
                ("train/rewards/rejected", rejected),
            ]);
        }
        self.metrics.write_line(&line)?;
        self.events.scalars(step, &scalars)
    }

    /// Writes an evaluation after a step.
    pub(super) fn evaluation(&mut self, step: usize, found: &Evaluation) -> Result<()> {
        let mut line = json!({ "step": step, "eval_loss": found.loss });
        let mut scalars = vec![("eval/loss", found.loss)];
        match found.preferences {
            None => {
                line["perplexity"] = found.perplexity().into();
                scalars.push(("eval/perplexity", found.perplexity()));
            }
            Some(Preferences { accuracy, margin, .. }) => {
                line["reward_accuracy"] = accuracy.into();
                line["reward_margin"] = margin.into();
                scalars.push(("eval/rewards/accuracy", accuracy));
                scalars.push(("eval/rewards/margin", margin));
            }
        }
        self.metrics.write_line(&line)?;
        self.events.scalars(step, &scalars)
    }

    /// Writes what the model wrote after a prompt.
    pub(super) fn sample(&mut self, step: usize, prompt: &str, text: &str) -> Result<()> {
        self.samples.write_line(&json!({ "step": step, "prompt": prompt, "text": text }))
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.metrics.flush()
    }
}
