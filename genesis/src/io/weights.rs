//! A model's weights, wherever they are: a safetensors file, shards with an index, or a GGUF file.
//!
//! Files are mapped, and one tensor at a time is made of them: threads copy its bytes, or the values of its
//! blocks, into the tensor's own memory, or into pinned memory that a GPU copies from while the next is read.
//! So a model takes its own size, once, and no copy of it in another dtype is ever whole.
//!
//! ```text
//! stored      asked for    on the way
//! bf16        bf16         bytes are copied
//! bf16        f32          CPU: converted as they are copied; GPU: copied, then converted there
//! Q4_K        bf16         4096 elements at a time become f32 in the cache, then bf16
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use genesis_kernel::ir::DType;
use half::{bf16, f16};
use rayon::prelude::*;

use super::gguf::{GgmlType, GgufFile};
use super::safetensors::SafeTensorsFile;
use super::sharded;
use crate::error::{Error, Result};
use crate::files::Mapped;
use crate::nn::{Given, LoadReport, Module, fill, saved};
use crate::tensor::{Creation, Tensor};

/// The weights of a model, by their published names.
///
/// # Examples
/// ```
/// use genesis::io::{Weights, save_safetensors};
/// use genesis::{DType, Device, Tensor};
///
/// let folder = tempfile::tempdir()?;
/// let w = Tensor::from_f64(&[0.5, 1.0], &[2], (DType::BF16, Device::Cpu))?;
/// save_safetensors(folder.path().join("model.safetensors"), &[("w".to_owned(), w)].into())?;
///
/// let weights = Weights::open(folder.path())?;
/// assert_eq!(weights.shape("w")?, [2]);
/// assert_eq!(weights.tensor("w", (DType::F32, Device::Cpu))?.to_vec::<f32>()?, [0.5, 1.0]);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    files: Files,
}

#[derive(Debug)]
enum Files {
    SafeTensors {
        files: Vec<SafeTensorsFile>,
        /// The file that holds each tensor.
        names: BTreeMap<String, usize>,
    },
    Gguf(Box<GgufFile>),
}

/// How a tensor is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// As elements of a dtype.
    Plain(DType),
    /// As a GGUF file has it.
    Ggml(GgmlType),
}

impl Stored {
    /// The dtype that holds its values without a loss, or f32 where it is quantized.
    pub fn dtype(self) -> DType {
        match self {
            Stored::Plain(dtype) => dtype,
            Stored::Ggml(ty) => plain(ty).unwrap_or(DType::F32),
        }
    }

    /// What decodes its bytes to f32; none for dtypes that are converted as tensors.
    fn decoder(self) -> Option<GgmlType> {
        match self {
            Stored::Plain(DType::F32) => Some(GgmlType::F32),
            Stored::Plain(DType::F16) => Some(GgmlType::F16),
            Stored::Plain(DType::BF16) => Some(GgmlType::BF16),
            Stored::Plain(_) => None,
            Stored::Ggml(ty) if ty.is_quantized() => Some(ty),
            Stored::Ggml(ty) => Stored::Plain(plain(ty)?).decoder(),
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stored::Plain(dtype) => dtype.fmt(f),
            Stored::Ggml(ty) => ty.fmt(f),
        }
    }
}

/// The dtype that a type without blocks is.
fn plain(ty: GgmlType) -> Option<DType> {
    match ty {
        GgmlType::F32 => Some(DType::F32),
        GgmlType::F16 => Some(DType::F16),
        GgmlType::BF16 => Some(DType::BF16),
        GgmlType::F64 => Some(DType::F64),
        GgmlType::I8 => Some(DType::I8),
        GgmlType::I16 => Some(DType::I16),
        GgmlType::I32 => Some(DType::I32),
        GgmlType::I64 => Some(DType::I64),
        _ => None,
    }
}

/// A tensor in its file.
struct Found<'w> {
    stored: Stored,
    shape: &'w [usize],
    bytes: &'w [u8],
}

