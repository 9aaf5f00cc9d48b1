//! IDX files, the format of the MNIST family, plain or gzipped.
//!
//! # Source
//! The format's description beside the original MNIST files: two zero bytes, a type, a rank, extents
//! and values, all big-endian.

use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Reads an IDX file to a tensor on the CPU; gzipped where its first bytes say so.
///
/// # Errors
/// If it can't be read or is no IDX file, with the reason.
pub fn read_idx(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let (shape, dtype, data) = read_idx_bytes(path)?;
    Tensor::from_bytes(&data, &shape, (dtype, Device::Cpu)).map_err(|e| problem(path, e))
}

fn problem(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::io(format!("{}: {what}", path.display()))
}

/// The extents, dtype and little-endian elements of an IDX file.
pub(super) fn read_idx_bytes(path: &Path) -> Result<(Vec<usize>, DType, Vec<u8>)> {
    let file = fs::read(path).map_err(|error| problem(path, error))?;
    let mut bytes = Vec::new();
    if file.starts_with(&[0x1F, 0x8B]) {
        let result = MultiGzDecoder::new(&file[..]).read_to_end(&mut bytes);
        result.map_err(|error| problem(path, format!("is a damaged gzip file: {error}")))?;
    } else {
        bytes = file;
    }
    parse(&bytes).map_err(|what| problem(path, what))
}

fn parse(bytes: &[u8]) -> Result<(Vec<usize>, DType, Vec<u8>), String> {
    let not_idx = || "is not an IDX file".to_owned();
    let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(not_idx)?;
    let [0, 0, kind, rank] = *magic else { return Err(not_idx()) };
    let dtype = match kind {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0B => DType::I16,
        0x0C => DType::I32,
        0x0D => DType::F32,
        0x0E => DType::F64,
        other => return Err(format!("is an IDX file of elements of unknown type {other:#04x}")),
    };
    let header = rest.split_at_checked(4 * usize::from(rank));
    let (header, data) = header.ok_or_else(|| "ends inside its header".to_owned())?;
    let extent = |c: &[u8]| u32::from_be_bytes([c[0], c[1], c[2], c[3]]) as usize;
    let shape: Vec<usize> = header.chunks_exact(4).map(extent).collect();
    let size = shape.iter().try_fold(dtype.bytes(), |n, &extent| n.checked_mul(extent));
    if size != Some(data.len()) {
        return Err(format!("holds {} bytes, its header says {shape:?} of {dtype}", data.len()));
    }
    let mut data = data.to_vec();
    data.chunks_exact_mut(dtype.bytes()).for_each(<[u8]>::reverse);
    Ok((shape, dtype, data))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn plain_and_gzipped_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = [0, 0, 0x0B, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x01, 0x02, 0xFF, 0xFE];
        let plain = folder.path().join("plain");
        fs::write(&plain, bytes).unwrap();
        let zipped = folder.path().join("zipped.gz");
        let mut encoder =
            flate2::write::GzEncoder::new(fs::File::create(&zipped).unwrap(), Default::default());
        encoder.write_all(&bytes).unwrap();
        encoder.finish().unwrap();
        for path in [plain, zipped] {
            let x = read_idx(path).unwrap();
            assert_eq!((x.shape(), x.to_vec::<i16>().unwrap()), (&[1, 2][..], vec![0x0102, -2]));
        }
    }

    #[test]
    fn damage_is_named() {
        let is = |bytes: &[u8], what: &str| assert_eq!(parse(bytes).unwrap_err(), what);
        is(&[0, 0, 8], "is not an IDX file");
        is(&[0, 0, 7, 1, 0, 0, 0, 0], "is an IDX file of elements of unknown type 0x07");
        is(&[0, 0, 8, 2, 0, 0, 0, 1], "ends inside its header");
        is(&[0, 0, 8, 1, 0, 0, 0, 3, 1, 2], "holds 2 bytes, its header says [3] of u8");
        let huge = [[0, 0, 8, 4].as_slice(), &[255; 16]].concat();
        assert!(parse(&huge).unwrap_err().starts_with("holds 0 bytes"));
    }
}
