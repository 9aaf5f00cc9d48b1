//! What is different between two checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use genesis_kernel::runtime::Device;
use serde::Serialize;
use serde_json::Value;

use super::checkpoint::{OPTIMIZER, SavedCheckpoint};
use super::number::to_json;
use super::rank_files::is_of_rank;
use super::safetensors::SafeTensorsFile;
use crate::error::{Error, Result};
use crate::files::read_regular_text;
use crate::tensor::{Tensor, TensorType};

/// One difference: a tensor or an entry of `state.json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// The file without its ending and the name in it, as in `model/fc.weight`.
    pub name: String,
    /// How they differ.
    pub how: String,
    /// The largest difference of two elements, where shapes and dtypes are equal.
    pub largest: Option<f64>,
}

/// Compares two checkpoints, or two safetensors files: every tensor bit for bit, every entry of the
/// state. Nothing is different where the list is empty.
///
/// # Errors
/// If one can't be read.
pub fn diff_checkpoints(a: impl AsRef<Path>, b: impl AsRef<Path>) -> Result<Vec<Difference>> {
    let (a, b) = (a.as_ref(), b.as_ref());
    if a.is_file() && b.is_file() {
        return diff_files("", a, b);
    }
    let mut found = Vec::new();
    let (in_a, in_b) = (tensor_files(a)?, tensor_files(b)?);
    if in_a.union(&in_b).any(|name| is_of_rank(name)) {
        return diff_wholes(a, b);
    }
    for name in in_a.union(&in_b) {
        let stem = name.trim_end_matches(".safetensors");
        let (a, b) = (a.join(name), b.join(name));
        match (a.exists(), b.exists()) {
            (true, true) => found.extend(diff_files(&format!("{stem}/"), &a, &b)?),
            (there, _) => found.push(only(stem.to_owned(), there)),
        }
    }
    found.extend(diff_states(read_state(a)?, read_state(b)?));
    Ok(found)
}

/// Compares checkpoints that ranks have written in parts, however these are cut: the whole of one tensor at a time.
fn diff_wholes(a: &Path, b: &Path) -> Result<Vec<Difference>> {
    let (in_a, in_b) = (SavedCheckpoint::open(a)?, SavedCheckpoint::open(b)?);
    let (names, others) = (in_a.tensors.names(""), in_b.tensors.names(""));
    let mut found = Vec::new();
    for name in names.union(&others) {
        if names.contains(name) != others.contains(name) {
            found.push(only(name.clone(), names.contains(name)));
            continue;
        }
        let types = (in_a.tensors.type_of(name)?, in_b.tensors.type_of(name)?);
        if types.0 == types.1 {
            let (x, y) = (in_a.tensors.whole(name)?, in_b.tensors.whole(name)?);
            found.extend(diff_values(name.clone(), &x, &y)?);
        } else {
            found.push(of_other_type(name.clone(), (&types.0, &types.1)));
        }
    }
    // Numbers of the optimizer are with its tensors, in the files of ranks.
    let state = |folder: &Path, saved: &SavedCheckpoint| -> Result<Value> {
        let mut state = read_state(folder)?;
        let numbers = saved.numbers()?.iter().map(|(name, &n)| (name.clone(), to_json(n)));
        state["states"][OPTIMIZER] = Value::Object(numbers.collect());
        Ok(state)
    };
    found.extend(diff_states(state(a, &in_a)?, state(b, &in_b)?));
    Ok(found)
}

fn only(name: String, in_first: bool) -> Difference {
    let how = format!("only in the {}", if in_first { "first" } else { "second" });
    Difference { name, how, largest: None }
}

fn of_other_type(name: String, (a, b): (&TensorType, &TensorType)) -> Difference {
    let how =
        format!("{} {:?} in the first, {} {:?} in the second", a.dtype, a.shape, b.dtype, b.shape);
    Difference { name, how, largest: None }
}

fn tensor_files(folder: &Path) -> Result<BTreeSet<String>> {
    let problem = |error| Error::io(format!("can't read {}: {error}", folder.display()));
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(problem)? {
        let name = entry.map_err(problem)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".safetensors") {
            names.insert(name);
        }
    }
    if names.is_empty() {
        return Err(Error::io(format!("{} is no checkpoint", folder.display())));
    }
    Ok(names)
}

fn diff_files(prefix: &str, a: &Path, b: &Path) -> Result<Vec<Difference>> {
    let (a, b) = (SafeTensorsFile::open(a)?, SafeTensorsFile::open(b)?);
    let types = |file: &SafeTensorsFile| {
        file.tensors().map(|(name, ty)| (name.to_owned(), ty.clone())).collect::<BTreeMap<_, _>>()
    };
    let (in_a, in_b) = (types(&a), types(&b));
    let names: BTreeSet<&String> = in_a.keys().chain(in_b.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let full = format!("{prefix}{name}");
        match (in_a.get(name), in_b.get(name)) {
            (Some(ty), Some(other)) if ty == other => {
                let (x, y) = (a.tensor(name, Device::Cpu)?, b.tensor(name, Device::Cpu)?);
                found.extend(diff_values(full, &x, &y)?);
            }
            (Some(ty), Some(other)) => found.push(of_other_type(full, (ty, other))),
            (there, _) => found.push(only(full, there.is_some())),
        }
    }
    Ok(found)
}

fn diff_values(name: String, a: &Tensor, b: &Tensor) -> Result<Option<Difference>> {
    let (bytes, size) = ((a.to_bytes()?, b.to_bytes()?), a.dtype().bytes());
    let elements = bytes.0.chunks_exact(size).zip(bytes.1.chunks_exact(size));
    let count = elements.filter(|(x, y)| x != y).count();
    if count == 0 {
        return Ok(None);
    }
    let (x, y) = (a.to_f64_vec()?, b.to_f64_vec()?);
    let distances = x.iter().zip(&y).map(|(x, y)| (x - y).abs());
    let largest = distances.fold(0.0, f64::max);
    let how = format!("{count} of {} elements differ, by up to {largest:.3e}", a.numel());
    Ok(Some(Difference { name, how, largest: Some(largest) }))
}

/// What a checkpoint holds besides tensors.
fn read_state(folder: &Path) -> Result<Value> {
    let path = folder.join("state.json");
    let problem = |error: String| Error::io(format!("{}: {error}", path.display()));
    let text = read_regular_text(&path)?;
    serde_json::from_str(&text).map_err(|error| problem(error.to_string()))
}

fn diff_states(a: Value, b: Value) -> Vec<Difference> {
    let flat = |value: Value| {
        let mut flat = BTreeMap::new();
        flatten("state", &value, &mut flat);
        flat
    };
    let (in_a, in_b) = (flat(a), flat(b));
    let names: BTreeSet<&String> = in_a.keys().chain(in_b.keys()).collect();
    let compare = |name: &String| match (in_a.get(name), in_b.get(name)) {
        (Some(x), Some(y)) if x == y => None,
        (Some(x), Some(y)) => {
            let how = format!("{x} in the first, {y} in the second");
            Some(Difference { name: name.clone(), how, largest: None })
        }
        (there, _) => Some(only(name.clone(), there.is_some())),
    };
    names.into_iter().filter_map(compare).collect()
}

/// The leaves of a value by their paths.
fn flatten(path: &str, value: &Value, flat: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| flatten(&format!("{path}.{key}"), value, flat));
        }
        leaf => {
            flat.insert(path.to_owned(), leaf.clone());
        }
    }
}
