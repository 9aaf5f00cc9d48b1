//! What a checkpoint holds, and its files.
//!
//! ```text
//! step-00000042/
//!   model.safetensors       parameters and buffers by name: any reader of the format reads them
//!   optimizer.safetensors   the tensors of a state, one file a state
//!   state.json              step, numbers of the states, random generator, place in the data, config
//!   manifest.json           every file with its size and BLAKE3 hash; written last
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::manifest::{self, verify_checkpoint};
use super::number::{from_json, to_json};
use super::safetensors::{Snapshot, load_safetensors, snapshot, to_file_bytes};
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
        let state = json!({
            "step": self.step,
            "metric": self.metric.map(to_json),
            "rng": self.rng.map(|rng| json!({ "seed": rng.seed, "offset": rng.offset })),
            "data": self.data,
            "states": states,
            "config": self.config,
        });
        Ok(Frozen { step: self.step, metric: self.metric, tensors, state })
    }

    /// Reads the checkpoint in a folder to a device, after its hashes were checked.
    ///
    /// # Errors
    /// If a file is missing or is not what was written, with its name.
    pub fn load(folder: impl AsRef<Path>, at: impl Into<Creation>) -> Result<Checkpoint> {
        let (folder, at) = (folder.as_ref(), at.into());
        verify_checkpoint(folder)?;
        let path = folder.join(STATE);
        let problem = |what: &str| Error::io(format!("{}: {what}", path.display()));
        let text = read_regular(&path)?;
        let state: Value =
            serde_json::from_slice(&text).map_err(|error| problem(&error.to_string()))?;
        let step = state["step"].as_u64().ok_or_else(|| problem("has no step"))?;
        let mut states = BTreeMap::new();
        for (name, numbers) in state["states"].as_object().into_iter().flatten() {
            if !is_plain(name) {
                return Err(problem("names a state that is no plain name"));
            }
            let numbers = numbers.as_object().into_iter().flatten();
            let numbers = numbers
                .map(|(key, value)| Some((key.clone(), from_json(value)?)))
                .collect::<Option<_>>()
                .ok_or_else(|| problem("holds a number that is none"))?;
            let tensors = load_safetensors(folder.join(file_of(name)), at)?;
            states.insert(name.clone(), State { tensors, numbers });
        }
        let rng = &state["rng"];
        let rng = rng["seed"].as_u64().zip(rng["offset"].as_u64());
        let data = state["data"].clone();
        Ok(Checkpoint {
            step,
            model: load_safetensors(folder.join(file_of(MODEL)), at)?,
            states,
            rng: rng.map(|(seed, offset)| RngState { seed, offset }),
            data: serde_json::from_value(data).map_err(|error| problem(&error.to_string()))?,
            config: state["config"].clone(),
            metric: from_json(&state["metric"]),
        })
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
            let bytes = to_file_bytes(tensors, &texts)?;
            files.insert(file_of(name), manifest::write_new(folder, &file_of(name), &bytes)?);
        }
        let state = format!("{:#}\n", self.state);
        files.insert(STATE.to_owned(), manifest::write_new(folder, STATE, state.as_bytes())?);
        manifest::write(folder, self.step, self.metric, &files)
    }
}

fn file_of(name: &str) -> String {
    format!("{name}.safetensors")
}

/// Whether a name can be part of a file's name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
