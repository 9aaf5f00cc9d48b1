//! Checkpoints of models whose parameters lie in parts on several ranks.
//!
//! | file | what |
//! |---|---|
//! | `NUMBER-rank-R-of-N.safetensors` | the parameters, buffers and optimizer's state of a rank; which parts they are stands in the header |
//! | `manifest.json` | which files belong together; written last, by one rename |
//!
//! A save over an older one writes files of the next number, then the manifest, then removes the old files:
//! whatever moment a rank dies at, the folder has one whole checkpoint. A checkpoint is read by any number of
//! ranks: each puts the parts of a tensor together and takes its own, one tensor at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::group::ProcessGroup;
use super::parts::{elements, outermost, part_of, part_shape};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::io::{SafeTensorsFile, save_safetensors_with, write_file, write_one_by_one};
use crate::nn::{Cut, Module, Shard, handles};
use crate::optim::{Optimizer, State};
use crate::tensor::{Tensor, TensorType};
use genesis_kernel::runtime::Device;

const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "genesis-sharded-1";

/// Saves a module, and an optimizer if there is one, of which each rank has its part. All ranks of the group
/// call it, with a folder that all of them see.
///
/// # Errors
/// If a file can't be written; the checkpoint before it, if there is one, stays whole then.
pub fn save_sharded_checkpoint(
    folder: impl AsRef<Path>,
    module: &dyn Module,
    optimizer: Option<&dyn Optimizer>,
    group: &ProcessGroup,
) -> Result<()> {
    let folder = folder.as_ref();
    std::fs::create_dir_all(folder).map_err(|why| problem(folder, &why))?;
    let old = Manifest::read(folder).ok();
    let number = old.as_ref().map_or(0, |old| old.number + 1);
    let (tensors, header) = own(module, optimizer, group.rank() == 0)?;
    let name = file_name(number, group.rank(), group.size());
    save_safetensors_with(folder.join(name), &tensors, &header)?;
    // Nobody goes on before all files are there, and nobody reads before the manifest is.
    group.barrier()?;
    if group.rank() == 0 {
        let manifest = json!({"format": FORMAT, "number": number, "ranks": group.size()});
        write_file(&folder.join(MANIFEST), &[format!("{manifest:#}\n").as_bytes()])?;
        for file in old.iter().flat_map(|old| old.files(folder)) {
            // What is left takes room and is in no manifest.
            let _ = std::fs::remove_file(file);
        }
    }
    group.barrier()
}

/// Reads a checkpoint of any number of ranks into a module and an optimizer. All ranks call it; each reads
/// what it needs.
///
/// # Errors
/// If a file is missing or damaged, a tensor is missing or has another shape; what was read before stays.
pub fn load_sharded_checkpoint(
    folder: impl AsRef<Path>,
    module: &dyn Module,
    optimizer: Option<&mut dyn Optimizer>,
) -> Result<()> {
    let saved = Saved::open(folder.as_ref())?;
    let shards: BTreeMap<String, Option<Arc<Shard>>> = handles(module)
        .into_iter()
        .map(|(name, parameter)| (name, parameter.shard().cloned()))
        .collect();
    for (name, tensor) in module.state_dict() {
        let whole = saved.whole(&format!("model/{name}"))?;
        let shard = shards.get(&name).and_then(Option::as_deref);
        let part = part_of(&whole, shard)?;
        if part.shape() != tensor.shape() {
            let (saved, own) = (part.shape(), tensor.shape());
            return Err(saved_error(&name, &format!("is {saved:?} in it, {own:?} here")));
        }
        no_grad(|| {
            tensor.detach().copy_(&part.to_dtype(tensor.dtype())?.to_device(tensor.device())?)
        })?;
    }
    let Some(optimizer) = optimizer else { return Ok(()) };
    let mut state = State { numbers: saved.numbers.clone(), ..State::default() };
    for name in saved.names("optimizer/") {
        let whole = saved.whole(&format!("optimizer/{name}"))?;
        let owner = name.rsplit_once('/').map_or("", |(owner, _)| owner);
        let shard = shards.get(owner).and_then(Option::as_deref);
        // A number of a parameter is whole on each rank.
        let has_parts = shard.is_some_and(|shard| outermost(shard).whole == whole.shape());
        let part = part_of(&whole, shard.filter(|_| has_parts))?;
        let device = optimizer.parameters().first().map_or(Device::Cpu, Tensor::device);
        state.tensors.insert(name, part.to_device(device)?);
    }
    optimizer.load_state_dict(&state)
}

