//! Weights in several safetensors files, with an index of which tensor is in which.
//!
//! ```text
//! model.safetensors.index.json      {"metadata": {"total_size": 12}, "weight_map": {
//!                                      "embed.weight": "model-00001-of-00002.safetensors",
//!                                      "norm.weight": "model-00002-of-00002.safetensors"}}
//! model-00001-of-00002.safetensors  embed.weight
//! model-00002-of-00002.safetensors  norm.weight
//! ```
//!
//! Who writes them goes from tensor to tensor, so that saving takes the largest tensor beside the model.
//!
//! # Source
//! The files that transformers' `save_pretrained` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::json;

use super::safetensors::{SafeTensorsFile, write_one_by_one};
use super::whole::{cannot_write, folder_of, write_file};
use crate::error::{Error, Result};
use crate::files::read_regular;
use crate::shape::product;
use crate::tensor::{Tensor, TensorType};

/// The weights of a model in one file.
pub(super) const SINGLE: &str = "model.safetensors";

/// What says which shard holds which tensor.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The part of an index that is read.
#[derive(serde::Deserialize)]
struct Index {
    weight_map: Pairs,
}

/// Names with files, in the order of the text: a map would hide names that are there twice.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Pairs;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of names and files")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// Where an index says that each tensor is.
fn weight_map(index: &Path) -> Result<BTreeMap<String, String>> {
    let problem = |what: String| Error::io(format!("{} {what}", index.display()));
    let Index { weight_map: Pairs(pairs) } = serde_json::from_slice(&read_regular(index)?)
        .map_err(|error| problem(format!("is no index of shards: {error}")))?;
    let mut map = BTreeMap::new();
    for (name, file) in pairs {
        // A shard lies beside its index, whoever wrote that.
        if Path::new(&file).file_name() != Some(file.as_ref()) {
            return Err(problem(format!("has {name} in {file:?}, which is no name of a file")));
        }
        if map.contains_key(&name) {
            return Err(problem(format!("has {name} twice")));
        }
        map.insert(name, file);
    }
    Ok(map)
}

/// The files that an index of a model's weights names.
///
/// # Errors
/// If the index can't be read, or names what is no file's name.
pub fn shard_names(index: impl AsRef<Path>) -> Result<Vec<String>> {
    let mut names: Vec<String> = weight_map(index.as_ref())?.into_values().collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The shards of an index, and which of them holds each tensor.
pub(super) fn open(index: &Path) -> Result<(Vec<SafeTensorsFile>, BTreeMap<String, usize>)> {
    let problem = |what: String| Error::io(format!("{}: {what}", index.display()));
    let map = weight_map(index)?;
    let mut shards: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut files, mut names) = (Vec::new(), BTreeMap::new());
    for (name, file) in &map {
        if !shards.contains_key(file.as_str()) {
            let path = folder_of(index).join(file);
            if !path.exists() {
                return Err(problem(format!("shard {file} is missing, which has {name}")));
            }
            shards.insert(file, files.len());
            files.push(SafeTensorsFile::open(path)?);
        }
        let at = shards[file.as_str()];
        if files[at].bytes(name).is_err() {
            return Err(problem(format!("shard {file} does not have {name}")));
        }
        names.insert(name.clone(), at);
    }
    // Tensors that only their shard knows of are loaded too, as transformers does.
    for (at, file) in files.iter().enumerate() {
        for (name, _) in file.tensors() {
            names.entry(name.to_owned()).or_insert(at);
        }
    }
    Ok((files, names))
}

/// Writes a model's weights to a folder: as `model.safetensors`, or as shards of at most `max_shard_bytes`
/// with their index. transformers loads both.
///
/// A tensor that is larger than a shard may be gets one of its own. Of tensors that are one, the first name is
/// saved. Shards that an earlier save left are removed.
///
/// # Errors
/// If the folder can't be written; what was there is whole or gone then.
///
/// # Examples
/// ```
/// use genesis::io::{Weights, save_sharded};
/// use genesis::{Device, Tensor};
///
/// let folder = tempfile::tempdir()?;
/// let (a, b) = (Tensor::ones(&[4], Device::Cpu)?, Tensor::zeros(&[2], Device::Cpu)?);
/// save_sharded(folder.path(), &[("a".to_owned(), a), ("b".to_owned(), b)].into(), 16)?;
/// assert!(folder.path().join("model-00002-of-00002.safetensors").exists());
/// assert_eq!(Weights::open(folder.path())?.names(), ["a", "b"]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn save_sharded(
    folder: impl AsRef<Path>,
    tensors: &BTreeMap<String, Tensor>,
    max_shard_bytes: u64,
) -> Result<()> {
    let mut types: BTreeMap<String, TensorType> = BTreeMap::new();
    for (name, tensor) in tensors {
        if types.keys().all(|first| !tensors[first].is_same(tensor)) {
            types.insert(name.clone(), tensor.tensor_type());
        }
    }
    save_sharded_by(folder.as_ref(), &types, max_shard_bytes, |name| Ok(tensors[name].clone()))
}