impl Weights {
    /// Maps the files of a model and checks their headers.
    ///
    /// `path` is a safetensors or GGUF file, an index of shards, or a folder that holds `model.safetensors`,
    /// `model.safetensors.index.json`, or a single file of one of the formats.
    ///
    /// # Errors
    /// If there are no weights, a shard is missing or lacks a tensor, or a file is cut off or damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights> {
        let path = path.as_ref();
        let path = if path.is_dir() { in_folder(path)? } else { path.to_owned() };
        let files = if path.extension().is_some_and(|extension| extension == "json") {
            let (files, names) = sharded::open(&path)?;
            Files::SafeTensors { files, names }
        } else if Mapped::open(&path)?.starts_with(b"GGUF") {
            Files::Gguf(Box::new(whole(GgufFile::open(&path)?)?))
        } else {
            let file = SafeTensorsFile::open(&path)?;
            let names = file.tensors().map(|(name, _)| (name.to_owned(), 0)).collect();
            Files::SafeTensors { files: vec![file], names }
        };
        Ok(Weights { path, files })
    }

    /// The file that was opened: of shards, their index.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The GGUF file, where it is one, for its metadata.
    pub fn gguf(&self) -> Option<&GgufFile> {
        match &self.files {
            Files::Gguf(file) => Some(file),
            Files::SafeTensors { .. } => None,
        }
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> Vec<&str> {
        match &self.files {
            Files::Gguf(file) => file.tensors().keys().map(String::as_str).collect(),
            Files::SafeTensors { names, .. } => names.keys().map(String::as_str).collect(),
        }
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        match &self.files {
            Files::Gguf(file) => file.tensors().contains_key(name),
            Files::SafeTensors { names, .. } => names.contains_key(name),
        }
    }

    fn find(&self, name: &str) -> Result<Found<'_>> {
        match &self.files {
            Files::Gguf(file) => {
                let bytes = file.bytes(name)?;
                let tensor = &file.tensors()[name];
                Ok(Found { stored: Stored::Ggml(tensor.ty), shape: &tensor.shape, bytes })
            }
            Files::SafeTensors { files, names } => {
                let missing = || format!("{} has no tensor {name}", self.path.display());
                let &file = names.get(name).ok_or_else(|| Error::io(missing()))?;
                let (ty, bytes) = files[file].bytes(name)?;
                Ok(Found { stored: Stored::Plain(ty.dtype), shape: &ty.shape, bytes })
            }
        }
    }

    /// The extents of a tensor, the outermost first.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn shape(&self, name: &str) -> Result<&[usize]> {
        Ok(self.find(name)?.shape)
    }

    /// How a tensor is stored.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn stored(&self, name: &str) -> Result<Stored> {
        Ok(self.find(name)?.stored)
    }

    /// A tensor's bytes as they are in the file: elements, or blocks of a quantized one.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        Ok(self.find(name)?.bytes)
    }

    /// Reads a tensor to a device, as the dtype that is asked for. To a GPU the copy is queued on its current
    /// stream.
    ///
    /// # Numerics
    /// Blocks become f32 exactly as [`GgmlType::dequantize`] says; to bf16 and f16 that is rounded to the
    /// nearest, ties to even.
    /// # Errors
    /// If there is none of this name, or memory runs out.
    #[track_caller]
    pub fn tensor(&self, name: &str, at: impl Into<Creation>) -> Result<Tensor> {
        let (found, at) = (self.find(name)?, at.into());
        let own = found.stored.dtype();
        let is_plain = !matches!(found.stored, Stored::Ggml(ty) if ty.is_quantized());
        match found.stored.decoder() {
            // A GPU converts faster than the host, and bytes that are not converted may be fewer.
            Some(ty) if !(is_plain && (own == at.dtype || at.device.is_cuda())) => {
                found.decoded(ty, at)?.to_dtype(at.dtype)
            }
            _ => found.copied(own, at)?.to_dtype(at.dtype),
        }
    }

    /// Reads every tensor to a device. Floats and quantized blocks become the dtype that is asked for,
    /// integers and bools stay what they are.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn load_all(&self, at: impl Into<Creation>) -> Result<BTreeMap<String, Tensor>> {
        let at = at.into();
        let read = |name: &str| {
            let own = self.find(name)?.stored.dtype();
            let dtype = if own.is_float() { at.dtype } else { own };
            Ok((name.to_owned(), self.tensor(name, (dtype, at.device))?))
        };
        self.names().into_iter().map(read).collect()
    }

    /// Copies the weights into a module, one tensor at a time, in the dtypes and on the devices of its own.
    ///
    /// `rename` makes of a published name the module's, or none for what the module has no use for. Tied
    /// parameters need one of their names; where the weights have several, their bytes must be the same. Where
    /// not `strict`, names of one side alone are only reported.
    ///
    /// # Errors
    /// If something does not fit, with all that does not and names that are near; nothing is copied then. If
    /// two weights get one name, or memory runs out.
    pub fn load_into(
        &self,
        module: &dyn Module,
        rename: impl Fn(&str) -> Option<String>,
        strict: bool,
    ) -> Result<LoadReport> {
        let mut published = BTreeMap::new();
        for name in self.names() {
            let Some(own) = rename(name) else { continue };
            if let Some(other) = published.insert(own.clone(), name) {
                let path = self.path.display();
                return Err(Error::io(format!("{path}: {other} and {name} are both {own}")));
            }
        }
        let shape = |(own, name): (&'_ String, &&str)| Ok((own.clone(), self.shape(name)?));
        let shapes: BTreeMap<String, &[usize]> =
            published.iter().map(shape).collect::<Result<_>>()?;
        let is_equal = |a: &str, b: &str| {
            let (a, b) = (self.find(published[a]), self.find(published[b]));
            matches!((a, b), (Ok(a), Ok(b)) if a.stored == b.stored && a.bytes == b.bytes)
        };
        let shapes = shapes.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
        fill(&saved(module), &Given { shapes, is_equal: &is_equal }, strict, |name, own| {
            self.tensor(published[name], (own.dtype(), own.device()))
        })
    }
}

