//! NumPy's files: one array (.npy), or several by name in a zip archive (.npz).
//!
//! # Source
//! NumPy's `lib/format.py`: a magic number, a version, and a header that is a Python dictionary.
//! Pickled objects are never read.

use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::whole::write_file;
use super::zip;
use crate::error::{Error, Result};
use crate::files::{self, ReadLimits, open_regular, read_regular};
use crate::tensor::{Creation, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The most axes of an array that is read, as in NumPy 2.
const MOST_AXES: usize = 64;
/// The longest header that is read, as in files of version 1; NumPy itself stops at 10,000 bytes.
const MOST_HEADER: usize = 1 << 16;

/// Reads an array to a device.
///
/// # Errors
/// If it can't be read, is damaged, is not a regular file, or has a dtype that Genesis lacks.
pub fn load_npy(path: impl AsRef<Path>, at: impl Into<Creation>) -> Result<Tensor> {
    let path = path.as_ref();
    let (file, len) = open_regular(path)?;
    let tensor = decode(&mut BufReader::new(file), len)
        .map_err(|error| Error::io(format!("{}: {error}", path.display())))?;
    tensor.to_device(at.into().device)
}

/// Reads all arrays of an archive to a device.
///
/// # Errors
/// If it can't be read or is damaged, an array is not a plain one, or they would take more memory than
/// [`ReadLimits::default`] allows.
pub fn load_npz(
    path: impl AsRef<Path>,
    at: impl Into<Creation>,
) -> Result<BTreeMap<String, Tensor>> {
    load_npz_with(path, at, &ReadLimits::default())
}

/// [`load_npz`] with other limits.
///
/// # Errors
/// As [`load_npz`].
pub fn load_npz_with(
    path: impl AsRef<Path>,
    at: impl Into<Creation>,
    limits: &ReadLimits,
) -> Result<BTreeMap<String, Tensor>> {
    let (path, device) = (path.as_ref(), at.into().device);
    let problem = |what: String| Error::io(format!("{}: {what}", path.display()));
    let bytes = read_regular(path)?;
    let mut arrays = BTreeMap::new();
    for entry in zip::entries(&bytes, limits).map_err(problem)? {
        let problem = |what: String| problem(format!("{}: {what}", entry.name));
        let mut contents = entry.open(&bytes).map_err(problem)?;
        let tensor = decode(&mut contents, entry.size).map_err(|e| problem(e.to_string()))?;
        contents.finish().map_err(problem)?;
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_owned();
        arrays.insert(name, tensor.to_device(device)?);
    }
    Ok(arrays)
}

/// Writes a tensor as an array. bf16 and 8-bit floats are refused: NumPy has no such dtypes.
///
/// # Errors
/// If it can't be written.
pub fn save_npy(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    write_file(path.as_ref(), &[&encode(tensor)?])
}

/// Writes tensors as an archive, not compressed.
///
/// # Errors
/// As [`save_npy`].
pub fn save_npz(path: impl AsRef<Path>, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    let files = tensors.iter().map(|(name, tensor)| Ok((format!("{name}.npy"), encode(tensor)?)));
    let archive = zip::write(&files.collect::<Result<Vec<_>>>()?).ok_or_else(|| {
        Error::op("save_npz", "an archive is below 4 GiB; larger sets belong in safetensors")
    })?;
    write_file(path.as_ref(), &[&archive])
}

/// The dtypes that NumPy has, by the letters of their kind and their bytes.
fn letters(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "b1",
        DType::I8 => "i1",
        DType::I16 => "i2",
        DType::I32 => "i4",
        DType::I64 => "i8",
        DType::U8 => "u1",
        DType::U16 => "u2",
        DType::U32 => "u4",
        DType::U64 => "u8",
        DType::F16 => "f2",
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => return None,
    })
}

fn encode(tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let letters = letters(dtype)
        .ok_or_else(|| Error::op("save_npy", format!("NumPy has no {dtype}; convert it first")))?;
    let order = if dtype.bytes() == 1 { '|' } else { '<' };
    let shape: String = tensor.shape().iter().map(|extent| format!("{extent}, ")).collect();
    let mut header = format!(
        "{{'descr': '{order}{letters}', 'fortran_order': False, 'shape': ({}), }}",
        if tensor.rank() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") }
    );
    // Magic, version, length and header together are a multiple of 64 bytes.
    let rest = (MAGIC.len() + 2 + 2 + header.len() + 1).next_multiple_of(64);
    header.extend(std::iter::repeat_n(' ', rest - (MAGIC.len() + 2 + 2 + header.len() + 1)));
    header.push('\n');
    let len = u16::try_from(header.len()).map_err(|_| Error::op("save_npy", "too many axes"))?;
    let bytes = tensor.to_bytes()?;
    Ok([MAGIC, &[1, 0], &len.to_le_bytes(), header.as_bytes(), &bytes].concat())
}

