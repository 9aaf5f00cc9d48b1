//! A checkpoint that several ranks write together, each a file of what it has.
//!
//! ```text
//! rank 0   copy | .tmp-ranks-00000042/rank-0-of-2.safetensors  |             | state.json, manifest.json | step-00000042
//! rank 1   copy |   .tmp-ranks-00000042/rank-1-of-2.safetensors  | all know  |
//! ```
//!
//! A rank copies its part to the host and goes on; a thread writes it, under a temporary name that it syncs and renames.
//! When the files of all ranks are durable, the first rank writes the manifest, which has the hash of each, and gives the folder
//! its name by one rename. Whatever is killed before that leaves a folder that nobody takes for a checkpoint, and the
//! checkpoints before it as they are.
//!
//! How the first rank knows: ranks that train together sum a few numbers after each step, and whether a rank's file is
//! written is one of them. So all ranks learn in the same step that the checkpoint is complete, or that it failed. The
//! threads call no collective, since those must come in one order on all ranks, and nobody looks for files in the folder,
//! since another machine's file system says late, and not in order, what is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serde_json::{Map, Value};

use super::checkpoint::{Checkpoint, OPTIMIZER, seal};
use super::folder::{Keep, TEMPORARY, publish};
use super::manifest::{self, Entry};
use super::rank_files::{Place, RankPart, file_of};
use super::safetensors::{file_parts, snapshot};
use super::whole::cannot_write;
use crate::error::{Error, Result, warn};

/// A thread that writes, or has written. It is waited for when this is dropped, so that nothing is written behind the back of
/// whoever looks at the folder next.
#[derive(Debug)]
pub(crate) struct Writing<T> {
    thread: Option<JoinHandle<Result<T>>>,
}

impl<T: Send + 'static> Writing<T> {
    fn start(write: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Writing<T>> {
        let builder = std::thread::Builder::new().name("genesis-checkpoint".to_owned());
        let problem = |error| Error::io(format!("no thread to write a checkpoint: {error}"));
        Ok(Writing { thread: Some(builder.spawn(write).map_err(problem)?) })
    }
}

impl<T> Writing<T> {
    /// Whether it is done, or failed.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for what it comes to.
    pub(crate) fn wait(mut self) -> Result<T> {
        self.join()
    }

    fn join(&mut self) -> Result<T> {
        let lost = || Error::io("the thread that writes a checkpoint panicked");
        self.thread.take().ok_or_else(lost)?.join().map_err(|_| lost())?
    }
}

impl<T> Drop for Writing<T> {
    fn drop(&mut self) {
        if let (true, Err(error)) = (self.thread.is_some(), self.join()) {
            warn(error);
        }
    }
}

/// Copies a rank's part to the host, and begins to write it.
///
/// # Errors
/// If the copy fails.
pub(crate) fn write_part(
    root: &Path,
    step: u64,
    place: Place,
    part: &RankPart,
) -> Result<Writing<Entry>> {
    let (taken, texts) = (snapshot(&part.tensors)?, part.header());
    let folder = unfinished(root, step);
    Writing::start(move || {
        fs::create_dir_all(&folder).map_err(|error| cannot_write(&folder, error))?;
        let (header, mut parts) = file_parts(&taken, &texts)?;
        parts.insert(0, &header);
        manifest::write_new(&folder, &file_of(place), &parts)
    })
}

/// Begins to complete a checkpoint whose parts are durable, of these ranks with what their files hash to: one rank calls it.
/// Of `all` tensors and numbers are in those files.
pub(crate) fn complete(
    (root, keep): (&Path, Keep),
    all: &Checkpoint,
    parts: Vec<(Place, Entry)>,
) -> Result<Writing<PathBuf>> {
    let states = Map::from_iter([(OPTIMIZER.to_owned(), Value::Object(Map::new()))]);
    let (root, step, metric, state) = (root.to_owned(), all.step, all.metric, all.describe(states));
    let files = parts.into_iter().map(|(place, entry)| (file_of(place), entry));
    let files: BTreeMap<String, Entry> = files.collect();
    Writing::start(move || {
        let folder = unfinished(&root, step);
        if let Some(name) = files.keys().find(|name| !folder.join(name).is_file()) {
            let what = format!("{name} is not there: the ranks do not share the folder");
            return Err(cannot_write(&folder, what));
        }
        seal(&folder, (step, metric), (&state, files))?;
        publish(&root, keep, (step, &folder))
    })
}

/// Where ranks write to before a checkpoint is complete: all of them know its name.
fn unfinished(root: &Path, step: u64) -> PathBuf {
    root.join(format!("{TEMPORARY}ranks-{step:08}"))
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::io::{Checkpoint, verify_checkpoint};
    use crate::tensor::Tensor;

    #[test]
    fn a_checkpoint_is_one_when_every_part_is_there() -> Result<()> {
        let (folder, keep) = (tempfile::tempdir()?, Keep::default());
        let root = folder.path();
        let part = |rank| -> Result<((usize, usize), Entry)> {
            let x = Tensor::full(&[2], rank as f64, Device::Cpu)?;
            let tensors = [
                (format!("model/{rank}"), x),
                (format!("optimizer/{rank}/x"), Tensor::ones(&[1], Device::Cpu)?),
            ];
            let numbers = [(format!("{rank}/step"), 3.0)].into();
            let part = RankPart { tensors: tensors.into(), numbers, ..RankPart::default() };
            Ok(((rank, 2), write_part(root, 3, (rank, 2), &part)?.wait()?))
        };
        let all = Checkpoint { step: 3, ..Checkpoint::default() };
        let (first, second) = (part(0)?, part(1)?);
        // As where another rank has a folder of its own.
        let missing = unfinished(root, 3).join("rank-1-of-2.safetensors");
        fs::remove_file(missing)?;
        let parts = vec![first, second];
        let error = complete((root, keep), &all, parts.clone())?.wait().unwrap_err().to_string();
        assert!(
            error.contains("rank-1-of-2.safetensors is not there: the ranks do not"),
            "{error}"
        );
        assert!(!root.join("step-00000003").exists());
        part(1)?;
        let path = complete((root, keep), &all, parts)?.wait()?;
        verify_checkpoint(&path)?;
        let read = Checkpoint::load(&path, Device::Cpu)?;
        assert_eq!(read.model.keys().collect::<Vec<_>>(), ["0", "1"]);
        let state = read.state("optimizer")?;
        assert_eq!((state.tensors.len(), state.number("1/step")?), (2, 3.0));
        Ok(())
    }
}
