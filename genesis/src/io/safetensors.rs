//! Safetensors: named tensors behind a JSON header, the format that everybody reads.
//!
//! A file is mapped, not read: opening it costs its header, and a tensor is copied when it is asked
//! for. What a header says is checked against the file before anything is allocated.
//!
//! # Source
//! The format's description of the `safetensors` crate, which parses the header.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use genesis_kernel::ir::DType;
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, Metadata, SafeTensors};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::json;

use super::whole::{cannot_write, write_by, write_file};
use crate::error::{Error, Result};
use crate::files::{Mapped, shape_bytes};
use crate::shape;
use crate::tensor::{Creation, Tensor, TensorType};

/// The most axes of a tensor that is read.
const MOST_AXES: usize = 16;

fn to_format(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

fn from_format(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&d| to_format(d) == dtype)
}

/// A tensor's bytes on the host, taken at one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    ty: TensorType,
    bytes: Vec<u8>,
}

/// Copies tensors to the host; waits for their devices.
pub(super) fn snapshot(tensors: &BTreeMap<String, Tensor>) -> Result<BTreeMap<String, Snapshot>> {
    let copy = |(name, tensor): (&String, &Tensor)| {
        Ok((name.clone(), Snapshot { ty: tensor.tensor_type(), bytes: tensor.to_bytes()? }))
    };
    tensors.iter().map(copy).collect()
}

/// What a file of these tensors consists of, one part after the other: the header, then the bytes of each tensor.
pub(super) fn file_parts<'t>(
    tensors: &'t BTreeMap<String, Snapshot>,
    texts: &BTreeMap<String, String>,
) -> Result<(Vec<u8>, Vec<&'t [u8]>)> {
    let types = tensors.iter().map(|(name, snapshot)| (name.as_str(), &snapshot.ty));
    let (header, order) = lay_out(types.collect(), texts)?;
    let bytes = order.into_iter().map(|(name, _)| tensors[name].bytes.as_slice());
    Ok((header, bytes.collect()))
}

/// Names and types, in the order of a file.
type Order<'t> = Vec<(&'t str, &'t TensorType)>;

/// The beginning of a file, and the order of what follows: wider dtypes first, so that each begins at a multiple of its
/// width, then as they come.
fn lay_out<'t>(
    mut tensors: Order<'t>,
    texts: &BTreeMap<String, String>,
) -> Result<(Vec<u8>, Order<'t>)> {
    tensors.sort_by_key(|(_, ty)| std::cmp::Reverse(ty.dtype.bytes()));
    let (mut entries, mut end) = (serde_json::Map::new(), 0);
    if !texts.is_empty() {
        entries.insert("__metadata__".to_owned(), json!(texts));
    }
    for (name, ty) in &tensors {
        let start = end;
        end += shape::numel("safetensors", &ty.shape)? * ty.dtype.bytes();
        let dtype = to_format(ty.dtype);
        let entry = json!({"dtype": dtype, "shape": ty.shape, "data_offsets": [start, end]});
        entries.insert((*name).to_owned(), entry);
    }
    let mut header = serde_json::Value::Object(entries).to_string().into_bytes();
    // Data begin at a multiple of 8, as the format wants.
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = (header.len() as u64).to_le_bytes();
    Ok(([&length, &header[..]].concat(), tensors))
}

/// Writes named tensors as a safetensors file, through a temporary file and a rename.
///
/// # Errors
/// If the file can't be written.
pub fn save_safetensors(path: impl AsRef<Path>, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    save_safetensors_with(path, tensors, &BTreeMap::new())
}

/// [`save_safetensors`] with named texts in the header.
///
/// # Errors
/// If the file can't be written.
pub fn save_safetensors_with(
    path: impl AsRef<Path>,
    tensors: &BTreeMap<String, Tensor>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let path = path.as_ref();
    let taken = snapshot(tensors)?;
    let (header, mut parts) = file_parts(&taken, metadata).map_err(|e| cannot_write(path, e))?;
    parts.insert(0, &header);
    write_file(path, &parts)
}

/// Writes a safetensors file of tensors that are asked for one at a time, so that one of them is in memory. They come in
/// the order of the file: wider dtypes first, then as they are listed.
pub(crate) fn write_one_by_one(
    path: &Path,
    types: Vec<(&str, &TensorType)>,
    texts: &BTreeMap<String, String>,
    mut tensor: impl FnMut(&str) -> Result<Tensor>,
) -> Result<()> {
    let (header, order) = lay_out(types, texts)?;
    write_by(path, |file| {
        let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(|e| cannot_write(path, e));
        write(&header)?;
        for (name, ty) in order {
            let tensor = tensor(name)?;
            if tensor.tensor_type() != *ty {
                return Err(cannot_write(path, format!("{name} is not what its type said")));
            }
            write(&tensor.to_bytes()?)?;
        }
        Ok(())
    })
}

