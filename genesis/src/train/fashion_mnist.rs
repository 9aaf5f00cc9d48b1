//! A classifier of Fashion-MNIST: the first thing a new user runs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use genesis_kernel::runtime::Device;

use crate::autograd::no_grad;
use crate::data::{Batches, FashionMnist, shuffled};
use crate::error::{Error, Result};
use crate::io::save_safetensors;
use crate::nn::{Dropout, Linear, Module, Relu, Sequential};
use crate::ops::Reduction;
use crate::optim::{Adam, AdamOptions, Optimizer, clip_grad_norm};
use crate::random::manual_seed;
use crate::tensor::Tensor;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Passes over the training images.
    pub epochs: usize,
    /// Images of one step.
    pub batch: usize,
    /// The learning rate at the start; it falls to zero along half a cosine.
    pub lr: f64,
    /// The seed of weights, dropout and order.
    pub seed: u64,
    /// Where it runs.
    pub device: Device,
    /// A folder with the data set's files; Debian's where absent.
    pub data: Option<PathBuf>,
    /// Where metrics and the checkpoint go.
    pub out: Option<PathBuf>,
    /// Stop after so many steps, for tests.
    pub max_steps: Option<usize>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            epochs: 6,
            batch: 128,
            lr: 2e-3,
            seed: 0,
            device: Device::default(),
            data: None,
            out: None,
            max_steps: None,
        }
    }
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
    /// The accuracy on the test images, after each epoch.
    pub accuracy: Option<f64>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The share of test images classified right.
    pub accuracy: f64,
    /// The loss of every step.
    pub losses: Vec<f64>,
    /// Seconds from the first step to the last.
    pub seconds: f64,
    /// Whether it was stopped early.
    pub stopped: bool,
    /// The checkpoint, where one was asked for.
    pub checkpoint: Option<PathBuf>,
}

/// 784 - 256 - 128 - 10 with ReLU and dropout.
///
/// # Errors
/// If memory runs out.
pub fn mlp(device: Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .with(Linear::new(FashionMnist::PIXELS, 256, device)?)
        .with(Relu)
        .with(Dropout::new(0.1))
        .with(Linear::new(256, 128, device)?)
        .with(Relu)
        .with(Linear::new(128, 10, device)?))
}

/// Trains, calling `watch` after each step, until done or `stop` is set.
///
/// # Errors
/// If the data or the output can't be had, or a launch fails.
pub fn train(
    config: &Config,
    stop: &AtomicBool,
    mut watch: impl FnMut(Progress),
) -> Result<Outcome> {
    let data = FashionMnist::train(config.data.as_deref())?;
    let test = FashionMnist::test(config.data.as_deref())?;
    manual_seed(config.seed);
    let model = mlp(config.device)?;
    let options = AdamOptions { lr: config.lr, weight_decay: 0.01, ..AdamOptions::default() };
    let mut optimizer = Adam::adamw(model.parameters(), options);
    let mut metrics = Metrics::open(config.out.as_deref())?;
    let per_epoch = data.len().div_ceil(config.batch.max(1));
    let steps = config.max_steps.unwrap_or(usize::MAX).min(per_epoch * config.epochs);
    let (mut losses, start) = (Vec::new(), Instant::now());
    let mut accuracy = None;
    'run: for epoch in 0..config.epochs {
        model.train(true);
        for batch in Batches::new(shuffled(data.len(), config.seed, epoch as u64), config.batch) {
            if losses.len() == steps || stop.load(Ordering::Relaxed) {
                break 'run;
            }
            let done = losses.len() as f64 / steps as f64;
            optimizer.set_lr(config.lr * 0.5 * (1.0 + (std::f64::consts::PI * done).cos()));
            let loss = step(&model, &mut optimizer, &data, &batch, config.device)?;
            losses.push(loss);
            accuracy = None;
            if losses.len() % per_epoch == 0 {
                accuracy = Some(evaluate(&model, &test, config.device)?);
            }
            let progress = Progress { step: losses.len(), steps, loss, accuracy };
            metrics.write(&progress, optimizer.lr())?;
            watch(progress);
        }
    }
    let accuracy = match accuracy {
        Some(accuracy) => accuracy,
        None => evaluate(&model, &test, config.device)?,
    };
    let checkpoint = save(&model, config.out.as_deref())?;
    let seconds = start.elapsed().as_secs_f64();
    let stopped = losses.len() < steps;
    Ok(Outcome { accuracy, losses, seconds, stopped, checkpoint })
}

/// One step: forward, backward, clip, update. Gives the loss.
fn step(
    model: &Sequential,
    optimizer: &mut Adam,
    data: &FashionMnist,
    batch: &[usize],
    device: Device,
) -> Result<f64> {
    let (x, target) = gather(data, batch, device)?;
    let loss = model.forward(&x)?.cross_entropy(&target, Reduction::Mean)?;
    optimizer.zero_grad();
    loss.backward()?;
    clip_grad_norm(optimizer.parameters(), 1.0)?;
    optimizer.step()?;
    loss.item()
}

/// The images and labels of a batch.
fn gather(data: &FashionMnist, batch: &[usize], device: Device) -> Result<(Tensor, Tensor)> {
    let mut pixels = Vec::with_capacity(batch.len() * FashionMnist::PIXELS);
    for &index in batch {
        pixels.extend_from_slice(
            &data.images[index * FashionMnist::PIXELS..][..FashionMnist::PIXELS],
        );
    }
    let labels: Vec<i64> = batch.iter().map(|&index| data.labels[index]).collect();
    let x = Tensor::from_slice_on(&pixels, &[batch.len(), FashionMnist::PIXELS], device)?;
    Ok((x, Tensor::from_slice_on(&labels, &[batch.len()], device)?))
}

/// The share of images whose most likely class is the right one.
///
/// # Errors
/// If a launch fails.
pub fn evaluate(model: &dyn Module, data: &FashionMnist, device: Device) -> Result<f64> {
    model.eval();
    let mut right = 0.0;
    no_grad(|| {
        for batch in Batches::new((0..data.len()).collect(), 2000) {
            let (x, target) = gather(data, &batch, device)?;
            let hits = model.forward(&x)?.argmax(-1)?.eq(&target)?;
            right += hits.to_dtype(crate::DType::F32)?.sum()?.item()?;
        }
        Ok::<(), Error>(())
    })?;
    model.train(true);
    Ok(right / data.len() as f64)
}

fn save(model: &Sequential, out: Option<&Path>) -> Result<Option<PathBuf>> {
    let Some(folder) = out else { return Ok(None) };
    let path = folder.join("model.safetensors");
    save_safetensors(&path, &model.state_dict())?;
    Ok(Some(path))
}

/// `metrics.jsonl`: one line a step.
struct Metrics {
    file: Option<fs::File>,
}

impl Metrics {
    fn open(out: Option<&Path>) -> Result<Metrics> {
        let Some(folder) = out else { return Ok(Metrics { file: None }) };
        let problem = |error| Error::io(format!("can't write to {}: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(problem)?;
        let file = fs::File::create(folder.join("metrics.jsonl")).map_err(problem)?;
        Ok(Metrics { file: Some(file) })
    }

    fn write(&mut self, progress: &Progress, lr: f64) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let Progress { step, loss, accuracy, .. } = progress;
        let mut line = serde_json::json!({ "step": step, "loss": loss, "lr": lr });
        if let Some(accuracy) = accuracy {
            line["accuracy"] = (*accuracy).into();
        }
        Ok(writeln!(file, "{line}")?)
    }
}