/// The whole parameters and buffers of a checkpoint, on the CPU: for export.
///
/// # Errors
/// If a file is missing or damaged.
pub fn consolidate_checkpoint(folder: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>> {
    let saved = Saved::open(folder.as_ref())?;
    let names = saved.names("model/");
    names
        .into_iter()
        .map(|name| Ok((name.clone(), saved.whole(&format!("model/{name}"))?)))
        .collect()
}

/// Writes the whole parameters and buffers of a checkpoint to a safetensors file, one tensor at a time: a model that no
/// machine's memory holds can be put together. Any process does it by itself, while none writes to the folder.
///
/// # Errors
/// If a file is missing or damaged, or the new one can't be written.
/// # Cost
/// Memory for the largest tensor, twice.
pub fn consolidate_checkpoint_to(folder: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<()> {
    let saved = Saved::open(folder.as_ref())?;
    let names = saved.names("model/");
    let types = names.into_iter().map(|name| {
        let ty = saved.type_of(&format!("model/{name}"))?;
        Ok((name, ty))
    });
    let types = types.collect::<Result<BTreeMap<String, TensorType>>>()?;
    write_one_by_one(file.as_ref(), &types, |name| saved.whole(&format!("model/{name}")))
}

type Texts = BTreeMap<String, String>;

/// What a rank saves: its parts, and on the first rank what is whole on all.
fn own(
    module: &dyn Module,
    optimizer: Option<&dyn Optimizer>,
    is_first: bool,
) -> Result<(BTreeMap<String, Tensor>, Texts)> {
    let shards: BTreeMap<String, Arc<Shard>> = handles(module)
        .into_iter()
        .filter_map(|(name, parameter)| Some((name, parameter.shard()?.clone())))
        .collect();
    let (mut tensors, mut parts) = (BTreeMap::new(), serde_json::Map::new());
    for (name, tensor) in module.state_dict() {
        let key = format!("model/{name}");
        if let Some(shard) = shards.get(&name) {
            parts.insert(key.clone(), to_json(shard));
        } else if !is_first {
            continue;
        }
        tensors.insert(key, tensor.detach());
    }
    let state = optimizer.map(|optimizer| optimizer.state_dict()).transpose()?.unwrap_or_default();
    for (name, tensor) in &state.tensors {
        let key = format!("optimizer/{name}");
        let owner = name.rsplit_once('/').map_or("", |(owner, _)| owner);
        let shape = |shard: &Shard| tensor.shape() == part_shape(shard).as_slice();
        if let Some(shard) = shards.get(owner).filter(|shard| shape(shard)) {
            parts.insert(key.clone(), to_json(shard));
        }
        tensors.insert(key, tensor.detach());
    }
    let numbers = json!(state.numbers).to_string();
    let texts = [("parts", Value::Object(parts).to_string()), ("numbers", numbers)];
    Ok((tensors, texts.map(|(name, text)| (name.to_owned(), text)).into()))
}

/// The whole tensor of all its parts: those of the inner cuts are joined first.
fn join(name: &str, mut parts: Vec<(Arc<Shard>, Tensor)>) -> Result<Tensor> {
    let mut wholes: Vec<(Arc<Shard>, Tensor)> = Vec::new();
    while let Some((first, _)) = parts.first().cloned() {
        let (kin, others): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(shard, _)| shard.outer == first.outer);
        parts = others;
        let whole = join_parts(name, &first, &kin)?;
        match &first.outer {
            None => return Ok(whole),
            Some(outer) => wholes.push((outer.clone(), whole)),
        }
    }
    match wholes.is_empty() {
        true => Err(saved_error(name, "is in no file")),
        false => join(name, wholes),
    }
}

/// The parts of one cut, of which several ranks may have the same.
fn join_parts(name: &str, like: &Shard, parts: &[(Arc<Shard>, Tensor)]) -> Result<Tensor> {
    let find = |index: usize| {
        let found = parts.iter().find(|(shard, _)| shard.index == index);
        let missing = || saved_error(name, &format!("lacks part {index} of {}", like.count));
        found.map(|(_, tensor)| tensor).ok_or_else(missing)
    };
    let all = (0..like.count).map(find).collect::<Result<Vec<_>>>()?;
    let axis = if let Cut::Axis(axis) = like.cut { axis as i64 } else { 0 };
    let joined = Tensor::cat(&all, axis)?;
    match like.cut {
        Cut::Axis(_) => Ok(joined),
        Cut::Flat => joined.narrow(0, 0, elements(&like.whole))?.reshape(&like.whole),
    }
}

/// The files of a checkpoint.
struct Saved {
    files: Vec<SafeTensorsFile>,
    /// Of each file: which parts its tensors are.
    parts: Vec<BTreeMap<String, Arc<Shard>>>,
    /// Of the optimizer, over all ranks.
    numbers: BTreeMap<String, f64>,
}

impl Saved {
    fn open(folder: &Path) -> Result<Saved> {
        let manifest = Manifest::read(folder)?;
        let (mut files, mut parts, mut numbers) = (Vec::new(), Vec::new(), BTreeMap::new());
        for path in manifest.files(folder) {
            let file = SafeTensorsFile::open(&path)?;
            let damaged = || problem(&path, "has no list of parts: it is not of a checkpoint");
            let text = |name: &str| file.metadata().get(name).ok_or_else(damaged);
            let of: Value = serde_json::from_str(text("parts")?).map_err(|_| damaged())?;
            let of = of.as_object().ok_or_else(damaged)?;
            let of =
                of.iter().map(|(name, shard)| Some((name.clone(), Arc::new(from_json(shard)?))));
            parts.push(of.collect::<Option<_>>().ok_or_else(damaged)?);
            let own: BTreeMap<String, f64> =
                serde_json::from_str(text("numbers")?).map_err(|_| damaged())?;
            numbers.extend(own);
            files.push(file);
        }
        Ok(Saved { files, parts, numbers })
    }

    /// Names that begin with `prefix`, without it.
    fn names(&self, prefix: &str) -> Vec<String> {
        let all = self.files.iter().flat_map(SafeTensorsFile::tensors);
        let mut names: Vec<String> =
            all.filter_map(|(name, _)| name.strip_prefix(prefix)).map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The shape and dtype of a whole tensor.
    fn type_of(&self, name: &str) -> Result<TensorType> {
        for (file, parts) in self.files.iter().zip(&self.parts) {
            if let Some((_, ty)) = file.tensors().find(|(own, _)| *own == name) {
                let shard = parts.get(name);
                let shape = shard.map_or(&ty.shape, |shard| &outermost(shard).whole).clone();
                return Ok(TensorType { shape, dtype: ty.dtype });
            }
        }
        Err(saved_error(name, "is in no file"))
    }

    /// A whole tensor, on the CPU.
    fn whole(&self, name: &str) -> Result<Tensor> {
        let mut found = Vec::new();
        for (file, parts) in self.files.iter().zip(&self.parts) {
            if !file.tensors().any(|(own, _)| own == name) {
                continue;
            }
            let tensor = file.tensor(name, Device::Cpu)?;
            match parts.get(name) {
                Some(shard) => found.push((shard.clone(), tensor)),
                None => return Ok(tensor),
            }
        }
        join(name, found)
    }
}

/// Which files belong together.
struct Manifest {
    number: u64,
    ranks: usize,
}

impl Manifest {
    fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let bytes = crate::files::read_at_most(&path, 1 << 20)?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|why| problem(&path, &format!("is no JSON: {why}")))?;
        let number = |name: &str| value[name].as_u64();
        match (value["format"].as_str(), number("number"), number("ranks")) {
            (Some(FORMAT), Some(number), Some(ranks @ 1..=1_000_000)) => {
                Ok(Manifest { number, ranks: ranks as usize })
            }
            _ => Err(problem(&path, "is not of a checkpoint in parts")),
        }
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.ranks).map(|rank| folder.join(file_name(self.number, rank, self.ranks))).collect()
    }
}

