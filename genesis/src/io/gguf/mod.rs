//! GGUF: a model in one file, with its configuration, tokenizer and weights, quantized or not.
//!
//! A file is mapped, not read: opening it costs its header, arrays of the metadata stay where they are, and a
//! tensor's blocks are handed out as they lie or as f32. Extents come innermost first in the file, and row-major
//! here, so that shapes are those of PyTorch.
//!
//! # Source
//! The format's description in ggml's repository, `docs/gguf.md`.

mod blocks;
mod cursor;
mod encode;
mod parse;
mod super_blocks;
mod tensor;
mod ty;
mod value;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use tensor::GgufTensor;
pub use ty::GgmlType;
pub use value::{GgufArray, GgufType, GgufValue};
pub use write::{GgufEntry, GgufField, write_gguf};

use crate::error::{Error, Result};
use crate::files::Mapped;
use crate::tensor::host::reserved;

/// A GGUF file whose tensors are read when asked for.
///
/// # Examples
/// ```no_run
/// use genesis::io::GgufFile;
///
/// let file = GgufFile::open("SmolLM2-135M-Instruct-Q4_1.gguf")?;
/// assert_eq!(file.metadata()["general.architecture"].as_str(), Some("llama"));
/// let norm = file.dequantized("output_norm.weight")?;
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    bytes: Arc<Mapped>,
    version: u32,
    metadata: BTreeMap<String, GgufValue>,
    tensors: BTreeMap<String, GgufTensor>,
}

impl GgufFile {
    /// Maps a file and checks its header.
    ///
    /// # Errors
    /// If it can't be read, is no little-endian GGUF of version 2 or 3, is cut off or damaged, or has a tensor
    /// of a type that is not read; with the key or tensor that is wrong.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile> {
        let path = path.as_ref();
        let bytes = Arc::new(Mapped::open(path)?);
        let header = parse::header(&bytes)
            .map_err(|what| Error::io(format!("{} {what}", path.display())))?;
        let parse::Header { version, metadata, tensors } = header;
        Ok(GgufFile { path: path.to_owned(), bytes, version, metadata, tensors })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The named values ahead of the tensors.
    pub fn metadata(&self) -> &BTreeMap<String, GgufValue> {
        &self.metadata
    }

    /// Every tensor by its name.
    pub fn tensors(&self) -> &BTreeMap<String, GgufTensor> {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Result<&GgufTensor> {
        let missing = || Error::io(format!("{} has no tensor {name}", self.path.display()));
        self.tensors.get(name).ok_or_else(missing)
    }

    /// A tensor's blocks as they are in the file.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        let tensor = self.tensor(name)?;
        Ok(&self.bytes[tensor.start..tensor.end])
    }

    /// A tensor's values in row-major order.
    ///
    /// # Errors
    /// If there is none of this name, or memory runs out.
    pub fn dequantized(&self, name: &str) -> Result<Vec<f32>> {
        let (tensor, bytes) = (self.tensor(name)?, self.bytes(name)?);
        let problem = |what| Error::io(format!("{}: {name}: {what}", self.path.display()));
        let mut values = reserved(tensor.numel()).map_err(problem)?;
        values.resize(tensor.numel(), 0.0);
        tensor.ty.dequantize(bytes, &mut values)?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests;
