//! Training runs that the `genesis` command offers by name, and the loop that they share.
//!
//! Each sample is a [`Task`]: a model, a loader, a loss, and how good the model is. The loop adds what
//! every run needs: a schedule, clipping, metrics, checkpoints, stopping and going on. The models are
//! written to be copied.

mod classifier;
mod folder;
pub mod language;
pub mod models;
mod record;
mod run;
mod tensorboard;
mod text;
mod vae;

use std::path::{Path, PathBuf};

use genesis_kernel::runtime::Device;

use crate::data::DataLoader;
use crate::error::Result;
use crate::io::OnSaveError;
use crate::nn::Module;
use crate::tensor::Tensor;

pub use classifier::{Classifier, Network, evaluate};
pub use run::run;
pub use text::{Characters, TextModel};
pub use vae::Autoencoder;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Passes over the training data.
    pub epochs: usize,
    /// Stop after so many steps in all, if that comes first.
    pub steps: Option<usize>,
    /// Samples of one step.
    pub batch: usize,
    /// The highest learning rate; it rises to it in a twentieth of the run, at most 100 steps, and
    /// falls to zero along half a cosine.
    pub lr: f64,
    /// The seed of weights, dropout and order.
    pub seed: u64,
    /// Where it runs.
    pub device: Device,
    /// The data set's folder or file; Debian's where absent.
    pub data: Option<PathBuf>,
    /// Where metrics, checkpoints and results go. One run at a time writes there, and a folder that
    /// holds a run is only written to with `resume` or `overwrite`.
    pub out: Option<PathBuf>,
    /// Go on from the newest checkpoint in `out`; start anew where there is none.
    pub resume: bool,
    /// Delete what an earlier run wrote to `out`: its checkpoints, metrics and weights.
    pub overwrite: bool,
    /// Whether a run goes on where checkpoints, metrics or results can't be written, as on a full disk.
    /// What was not written is then told by [`Event::Note`] and in [`Outcome::unwritten`]; metrics are
    /// written later, if they then can be.
    pub on_save_error: OnSaveError,
    /// Steps between checkpoints; an epoch where absent.
    pub save_every: Option<usize>,
}

impl Default for Config {
    /// One pass in batches of 32, nothing written.
    fn default() -> Config {
        Config {
            epochs: 1,
            steps: None,
            batch: 32,
            lr: 1e-3,
            seed: 0,
            device: Device::default(),
            data: None,
            out: None,
            resume: false,
            overwrite: false,
            on_save_error: OnSaveError::Stop,
            save_every: None,
        }
    }
}

/// A number that says how good a model is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// What it is, as in `accuracy`.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// What a step tells whoever watches.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// The loss of the step.
    pub loss: f64,
    /// The learning rate of the step.
    pub lr: f64,
    /// How good the model is, after each epoch.
    pub metric: Option<Metric>,
}

/// What happens in a run.
#[derive(Clone, Debug)]
pub enum Event {
    /// A step is done.
    Step(Progress),
    /// Something to tell: what a run goes on from, why a checkpoint was not taken.
    Note(String),
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How good the model is.
    pub metric: Metric,
    /// The loss of every step of this process.
    pub losses: Vec<f64>,
    /// Seconds of training, without evaluation.
    pub seconds: f64,
    /// Samples a second while training.
    pub samples_per_second: f64,
    /// Whether it was stopped early.
    pub stopped: bool,
    /// What it wrote: weights, checkpoints, pictures.
    pub files: Vec<PathBuf>,
    /// What the model made, where that is text.
    pub text: Option<String>,
    /// Why things could not be written, where the run went on without them.
    pub unwritten: Vec<String>,
}

/// A model to train, and its data.
pub trait Task {
    /// What is trained on what, for the config of a checkpoint.
    fn name(&self) -> String;

    /// The model.
    fn model(&self) -> &dyn Module;

    /// The training data.
    fn loader(&self) -> &DataLoader<(Tensor, Tensor)>;

    /// The loss of a batch, to go backward from.
    ///
    /// # Errors
    /// If a launch fails.
    fn loss(&self, batch: &(Tensor, Tensor)) -> Result<Tensor>;

    /// How good the model is on data that it was not trained on.
    ///
    /// # Errors
    /// If a launch fails.
    fn evaluate(&self) -> Result<Metric>;

    /// Shows what the model can do at the end, in text and files.
    ///
    /// # Errors
    /// If a launch fails or a file can't be written.
    fn show(&self, out: Option<&Path>) -> Result<Shown> {
        let _ = out;
        Ok(Shown::default())
    }
}

/// What a model made.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Text.
    pub text: Option<String>,
    /// Files.
    pub files: Vec<PathBuf>,
}
