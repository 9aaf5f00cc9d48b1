//! Tensors that lie in parts in the files of several ranks.
//!
//! ```text
//! rank-0-of-2.safetensors   model/fc.weight, optimizer/fc.weight/exp_avg, ..
//!   header "parts"          {"model/fc.weight": {"whole": [4, 6], "axis": 1, "index": 0, "count": 2, "outer": null}, ..}
//!   header "numbers"        {"fc.weight/step": 3, ..} of the optimizer
//! ```
//!
//! A tensor without an entry among the parts is whole. Parts need not be cut as those that are asked for: a reader copies
//! what it needs out of each file that has some of it ([`runs`](super::runs)). Files are mapped, so that only
//! that is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use serde_json::{Map, Value, json};

use super::number;
use super::runs::{copy_common, outermost, part_shape, runs, whole};
use super::safetensors::SafeTensorsFile;
use crate::error::{Error, Result};
use crate::nn::{Cut, Shard};
use crate::shape::product;
use crate::tensor::{Tensor, TensorType};

/// What names of parameters and buffers begin with.
pub(crate) const MODEL: &str = "model/";
/// What names of the optimizer's tensors begin with.
pub(crate) const OPTIMIZER: &str = "optimizer/";

/// The most parts of a tensor.
const MOST_PARTS: usize = 1_000_000;

/// A rank and the number of ranks.
pub(crate) type Place = (usize, usize);

/// The name of a rank's file.
pub(crate) fn file_of((rank, ranks): Place) -> String {
    format!("rank-{rank}-of-{ranks}.safetensors")
}

/// Whether a file of a checkpoint is a rank's.
pub(super) fn is_of_rank(name: &str) -> bool {
    name.starts_with("rank-") && name.ends_with(".safetensors")
}

/// What a rank writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankPart {
    /// By name, [`MODEL`] or [`OPTIMIZER`] in front.
    pub(crate) tensors: BTreeMap<String, Tensor>,
    /// Of those that are parts, of what.
    pub(crate) shards: BTreeMap<String, Arc<Shard>>,
    /// The optimizer's numbers.
    pub(crate) numbers: BTreeMap<String, f64>,
}

impl RankPart {
    /// The texts of the file's header.
    pub(crate) fn header(&self) -> BTreeMap<String, String> {
        let parts = self.shards.iter().map(|(name, shard)| (name.clone(), to_json(shard)));
        let numbers = self.numbers.iter().map(|(name, &n)| (name.clone(), number::to_json(n)));
        let texts = [("parts", parts.collect::<Map<_, _>>()), ("numbers", numbers.collect())];
        texts.map(|(name, map)| (name.to_owned(), Value::Object(map).to_string())).into()
    }
}

/// The tensors of the files of all ranks, read when they are asked for.
#[derive(Debug, Default)]
pub(crate) struct RankFiles {
    files: Vec<RankFile>,
    /// The optimizer's, of all ranks.
    pub(crate) numbers: BTreeMap<String, f64>,
}

/// A part in a file, and its bytes; without a shard it is whole.
type Saved<'f> = (Option<&'f Shard>, &'f [u8]);

#[derive(Debug)]
struct RankFile {
    path: PathBuf,
    file: SafeTensorsFile,
    /// What stands in front of the names in the file.
    prefix: String,
    parts: BTreeMap<String, Arc<Shard>>,
}

impl RankFile {
    /// A tensor's type and bytes, where the file has some of it.
    fn find(&self, name: &str) -> Option<(&TensorType, &[u8])> {
        self.file.find(name.strip_prefix(&self.prefix)?)
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.file.tensors().map(|(name, _)| format!("{}{name}", self.prefix))
    }
}