fn file_name(number: u64, rank: usize, ranks: usize) -> String {
    format!("{number}-rank-{rank}-of-{ranks}.safetensors")
}

fn to_json(shard: &Shard) -> Value {
    let axis = if let Cut::Axis(axis) = shard.cut { json!(axis) } else { Value::Null };
    let outer = shard.outer.as_deref().map_or(Value::Null, to_json);
    json!({"whole": shard.whole, "axis": axis, "index": shard.index, "count": shard.count, "outer": outer})
}

fn from_json(value: &Value) -> Option<Shard> {
    let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
    let whole = value["whole"].as_array()?.iter().map(number).collect::<Option<Vec<_>>>()?;
    crate::shape::numel("checkpoint", &whole).ok()?;
    let cut = match &value["axis"] {
        Value::Null => Cut::Flat,
        axis => Cut::Axis(number(axis).filter(|&axis| axis < whole.len())?),
    };
    let outer = match &value["outer"] {
        Value::Null => None,
        outer => Some(Arc::new(from_json(outer)?)),
    };
    let (index, count) = (number(&value["index"])?, number(&value["count"])?);
    (index < count).then_some(Shard { whole, cut, index, count, outer })
}

fn problem(path: &Path, why: &(impl std::fmt::Display + ?Sized)) -> Error {
    Error::io(format!("{}: {why}", path.display()))
}

