//! The types of tensors in GGUF files, and how many bytes their blocks take.
//!
//! A quantized row is cut into blocks of [`GgmlType::block_size`] elements, each with scales of its own. A
//! block does not cross the end of a row, so that the last axis is a multiple of its size:
//!
//! ```text
//! Q4_0, 32 elements in 18 bytes     d (f16) | 16 bytes: element j in the low, j + 16 in the high half
//! [2, 64]                           2 rows of 2 blocks: 72 bytes
//! ```

use super::{blocks, super_blocks};
use crate::error::{Error, Result};
use crate::ops::BlockType;

/// How the elements of a tensor in a GGUF file are stored.
///
/// # Source
/// `ggml.h`'s `ggml_type`, whose names and numbers these are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are the formats'")]
#[expect(non_camel_case_types, reason = "the names are the formats'")]
pub enum GgmlType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    BF16,
    MXFP4,
}

/// A type with its number in files, the elements of a block, and the bytes of one.
struct Row {
    ty: GgmlType,
    name: &'static str,
    number: u32,
    block_size: usize,
    type_size: usize,
}

const fn row(
    ty: GgmlType,
    name: &'static str,
    number: u32,
    block_size: usize,
    type_size: usize,
) -> Row {
    Row { ty, name, number, block_size, type_size }
}

/// Every type, in the order of the enum.
const ROWS: [Row; 21] = [
    row(GgmlType::F32, "F32", 0, 1, 4),
    row(GgmlType::F16, "F16", 1, 1, 2),
    row(GgmlType::Q4_0, "Q4_0", 2, 32, 18),
    row(GgmlType::Q4_1, "Q4_1", 3, 32, 20),
    row(GgmlType::Q5_0, "Q5_0", 6, 32, 22),
    row(GgmlType::Q5_1, "Q5_1", 7, 32, 24),
    row(GgmlType::Q8_0, "Q8_0", 8, 32, 34),
    row(GgmlType::Q2_K, "Q2_K", 10, 256, 84),
    row(GgmlType::Q3_K, "Q3_K", 11, 256, 110),
    row(GgmlType::Q4_K, "Q4_K", 12, 256, 144),
    row(GgmlType::Q5_K, "Q5_K", 13, 256, 176),
    row(GgmlType::Q6_K, "Q6_K", 14, 256, 210),
    row(GgmlType::IQ4_NL, "IQ4_NL", 20, 32, 18),
    row(GgmlType::IQ4_XS, "IQ4_XS", 23, 256, 136),
    row(GgmlType::I8, "I8", 24, 1, 1),
    row(GgmlType::I16, "I16", 25, 1, 2),
    row(GgmlType::I32, "I32", 26, 1, 4),
    row(GgmlType::I64, "I64", 27, 1, 8),
    row(GgmlType::F64, "F64", 28, 1, 8),
    row(GgmlType::BF16, "BF16", 30, 1, 2),
    row(GgmlType::MXFP4, "MXFP4", 39, 32, 17),
];

/// Types that are not read, so that an error has their names.
const OTHERS: [(u32, &str); 14] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
    (4, "Q4_2"),
    (5, "Q4_3"),
];

impl GgmlType {
    /// Every type that is read.
    pub fn all() -> impl Iterator<Item = GgmlType> {
        ROWS.iter().map(|row| row.ty)
    }

