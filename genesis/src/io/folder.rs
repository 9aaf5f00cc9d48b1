//! A folder of checkpoints: written one by one, read back from the newest that is whole.
//!
//! A checkpoint is written under a temporary name, synced, and renamed. So whatever stops the process,
//! what has a checkpoint's name is complete; what the disk did to it later, its hashes show.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::checkpoint::{Checkpoint, Frozen};
use super::manifest::{CheckpointInfo, candidates, list_checkpoints};
use super::whole::{cannot_write, sync_folder};
use crate::error::{Error, Result, warn};
use crate::tensor::Creation;

/// Which checkpoints stay when a new one is there.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// The latest so many; at least 1 stays.
    pub last: usize,
    /// The best by their metric, beside the latest.
    pub best: Option<Best>,
}

/// How many of the best stay, and what is better.
#[derive(Clone, Copy, Debug)]
pub enum Best {
    /// A smaller metric is better: a loss.
    Smallest(usize),
    /// A larger metric is better: an accuracy.
    Largest(usize),
}

impl Default for Keep {
    /// The latest 3.
    fn default() -> Keep {
        Keep { last: 3, best: None }
    }
}

/// What a checkpoint that can't be written, as where a disk is full, means for the training.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnSaveError {
    /// It is an error of the save, or of the next call that waits for it.
    #[default]
    Stop,
    /// It is a warning, and an entry of [`Checkpoints::save_errors`]; the training goes on, and the
    /// checkpoints before stay.
    Continue,
}

/// A folder that one run at a time writes checkpoints to.
///
/// # Examples
/// ```
/// use genesis::io::{Checkpoint, Checkpoints, Keep};
/// use genesis::{Device, Tensor};
///
/// let folder = tempfile::tempdir()?;
/// let checkpoints = Checkpoints::open(folder.path(), Keep::default())?;
/// let mut checkpoint = Checkpoint { step: 10, ..Checkpoint::default() };
/// checkpoint.model.insert("w".to_owned(), Tensor::ones(&[2], Device::Cpu)?);
/// checkpoints.save_async(&checkpoint)?; // training may go on at once
/// checkpoints.wait()?;
/// let resumed = checkpoints.latest(Device::Cpu)?.expect("one was saved");
/// assert_eq!(resumed.checkpoint.step, 10);
/// # Ok::<(), genesis::Error>(())
/// ```
pub struct Checkpoints {
    root: PathBuf,
    keep: Keep,
    on_save_error: OnSaveError,
    errors: Mutex<Vec<Error>>,
    writer: Mutex<Option<JoinHandle<Result<PathBuf>>>>,
}

/// The newest checkpoint that is whole.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// What it holds.
    pub checkpoint: Checkpoint,
    /// Where it is.
    pub path: PathBuf,
    /// Why later ones were not taken, a message each.
    pub refused: Vec<String>,
}

impl Checkpoints {
    /// A folder, made if it is not there. What a stopped run left half written is removed.
    ///
    /// # Errors
    /// If it can't be made or read.
    pub fn open(root: impl AsRef<Path>, keep: Keep) -> Result<Checkpoints> {
        let root = root.as_ref().to_owned();
        fs::create_dir_all(&root).map_err(|error| cannot_write(&root, error))?;
        for entry in fs::read_dir(&root).map_err(|error| cannot_write(&root, error))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                fs::remove_dir_all(entry.path()).map_err(|e| cannot_write(&entry.path(), e))?;
            }
        }
        let (on_save_error, errors) = (OnSaveError::default(), Mutex::default());
        Ok(Checkpoints { root, keep, on_save_error, errors, writer: Mutex::new(None) })
    }

    /// The same folder where a save that fails means something else.
    #[must_use]
    pub fn with_on_save_error(self, on_save_error: OnSaveError) -> Checkpoints {
        // `Checkpoints` waits when it is dropped, so its fields do not move out of it.
        let mut checkpoints = self;
        checkpoints.on_save_error = on_save_error;
        checkpoints
    }

    /// What could not be written so far, where that stops nothing.
    pub fn save_errors(&self) -> Vec<Error> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The outcome of a write, or nothing where its error stops nothing.
    fn judge(&self, written: Result<PathBuf>) -> Result<Option<PathBuf>> {
        match (written, self.on_save_error) {
            (Ok(path), _) => Ok(Some(path)),
            (Err(error), OnSaveError::Stop) => Err(error),
            (Err(error), OnSaveError::Continue) => {
                warn(format_args!("{error}; the training goes on"));
                self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                Ok(None)
            }
        }
    }

    /// Writes a checkpoint and gives its folder; when this returns it is on the disk.
    ///
    /// # Errors
    /// If it can't be written, also with [`OnSaveError::Continue`]; without it, if one that was being written
    /// could not. Those before stay.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        self.wait()?;
        write(&self.root, self.keep, &checkpoint.freeze()?)
    }

    /// Copies a checkpoint to the host and writes it while the caller goes on.
    ///
    /// One is written at a time: where the last is not done, this waits for it.
    ///
    /// # Errors
    /// If the copy fails, or, without [`OnSaveError::Continue`], the one before could not be written.
    pub fn save_async(&self, checkpoint: &Checkpoint) -> Result<()> {
        self.wait()?;
        let (frozen, root, keep) = (checkpoint.freeze()?, self.root.clone(), self.keep);
        let builder = std::thread::Builder::new().name("genesis-checkpoint".to_owned());
        match builder.spawn(move || write(&root, keep, &frozen)) {
            Ok(thread) => {
                *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
                Ok(())
            }
            Err(error) => self.judge(Err(cannot_write(&self.root, error))).map(|_| ()),
        }
    }

    /// Waits until nothing is being written; gives the folder that was.
    ///
    /// # Errors
    /// If it could not be written; with [`OnSaveError::Continue`] there is no folder then.
    pub fn wait(&self) -> Result<Option<PathBuf>> {
        let thread = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(None) };
        let lost = |_| Err(cannot_write(&self.root, "its thread panicked"));
        self.judge(thread.join().unwrap_or_else(lost))
    }

    /// The newest checkpoint that is whole; `None` where there is none at all.
    ///
    /// # Errors
    /// If there are checkpoints and every one is damaged, with why.
    pub fn latest(&self, at: impl Into<Creation>) -> Result<Option<Resumed>> {
        self.wait()?;
        let at = at.into();
        let mut refused = Vec::new();
        for (_, path) in candidates(&self.root)? {
            match Checkpoint::load(&path, at) {
                Ok(checkpoint) => return Ok(Some(Resumed { checkpoint, path, refused })),
                Err(error) => refused.push(format!("{} is not taken: {error}", path.display())),
            }
        }
        if refused.is_empty() { Ok(None) } else { Err(Error::io(refused.join("\n"))) }
    }

    /// The checkpoints that there are, the earliest first.
    ///
    /// # Errors
    /// If the folder can't be read.
    pub fn list(&self) -> Result<Vec<CheckpointInfo>> {
        list_checkpoints(&self.root)
    }
}

