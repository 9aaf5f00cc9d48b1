//! The checkpoints of a run: who writes them, and how a run goes on from one.
//!
//! | ranks | who writes |
//! |---|---|
//! | one, or several that have the same | the first: `model.safetensors`, `optimizer.safetensors` |
//! | with parts of the model (`fsdp`, `tp`, `pp`) or of the optimizer's state (`zero1`) | each what it has, `rank-R-of-N.safetensors`; what several have, the first of them |
//!
//! Both are folders of [`io::Checkpoints`](crate::io::Checkpoints), and any ranks read either: each reads the elements that it
//! needs. A thread writes while training goes on. Of a checkpoint of several ranks all of them learn after a step, by
//! the sum that tells them whether to stop, that its files are durable; the first rank then completes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::options::Options;
use super::ranks::Ranks;
use crate::distributed::{part_of_state, rank_part};
use crate::error::{Error, Result};
use crate::io::{
    Best, Checkpoint, Checkpoints, Entry, Keep, MODEL, OPTIMIZER, SavedCheckpoint, Writing,
    candidates, complete, verify_checkpoint, verify_share, write_part,
};
use crate::models::CausalLm;
use crate::nn::{Parameter, Shard, handles};
use crate::optim::{Optimizer, State};
use crate::tensor::Tensor;
use crate::train::folder::CHECKPOINTS;

const NAME: &str = "train";

/// Writes the checkpoints of a run.
pub(super) struct Saves {
    root: PathBuf,
    keep: Keep,
    writer: Writer,
    /// The last that this process completed, or went on from.
    pub(super) newest: Option<PathBuf>,
}

/// Who writes.
enum Writer {
    /// Another rank, which has all of it.
    Other,
    This(Checkpoints),
    All(Together),
}

/// A checkpoint that all ranks write.
#[derive(Default)]
struct Together {
    zero1: bool,
    /// The one that is being written, without its tensors: on all ranks or on none.
    pending: Option<Checkpoint>,
    /// This rank's file of it.
    own: Option<Writing<Entry>>,
    /// On the first rank, what is behind the files.
    last: Option<Writing<PathBuf>>,
}

/// What a rank tells the others of its file: that it has none, or failed, or what the file hashes to.
const NONE: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

impl Saves {
    /// Those in a run's folder, which all ranks see where all of them write; none where it has none. What a run that was
    /// killed left half written is removed.
    pub(super) fn open(
        options: &Options,
        ranks: Option<&Ranks>,
        is_first: bool,
    ) -> Result<Option<Saves>> {
        let Some(out) = &options.out else { return Ok(None) };
        let root = out.join(CHECKPOINTS);
        let keep = Keep { last: options.keep, best: Some(Best::Smallest(1)) };
        let folder = is_first.then(|| Checkpoints::open(&root, keep)).transpose()?;
        let zero1 = options.zero1;
        let writer = match (ranks, folder) {
            (Some(ranks), _) if zero1 || ranks.mesh.has_parts() => {
                Writer::All(Together { zero1, ..Together::default() })
            }
            (_, Some(folder)) => Writer::This(folder),
            _ => Writer::Other,
        };
        Ok(Some(Saves { root, keep, writer, newest: None }))
    }

