//! The samples of `genesis train` on a few made-up data, and runs that are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use genesis::data::{Image, SampleRng, TensorDataset};
use genesis::io::{
    OnSaveError, diff_checkpoints, list_checkpoints, load_safetensors, verify_checkpoint,
};
use genesis::random::thread_rng;
use genesis::train::{
    self, Autoencoder, Classifier, Config, Event, Network, Outcome, Task, TextModel,
};
use genesis::{Device, Error, Result, Tensor};

const CPU: Device = Device::Cpu;

fn config(out: Option<&Path>, steps: usize) -> Config {
    Config {
        epochs: 100,
        steps: Some(steps),
        batch: 16,
        lr: 2e-3,
        seed: 7,
        device: CPU,
        data: None,
        out: out.map(Path::to_owned),
        resume: false,
        overwrite: false,
        on_save_error: OnSaveError::Stop,
        save_every: None,
    }
}

/// Images whose class is the row that is bright.
fn images(n: usize, seed: u64) -> Result<TensorDataset<(Tensor, Tensor)>> {
    let mut rng = SampleRng::new(seed);
    let (mut pixels, mut classes) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let class = rng.below(10);
        let bright = |at: usize| at / 28 / 2 == class + 2;
        pixels.extend(
            (0..784).map(|at| 0.2 * rng.uniform() as f32 + if bright(at) { 0.8 } else { 0.0 }),
        );
        classes.push(class as i64);
    }
    let images = Tensor::from_slice_on(&pixels, &[n, 1, 28, 28], CPU)?;
    TensorDataset::new((images, Tensor::from_slice_on(&classes, &[n], CPU)?))
}

fn run(task: &dyn Task, config: &Config) -> Result<(Outcome, Vec<String>)> {
    let mut notes = Vec::new();
    let outcome = train::run(task, config, &AtomicBool::new(false), |event| {
        if let Event::Note(note) = event {
            notes.push(note);
        }
    })?;
    Ok((outcome, notes))
}

#[test]
fn classifiers_learn() -> Result<()> {
    let _own = thread_rng(7);
    for (network, steps, bar) in
        [(Network::Mlp, 60, 0.95), (Network::Cnn, 24, 0.8), (Network::Vit, 12, 0.0)]
    {
        let config = config(None, steps);
        let task = Classifier::new(network, images(160, 1)?, images(100, 2)?, &config)?;
        let (outcome, _) = run(&task, &config)?;
        assert_eq!((outcome.losses.len(), outcome.stopped), (steps, false));
        // Single steps are noisy.
        let (first, last) = (&outcome.losses[..4], &outcome.losses[steps - 4..]);
        let falls = last.iter().sum::<f64>() < first.iter().sum::<f64>();
        assert!(falls, "{network:?}: {:?}", outcome.losses);
        assert!(outcome.metric.value >= bar, "{network:?}: accuracy {}", outcome.metric.value);
        assert_eq!(outcome.metric.name, "accuracy");
    }
    Ok(())
}

#[test]
fn a_language_model_learns_and_writes() -> Result<()> {
    let _own = thread_rng(7);
    let text = "And he said unto them, Go to. And they went. ".repeat(60);
    let config = config(None, 8);
    let task = TextModel::new(text.as_bytes(), &config)?;
    let (outcome, _) = run(&task, &config)?;
    assert!(outcome.losses[7] < 0.9 * outcome.losses[0], "{:?}", outcome.losses);
    let made = outcome.text.expect("it writes");
    assert!(made.starts_with("And ") && made.len() == 404, "{made}");
    assert!(made.chars().all(|c| text.contains(c)), "{made}");
    assert_eq!(task.generate("And ", 20, 3)?, task.generate("And ", 20, 3)?);
    assert!(task.generate("", 20, 3).is_err());
    assert!(TextModel::new(b"too short", &config).is_err());
    Ok(())
}

#[test]
fn an_autoencoder_learns_and_draws() -> Result<()> {
    let _own = thread_rng(7);
    let folder = tempfile::tempdir()?;
    let config = config(Some(folder.path()), 20);
    let task = Autoencoder::new(images(160, 1)?, images(50, 2)?, &config)?;
    let (outcome, _) = run(&task, &config)?;
    assert!(outcome.metric.value < outcome.losses[0] - 50.0, "{}", outcome.metric.value);
    let sheet = Image::open(folder.path().join("reconstructed.png"))?;
    assert_eq!((sheet.height(), sheet.width()), (2 * 28, 10 * 28));
    let sheet = Image::open(folder.path().join("sampled.png"))?;
    assert_eq!((sheet.height(), sheet.width()), (8 * 28, 8 * 28));
    let pixels = sheet.pixels();
    assert!(pixels.iter().any(|&p| p != pixels[0]), "a sheet of one gray");
    Ok(())
}