impl Drop for Checkpoints {
    /// Waits for what is being written, which would be lost with the process.
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            warn(error);
        }
    }
}

/// What the names of unfinished folders begin with.
pub(super) const TEMPORARY: &str = ".tmp-";

fn write(root: &Path, keep: Keep, frozen: &Frozen) -> Result<PathBuf> {
    let target = folder_of(root, frozen.step);
    let builder = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(root);
    let temporary = builder.map_err(|error| cannot_write(&target, error))?;
    // On an error the temporary folder goes with its value.
    frozen.write(temporary.path()).map_err(|error| cannot_write(&target, error))?;
    publish(root, keep, (frozen.step, &temporary.keep()))
}

/// The folder of a checkpoint.
pub(super) fn folder_of(root: &Path, step: u64) -> PathBuf {
    root.join(format!("step-{step:08}"))
}

/// Gives a folder that is complete the name of a checkpoint, and removes those that need not stay.
pub(super) fn publish(root: &Path, keep: Keep, (step, written): (u64, &Path)) -> Result<PathBuf> {
    let target = folder_of(root, step);
    let old = target.with_extension("old");
    if target.exists() {
        // Between the two renames the older one is still found, under its other name.
        remove(&old)?;
        fs::rename(&target, &old).map_err(|error| cannot_write(&target, error))?;
    }
    fs::rename(written, &target).map_err(|error| cannot_write(&target, error))?;
    sync_folder(root)?;
    remove(&old)?;
    prune(root, keep, &target)?;
    Ok(target)
}

/// Removes what need not stay. What was just written stays in any case.
fn prune(root: &Path, keep: Keep, newest: &Path) -> Result<()> {
    let all = list_checkpoints(root)?;
    let mut stay: Vec<&Path> = all.iter().rev().take(keep.last.max(1)).map(|c| &*c.path).collect();
    stay.push(newest);
    if let Some(best) = keep.best {
        let (count, sign) = match best {
            Best::Smallest(count) => (count, 1.0),
            Best::Largest(count) => (count, -1.0),
        };
        let mut by_metric: Vec<(f64, &Path)> = all
            .iter()
            .filter_map(|c| Some((sign * c.metric.filter(|m| !m.is_nan())?, &*c.path)))
            .collect();
        by_metric.sort_by(|a, b| a.0.total_cmp(&b.0));
        stay.extend(by_metric.iter().take(count).map(|&(_, path)| path));
    }
    all.iter().filter(|c| !stay.contains(&&*c.path)).try_for_each(|c| remove(&c.path))
}

/// Removes a checkpoint: first its name, so that half of one is never found.
fn remove(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let doomed = path.with_file_name(format!("{TEMPORARY}{name}"));
    let _ = fs::remove_dir_all(&doomed);
    fs::rename(path, &doomed).map_err(|error| cannot_write(path, error))?;
    fs::remove_dir_all(&doomed).map_err(|error| cannot_write(path, error))
}
