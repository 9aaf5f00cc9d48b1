//! GGUF files as they are written: version 3, little endian, tensors at multiples of 32.
//!
//! The header is put together first, since all that it says of tensors follows from their shapes; then values are asked
//! for one tensor at a time, so that a file takes the memory of its largest tensor.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::ty::GgmlType;
use crate::error::{Error, Result};
use crate::io::whole::{cannot_write, write_by};
use crate::shape;

/// Where tensors may start.
const ALIGNMENT: usize = 32;

/// A value of the metadata that is to be written.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the names are the format's types")]
pub enum GgufField {
    U32(u32),
    F32(f32),
    Bool(bool),
    String(String),
    I32s(Vec<i32>),
    Strings(Vec<String>),
}

impl From<u32> for GgufField {
    fn from(value: u32) -> GgufField {
        GgufField::U32(value)
    }
}

impl From<f32> for GgufField {
    fn from(value: f32) -> GgufField {
        GgufField::F32(value)
    }
}

impl From<bool> for GgufField {
    fn from(value: bool) -> GgufField {
        GgufField::Bool(value)
    }
}

impl From<&str> for GgufField {
    fn from(value: &str) -> GgufField {
        GgufField::String(value.to_owned())
    }
}

/// A tensor that is to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GgufEntry {
    /// Its name.
    pub name: String,
    /// Its extents, row-major.
    pub shape: Vec<usize>,
    /// How its elements are stored.
    pub ty: GgmlType,
}

/// Writes a GGUF file, whole or not at all. `values` is asked for the values of each entry in order.
///
/// # Errors
/// If a tensor is no whole blocks of its type, has other values than its shape says, or the file can't be written.
/// # Examples
/// ```
/// use genesis::io::{GgmlType, GgufEntry, GgufFile, write_gguf};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.gguf");
/// let fields = [("general.architecture".to_owned(), "llama".into())];
/// let entry = GgufEntry { name: "w".to_owned(), shape: vec![2], ty: GgmlType::F16 };
/// write_gguf(&path, &fields, &[entry], |_| Ok(vec![0.5, 1.0]))?;
/// assert_eq!(GgufFile::open(&path)?.dequantized("w")?, [0.5, 1.0]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn write_gguf(
    path: impl AsRef<Path>,
    fields: &[(String, GgufField)],
    entries: &[GgufEntry],
    mut values: impl FnMut(usize) -> Result<Vec<f32>>,
) -> Result<()> {
    let path = path.as_ref();
    let header = header(fields, entries)?;
    write_by(path, |file: &mut File| {
        let mut write = |bytes: &[u8]| {
            let padding = bytes.len().next_multiple_of(ALIGNMENT) - bytes.len();
            let written = file.write_all(bytes).and_then(|()| file.write_all(&[0; 32][..padding]));
            written.map_err(|error| cannot_write(path, error))
        };
        write(&header)?;
        for (index, entry) in entries.iter().enumerate() {
            let bytes = entry.ty.quantize(&values(index)?)?;
            if Some(bytes.len()) != size(entry) {
                let GgufEntry { name, shape, .. } = entry;
                return Err(Error::io(format!("{name}: has other values than {shape:?} holds")));
            }
            write(&bytes)?;
        }
        Ok(())
    })
}

/// The bytes of a tensor.
fn size(entry: &GgufEntry) -> Option<usize> {
    let is_whole = entry.shape.last().is_none_or(|n| n.is_multiple_of(entry.ty.block_size()));
    shape::count(&entry.shape).filter(|_| is_whole).and_then(|count| entry.ty.bytes(count))
}

/// All that stands before the first tensor.
fn header(fields: &[(String, GgufField)], entries: &[GgufEntry]) -> Result<Vec<u8>> {
    let mut header = b"GGUF".to_vec();
    header.extend(3u32.to_le_bytes());
    header.extend((entries.len() as u64).to_le_bytes());
    header.extend((fields.len() as u64).to_le_bytes());
    for (key, field) in fields {
        text(&mut header, key);
        value(&mut header, field);
    }
    let mut offset = 0usize;
    for entry in entries {
        let GgufEntry { name, shape, ty } = entry;
        let refuse = || Error::io(format!("{name}: {shape:?} can't be stored as {ty}"));
        let size = size(entry).ok_or_else(refuse)?;
        text(&mut header, name);
        header.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&extent| header.extend((extent as u64).to_le_bytes()));
        header.extend(ty.number().to_le_bytes());
        header.extend((offset as u64).to_le_bytes());
        let next = size.checked_next_multiple_of(ALIGNMENT).and_then(|n| offset.checked_add(n));
        offset = next.ok_or_else(refuse)?;
    }
    Ok(header)
}

fn text(header: &mut Vec<u8>, text: &str) {
    header.extend((text.len() as u64).to_le_bytes());
    header.extend(text.as_bytes());
}

/// The number of a type and a value of it.
fn value(header: &mut Vec<u8>, field: &GgufField) {
    let mut typed = |ty: u32, bytes: &[u8]| {
        header.extend(ty.to_le_bytes());
        header.extend(bytes);
    };
    match field {
        GgufField::U32(value) => typed(4, &value.to_le_bytes()),
        GgufField::F32(value) => typed(6, &value.to_le_bytes()),
        GgufField::Bool(value) => typed(7, &[u8::from(*value)]),
        GgufField::String(value) => {
            typed(8, &[]);
            text(header, value);
        }
        GgufField::I32s(values) => {
            typed(9, &5u32.to_le_bytes());
            header.extend((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| header.extend(value.to_le_bytes()));
        }
        GgufField::Strings(values) => {
            typed(9, &8u32.to_le_bytes());
            header.extend((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| text(header, value));
        }
    }
}
