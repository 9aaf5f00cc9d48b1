//! What a checkpoint holds, and its files.
//!
//! ```text
//! step-00000042/
//!   model.safetensors       parameters and buffers by name: any reader of the format reads them
//!   optimizer.safetensors   the tensors of a state, one file a state
//!   state.json              step, numbers of the states, random generator, place in the data, config
//!   manifest.json           every file with its size and BLAKE3 hash; written last
//! ```
//!
//! Where several ranks have parts of the model, each writes a file of its parts ([`joint`](super::joint)) in the place of the
//! first two:
//!
//! ```text
//!   rank-0-of-2.safetensors  what rank 0 has of parameters and of the optimizer's state
//!   rank-1-of-2.safetensors
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::manifest::{self, Entry, verify_checkpoint};
use super::number::{from_json, to_json};
use super::rank_files::{RankFiles, is_of_rank};
use super::safetensors::{Snapshot, file_parts, snapshot};
use crate::data::LoaderState;
use crate::error::{Error, Result};
use crate::files::read_regular;
use crate::optim::State;
use crate::random::RngState;
use crate::tensor::{Creation, Tensor};

/// The file of all that is not a tensor.
const STATE: &str = "state.json";
/// The name of the model's file, without its ending.
const MODEL: &str = "model";
/// The name of the state whose numbers are in the files of ranks too.
pub(super) const OPTIMIZER: &str = "optimizer";

/// Everything that a training run needs to go on as if it had never stopped.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// Steps done.
    pub step: u64,
    /// Parameters and buffers by name.
    pub model: BTreeMap<String, Tensor>,
    /// The states of what is trained beside the model: `optimizer`, `scheduler`, `scaler`, `ema`.
    pub states: BTreeMap<String, State>,
    /// Where the default generator stands.
    pub rng: Option<RngState>,
    /// Where the loader stands.
    pub data: Option<LoaderState>,
    /// What the run was asked to do, for people and for checks.
    pub config: Value,
    /// How good the model is, for keeping the best.
    pub metric: Option<f64>,
}

/// A checkpoint on the host, taken at one moment: what a thread writes while training goes on.
pub(super) struct Frozen {
    pub(super) step: u64,
    pub(super) metric: Option<f64>,
    tensors: BTreeMap<String, BTreeMap<String, Snapshot>>,
    state: Value,
}

impl Checkpoint {
    /// Copies everything to the host.
    pub(super) fn freeze(&self) -> Result<Frozen> {
        let mut tensors = BTreeMap::from([(MODEL.to_owned(), snapshot(&self.model)?)]);
        let mut states = Map::new();
        for (name, state) in &self.states {
            if !is_plain(name) || name == MODEL {
                let message = format!("a state can't be called {name:?}; use letters, not model");
                return Err(Error::op("checkpoint", message));
            }
            tensors.insert(name.clone(), snapshot(&state.tensors)?);
            let numbers = state.numbers.iter().map(|(key, &n)| (key.clone(), to_json(n)));
            states.insert(name.clone(), numbers.collect::<Map<_, _>>().into());
        }
        let state = self.describe(states);
        Ok(Frozen { step: self.step, metric: self.metric, tensors, state })
    }

    /// What is in [`STATE`], with these numbers of the states.
    pub(super) fn describe(&self, states: Map<String, Value>) -> Value {
        json!({
            "step": self.step,
            "metric": self.metric.map(to_json),
            "rng": self.rng.map(|rng| json!({ "seed": rng.seed, "offset": rng.offset })),
            "data": self.data,
            "states": states,
            "config": self.config,
        })
    }

    /// Reads the checkpoint in a folder to a device, after its hashes were checked.
    ///
    /// # Errors
    /// If a file is missing or is not what was written, with its name.
    pub fn load(folder: impl AsRef<Path>, at: impl Into<Creation>) -> Result<Checkpoint> {
        let (folder, at) = (folder.as_ref(), at.into());
        verify_checkpoint(folder)?;
        SavedCheckpoint::open(folder)?.read(at)
    }

    /// The state of this name.
    ///
    /// # Errors
    /// If the checkpoint has none.
    pub fn state(&self, name: &str) -> Result<&State> {
        let message = || Error::io(format!("the checkpoint has no {name}"));
        self.states.get(name).ok_or_else(message)
    }
}

impl Frozen {
    /// Writes all files into a folder that nobody looks into yet.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let mut files = BTreeMap::new();
        for (name, tensors) in &self.tensors {
            let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
            let (header, mut parts) = file_parts(tensors, &texts)?;
            parts.insert(0, &header);
            files.insert(file_of(name), manifest::write_new(folder, &file_of(name), &parts)?);
        }
        seal(folder, (self.step, self.metric), (&self.state, files))
    }
}

