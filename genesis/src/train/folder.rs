//! The folder that a run writes to: one run's at a time, and one run's in all.
//!
//! A run holds a lock on `run.lock` as long as its process lives, however it ends; the file stays, which
//! means nothing. A folder that holds a run is not written to by another by mistake: the checkpoints of
//! both would lie side by side, and the newest of them, which a resumed run takes, be the other's.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// The file that a run locks, which says who it is.
const LOCK: &str = "run.lock";
/// Where checkpoints are.
pub(super) const CHECKPOINTS: &str = "checkpoints";
/// A line a step.
pub(super) const METRICS: &str = "metrics.jsonl";
/// The weights at the end.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// What a language model wrote at evaluations.
pub(super) const SAMPLES: &str = "samples.jsonl";
/// The configuration of a run of a language model.
pub(super) const RESOLVED: &str = "config.toml";
/// A language model as a folder that other tools load.
pub(super) const EXPORTED: &str = "model";
/// Its adapters.
pub(super) const ADAPTER: &str = "adapter";
/// What names of TensorBoard's files begin with.
pub(super) const EVENTS: &str = "events.out.tfevents.";

/// Where a run writes, and what it does with what is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output<'a> {
    pub(super) out: Option<&'a Path>,
    /// Go on with the run that is there.
    pub(super) resume: bool,
    /// Delete what it wrote.
    pub(super) overwrite: bool,
}

/// A folder that this run alone writes to, until it is dropped.
pub(super) struct RunFolder {
    _lock: File,
}

impl RunFolder {
    /// Takes the folder of a run, if it has one; what can't be done but matters little goes to `note`.
    pub(super) fn take(output: Output<'_>, note: impl FnMut(String)) -> Result<Option<RunFolder>> {
        if output.resume && output.overwrite {
            return Err(Error::op("train", "a run is gone on with or overwritten, not both"));
        }
        let Some(out) = output.out else { return Ok(None) };
        fs::create_dir_all(out).map_err(|error| problem(out, &error))?;
        let lock = lock(out, note)?;
        if output.overwrite {
            clear(out)?;
        } else if !output.resume && holds_a_run(out) {
            let message = format!(
                "{} holds a run; go on with it (--resume), delete what it wrote (--overwrite), or name \
                 another folder",
                out.display()
            );
            return Err(Error::op("train", message));
        }
        Ok(Some(RunFolder { _lock: lock }))
    }
}

fn problem(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("can't write {}: {error}", path.display()))
}

/// Locks a folder for this process.
fn lock(out: &Path, mut note: impl FnMut(String)) -> Result<File> {
    let path = out.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(&path).map_err(|error| problem(&path, &error))?;
    match file.try_lock() {
        Ok(()) => {
            // Who it is, for the message of another; the lock itself needs no text.
            let text = format!("process {} on {}", std::process::id(), host());
            let _ = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut other = String::new();
            let _ = file.take(200).read_to_string(&mut other);
            let other = other.lines().next().filter(|other| !other.is_empty());
            let message = format!(
                "{} is being written to by another run ({}); wait for it, or name another folder",
                out.display(),
                other.unwrap_or("which has not said who it is")
            );
            Err(Error::op("train", message))
        }
        Err(TryLockError::Error(error)) => {
            note(format!("{} can't be locked: {error}; start no other run there", path.display()));
            Ok(file)
        }
    }
}

/// The name of this machine.
pub(super) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Whether a folder holds anything that a run wrote.
fn holds_a_run(out: &Path) -> bool {
    let metrics = fs::metadata(out.join(METRICS)).is_ok_and(|file| file.len() > 0);
    metrics || out.join(WEIGHTS).exists() || of_checkpoints(out).next().is_some()
}

/// What is called like a checkpoint, finished or not.
fn of_checkpoints(out: &Path) -> impl Iterator<Item = fs::DirEntry> {
    let entries = fs::read_dir(out.join(CHECKPOINTS)).into_iter().flatten().flatten();
    entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("step-") || name.starts_with(".tmp-")
    })
}

/// Deletes what a run wrote, and nothing else.
fn clear(out: &Path) -> Result<()> {
    for name in [METRICS, WEIGHTS, SAMPLES, RESOLVED] {
        let path = out.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(problem(&path, &error));
            }
            _ => {}
        }
    }
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(EVENTS) {
            fs::remove_file(entry.path()).map_err(|error| problem(&entry.path(), &error))?;
        }
    }
    for folder in [EXPORTED, ADAPTER].map(|name| out.join(name)) {
        if folder.is_dir() {
            fs::remove_dir_all(&folder).map_err(|error| problem(&folder, &error))?;
        }
    }
    of_checkpoints(out).try_for_each(|entry| {
        fs::remove_dir_all(entry.path()).map_err(|error| problem(&entry.path(), &error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(out: &Path) -> Output<'_> {
        Output { out: Some(out), resume: false, overwrite: false }
    }

    fn take(output: Output<'_>) -> Result<Option<RunFolder>> {
        RunFolder::take(output, |note| panic!("{note}"))
    }

    #[test]
    fn two_runs_do_not_share_a_folder() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let first = take(output(folder.path()))?;
        let error = take(output(folder.path())).err().expect("it is taken").to_string();
        let me = format!("another run (process {} on ", std::process::id());
        assert!(error.contains(&me), "{error}");
        drop(first);
        take(output(folder.path())).map(drop)
    }

    #[test]
    fn a_folder_with_a_run_is_not_written_to_by_mistake() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (out, step) = (folder.path(), folder.path().join("checkpoints/step-00000001"));
        for (name, is_run) in [("notes.txt", false), (METRICS, true), (WEIGHTS, true)] {
            fs::write(out.join(name), "1")?;
            assert_eq!(take(output(out)).is_err(), is_run, "{name}");
            take(Output { resume: true, ..output(out) })?;
            fs::remove_file(out.join(name))?;
        }
        fs::create_dir_all(&step)?;
        fs::write(out.join("notes.txt"), "mine")?;
        let error = take(output(out)).err().expect("there is a checkpoint").to_string();
        assert!(error.ends_with("(--overwrite), or name another folder"), "{error}");
        take(Output { overwrite: true, ..output(out) })?;
        assert!(!step.exists() && out.join("notes.txt").exists());
        assert!(take(Output { overwrite: true, resume: true, ..output(out) }).is_err());
        Ok(())
    }
}