fn saved_error(name: &str, why: &str) -> Error {
    Error::op("load_sharded_checkpoint", format!("`{name}` {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(whole: &[usize], cut: Cut, index: usize, count: usize) -> Shard {
        Shard { whole: whole.to_vec(), cut, index, count, outer: None }
    }

    #[test]
    fn parts_of_parts_are_joined() -> Result<()> {
        let whole = Tensor::arange(0.0, 30.0, 1.0, Device::Cpu)?.reshape(&[6, 5])?;
        let mut parts = Vec::new();
        for row in 0..2 {
            let outer = Arc::new(shard(&[6, 5], Cut::Axis(0), row, 2));
            for index in 0..4 {
                let inner = shard(&[3, 5], Cut::Flat, index, 4);
                let inner = Arc::new(Shard { outer: Some(outer.clone()), ..inner });
                let part = part_of(&whole, Some(&inner))?;
                assert_eq!(part.shape(), part_shape(&inner));
                assert_eq!(from_json(&to_json(&inner)).as_ref(), Some(&*inner));
                parts.push((inner, part));
            }
        }
        parts.reverse();
        assert_eq!(join("w", parts.clone())?.to_vec::<f32>()?, whole.to_vec::<f32>()?);
        parts.retain(|(shard, _)| shard.index != 2);
        let error = join("w", parts).unwrap_err().to_string();
        assert!(error.contains("`w` lacks part 2 of 4"), "{error}");
        Ok(())
    }

    #[test]
    fn damaged_lists_are_refused() {
        for text in [
            "1",
            r#"{"whole": [2], "axis": 1, "index": 0, "count": 1, "outer": null}"#,
            r#"{"whole": [2], "axis": 0, "index": 1, "count": 1, "outer": null}"#,
            r#"{"whole": [9223372036854775807, 9], "axis": 0, "index": 0, "count": 1, "outer": null}"#,
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert!(from_json(&value).is_none(), "{text}");
        }
    }
}