impl RankFiles {
    /// Opens the file of each rank.
    ///
    /// # Errors
    /// If one is missing or damaged.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<RankFiles> {
        let mut all = RankFiles::default();
        for path in paths {
            let file = SafeTensorsFile::open(path)?;
            let damaged = || problem(path, "has no list of parts: it is not of a checkpoint");
            let object = |name: &str| -> Result<Map<String, Value>> {
                let text = file.metadata().get(name).ok_or_else(damaged)?;
                serde_json::from_str(text).map_err(|_| damaged())
            };
            let mut parts = BTreeMap::new();
            for (name, shard) in object("parts")? {
                let shard = from_json(&shard).ok_or_else(damaged)?;
                let shape = file.find(&name).map(|(ty, _)| ty.shape.clone());
                if shape.is_some_and(|shape| shape != part_shape(&shard)) {
                    return Err(problem(
                        path,
                        &format!("has {name} of another shape than its part"),
                    ));
                }
                parts.insert(name, Arc::new(shard));
            }
            for (name, n) in object("numbers")? {
                all.numbers.insert(name, number::from_json(&n).ok_or_else(damaged)?);
            }
            all.files.push(RankFile { path: path.clone(), file, prefix: String::new(), parts });
        }
        Ok(all)
    }

    /// Adds a file of whole tensors, under names with something in front.
    ///
    /// # Errors
    /// If it is missing or damaged.
    pub(super) fn add_whole(&mut self, path: &Path, prefix: String) -> Result<()> {
        let (path, file) = (path.to_owned(), SafeTensorsFile::open(path)?);
        self.files.push(RankFile { path, file, prefix, parts: BTreeMap::new() });
        Ok(())
    }

    /// Names that begin with `prefix`, without it.
    pub(crate) fn names(&self, prefix: &str) -> BTreeSet<String> {
        let all = self.files.iter().flat_map(RankFile::names);
        all.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned)).collect()
    }

    /// The shape and dtype of a whole tensor.
    pub(crate) fn type_of(&self, name: &str) -> Result<TensorType> {
        let mut all = self.files.iter().filter_map(|file| Some((file, file.find(name)?)));
        let (file, (ty, _)) = all.next().ok_or_else(|| refuse(name, "is in no file"))?;
        let shard = file.parts.get(name);
        let shape = shard.map_or(&ty.shape, |shard| &outermost(shard).whole).clone();
        Ok(TensorType { shape, dtype: ty.dtype })
    }

    /// A whole tensor, on the CPU.
    pub(crate) fn whole(&self, name: &str) -> Result<Tensor> {
        self.part(name, None, Device::Cpu)
    }

    /// A part of a tensor, the padding of a flat one being zeros; all of it without a shard.
    ///
    /// # Errors
    /// If it is of a whole of another shape, or the files do not have all of it.
    pub(crate) fn part(&self, name: &str, shard: Option<&Shard>, to: Device) -> Result<Tensor> {
        let ty = self.type_of(name)?;
        let saved = self.saved(name, &ty)?;
        let shape = match shard {
            None => ty.shape.clone(),
            Some(shard) if outermost(shard).whole == ty.shape => part_shape(shard),
            Some(shard) => {
                let here = &outermost(shard).whole;
                return Err(refuse(name, &format!("is {:?} in it, {here:?} here", ty.shape)));
            }
        };
        let same = saved.iter().find(|(known, _)| *known == shard);
        if let Some((_, bytes)) = same {
            check(name, ty.dtype, bytes)?;
            return Tensor::from_bytes(bytes, &shape, (ty.dtype, to));
        }
        let elements = product(ty.shape.iter());
        let runs = |shard: Option<&Shard>| shard.map_or_else(|| whole(elements), runs);
        let (wanted, size) = (runs(shard), ty.dtype.bytes());
        let mut bytes = vec![0; product(shape.iter()) * size];
        let copy = |(from, source): Saved<'_>| {
            copy_common((&runs(from), source), (&wanted, &mut bytes), size)
        };
        let found: usize = saved.into_iter().map(copy).sum();
        let needed: usize = wanted.iter().map(ExactSizeIterator::len).sum();
        if needed != found {
            return Err(refuse(name, &format!("has {found} of {needed} elements in its files")));
        }
        check(name, ty.dtype, &bytes)?;
        Tensor::from_bytes(&bytes, &shape, (ty.dtype, to))
    }

    /// The parts of a tensor that there are, one that several ranks have once.
    fn saved(&self, name: &str, ty: &TensorType) -> Result<Vec<Saved<'_>>> {
        let mut parts: Vec<Saved<'_>> = Vec::new();
        for file in &self.files {
            let Some((own, bytes)) = file.find(name) else { continue };
            let shard = file.parts.get(name).map(|shard| &**shard);
            let shape = shard.map_or(&own.shape, |shard| &outermost(shard).whole);
            if own.dtype != ty.dtype || *shape != ty.shape {
                return Err(problem(&file.path, &format!("has {name} of another shape or dtype")));
            }
            if !parts.iter().all(|(known, _)| is_kin(*known, shard)) {
                return Err(problem(&file.path, &format!("has {name} cut as in no other file")));
            }
            if parts.iter().all(|(known, _)| *known != shard) {
                parts.push((shard, bytes));
            }
        }
        // Before lists are made of what a file claims of its whole.
        let elements = product(ty.shape.iter());
        let held: usize = parts.iter().map(|(_, bytes)| bytes.len() / ty.dtype.bytes()).sum();
        if held < elements {
            return Err(refuse(name, &format!("has {held} of {elements} elements in its files")));
        }
        Ok(parts)
    }
}