/// The array in a file of `len` bytes, on the CPU. Nothing is allocated for data that the file lacks.
fn decode(reader: &mut impl Read, len: u64) -> Result<Tensor> {
    let Header { dtype, swapped, fortran, shape, bytes: header } = Header::read(reader)?;
    let size = files::shape_bytes(&shape, dtype);
    let held = len.saturating_sub(header);
    if size != Some(held) {
        let message = format!("holds {held} bytes, its header says {shape:?} of {dtype}");
        return Err(Error::io(message));
    }
    let mut data = files::read_bytes(reader, held as usize).map_err(Error::io)?;
    if data.len() as u64 != held {
        return Err(Error::io(format!("is damaged: ends after {} of {held} bytes", data.len())));
    }
    if swapped {
        data.chunks_exact_mut(dtype.bytes()).for_each(<[u8]>::reverse);
    }
    if dtype == DType::Bool {
        data.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    if !fortran {
        return Tensor::from_bytes(&data, &shape, (dtype, Device::Cpu));
    }
    let turned: Vec<usize> = shape.iter().rev().copied().collect();
    let axes: Vec<i64> = (0..shape.len() as i64).rev().collect();
    let tensor = Tensor::from_bytes(&data, &turned, (dtype, Device::Cpu))?;
    drop(data);
    tensor.permute(&axes)?.contiguous()
}

struct Header {
    dtype: DType,
    swapped: bool,
    fortran: bool,
    shape: Vec<usize>,
    /// All bytes before the data.
    bytes: u64,
}

impl Header {
    fn read(reader: &mut impl Read) -> Result<Header> {
        let mut next = |buffer: &mut [u8], cut: &str| {
            reader.read_exact(buffer).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => Error::io(cut),
                _ => Error::io(format!("is damaged: {error}")),
            })
        };
        let (not_npy, cut) = ("is not a .npy file", "is cut off inside its header");
        let (mut magic, mut version, mut len) = ([0; MAGIC.len()], [0; 2], [0; 4]);
        next(&mut magic, not_npy)?;
        if magic != MAGIC {
            return Err(Error::io(not_npy));
        }
        next(&mut version, cut)?;
        let digits = match version[0] {
            1 => 2,
            2 | 3 => 4,
            other => return Err(Error::io(format!("is a .npy file of unknown version {other}"))),
        };
        next(&mut len[..digits], cut)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > MOST_HEADER {
            return Err(Error::io(format!("has a header of {len} bytes, which is not read")));
        }
        let mut text = vec![0; len];
        next(&mut text, cut)?;
        let text =
            std::str::from_utf8(&text).map_err(|_| Error::io("has a header that is no text"))?;
        let shown = || text.trim().chars().take(200).collect::<String>();
        let mut header = Header::parse(text)
            .ok_or_else(|| Error::io(format!("has a header that is not read: {}", shown())))??;
        header.bytes = (MAGIC.len() + 2 + digits + len) as u64;
        Ok(header)
    }

    /// Nothing where it is not such a dictionary; an error where it is one that is refused.
    fn parse(text: &str) -> Option<Result<Header>> {
        let value = |key: &str| {
            let rest = text.split_once(&format!("'{key}':"))?.1.trim_start();
            Some(rest)
        };
        let descr = value("descr")?.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
        let Some((descr, _)) = descr else {
            return Some(Err(Error::io("holds records, which are not read")));
        };
        let fortran = match value("fortran_order")? {
            rest if rest.starts_with("True") => true,
            rest if rest.starts_with("False") => false,
            _ => return None,
        };
        let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
        let parts = shape.split(',').map(str::trim).filter(|part| !part.is_empty());
        let axes = parts.clone().count();
        if axes > MOST_AXES {
            return Some(Err(Error::io(format!("has {axes} axes, the most is {MOST_AXES}"))));
        }
        let shape = parts.map(|part| part.parse().ok()).collect::<Option<Vec<usize>>>()?;
        let (order, kind) = descr.split_at_checked(1)?;
        if kind.starts_with('O') {
            return Some(Err(Error::io("holds pickled objects, which are never read")));
        }
        let Some(dtype) = DType::ALL.into_iter().find(|&dtype| letters(dtype) == Some(kind)) else {
            return Some(Err(Error::io(format!("has dtype {descr}, which is not known"))));
        };
        Some(Ok(Header { dtype, swapped: order == ">", fortran, shape, bytes: 0 }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn decode(bytes: &[u8]) -> Result<Tensor> {
        super::decode(&mut &bytes[..], bytes.len() as u64)
    }

    #[test]
    fn arrays_survive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for shape in [&[][..], &[0], &[3], &[2, 3], &[1, 2, 0]] {
            let n = crate::shape::product(shape.iter());
            let values: Vec<f64> = (0..n).map(|i| i as f64).collect();
            for dtype in [DType::F16, DType::F64, DType::U8, DType::I64] {
                let x = Tensor::from_f64(&values, shape, (dtype, Device::Cpu)).unwrap();
                save_npy(&path, &x).unwrap();
                let y = load_npy(&path, Device::Cpu).unwrap();
                assert_eq!(
                    (y.tensor_type(), y.to_f64_vec().unwrap()),
                    (x.tensor_type(), values.clone())
                );
                assert_eq!(encode(&x).unwrap().len() % 64, (n * dtype.bytes()) % 64);
            }
        }
        let x = Tensor::zeros(&[1], (DType::BF16, Device::Cpu)).unwrap();
        assert_eq!(
            encode(&x).unwrap_err().to_string(),
            "save_npy: NumPy has no bf16; convert it first"
        );
    }

    #[test]
    fn orders_of_bytes_and_axes_are_read() {
        let file = |header: &str, data: &[u8]| {
            let len = (header.len() as u16).to_le_bytes();
            decode(&[MAGIC, &[1, 0], &len, header.as_bytes(), data].concat())
        };
        let x = file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 1), }", &[0, 1, 1, 0]);
        let x = x.unwrap();
        assert_eq!((x.shape(), x.to_vec::<i16>().unwrap()), (&[2, 1][..], vec![1, 256]));
        let refused = |header: &str, what: &str| {
            assert_eq!(file(header, &[0]).unwrap_err().to_string(), what);
        };
        refused(
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
            "holds pickled objects, which are never read",
        );
        refused(
            "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
            "has dtype <c8, which is not known",
        );
        refused(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (9, 9), }",
            "holds 1 bytes, its header says [9, 9] of f32",
        );
        refused("{}", "has a header that is not read: {}");
        assert_eq!(decode(b"x").unwrap_err().to_string(), "is not a .npy file");
        assert_eq!(
            decode(b"\x93NUMPY\x01").unwrap_err().to_string(),
            "is cut off inside its header"
        );
    }

    #[test]
    fn hostile_headers_cost_nothing() {
        let file = |version: u8, len: u32, header: &str| {
            let len = len.to_le_bytes();
            let digits = if version == 1 { 2 } else { 4 };
            decode(&[MAGIC, &[version, 0], &len[..digits], header.as_bytes()].concat())
        };
        let refused = |shape: &str, what: &str| {
            let header = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({shape}), }}");
            let error = file(1, header.len() as u32, &header).unwrap_err().to_string();
            assert_eq!(error, what);
        };
        refused(&"1,".repeat(20_000), "has 20000 axes, the most is 64");
        let huge = "holds 0 bytes, its header says [0, 4611686018427387904, 4] of f32";
        refused("0, 4611686018427387904, 4", huge);
        let long = file(2, u32::MAX, "").unwrap_err().to_string();
        assert_eq!(long, "has a header of 4294967295 bytes, which is not read");
    }

    #[test]
    fn archives_survive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");
        let one = |v| Tensor::full(&[2], v, Device::Cpu).unwrap();
        let tensors = BTreeMap::from([("a".to_owned(), one(1.0)), ("b/c".to_owned(), one(2.0))]);
        save_npz(&path, &tensors).unwrap();
        let back = load_npz(&path, Device::Cpu).unwrap();
        assert_eq!(back.keys().collect::<Vec<_>>(), ["a", "b/c"]);
        assert_eq!(back["b/c"].to_vec::<f32>().unwrap(), [2.0, 2.0]);
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(load_npz(&path, Device::Cpu).is_err(), "{len}");
        }
    }
}
