//! The header of a GGUF file: counts, metadata, and where tensors are.
//!
//! ```text
//! "GGUF" | version u32 | tensors u64 | keys u64
//! key:    name | type u32 | value              string: length u64 | bytes
//! tensor: name | axes u32 | extents u64, the innermost first | type u32 | offset u64
//! zeros up to a multiple of general.alignment, 32 without it
//! data:   each tensor at its offset, which is a multiple of the alignment too
//! ```
//!
//! Every number of it is a claim. A count is compared with the bytes that are left before anything is made
//! room for, and an array is walked where it lies.
//!
//! # Source
//! The format's description in ggml's repository, `docs/gguf.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cursor::Cursor;
use super::tensor::GgufTensor;
use super::ty::GgmlType;
use super::value::{GgufArray, GgufType, GgufValue};
use crate::files::Mapped;
use crate::shape;

/// What the header says.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) metadata: BTreeMap<String, GgufValue>,
    pub(super) tensors: BTreeMap<String, GgufTensor>,
}

/// The most keys, and the most tensors, of a file: what they take beside it stays a few megabytes.
const MOST: usize = 1 << 16;

/// The most axes of a tensor.
const MOST_AXES: u32 = 4;

/// Reads and checks a header. Errors are words that follow the file's name.
pub(super) fn header(file: &Arc<Mapped>) -> Result<Header, String> {
    let mut cursor = Cursor::new(file, 0);
    let version = version(&mut cursor)?;
    // A tensor takes at least the length of its name, its axes, type and offset; a key at least its
    // length, type and one byte.
    let (tensors, keys) = (cursor.count(24)?, cursor.count(13)?);
    for (count, what) in [(tensors, "tensors"), (keys, "keys of metadata")] {
        if count > MOST {
            return Err(format!("has {count} {what}, the most is {MOST}"));
        }
    }
    let mut metadata = BTreeMap::new();
    for _ in 0..keys {
        let key = cursor.string()?.to_owned();
        let value = value(file, &mut cursor).map_err(|e| format!("{e} (key {key})"))?;
        if metadata.contains_key(&key) {
            return Err(format!("has key {key} twice"));
        }
        metadata.insert(key, value);
    }
    let mut found = Vec::new();
    for _ in 0..tensors {
        let name = cursor.string()?.to_owned();
        let info = info(&mut cursor).map_err(|e| format!("{e} (tensor {name})"))?;
        found.push((name, info));
    }
    let tensors = placed(found, alignment(&metadata)?, cursor.at, file.len())?;
    Ok(Header { version, metadata, tensors })
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32, String> {
    if cursor.array() != Ok(*b"GGUF") {
        return Err("is no GGUF file: it does not begin with GGUF".to_owned());
    }
    match cursor.u32()? {
        version @ 2..=3 => Ok(version),
        1 => Err("is a GGUF file of version 1, which is not read: convert it anew".to_owned()),
        swapped if (1..=3).contains(&swapped.swap_bytes()) => {
            Err("is a big-endian GGUF file, which is not read: convert it for little endian".into())
        }
        other => Err(format!("is a GGUF file of version {other}, versions 2 and 3 are read")),
    }
}

fn value(file: &Arc<Mapped>, cursor: &mut Cursor<'_>) -> Result<GgufValue, String> {
    let ty = GgufType::from_number(cursor.u32()?)?;
    if ty != GgufType::Array {
        return cursor.scalar(ty);
    }
    let ty = GgufType::from_number(cursor.u32()?)?;
    if ty == GgufType::Array {
        return Err("is an array of arrays, which is not read".to_owned());
    }
    // A string is at least its length.
    let len = cursor.count(ty.bytes().unwrap_or(8))?;
    let start = cursor.at;
    match ty.bytes() {
        None => (0..len).try_for_each(|_| cursor.string().map(drop))?,
        Some(_) if ty == GgufType::Bool => {
            (0..len).try_for_each(|_| cursor.scalar(ty).map(drop))?;
        }
        Some(bytes) => cursor.take(len * bytes).map(drop)?,
    }
    Ok(GgufValue::Array(GgufArray { file: file.clone(), ty, len, start, end: cursor.at }))
}

/// What is said of a tensor, before its place is known to be in the file.
struct Info {
    ty: GgmlType,
    shape: Vec<usize>,
    offset: u64,
    bytes: usize,
}

fn info(cursor: &mut Cursor<'_>) -> Result<Info, String> {
    let axes = cursor.u32()?;
    if axes > MOST_AXES {
        return Err(format!("has {axes} axes, the most is {MOST_AXES}"));
    }
    let mut shape = Vec::new();
    for _ in 0..axes {
        let extent = cursor.u64()?;
        let extent = usize::try_from(extent).map_err(|_| format!("has an extent of {extent}"))?;
        shape.push(extent);
    }
    let inner = shape.first().copied().unwrap_or(1);
    shape.reverse();
    let ty = GgmlType::from_number(cursor.u32()?)
        .map_err(|name| format!("is of type {name}, which is not read"))?;
    if !inner.is_multiple_of(ty.block_size()) {
        let size = ty.block_size();
        return Err(format!("has rows of {inner} elements, {ty} comes in blocks of {size}"));
    }
    let bytes = shape::count(&shape).and_then(|count| ty.bytes(count));
    let bytes = bytes.filter(|&bytes| bytes <= isize::MAX as usize);
    let too_large = || format!("has shape {shape:?}, larger than memory can be");
    let bytes = bytes.ok_or_else(too_large)?;
    Ok(Info { ty, shape, offset: cursor.u64()?, bytes })
}

fn alignment(metadata: &BTreeMap<String, GgufValue>) -> Result<u64, String> {
    let Some(value) = metadata.get("general.alignment") else { return Ok(32) };
    let known = value.as_u64().filter(|alignment| alignment.is_power_of_two());
    known.ok_or_else(|| format!("has general.alignment of {value:?}, not a power of two"))
}

/// Tensors at their places in a file of `len` bytes, whose header ends at `end`.
fn placed(
    found: Vec<(String, Info)>,
    alignment: u64,
    end: usize,
    len: usize,
) -> Result<BTreeMap<String, GgufTensor>, String> {
    let data = (end as u64).checked_next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for (name, Info { ty, shape, offset, bytes }) in found {
        if !offset.is_multiple_of(alignment) {
            return Err(format!("has tensor {name} at {offset}, no multiple of {alignment}"));
        }
        let start = data.and_then(|data| usize::try_from(data.checked_add(offset)?).ok());
        let range = start.and_then(|start| Some((start, start.checked_add(bytes)?)));
        let cut = || format!("is cut off: it has {len} bytes, tensor {name} ends behind them");
        let (start, end) = range.filter(|&(_, end)| end <= len || bytes == 0).ok_or_else(cut)?;
        // A tensor without elements may stand at the end of a file that is not padded.
        let (start, end) = if bytes == 0 { (0, 0) } else { (start, end) };
        if tensors.insert(name.clone(), GgufTensor { ty, shape, start, end }).is_some() {
            return Err(format!("has tensor {name} twice"));
        }
    }
    let mut ranges: Vec<_> = tensors.iter().filter(|(_, t)| t.start < t.end).collect();
    ranges.sort_by_key(|(_, tensor)| tensor.start);
    // Bytes that are several tensors would let a small file claim any amount of memory.
    match ranges.windows(2).find(|pair| pair[1].1.start < pair[0].1.end) {
        Some(pair) => Err(format!("has tensors {} and {} in the same bytes", pair[0].0, pair[1].0)),
        None => Ok(tensors),
    }
}