/// [`save_sharded`] of tensors that are asked for one at a time, so that one of them is in memory.
pub(crate) fn save_sharded_by(
    folder: &Path,
    types: &BTreeMap<String, TensorType>,
    max_shard_bytes: u64,
    mut tensor: impl FnMut(&str) -> Result<Tensor>,
) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, error))?;
    let shards = cut(types, max_shard_bytes);
    let name = |index: usize| match shards.len() {
        0 | 1 => SINGLE.to_owned(),
        count => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
    };
    // Without this transformers does not know whose layout the tensors have.
    let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let mut map = serde_json::Map::new();
    for (index, shard) in shards.iter().enumerate() {
        write_one_by_one(&folder.join(name(index)), shard.clone(), &texts, &mut tensor)?;
        map.extend(shard.iter().map(|(tensor, _)| ((*tensor).to_owned(), name(index).into())));
    }
    let total: u64 = types.values().map(bytes).sum();
    let mut written: Vec<String> = (0..shards.len()).map(name).collect();
    if shards.len() > 1 {
        map.sort_keys();
        let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
        write_file(&folder.join(INDEX), &[format!("{index:#}\n").as_bytes()])?;
        written.push(INDEX.to_owned());
    }
    remove_others(folder, &written)
}

fn bytes(ty: &TensorType) -> u64 {
    (product(ty.shape.iter()) * ty.dtype.bytes()) as u64
}

type Shard<'t> = Vec<(&'t str, &'t TensorType)>;

/// Tensors in the order of their names, cut where the next would make a shard too large.
fn cut(types: &BTreeMap<String, TensorType>, most: u64) -> Vec<Shard<'_>> {
    let (mut shards, mut used): (Vec<Shard<'_>>, _) = (vec![Vec::new()], 0);
    for (name, ty) in types {
        let is_full = used + bytes(ty) > most;
        match shards.last_mut() {
            Some(shard) if shard.is_empty() || !is_full => {
                used += bytes(ty);
                shard.push((name, ty));
            }
            _ => {
                used = bytes(ty);
                shards.push(vec![(name, ty)]);
            }
        }
    }
    shards
}

/// Removes weights of an earlier save that are not among those just written.
fn remove_others(folder: &Path, written: &[String]) -> Result<()> {
    let problem = |error| cannot_write(folder, error);
    let is_ours = |name: &str| name == SINGLE || name == INDEX || is_shard(name);
    for entry in fs::read_dir(folder).map_err(problem)? {
        let path: PathBuf = entry.map_err(problem)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_ours(&name) && !written.iter().any(|kept| *kept == name) {
            fs::remove_file(&path).map_err(|error| cannot_write(&path, error))?;
        }
    }
    Ok(())
}

/// Whether a name is `model-00001-of-00002.safetensors`.
fn is_shard(name: &str) -> bool {
    let numbers = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let pair = numbers.and_then(|numbers| numbers.split_once("-of-"));
    pair.is_some_and(|(index, count)| is_number(index) && is_number(count))
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::io::{Weights, save_safetensors};

    fn tensors(counts: &[(&str, usize)]) -> BTreeMap<String, Tensor> {
        let ones = |count| Tensor::ones(&[count], Device::Cpu).unwrap();
        counts.iter().map(|&(name, count)| (name.to_owned(), ones(count))).collect()
    }

    fn files(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// An index with this map beside one shard that holds `x`.
    fn refused(map: &str, what: &str) {
        let folder = tempfile::tempdir().unwrap();
        save_safetensors(folder.path().join("a.safetensors"), &tensors(&[("x", 1)])).unwrap();
        fs::write(folder.path().join(INDEX), map).unwrap();
        let error = Weights::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }

    #[test]
    fn shards_are_no_larger_than_asked_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = tensors(&[("a", 2), ("b", 2), ("c", 10), ("d", 1)]);
        all.insert("e".to_owned(), all["d"].clone());
        save_sharded(folder.path(), &all, 16).unwrap();
        let shard = |index| format!("model-0000{index}-of-00003.safetensors");
        assert_eq!(files(folder.path()), [shard(1), shard(2), shard(3), INDEX.to_owned()]);
        let names = shard_names(folder.path().join(INDEX)).unwrap();
        assert_eq!(names, [shard(1), shard(2), shard(3)]);
        let weights = Weights::open(folder.path()).unwrap();
        assert_eq!(weights.names(), ["a", "b", "c", "d"]);
        assert_eq!(weights.shape("c").unwrap(), [10]);
        save_sharded(folder.path(), &all, 1000).unwrap();
        assert_eq!(files(folder.path()), [SINGLE]);
        save_sharded(folder.path(), &BTreeMap::new(), 0).unwrap();
        assert_eq!(Weights::open(folder.path()).unwrap().names(), [""; 0]);
    }

    #[test]
    fn indices_that_do_not_fit_their_shards_are_refused() {
        refused(
            r#"{"weight_map":{"x":"b.safetensors"}}"#,
            "shard b.safetensors is missing, which has x",
        );
        refused(r#"{"weight_map":{"y":"a.safetensors"}}"#, "shard a.safetensors does not have y");
        refused(r#"{"weight_map":{"x":"../a.safetensors"}}"#, "which is no name of a file");
        refused(r#"{"weight_map":{"x":".."}}"#, "which is no name of a file");
        let twice = r#"{"weight_map":{"x":"a.safetensors","x":"a.safetensors"}}"#;
        refused(twice, "index.json has x twice");
        refused(r#"{"weight_map":[]}"#, "is no index of shards");
        refused("{}", "is no index of shards: missing field `weight_map`");
    }
}