/// Writes the last two files of a checkpoint beside those that are there: with them it is complete.
pub(super) fn seal(
    folder: &Path,
    (step, metric): (u64, Option<f64>),
    (state, mut files): (&Value, BTreeMap<String, Entry>),
) -> Result<()> {
    let text = format!("{state:#}\n");
    files.insert(STATE.to_owned(), manifest::write_new(folder, STATE, &[text.as_bytes()])?);
    manifest::write(folder, step, metric, &files)
}

/// A checkpoint in a folder whose tensors are read when they are asked for, whole or in parts.
#[derive(Debug)]
pub(crate) struct SavedCheckpoint {
    pub(crate) step: u64,
    pub(crate) rng: Option<RngState>,
    pub(crate) data: Option<LoaderState>,
    pub(crate) config: Value,
    metric: Option<f64>,
    /// The numbers of each state.
    states: BTreeMap<String, BTreeMap<String, f64>>,
    /// `model/` or a state's name, a slash and a name.
    pub(crate) tensors: RankFiles,
}

impl SavedCheckpoint {
    /// Opens the checkpoint in a folder. Its hashes are not checked.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub(crate) fn open(folder: &Path) -> Result<SavedCheckpoint> {
        let path = folder.join(STATE);
        let problem = |what: &str| Error::io(format!("{}: {what}", path.display()));
        let text = read_regular(&path)?;
        let state: Value =
            serde_json::from_slice(&text).map_err(|error| problem(&error.to_string()))?;
        let step = state["step"].as_u64().ok_or_else(|| problem("has no step"))?;
        let names = manifest::read(folder)?.files.into_keys().filter(|name| is_of_rank(name));
        let ranks: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
        let mut tensors = RankFiles::open(&ranks)?;
        if ranks.is_empty() {
            tensors.add_whole(&folder.join(file_of(MODEL)), format!("{MODEL}/"))?;
        }
        let mut states = BTreeMap::new();
        for (name, numbers) in state["states"].as_object().into_iter().flatten() {
            if !is_plain(name) {
                return Err(problem("names a state that is no plain name"));
            }
            let numbers = numbers.as_object().into_iter().flatten();
            let numbers = numbers
                .map(|(key, value)| Some((key.clone(), from_json(value)?)))
                .collect::<Option<BTreeMap<_, _>>>()
                .ok_or_else(|| problem("holds a number that is none"))?;
            if ranks.is_empty() {
                tensors.add_whole(&folder.join(file_of(name)), format!("{name}/"))?;
            }
            states.insert(name.clone(), numbers);
        }
        if let Some(numbers) = states.get_mut(OPTIMIZER) {
            numbers.append(&mut tensors.numbers);
        }
        let rng = state["rng"]["seed"].as_u64().zip(state["rng"]["offset"].as_u64());
        let data = state["data"].clone();
        Ok(SavedCheckpoint {
            step,
            rng: rng.map(|(seed, offset)| RngState { seed, offset }),
            data: serde_json::from_value(data).map_err(|error| problem(&error.to_string()))?,
            config: state["config"].clone(),
            metric: from_json(&state["metric"]),
            states,
            tensors,
        })
    }

    /// The optimizer's numbers.
    pub(crate) fn numbers(&self) -> Result<&BTreeMap<String, f64>> {
        let missing = || Error::io("the checkpoint has no optimizer");
        self.states.get(OPTIMIZER).ok_or_else(missing)
    }

    /// All of it.
    fn read(self, at: Creation) -> Result<Checkpoint> {
        let of = |prefix: String| {
            let names = self.tensors.names(&prefix).into_iter();
            let whole = |name| self.tensors.part(&format!("{prefix}{name}"), None, at.device);
            names.map(|name: String| Ok((name.clone(), whole(name)?))).collect::<Result<_>>()
        };
        let state = |(name, numbers): (&String, &BTreeMap<String, f64>)| {
            let tensors = of(format!("{name}/"))?;
            Ok((name.clone(), State { tensors, numbers: numbers.clone() }))
        };
        let states = self.states.iter().map(state).collect::<Result<_>>()?;
        let model = of(format!("{MODEL}/"))?;
        let SavedCheckpoint { step, rng, data, config, metric, .. } = self;
        Ok(Checkpoint { step, model, states, rng, data, config, metric })
    }
}

fn file_of(name: &str) -> String {
    format!("{name}.safetensors")
}

/// Whether a name can be part of a file's name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
