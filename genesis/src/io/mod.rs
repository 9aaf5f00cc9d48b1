//! Files: safetensors. A file appears whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use genesis_kernel::ir::DType;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

use crate::error::{Error, Result};
use crate::tensor::{Creation, Tensor};

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

/// Writes named tensors as a safetensors file, through a temporary file and a rename.
///
/// # Errors
/// If the file can't be written.
pub fn save_safetensors(path: impl AsRef<Path>, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    let path = path.as_ref();
    let problem = |error: &dyn std::fmt::Display| {
        Error::io(format!("can't write {}: {error}", path.display()))
    };
    let bytes: Result<Vec<(&String, &Tensor, Vec<u8>)>> =
        tensors.iter().map(|(name, tensor)| Ok((name, tensor, tensor.to_bytes()?))).collect();
    let bytes = bytes?;
    let views: Result<Vec<(&String, TensorView<'_>)>> = bytes
        .iter()
        .map(|(name, tensor, data)| {
            let view = TensorView::new(to_format(tensor.dtype()), tensor.shape().to_vec(), data);
            Ok((*name, view.map_err(|e| problem(&e))?))
        })
        .collect();
    let data = serialize(views?, None).map_err(|e| problem(&e))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| problem(&e))?;
    file.write_all(&data).map_err(|e| problem(&e))?;
    file.as_file().sync_all().map_err(|e| problem(&e))?;
    file.persist(path).map_err(|e| problem(&e))?;
    Ok(())
}

/// Reads all tensors of a safetensors file to a device.
///
/// # Errors
/// If the file can't be read or is not a safetensors file, or has a dtype that Genesis lacks.
pub fn load_safetensors(
    path: impl AsRef<Path>,
    at: impl Into<Creation>,
) -> Result<BTreeMap<String, Tensor>> {
    let (path, device) = (path.as_ref(), at.into().device);
    let data = fs::read(path)
        .map_err(|error| Error::io(format!("can't read {}: {error}", path.display())))?;
    let file = SafeTensors::deserialize(&data)
        .map_err(|error| Error::io(format!("{} is not safetensors: {error}", path.display())))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors() {
        let dtype = from_format(view.dtype()).ok_or_else(|| {
            Error::io(format!(
                "{}: {name} has dtype {:?}, which is not known",
                path.display(),
                view.dtype()
            ))
        })?;
        if dtype == DType::Bool && view.data().iter().any(|&byte| byte > 1) {
            return Err(Error::io(format!(
                "{}: {name} holds a bool that is not 0 or 1",
                path.display()
            )));
        }
        tensors.insert(name, Tensor::from_bytes(view.data(), view.shape(), (dtype, device))?);
    }
    Ok(tensors)
}