/// Bytes that one thread copies at a time, and elements that it decodes: a multiple of every block.
const COPIED: usize = 1 << 20;
const DECODED: usize = 4096;

impl Found<'_> {
    /// The elements as they are.
    #[track_caller]
    fn copied(&self, dtype: DType, at: Creation) -> Result<Tensor> {
        Tensor::filled(self.shape, (dtype, at.device), |out| {
            let parts = out.par_chunks_mut(COPIED).zip(self.bytes.par_chunks(COPIED));
            parts.for_each(|(out, bytes)| out.copy_from_slice(bytes));
            Ok(())
        })
    }

    /// The values as the float dtype that is asked for, or as f32 for any other.
    #[track_caller]
    fn decoded(&self, ty: GgmlType, at: Creation) -> Result<Tensor> {
        let dtype = match at.dtype {
            DType::BF16 | DType::F16 => at.dtype,
            _ => DType::F32,
        };
        let (size, step) = (dtype.bytes(), DECODED / ty.block_size() * ty.type_size());
        Tensor::filled(self.shape, (dtype, at.device), |out| {
            let parts = out.par_chunks_mut(DECODED * size).zip(self.bytes.par_chunks(step));
            parts.try_for_each(|(out, blocks)| {
                let mut values = [0.0; DECODED];
                let values = &mut values[..out.len() / size];
                ty.dequantize(blocks, values)?;
                encode(values, dtype, out);
                Ok(())
            })
        })
    }
}

/// Writes values as elements of a dtype: bf16, f16, or else f32.
fn encode(values: &[f32], dtype: DType, out: &mut [u8]) {
    fn each<const N: usize>(values: &[f32], out: &mut [u8], one: impl Fn(f32) -> [u8; N]) {
        values.iter().zip(out.as_chunks_mut().0).for_each(|(&value, out)| *out = one(value));
    }
    match dtype {
        DType::BF16 => each(values, out, |value| bf16::from_f32(value).to_le_bytes()),
        DType::F16 => each(values, out, |value| f16::from_f32(value).to_le_bytes()),
        _ => each(values, out, f32::to_le_bytes),
    }
}

/// A GGUF file that holds all weights of its model.
fn whole(file: GgufFile) -> Result<GgufFile> {
    let parts = file.metadata().get("split.count").and_then(|count| count.as_u64()).unwrap_or(1);
    if parts <= 1 {
        return Ok(file);
    }
    let path = file.path().display();
    let what = format!("{path} is one of {parts} parts, which are not read: merge them");
    Err(Error::io(what))
}