/// Reads all tensors of a safetensors file to a device.
///
/// # Errors
/// If the file can't be read or is not a safetensors file, or has a dtype that Genesis lacks.
pub fn load_safetensors(
    path: impl AsRef<Path>,
    at: impl Into<Creation>,
) -> Result<BTreeMap<String, Tensor>> {
    let (file, at) = (SafeTensorsFile::open(path)?, at.into());
    let names: Vec<String> = file.tensors().map(|(name, _)| name.to_owned()).collect();
    names.into_iter().map(|name| Ok((name.clone(), file.tensor(&name, at)?))).collect()
}

/// A safetensors file whose tensors are read when asked for.
#[derive(Debug)]
pub struct SafeTensorsFile {
    path: PathBuf,
    bytes: Mapped,
    metadata: BTreeMap<String, String>,
    entries: BTreeMap<String, Entry>,
}

/// What the header says of a tensor.
#[derive(Debug)]
struct Entry {
    ty: TensorType,
    start: usize,
    end: usize,
}

impl SafeTensorsFile {
    /// Maps a file and checks its header.
    ///
    /// # Errors
    /// If it can't be read, is cut off or damaged, or has a dtype that Genesis lacks; with the cause.
    pub fn open(path: impl AsRef<Path>) -> Result<SafeTensorsFile> {
        let path = path.as_ref();
        let bytes = Mapped::open(path)?;
        let problem = |what: String| Error::io(format!("{} {what}", path.display()));
        let (header, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|e| problem(cause(&e)))?;
        check_names(&bytes[8..8 + header]).map_err(problem)?;
        let entries = entries_of(&metadata, 8 + header).map_err(problem)?;
        let texts = metadata.metadata().iter().flatten();
        let metadata = texts.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(SafeTensorsFile { path: path.to_owned(), bytes, metadata, entries })
    }

    /// The named texts of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Every tensor's name, shape and dtype.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorType)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.ty))
    }

    /// A tensor's type and its bytes as they are in the file.
    ///
    /// # Errors
    /// If there is none of this name, or it holds a bool that is neither 0 nor 1.
    pub fn bytes(&self, name: &str) -> Result<(&TensorType, &[u8])> {
        let path = self.path.display();
        let found = self.find(name);
        let (ty, bytes) = found.ok_or_else(|| Error::io(format!("{path} has no tensor {name}")))?;
        if ty.dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err(Error::io(format!("{path}: {name} holds a bool that is not 0 or 1")));
        }
        Ok((ty, bytes))
    }

    /// A tensor's type and its bytes as they are in the file, bools unchecked.
    pub(super) fn find(&self, name: &str) -> Option<(&TensorType, &[u8])> {
        let entry = self.entries.get(name)?;
        Some((&entry.ty, &self.bytes[entry.start..entry.end]))
    }

    /// Reads a tensor to a device, in its own dtype.
    ///
    /// # Errors
    /// If there is none of this name, or it holds a bool that is neither 0 nor 1.
    pub fn tensor(&self, name: &str, at: impl Into<Creation>) -> Result<Tensor> {
        let (ty, bytes) = self.bytes(name)?;
        Tensor::from_bytes(bytes, &ty.shape, (ty.dtype, at.into().device))
    }
}

/// What is wrong with a file, in words that follow its name.
fn cause(error: &SafeTensorError) -> String {
    match error {
        SafeTensorError::HeaderTooSmall => "is too short to be safetensors".to_owned(),
        SafeTensorError::HeaderTooLarge => {
            "is not safetensors: its header would be over 100 MB".to_owned()
        }
        SafeTensorError::InvalidHeaderLength => "is cut off inside its header".to_owned(),
        SafeTensorError::MetadataIncompleteBuffer => {
            "is cut off, or has bytes after its last tensor".to_owned()
        }
        SafeTensorError::InvalidOffset(name) => {
            format!("is damaged: {name} overlaps another tensor or leaves a gap")
        }
        SafeTensorError::TensorInvalidInfo => {
            "is damaged: a tensor's shape does not fit its bytes".to_owned()
        }
        error => format!("is not safetensors: {error}"),
    }
}

