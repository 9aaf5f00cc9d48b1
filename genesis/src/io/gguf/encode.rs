//! Values as the bytes of a GGUF file's types.
//!
//! # Source
//! `quantize_row_q8_0_ref` of ggml's `ggml-quants.c`; the `gguf` package of Python gives the same bytes.

use half::{bf16, f16};

use super::ty::GgmlType;
use crate::error::{Error, Result};

/// Elements of a block of Q8_0.
const BLOCK: usize = 32;

impl GgmlType {
    /// The bytes of values of whole blocks, of F32, F16, BF16 and Q8_0.
    ///
    /// # Numerics
    /// F16 and BF16 are rounded to the nearest. A block of Q8_0 has the scale `max |x| / 127`, kept in f16; its elements are
    /// rounded to the nearest of what f32 makes of `x / scale`, halves away from 0.
    /// # Errors
    /// If the values are no whole blocks, or the type is another.
    /// # Examples
    /// ```
    /// use genesis::io::GgmlType;
    ///
    /// let values = [1.0; 32];
    /// let (bytes, mut back) = (GgmlType::Q8_0.quantize(&values)?, [0.0; 32]);
    /// assert_eq!(bytes.len(), 34);
    /// GgmlType::Q8_0.dequantize(&bytes, &mut back)?;
    /// assert!((back[0] - 1.0).abs() < 1e-3);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn quantize(self, values: &[f32]) -> Result<Vec<u8>> {
        let refuse = |what: String| Err(Error::op("quantize", what));
        if self.bytes(values.len()).is_none() {
            let (count, size) = (values.len(), self.block_size());
            return refuse(format!("{count} elements are no blocks of {size}, which {self} has"));
        }
        Ok(match self {
            GgmlType::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            GgmlType::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
            GgmlType::BF16 => {
                values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect()
            }
            GgmlType::Q8_0 => values.as_chunks::<BLOCK>().0.iter().flat_map(q8_0).collect(),
            other => return refuse(format!("{other} is not written; F32, F16, BF16, Q8_0 are")),
        })
    }
}

fn q8_0(values: &[f32; BLOCK]) -> [u8; 34] {
    let largest = values.iter().fold(0f32, |most, x| most.max(x.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let mut block = [0; 34];
    block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    for (byte, x) in block[2..].iter_mut().zip(values) {
        *byte = (x * inverse).round() as i8 as u8;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_within_half_a_step() {
        let values: Vec<f32> = (0..64).map(|i| ((i * 37) % 64) as f32 / 8.0 - 4.0).collect();
        for (ty, step) in
            [(GgmlType::F32, 0.0), (GgmlType::F16, 0.0), (GgmlType::Q8_0, 4.0 / 127.0)]
        {
            let bytes = ty.quantize(&values).unwrap();
            let mut back = vec![0.0; values.len()];
            ty.dequantize(&bytes, &mut back).unwrap();
            let off = values.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off <= 0.51 * step, "{ty}: {off}");
        }
        assert_eq!(GgmlType::Q8_0.quantize(&[0.0; 32]).unwrap(), [0; 34]);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let said =
            |ty: GgmlType, count: usize| ty.quantize(&vec![0.0; count]).unwrap_err().to_string();
        let why = "quantize: 31 elements are no blocks of 32, which Q8_0 has";
        assert_eq!(said(GgmlType::Q8_0, 31), why);
        let why = "quantize: Q4_K is not written; F32, F16, BF16, Q8_0 are";
        assert_eq!(said(GgmlType::Q4_K, 256), why);
    }
}
