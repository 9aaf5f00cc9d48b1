//! IDX files, the format of the MNIST family, plain or gzipped.
//!
//! # Source
//! The format's description beside the original MNIST files: two zero bytes, a type, a rank, extents
//! and values, all big-endian.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::files::{ReadLimits, can_inflate, open_regular, read_bytes, shape_bytes};
use crate::tensor::Tensor;

/// Reads an IDX file to a tensor on the CPU; gzipped where its first bytes say so.
///
/// # Errors
/// If it can't be read or is no IDX file, with the reason; or, gzipped, it would take more memory than
/// [`ReadLimits::default`] allows.
pub fn read_idx(path: impl AsRef<Path>) -> Result<Tensor> {
    read_idx_with(path, &ReadLimits::default())
}

/// [`read_idx`] with other limits.
///
/// # Errors
/// As [`read_idx`].
pub fn read_idx_with(path: impl AsRef<Path>, limits: &ReadLimits) -> Result<Tensor> {
    let path = path.as_ref();
    let (shape, dtype, data) = read_idx_bytes(path, limits)?;
    Tensor::from_bytes(&data, &shape, (dtype, Device::Cpu)).map_err(|e| problem(path, e))
}

fn problem(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::io(format!("{}: {what}", path.display()))
}

/// The extents, dtype and little-endian elements of an IDX file.
pub(super) fn read_idx_bytes(
    path: &Path,
    limits: &ReadLimits,
) -> Result<(Vec<usize>, DType, Vec<u8>)> {
    let (file, len) = open_regular(path)?;
    let mut file = BufReader::new(file);
    let is_zipped = file.fill_buf().map_err(|error| problem(path, error))?.starts_with(GZIP);
    let parsed = if is_zipped {
        let holds = |size: u64| match can_inflate(len, size) {
            true => limits.check(size, len),
            false => Err(format!("its header says {size} bytes, {len} can't hold them")),
        };
        parse(&mut MultiGzDecoder::new(file), holds)
    } else {
        let holds = |size: u64| match size <= len {
            true => Ok(()),
            false => Err(format!("holds {len} bytes, its header says {size}")),
        };
        parse(&mut file, holds)
    };
    parsed.map_err(|what| problem(path, what))
}

const GZIP: &[u8] = &[0x1F, 0x8B];

/// Reads the header, asks whether the file can hold what it says, and only then reads the elements.
fn parse(
    reader: &mut impl Read,
    holds: impl Fn(u64) -> Result<(), String>,
) -> Result<(Vec<usize>, DType, Vec<u8>), String> {
    let damaged = |error: std::io::Error| format!("is damaged: {error}");
    let magic = read_bytes(reader, 4)?;
    let [0, 0, kind, rank] = *magic else { return Err("is not an IDX file".to_owned()) };
    let dtype = match kind {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0B => DType::I16,
        0x0C => DType::I32,
        0x0D => DType::F32,
        0x0E => DType::F64,
        other => return Err(format!("is an IDX file of elements of unknown type {other:#04x}")),
    };
    let header = read_bytes(reader, 4 * usize::from(rank))?;
    if header.len() < 4 * usize::from(rank) {
        return Err("ends inside its header".to_owned());
    }
    let extent = |c: &[u8]| u32::from_be_bytes([c[0], c[1], c[2], c[3]]) as usize;
    let shape: Vec<usize> = header.chunks_exact(4).map(extent).collect();
    let says = || format!("its header says {shape:?} of {dtype}");
    let size = shape_bytes(&shape, dtype).ok_or_else(says)?;
    holds(size)?;
    let mut data = read_bytes(reader, size as usize)?;
    let has_more = reader.read(&mut [0]).map_err(damaged)? > 0;
    if (data.len() as u64) < size || has_more {
        let held = if has_more { "more than".to_owned() } else { "only".to_owned() };
        return Err(format!("holds {held} {} bytes, {}", data.len(), says()));
    }
    data.chunks_exact_mut(dtype.bytes()).for_each(<[u8]>::reverse);
    Ok((shape, dtype, data))
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        let parse = |bytes: &[u8]| {
            let len = bytes.len() as u64;
            let holds = |n| if n <= len { Ok(()) } else { Err(format!("{n} of {len} bytes")) };
            super::parse(&mut &bytes[..], holds)
        };
        let is = |bytes: &[u8], what: &str| assert_eq!(parse(bytes).unwrap_err(), what);
        is(&[0, 0, 8], "is not an IDX file");
        is(&[0, 0, 7, 1, 0, 0, 0, 0], "is an IDX file of elements of unknown type 0x07");
        is(&[0, 0, 8, 2, 0, 0, 0, 1], "ends inside its header");
        is(&[0, 0, 8, 1, 0, 0, 0, 3, 1, 2], "holds only 2 bytes, its header says [3] of u8");
        is(&[0, 0, 8, 1, 0, 0, 0, 1, 1, 2], "holds more than 1 bytes, its header says [1] of u8");
        is(&[0, 0, 8, 1, 0, 0, 0, 99, 1, 2], "99 of 10 bytes");
        let huge = [[0, 0, 8, 4].as_slice(), &[255; 16]].concat();
        assert!(parse(&huge).unwrap_err().starts_with("its header says [4294967295, "));
    }

    #[test]
    fn a_small_file_cannot_ask_for_much_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb.gz");
        let mut encoder =
            flate2::write::GzEncoder::new(fs::File::create(&path).unwrap(), Default::default());
        encoder.write_all(&[0, 0, 8, 1, 0x40, 0, 0, 0]).unwrap();
        encoder.write_all(&[0; 1 << 16]).unwrap();
        encoder.finish().unwrap();
        let error = read_idx(&path).unwrap_err().to_string();
        assert!(error.contains("its header says 1073741824 bytes, "), "{error}");
        let limits = ReadLimits { max_alloc: 100, max_ratio: 1 };
        let mut encoder =
            flate2::write::GzEncoder::new(fs::File::create(&path).unwrap(), Default::default());
        encoder.write_all(&[0, 0, 8, 1, 0, 0, 0x10, 0]).unwrap();
        encoder.write_all(&[0; 0x1000]).unwrap();
        encoder.finish().unwrap();
        let error = read_idx_with(&path, &limits).unwrap_err().to_string();
        assert!(error.contains("would take 4096 bytes of memory"), "{error}");
        assert_eq!(read_idx(&path).unwrap().shape(), [4096]);
    }
}
