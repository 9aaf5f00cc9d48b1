//! Values of a GGUF file's metadata.
//!
//! A vocabulary is an array of some hundred thousand strings. It is looked at once, when the file is opened,
//! and stays where it is in the file; who asks for it goes over its bytes, so that metadata never takes more
//! memory than the file is large.

use std::sync::Arc;

use super::cursor::Cursor;
use crate::files::Mapped;

/// One value of the metadata.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are the format's types")]
pub enum GgufValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(GgufArray),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// The type of a value, which is also that of each element of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are the format's types")]
pub enum GgufType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl GgufType {
    /// All types by their number in files.
    const ALL: [GgufType; 13] = [
        GgufType::U8,
        GgufType::I8,
        GgufType::U16,
        GgufType::I16,
        GgufType::U32,
        GgufType::I32,
        GgufType::F32,
        GgufType::Bool,
        GgufType::String,
        GgufType::Array,
        GgufType::U64,
        GgufType::I64,
        GgufType::F64,
    ];

    pub(super) fn from_number(number: u32) -> Result<GgufType, String> {
        let known = usize::try_from(number).ok().and_then(|number| GgufType::ALL.get(number));
        known.copied().ok_or_else(|| format!("is of type number {number}, which there is not"))
    }

    /// The bytes of a value; none where that differs from value to value.
    pub(super) fn bytes(self) -> Option<usize> {
        match self {
            GgufType::U8 | GgufType::I8 | GgufType::Bool => Some(1),
            GgufType::U16 | GgufType::I16 => Some(2),
            GgufType::U32 | GgufType::I32 | GgufType::F32 => Some(4),
            GgufType::U64 | GgufType::I64 | GgufType::F64 => Some(8),
            GgufType::String | GgufType::Array => None,
        }
    }
}

impl GgufValue {
    /// The string that it is.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            GgufValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The bool that it is.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            GgufValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer that it is, of any width.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            GgufValue::U8(value) => Some(value.into()),
            GgufValue::I8(value) => Some(value.into()),
            GgufValue::U16(value) => Some(value.into()),
            GgufValue::I16(value) => Some(value.into()),
            GgufValue::U32(value) => Some(value.into()),
            GgufValue::I32(value) => Some(value.into()),
            GgufValue::I64(value) => Some(value),
            GgufValue::U64(value) => i64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The integer that it is, of any width, where it is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            GgufValue::U64(value) => Some(value),
            _ => self.as_i64().and_then(|value| u64::try_from(value).ok()),
        }
    }

    /// The number that it is, float or integer.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            GgufValue::F32(value) => Some(value.into()),
            GgufValue::F64(value) => Some(value),
            GgufValue::U64(value) => Some(value as f64),
            _ => self.as_i64().map(|value| value as f64),
        }
    }

    /// The array that it is.
    pub fn as_array(&self) -> Option<&GgufArray> {
        match self {
            GgufValue::Array(array) => Some(array),
            _ => None,
        }
    }
}

/// An array of the metadata, which stays in the file.
///
/// # Examples
/// ```no_run
/// use genesis::io::GgufFile;
///
/// let file = GgufFile::open("model.gguf")?;
/// let tokens = file.metadata().get("tokenizer.ggml.tokens").and_then(|value| value.as_array());
/// let longest = tokens.and_then(|tokens| tokens.strings()?.max_by_key(|token| token.len()));
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Clone)]
pub struct GgufArray {
    pub(super) file: Arc<Mapped>,
    pub(super) ty: GgufType,
    pub(super) len: usize,
    /// Where its elements begin and end in the file, which was checked.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl GgufArray {
    /// The type of its elements.
    pub fn ty(&self) -> GgufType {
        self.ty
    }

    /// The number of its elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn cursor(&self) -> Cursor<'_> {
        Cursor::new(&self.file[..self.end], self.start)
    }

    /// Its elements in order.
    pub fn values(&self) -> impl Iterator<Item = GgufValue> {
        let (mut cursor, ty) = (self.cursor(), self.ty);
        // All of it was read when the file was opened.
        (0..self.len).map_while(move |_| cursor.scalar(ty).ok())
    }

    /// Its strings in order; none where it has something else.
    pub fn strings(&self) -> Option<impl Iterator<Item = &str>> {
        let mut cursor = self.cursor();
        let strings = (0..self.len).map_while(move |_| cursor.string().ok());
        (self.ty == GgufType::String).then_some(strings)
    }

    /// Its integers in order; none where it has something else.
    pub fn integers(&self) -> Option<impl Iterator<Item = i64>> {
        let is_other =
            matches!(self.ty, GgufType::F32 | GgufType::F64 | GgufType::String | GgufType::Bool);
        (!is_other).then(|| self.values().map_while(|value| value.as_i64()))
    }

    /// Its floats in order; none where it has something else.
    pub fn floats(&self) -> Option<impl Iterator<Item = f64>> {
        let is_float = matches!(self.ty, GgufType::F32 | GgufType::F64);
        is_float.then(|| self.values().map_while(|value| value.as_f64()))
    }
}

impl std::fmt::Debug for GgufArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{:?}; {}]", self.ty, self.len)
    }
}

impl Cursor<'_> {
    /// A value that is no array.
    pub(super) fn scalar(&mut self, ty: GgufType) -> Result<GgufValue, String> {
        Ok(match ty {
            GgufType::U8 => GgufValue::U8(u8::from_le_bytes(self.array()?)),
            GgufType::I8 => GgufValue::I8(i8::from_le_bytes(self.array()?)),
            GgufType::U16 => GgufValue::U16(u16::from_le_bytes(self.array()?)),
            GgufType::I16 => GgufValue::I16(i16::from_le_bytes(self.array()?)),
            GgufType::U32 => GgufValue::U32(self.u32()?),
            GgufType::I32 => GgufValue::I32(i32::from_le_bytes(self.array()?)),
            GgufType::F32 => GgufValue::F32(f32::from_le_bytes(self.array()?)),
            GgufType::U64 => GgufValue::U64(self.u64()?),
            GgufType::I64 => GgufValue::I64(i64::from_le_bytes(self.array()?)),
            GgufType::F64 => GgufValue::F64(f64::from_le_bytes(self.array()?)),
            GgufType::String => GgufValue::String(self.string()?.to_owned()),
            GgufType::Bool => match self.array()? {
                [byte @ 0..=1] => GgufValue::Bool(byte == 1),
                [byte] => return Err(format!("holds a bool that is {byte}, not 0 or 1")),
            },
            GgufType::Array => return Err("is an array of arrays, which is not read".to_owned()),
        })
    }
}