/// The file of a folder that its weights are opened by.
fn in_folder(folder: &Path) -> Result<PathBuf> {
    let known = [sharded::SINGLE, sharded::INDEX].map(|name| folder.join(name));
    if let Some(path) = known.into_iter().find(|path| path.is_file()) {
        return Ok(path);
    }
    let problem = |error| Error::io(format!("can't read {}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        if path.extension().is_some_and(|e| e == "safetensors" || e == "gguf") {
            found.push(path);
        }
    }
    found.sort();
    let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    match (names.as_slice(), folder.display()) {
        ([_], _) => Ok(found.swap_remove(0)),
        ([], folder) => Err(Error::io(format!(
            "{folder} has no weights: no {}, no {}, no .gguf file",
            sharded::SINGLE,
            sharded::INDEX
        ))),
        (names, folder) => {
            Err(Error::io(format!("{folder} has several weights, name one: {}", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::io::{save_safetensors, save_sharded};
    use crate::nn::{Linear, ModuleDict, Parameter};

    fn cpu(values: &[f64], shape: &[usize], dtype: DType) -> Tensor {
        Tensor::from_f64(values, shape, (dtype, Device::Cpu)).unwrap()
    }

    fn error<T: fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn dtypes_are_converted_on_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        // Beyond one part of a thread, so that parts meet where they should.
        let count = DECODED * 2 + 3;
        let values: Vec<f64> = (0..count).map(|i| i as f64 / 64.0).collect();
        let tensors = [
            ("f32".to_owned(), cpu(&values, &[count], DType::F32)),
            ("bf16".to_owned(), cpu(&values, &[count], DType::BF16)),
            ("i64".to_owned(), cpu(&[3.0, -1.0], &[2], DType::I64)),
        ];
        let tensors = BTreeMap::from(tensors);
        save_safetensors(&path, &tensors).unwrap();
        let weights = Weights::open(&path).unwrap();
        assert_eq!(weights.names(), ["bf16", "f32", "i64"]);
        for name in ["f32", "bf16"] {
            for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
                let found = weights.tensor(name, (dtype, Device::Cpu)).unwrap();
                let wanted = tensors[name].to_dtype(dtype).unwrap();
                assert_eq!(found.to_bytes().unwrap(), wanted.to_bytes().unwrap(), "{name} {dtype}");
            }
        }
        let all = weights.load_all((DType::F16, Device::Cpu)).unwrap();
        assert_eq!((all["f32"].dtype(), all["i64"].dtype()), (DType::F16, DType::I64));
        assert_eq!(all["i64"].to_f64_vec().unwrap(), [3.0, -1.0]);
        assert!(error(weights.tensor("y", Device::Cpu)).ends_with("x.safetensors has no tensor y"));
    }

    #[test]
    fn a_folder_says_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let lacks = error(Weights::open(folder.path()));
        assert!(lacks.ends_with(
            "no weights: no model.safetensors, no model.safetensors.index.json, no .gguf file"
        ));
        for name in ["a.safetensors", "b.gguf"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let several = error(Weights::open(folder.path()));
        assert!(several.ends_with("several weights, name one: a.safetensors, b.gguf"), "{several}");
    }

    #[test]
    fn a_module_is_filled_by_renamed_weights() {
        let folder = tempfile::tempdir().unwrap();
        let linear = Linear::new(2, 1, Device::Cpu).unwrap();
        let tensors = BTreeMap::from([
            ("model.w".to_owned(), cpu(&[3.0, 4.0], &[1, 2], DType::BF16)),
            ("model.b".to_owned(), cpu(&[5.0], &[1], DType::F32)),
            ("model.inv_freq".to_owned(), cpu(&[5.0], &[1], DType::F32)),
        ]);
        save_sharded(folder.path(), &tensors, 4).unwrap();
        let weights = Weights::open(folder.path()).unwrap();
        let rename = |name: &str| match name {
            "model.w" => Some("weight".to_owned()),
            "model.b" => Some("bias".to_owned()),
            _ => None,
        };
        assert!(weights.load_into(&linear, rename, true).unwrap().is_clean());
        assert_eq!(linear.weight.to_vec::<f32>().unwrap(), [3.0, 4.0]);
        let report =
            weights.load_into(&linear, |name| Some(name.replace("model.w", "weights")), true);
        let text = error(report);
        let near = "missing `weight` (there is `weights`)";
        assert!(text.contains(near), "{text}");
        let both = error(weights.load_into(&linear, |_| Some("weight".to_owned()), true));
        assert!(both.ends_with("model.b and model.inv_freq are both weight"), "{both}");
    }

    #[test]
    fn tied_parameters_need_one_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let shared = Parameter::new(cpu(&[0.0], &[1], DType::F32)).unwrap();
        let mut tied = ModuleDict::new();
        for name in ["a", "b"] {
            let mut linear = Linear::new(1, 1, Device::Cpu).unwrap();
            (linear.weight, linear.bias) = (shared.clone(), None);
            tied.insert(name, linear);
        }
        let (one, two) = (cpu(&[1.0], &[1], DType::F32), cpu(&[2.0], &[1], DType::F32));
        let load = |tensors: &[(&str, &Tensor)]| {
            let named = tensors.iter().map(|(name, x)| ((*name).to_owned(), (*x).clone()));
            save_safetensors(&path, &named.collect()).unwrap();
            Weights::open(&path).unwrap().load_into(&tied, |name| Some(name.to_owned()), true)
        };
        assert!(load(&[("b.weight", &two)]).unwrap().is_clean());
        assert_eq!(shared.to_vec::<f32>().unwrap(), [2.0]);
        assert!(load(&[("a.weight", &one), ("b.weight", &one)]).unwrap().is_clean());
        let text = error(load(&[("a.weight", &one), ("b.weight", &two)]));
        assert!(text.contains("`a.weight` and `b.weight` are one parameter"), "{text}");
        assert_eq!(shared.to_vec::<f32>().unwrap(), [1.0]);
    }
}