#[test]
fn a_run_leaves_metrics_weights_and_checkpoints() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = config(Some(folder.path()), 14);
    let task = Classifier::new(Network::Mlp, images(80, 1)?, images(20, 2)?, &config)?;
    let (outcome, _) = run(&task, &config)?;
    let lines = fs::read_to_string(folder.path().join("metrics.jsonl"))?;
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 14);
    assert_eq!(lines[13]["loss"].as_f64(), outcome.losses.last().copied());
    assert_eq!(lines[4]["accuracy"].as_f64().map(|a| (0.0..=1.0).contains(&a)), Some(true));
    assert!(lines[5].get("accuracy").is_none());
    // The two latest, and the best where it is another: after epochs of 5 steps and at the end.
    let all = list_checkpoints(folder.path().join("checkpoints"))?;
    assert!(all.len() >= 2 && all.last().map(|c| c.step) == Some(14), "{all:?}");
    verify_checkpoint(&all[0].path)?;
    let weights = load_safetensors(folder.path().join("model.safetensors"), CPU)?;
    assert_eq!(weights.len(), task.model().state_dict().len());
    let same = Config { resume: true, ..config.clone() };
    let (again, notes) = run(&task, &same)?;
    assert!(again.losses.is_empty() && notes[0].starts_with("going on from "), "{notes:?}");
    let other = Config { lr: 1.0, ..same };
    let error = run(&task, &other).expect_err("another run").to_string();
    assert!(error.starts_with("train: the checkpoint is of another run"), "{error}");
    Ok(())
}

#[test]
fn a_stop_saves_and_ends() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = config(Some(folder.path()), 50);
    let task = Classifier::new(Network::Mlp, images(80, 1)?, images(20, 2)?, &config)?;
    let stop = AtomicBool::new(false);
    let outcome = train::run(&task, &config, &stop, |event| {
        if matches!(event, Event::Step(progress) if progress.step == 8) {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    assert_eq!((outcome.losses.len(), outcome.stopped), (8, true));
    let all = list_checkpoints(folder.path().join("checkpoints"))?;
    assert_eq!(all.last().map(|c| c.step), Some(8));
    Ok(())
}

/// Where a child process writes to; set for children only.
const CHILD: &str = "GENESIS_TEST_TRAINS_TO";

/// The process that is killed: it trains when it is told where, and is no test of its own.
#[test]
fn child_that_trains() -> Result<()> {
    let Some(out) = std::env::var_os(CHILD).map(PathBuf::from) else { return Ok(()) };
    let config = Config { resume: true, save_every: Some(3), ..config(Some(&out), 40) };
    let _own = thread_rng(config.seed);
    let task = Classifier::new(Network::Mlp, images(100, 1)?, images(20, 2)?, &config)?;
    run(&task, &config).map(drop)
}

fn child(out: &Path) -> Result<std::process::Child> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.args(["--exact", "samples::child_that_trains", "--nocapture"]);
    command.env(CHILD, out).stdout(Stdio::null()).stderr(Stdio::inherit());
    Ok(command.spawn()?)
}

fn finish(out: &Path) -> Result<PathBuf> {
    assert!(child(out)?.wait()?.success(), "the child fails");
    Ok(out.join("checkpoints/step-00000040"))
}

/// Waits until a run has done so many steps.
fn wait_for(out: &Path, steps: usize) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(120) {
        let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
        if text.lines().count() >= steps {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::io("the child does not train"))
}

#[test]
fn a_run_that_is_killed_goes_on_bit_for_bit() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let whole = finish(&folder.path().join("whole"))?;
    // The moments differ from run to run; what they are killed in must not matter.
    let seed = std::process::id().into();
    let mut rng = SampleRng::new(seed);
    for round in 0..3 {
        let out = folder.path().join(format!("killed-{round}"));
        let mut at = 0;
        for _ in 0..2 {
            at += 1 + rng.below(18);
            let mut child = child(&out)?;
            wait_for(&out, at)?;
            std::thread::sleep(Duration::from_micros(rng.below(4000) as u64));
            child.kill()?;
            child.wait()?;
        }
        let resumed = finish(&out)?;
        let differences = diff_checkpoints(&whole, &resumed)?;
        assert!(differences.is_empty(), "seed {seed}, killed after {at} steps: {differences:?}");
        let lines = fs::read_to_string(out.join("metrics.jsonl"))?;
        assert_eq!(lines, fs::read_to_string(folder.path().join("whole/metrics.jsonl"))?);
    }
    Ok(())
}
