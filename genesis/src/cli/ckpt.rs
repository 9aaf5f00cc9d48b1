//! `genesis ckpt`

use std::path::{Path, PathBuf};

use clap::Subcommand;
use genesis::distributed::consolidate_checkpoint_to;
use genesis::io::{CheckpointInfo, diff_checkpoints, list_checkpoints, verify_checkpoint};
use genesis::train::language::{Options, export_checkpoint, is_new};
use serde_json::json;

use super::output::path_text;
use super::{Failure, Outcome, language, say};

/// List, check, compare, consolidate and export checkpoints.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The checkpoints in a folder.
    Ls {
        /// A folder of checkpoints, or what `train --out` wrote to.
        folder: PathBuf,
        /// One JSON value instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Reads every file again and compares it with its hash.
    Verify {
        /// A checkpoint, or a folder of them.
        path: PathBuf,
        /// One JSON value instead of lines.
        #[arg(long)]
        json: bool,
    },
    /// Puts the parameters of a checkpoint in parts, of a run on several ranks or of `save_sharded_checkpoint`, together in a
    /// safetensors file, one tensor at a time.
    Consolidate {
        /// The folder of the checkpoint.
        folder: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// Writes the model of a checkpoint of `sft` or `pretrain` as a folder that other tools load, one tensor at a time; the run
    /// may have ended before it was done.
    Export {
        /// What `--out` of the run was.
        run: PathBuf,
        /// The folder to write.
        folder: PathBuf,
        /// The checkpoint after so many steps; the newest without it.
        #[arg(long)]
        step: Option<u64>,
    },
    /// What is different in two checkpoints or safetensors files, bit for bit.
    Diff {
        /// The first.
        a: PathBuf,
        /// The second.
        b: PathBuf,
        /// One JSON value instead of lines.
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Ls { folder, json } => ls(&root(folder), *json),
        Command::Verify { path, json } => verify(&root(path), *json),
        Command::Consolidate { folder, file } => {
            consolidate_checkpoint_to(folder, file)?;
            say(format_args!("saved {}", file.display()))
        }
        Command::Export { run, folder, step } => export(run, folder, *step),
        Command::Diff { a, b, json } => diff(a, b, *json),
    }
}

/// The folder of checkpoints where a run's folder is named.
fn root(path: &Path) -> PathBuf {
    let inner = path.join("checkpoints");
    if inner.is_dir() { inner } else { path.to_owned() }
}

fn ls(folder: &Path, json: bool) -> Outcome {
    let all = list_checkpoints(folder)?;
    if json {
        let row = |CheckpointInfo { path, step, metric, bytes }: &CheckpointInfo| json!({ "path": path_text(path), "step": step, "metric": metric, "bytes": bytes });
        return say(json!(all.iter().map(row).collect::<Vec<_>>()));
    }
    all.iter().try_for_each(|CheckpointInfo { path, step, metric, bytes }| {
        let metric = metric.map_or("-".to_owned(), |metric| format!("{metric:.4}"));
        let (mib, path) = (*bytes as f64 / (1 << 20) as f64, path.display());
        say(format_args!("step {step:>8}  metric {metric:>9}  {mib:>9.2} MiB  {path}"))
    })
}

fn verify(path: &Path, json: bool) -> Outcome {
    let paths: Vec<PathBuf> =
        if path.join("manifest.json").exists() { vec![path.to_owned()] } else { folders(path)? };
    if paths.is_empty() {
        return Err(Failure::Message(format!("{} holds no checkpoint", path.display())));
    }
    let results: Vec<_> = paths.iter().map(|path| (path, verify_checkpoint(path))).collect();
    let damaged = results.iter().filter(|(_, result)| result.is_err()).count();
    if json {
        let row = |(path, result): &(&PathBuf, genesis::Result<CheckpointInfo>)| json!({ "path": path_text(path), "error": result.as_ref().err().map(ToString::to_string) });
        say(json!(results.iter().map(row).collect::<Vec<_>>()))?;
    } else {
        for (path, result) in &results {
            let path = path.display();
            match result {
                Ok(info) => say(format_args!("whole    step {:>8}  {path}", info.step))?,
                Err(error) => say(format_args!("damaged  {error}"))?,
            }
        }
    }
    match damaged {
        0 => Ok(()),
        n => Err(Failure::Message(format!("{n} of {} checkpoints are damaged", results.len()))),
    }
}

/// Everything named like a checkpoint, whole or not.
fn folders(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let problem = |error| Failure::Message(format!("can't read {}: {error}", path.display()));
    let entries = std::fs::read_dir(path).map_err(problem)?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("step-"))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

fn export(run: &Path, folder: &Path, step: Option<u64>) -> Outcome {
    let path = run.join("config.toml");
    let named = |what: String| Failure::Message(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| named(error.to_string()))?;
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| named(e.to_string()))?;
    let options = Options::sft().with(&table).map_err(|error| named(error.to_string()))?;
    let all = list_checkpoints(root(run))?;
    let found = match step {
        Some(step) => all.into_iter().find(|info| info.step == step),
        None => all.into_iter().last(),
    };
    let found = found.ok_or_else(|| named("there is no such checkpoint beside it".to_owned()))?;
    let model = match is_new(&options.model) {
        true => None,
        false => Some(language::found(&options.model)?),
    };
    export_checkpoint(folder, &found.path, &options, model.as_deref())?;
    say(format_args!("saved {}, of step {}", folder.display(), found.step))
}

fn diff(a: &Path, b: &Path, json: bool) -> Outcome {
    let found = diff_checkpoints(a, b)?;
    if json {
        say(json!(found))?;
    } else {
        found.iter().try_for_each(|d| say(format_args!("{}: {}", d.name, d.how)))?;
    }
    match found.len() {
        0 => Ok(()),
        1 => Err(Failure::Message("1 difference".to_owned())),
        n => Err(Failure::Message(format!("{n} differences"))),
    }
}