    /// Copies what this rank saves to the host, and hands it to a thread; `rest` is what has no tensors. All ranks call it.
    pub(super) fn save(
        &mut self,
        rest: Checkpoint,
        (model, optimizer): (&dyn CausalLm, &dyn Optimizer),
        ranks: Option<&Ranks>,
    ) -> Result<()> {
        self.wait(ranks)?;
        match (&mut self.writer, ranks) {
            (Writer::All(together), Some(ranks)) => {
                let state = optimizer.state_dict()?;
                together.begin((&self.root, rest.step), (model, state), ranks)?;
                together.pending = Some(rest);
                Ok(())
            }
            (Writer::This(folder), _) => {
                let tensors = |(name, p): (String, Parameter)| (name, p.tensor().clone());
                folder.save_async(&Checkpoint {
                    model: trained(model).into_iter().map(tensors).collect(),
                    states: [("optimizer".to_owned(), optimizer.state_dict()?)].into(),
                    ..rest
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether any rank is told to stop; all ranks call it after each step. Completes a checkpoint whose files are all written.
    pub(super) fn after_step(&mut self, ranks: &Ranks, stop: bool) -> Result<bool> {
        let is_written = match &self.writer {
            Writer::All(together) => together.own.as_ref().is_none_or(Writing::is_done),
            _ => true,
        };
        let [stops, written] = ranks.count([stop, is_written])?;
        if written == ranks.mesh.world.size() {
            self.settle(ranks)?;
        }
        Ok(stops > 0)
    }

    /// Waits until nothing is being written. All ranks call it.
    pub(super) fn wait(&mut self, ranks: Option<&Ranks>) -> Result<()> {
        if let Some(ranks) = ranks {
            self.settle(ranks)?;
        }
        let path = match &mut self.writer {
            Writer::Other => None,
            Writer::This(folder) => folder.wait()?,
            Writer::All(together) => together.last.take().map(Writing::wait).transpose()?,
        };
        self.newest = path.or(self.newest.take());
        Ok(())
    }

    /// Waits for the files of all ranks, and lets the first complete the checkpoint.
    fn settle(&mut self, ranks: &Ranks) -> Result<()> {
        let Writer::All(together) = &mut self.writer else { return Ok(()) };
        let Some(pending) = together.pending.take() else { return Ok(()) };
        let parts = together.parts(ranks)?;
        if ranks.mesh.world.rank() == 0 {
            together.last = Some(complete((&self.root, self.keep), &pending, parts)?);
        }
        Ok(())
    }
}

impl Together {
    /// Begins to write this rank's file, if it has anything that no rank before it has.
    fn begin(
        &mut self,
        (root, step): (&Path, u64),
        (model, state): (&dyn CausalLm, State),
        ranks: &Ranks,
    ) -> Result<()> {
        let parameters = trained(model);
        let shards = shards(&parameters);
        let tensors = parameters.iter().map(|(name, p)| (name.clone(), p.tensor().clone()));
        let writes = |name: &str, shard: Option<&Shard>| match name.strip_prefix(OPTIMIZER) {
            Some(_) if self.zero1 => ranks.saves_shared_state(),
            Some(name) => ranks.saves(owner(name), shard),
            None => ranks.saves(name.strip_prefix(MODEL).unwrap_or(name), shard),
        };
        let part = rank_part(tensors.collect(), &shards, state, &writes);
        let place = (ranks.mesh.world.rank(), ranks.mesh.world.size());
        self.own = match part.tensors.is_empty() {
            true => None,
            false => Some(write_part(root, step, place, &part)?),
        };
        Ok(())
    }

    /// What the files of all ranks hash to.
    fn parts(&mut self, ranks: &Ranks) -> Result<Vec<((usize, usize), Entry)>> {
        let own = self.own.take().map(Writing::wait).transpose();
        let (says, mut told) = match &own {
            Ok(None) => (NONE, Vec::new()),
            Ok(Some(entry)) => (WRITTEN, entry.to_bytes()),
            Err(_) => (FAILED, Vec::new()),
        };
        told.resize(Entry::BYTES, 0);
        told.push(says);
        let all = ranks.gather(&told)?;
        own?;
        let mut parts = Vec::new();
        for (rank, told) in all.iter().enumerate() {
            let failed =
                || Error::op(NAME, format!("rank {rank} can't write its part of a checkpoint"));
            match told.split_last() {
                Some((&NONE, _)) => {}
                Some((&WRITTEN, entry)) => {
                    let entry = Entry::from_bytes(entry).ok_or_else(failed)?;
                    parts.push(((rank, all.len()), entry));
                }
                _ => return Err(failed()),
            }
        }
        Ok(parts)
    }
}

/// The newest checkpoint that is whole, and why later ones were not taken.
pub(super) struct Newest {
    pub(super) found: Option<(PathBuf, SavedCheckpoint)>,
    pub(super) refused: Vec<String>,
}

/// The newest checkpoint of a folder that is whole, the same on all ranks, each of which compares some of its files with their
/// hashes. All ranks call it.
///
/// # Errors
/// If there are checkpoints and every one is damaged, with why.
pub(super) fn newest(root: &Path, ranks: Option<&Ranks>) -> Result<Newest> {
    let all = if root.is_dir() { candidates(root)? } else { Vec::new() };
    let name = |(_, path): &(u64, PathBuf)| Some(path.file_name()?.to_str()?.to_owned());
    let mut names = all.iter().filter_map(name).collect::<Vec<_>>().join("\n");
    if let Some(ranks) = ranks {
        names = ranks.of_first(names)?;
    }
    let mut refused = Vec::new();
    for path in names.lines().map(|name| root.join(name)) {
        match open_on_all(&path, ranks)? {
            Ok(saved) => return Ok(Newest { found: Some((path, saved)), refused }),
            Err(why) => refused.push(format!("{} is not taken: {why}", path.display())),
        }
    }
    match refused.is_empty() {
        true => Ok(Newest { found: None, refused }),
        false => Err(Error::io(refused.join("\n"))),
    }
}

/// A checkpoint that is whole, or why it is not; the same on all ranks.
fn open_on_all(path: &Path, ranks: Option<&Ranks>) -> Result<Result<SavedCheckpoint>> {
    let place = ranks.map_or((0, 1), |ranks| (ranks.mesh.world.rank(), ranks.mesh.world.size()));
    let own = verify_share(path, place).and_then(|()| SavedCheckpoint::open(path));
    let Some(ranks) = ranks else { return Ok(own) };
    match (ranks.count([own.is_err()])?, own) {
        ([0], own) | (_, own @ Err(_)) => Ok(own),
        // The rank that prints says what is wrong, where it sees that too.
        _ => {
            let why =
                || Error::io("another rank can't read it: do all of them see the same folder?");
            Ok(Err(verify_checkpoint(path).err().unwrap_or_else(why)))
        }
    }
}

/// Reads what this rank has of a model and an optimizer.
pub(super) fn restore(
    saved: &SavedCheckpoint,
    model: &dyn CausalLm,
    optimizer: &mut dyn Optimizer,
    has_all: bool,
) -> Result<()> {
    let parameters = trained(model);
    let (names, shards) = (saved.tensors.names(MODEL), shards(&parameters));
    let is_known = parameters.keys().all(|name| names.contains(name));
    if !is_known || has_all && names.len() != parameters.len() {
        return Err(Error::op(NAME, "the checkpoint is of another model"));
    }
    for (name, parameter) in &parameters {
        let shard = shards.get(name).map(|shard| &**shard);
        let part = saved.tensors.part(&format!("{MODEL}{name}"), shard, parameter.device())?;
        model.load_state_dict_loose(&[(name.clone(), part)].into())?;
    }
    let is_own = |owner: &str| parameters.contains_key(owner);
    let device = optimizer.parameters().first().map(Tensor::device).unwrap_or_default();
    let tensors = part_of_state(&saved.tensors, &shards, is_own, device)?;
    let numbers = saved.numbers()?.iter();
    let numbers = numbers.filter(|(name, _)| is_own(owner(name)) || name.starts_with("group."));
    let numbers = numbers.map(|(name, number)| (name.clone(), *number)).collect();
    optimizer.load_state_dict(&State { tensors, numbers })
}

/// The parameters that are trained, by name.
fn trained(model: &dyn CausalLm) -> BTreeMap<String, Parameter> {
    let all = handles(model.as_module()).into_iter();
    all.filter(|(_, parameter)| parameter.requires_grad()).collect()
}

/// Of which tensors they are parts.
fn shards(parameters: &BTreeMap<String, Parameter>) -> BTreeMap<String, Arc<Shard>> {
    let shard = |(name, p): (&String, &Parameter)| Some((name.clone(), p.shard()?.clone()));
    parameters.iter().filter_map(shard).collect()
}

/// The parameter whose state has this name.
fn owner(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(owner, _)| owner)
}