fn entries_of(metadata: &Metadata, data: usize) -> Result<BTreeMap<String, Entry>, String> {
    let mut entries = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let dtype = from_format(info.dtype)
            .ok_or_else(|| format!("has {name} of dtype {:?}, which is not known", info.dtype))?;
        if info.shape.len() > MOST_AXES {
            return Err(format!(
                "has {name} of {} axes, the most is {MOST_AXES}",
                info.shape.len()
            ));
        }
        if shape_bytes(&info.shape, dtype).is_none() {
            return Err(format!("has {name} of shape {:?}, larger than memory can be", info.shape));
        }
        let (start, end) = info.data_offsets;
        let ty = TensorType::new(&info.shape, dtype);
        entries.insert(name, Entry { ty, start: data + start, end: data + end });
    }
    Ok(entries)
}

/// Refuses a header that has a name twice, of which a parser silently takes one.
fn check_names(header: &[u8]) -> Result<(), String> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Option<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
            let mut seen = std::collections::BTreeSet::new();
            while let Some(name) = map.next_key::<String>()? {
                map.next_value::<serde::de::IgnoredAny>()?;
                if !seen.insert(name.clone()) {
                    return Ok(Some(name));
                }
            }
            Ok(None)
        }
    }
    match serde_json::Deserializer::from_slice(header).deserialize_map(Names) {
        Ok(None) => Ok(()),
        Ok(Some(name)) => Err(format!("is damaged: it names {name} twice")),
        Err(error) => Err(format!("is damaged: its header is no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use genesis_kernel::runtime::Device;

    use super::*;

    /// A file with this header and these data.
    fn open(header: &str, data: &[u8]) -> Result<SafeTensorsFile> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let len = (header.len() as u64).to_le_bytes();
        fs::write(&path, [&len, header.as_bytes(), data].concat()).unwrap();
        SafeTensorsFile::open(path)
    }

    fn refused(header: &str, data: &[u8], what: &str) {
        let error = open(header, data).unwrap_err().to_string();
        assert!(error.ends_with(what), "{error}");
    }

    #[test]
    fn half_floats_texts_and_empty_tensors_survive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let mut tensors = BTreeMap::new();
        for dtype in DType::ALL {
            let x = Tensor::from_f64(&[0.0, 1.0, 1.0], &[3], (dtype, Device::Cpu)).unwrap();
            tensors.insert(format!("{dtype}"), x);
        }
        tensors.insert("none".to_owned(), Tensor::zeros(&[2, 0], Device::Cpu).unwrap());
        let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        save_safetensors_with(&path, &tensors, &texts).unwrap();
        let file = SafeTensorsFile::open(&path).unwrap();
        assert_eq!(file.metadata(), &texts);
        let back = load_safetensors(&path, Device::Cpu).unwrap();
        assert_eq!(back.len(), tensors.len());
        for (name, tensor) in &tensors {
            assert_eq!(back[name].tensor_type(), tensor.tensor_type());
            assert_eq!(back[name].to_bytes().unwrap(), tensor.to_bytes().unwrap());
        }
        // A file that is mapped stays as it was when another takes its name.
        save_safetensors(&path, &BTreeMap::new()).unwrap();
        assert_eq!(
            file.tensor("f32", Device::Cpu).unwrap().to_vec::<f32>().unwrap(),
            [0.0, 1.0, 1.0]
        );
    }

    #[test]
    fn every_cut_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let x = Tensor::ones(&[3], Device::Cpu).unwrap();
        save_safetensors(&path, &BTreeMap::from([("x".to_owned(), x)])).unwrap();
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            let error = SafeTensorsFile::open(&path).unwrap_err().to_string();
            assert!(error.contains("cut off") || error.contains("too short"), "{len}: {error}");
        }
    }

    #[test]
    fn hostile_headers_are_refused() {
        let one = r#""x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
        open(&format!("{{{one}}}"), &[7]).unwrap();
        refused(&format!("{{{one},{one}}}"), &[7], "is damaged: it names x twice");
        refused(
            r#"{"x":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}"#,
            &[],
            "has x of shape [0, 9223372036854775808], larger than memory can be",
        );
        let axes = vec!["1"; 17].join(",");
        refused(
            &format!(r#"{{"x":{{"dtype":"U8","shape":[{axes}],"data_offsets":[0,1]}}}}"#),
            &[7],
            "has x of 17 axes, the most is 16",
        );
        refused(&format!("{{{one}}}"), &[7, 8], "is cut off, or has bytes after its last tensor");
        let file =
            open(r#"{"x":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}"#, &[2]).unwrap();
        assert!(file.tensor("x", Device::Cpu).is_err());
        assert!(file.tensor("y", Device::Cpu).is_err());
    }
}