/// Refuses bools that are none.
fn check(name: &str, dtype: DType, bytes: &[u8]) -> Result<()> {
    match dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        true => Err(refuse(name, "holds a bool that is not 0 or 1")),
        false => Ok(()),
    }
}

/// Whether two parts are of the same cuts: they have no element in common then, or all.
fn is_kin(a: Option<&Shard>, b: Option<&Shard>) -> bool {
    let outer = |shard: &Shard| shard.outer.clone();
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            let is_same = (&a.whole, a.cut, a.count) == (&b.whole, b.cut, b.count);
            is_same && is_kin(outer(a).as_deref(), outer(b).as_deref())
        }
        _ => false,
    }
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
    let fits = outer.as_deref().is_none_or(|outer| part_shape(outer) == whole);
    let is_part = index < count && count <= MOST_PARTS && fits;
    is_part.then_some(Shard { whole, cut, index, count, outer })
}

fn problem(path: &Path, why: &str) -> Error {
    Error::io(format!("{}: {why}", path.display()))
}

fn refuse(name: &str, why: &str) -> Error {
    Error::io(format!("the checkpoint's `{name}` {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::save_safetensors_with;

    fn shard(whole: &[usize], cut: Cut, index: usize, count: usize) -> Shard {
        Shard { whole: whole.to_vec(), cut, index, count, outer: None }
    }

    #[test]
    fn parts_of_parts_are_joined() -> Result<()> {
        let (folder, values) = (tempfile::tempdir()?, (0..30).map(f64::from).collect::<Vec<_>>());
        let mut paths = Vec::new();
        for row in 0..2 {
            let outer = Arc::new(shard(&[6, 5], Cut::Axis(0), row, 2));
            for index in 0..4 {
                let inner =
                    Shard { outer: Some(outer.clone()), ..shard(&[3, 5], Cut::Flat, index, 4) };
                assert_eq!(from_json(&to_json(&inner)).as_ref(), Some(&inner));
                let own = runs(&inner).into_iter().flat_map(|run| values[run].to_vec());
                let mut own: Vec<f64> = own.collect();
                own.resize(4, 0.0);
                let part = Tensor::from_f64(&own, &[4], (DType::F32, Device::Cpu))?;
                let name = format!("{MODEL}w");
                let part = RankPart {
                    tensors: [(name.clone(), part)].into(),
                    shards: [(name, Arc::new(inner))].into(),
                    numbers: [("w/step".to_owned(), f64::INFINITY)].into(),
                };
                let path = folder.path().join(format!("{row}-{index}"));
                save_safetensors_with(&path, &part.tensors, &part.header())?;
                paths.push(path);
            }
        }
        paths.reverse();
        let files = RankFiles::open(&paths)?;
        assert_eq!(files.numbers["w/step"], f64::INFINITY);
        assert_eq!(files.whole("model/w")?.to_f64_vec()?, values);
        assert_eq!(files.whole("model/w")?.shape(), [6, 5]);
        let column =
            files.part("model/w", Some(&shard(&[6, 5], Cut::Axis(1), 2, 5)), Device::Cpu)?;
        assert_eq!(column.to_f64_vec()?, [2.0, 7.0, 12.0, 17.0, 22.0, 27.0]);
        let padded = files.part("model/w", Some(&shard(&[6, 5], Cut::Flat, 3, 4)), Device::Cpu)?;
        assert_eq!(padded.to_f64_vec()?, [24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 0.0, 0.0]);
        let other = shard(&[5, 6], Cut::Flat, 0, 2);
        let error = files.part("model/w", Some(&other), Device::Cpu).unwrap_err();
        assert!(error.to_string().contains("`model/w` is [6, 5] in it, [5, 6] here"), "{error}");
        paths.remove(3);
        let error = RankFiles::open(&paths)?.whole("model/w").unwrap_err().to_string();
        assert!(error.contains("`model/w` has 28 of 30 elements"), "{error}");
        Ok(())
    }

    #[test]
    fn damaged_lists_are_refused() {
        for text in [
            "1",
            r#"{"whole": [2], "axis": 1, "index": 0, "count": 1, "outer": null}"#,
            r#"{"whole": [2], "axis": 0, "index": 1, "count": 1, "outer": null}"#,
            r#"{"whole": [2], "axis": 0, "index": 0, "count": 1000001, "outer": null}"#,
            r#"{"whole": [9223372036854775807, 9], "axis": 0, "index": 0, "count": 1, "outer": null}"#,
            r#"{"whole": [2], "axis": null, "index": 0, "count": 1, "outer":
                {"whole": [6], "axis": 0, "index": 0, "count": 2, "outer": null}}"#,
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert!(from_json(&value).is_none(), "{text}");
        }
    }
}