    /// The type of this number, or its name where it is not read.
    pub(super) fn from_number(number: u32) -> Result<GgmlType, String> {
        if let Some(row) = ROWS.iter().find(|row| row.number == number) {
            return Ok(row.ty);
        }
        let other = OTHERS.iter().find(|(other, _)| *other == number);
        Err(other.map_or_else(|| format!("number {number}"), |(_, name)| (*name).to_owned()))
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Its number in files.
    pub(super) fn number(self) -> u32 {
        self.row().number
    }

    /// Its name as llama.cpp writes it: `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements of a block; 1 of a type that is not quantized.
    pub fn block_size(self) -> usize {
        self.row().block_size
    }

    /// Bytes of a block.
    pub fn type_size(self) -> usize {
        self.row().type_size
    }

    /// What products take its blocks as; none for a type that they do not take.
    pub fn block_type(self) -> Option<BlockType> {
        match self {
            GgmlType::Q4_0 => Some(BlockType::Q4_0),
            GgmlType::Q4_1 => Some(BlockType::Q4_1),
            GgmlType::Q5_0 => Some(BlockType::Q5_0),
            GgmlType::Q5_1 => Some(BlockType::Q5_1),
            GgmlType::Q8_0 => Some(BlockType::Q8_0),
            GgmlType::Q4_K => Some(BlockType::Q4_K),
            GgmlType::Q5_K => Some(BlockType::Q5_K),
            GgmlType::Q6_K => Some(BlockType::Q6_K),
            _ => None,
        }
    }

    /// Whether its elements share scales.
    pub fn is_quantized(self) -> bool {
        self.block_size() > 1
    }

    /// The bytes of so many elements; none where they are no whole blocks, or memory can't be so large.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_size()) {
            return None;
        }
        (elements / self.block_size()).checked_mul(self.type_size())
    }

    /// Writes the values of whole blocks as f32.
    ///
    /// # Numerics
    /// The same operations in the same order as the `gguf` package of Python, so that bits are equal.
    /// Integers and f64 are rounded to the nearest f32.
    /// # Errors
    /// If `blocks` does not hold exactly `out`.
    /// # Examples
    /// ```
    /// use genesis::io::GgmlType;
    ///
    /// // A scale of 0.5, then 4 bits each of 32 elements, stored with 8 added.
    /// let block = [&half_of_one()[..], &[0x98; 16]].concat();
    /// let mut values = [0.0; 32];
    /// GgmlType::Q4_0.dequantize(&block, &mut values)?;
    /// assert_eq!((values[0], values[16]), (0.0, 0.5));
    ///
    /// fn half_of_one() -> [u8; 2] {
    ///     0x3800u16.to_le_bytes()
    /// }
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn dequantize(self, blocks: &[u8], out: &mut [f32]) -> Result<()> {
        if self.bytes(out.len()) != Some(blocks.len()) {
            let (name, bytes, count) = (self.name(), blocks.len(), out.len());
            let message = format!("{bytes} bytes of {name} are not {count} elements");
            return Err(Error::op("dequantize", message));
        }
        let decode = match self {
            GgmlType::F32 => blocks::f32s,
            GgmlType::F16 => blocks::f16s,
            GgmlType::BF16 => blocks::bf16s,
            GgmlType::F64 => blocks::f64s,
            GgmlType::I8 => blocks::i8s,
            GgmlType::I16 => blocks::i16s,
            GgmlType::I32 => blocks::i32s,
            GgmlType::I64 => blocks::i64s,
            GgmlType::Q4_0 => blocks::q4_0,
            GgmlType::Q4_1 => blocks::q4_1,
            GgmlType::Q5_0 => blocks::q5_0,
            GgmlType::Q5_1 => blocks::q5_1,
            GgmlType::Q8_0 => blocks::q8_0,
            GgmlType::IQ4_NL => blocks::iq4_nl,
            GgmlType::MXFP4 => blocks::mxfp4,
            GgmlType::Q2_K => super_blocks::q2_k,
            GgmlType::Q3_K => super_blocks::q3_k,
            GgmlType::Q4_K => super_blocks::q4_k,
            GgmlType::Q5_K => super_blocks::q5_k,
            GgmlType::Q6_K => super_blocks::q6_k,
            GgmlType::IQ4_XS => super_blocks::iq4_xs,
        };
        decode(blocks, out);
        Ok(())
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_enum() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(row.ty as usize, index);
            assert_eq!(GgmlType::from_number(row.number), Ok(row.ty));
            assert_eq!(format!("{:?}", row.ty), row.name);
        }
        assert_eq!(GgmlType::from_number(16), Err("IQ2_XXS".to_owned()));
        assert_eq!(GgmlType::from_number(77), Err("number 77".to_owned()));
    }

    #[test]
    fn blocks_are_whole() {
        assert_eq!(GgmlType::Q4_K.bytes(512), Some(288));
        assert_eq!(GgmlType::Q4_K.bytes(255), None);
        assert_eq!(GgmlType::F64.bytes(usize::MAX), None);
        assert!(GgmlType::Q4_0.dequantize(&[0; 18], &mut [0.0; 31]).is_err());
        assert!(GgmlType::Q4_0.dequantize(&[0; 17], &mut [0.0; 32]).is_err());
    }
}
