//! Values of types without blocks, and of blocks of 32 elements.
//!
//! A block holds one scale, some also the least value, and 4, 5 or 8 bits of each element:
//!
//! ```text
//! Q4_0    d (q - 8)     d | low: 0..16, high: 16..32
//! Q4_1    d q + m       d | m | the same
//! Q5_0    d (q - 16)    d | the fifth bits of all 32 | the same
//! Q8_0    d q           d | 32 signed bytes
//! IQ4_NL  d table[q]    as Q4_0, by a table of unequal steps
//! ```
//!
//! # Source
//! `ggml-common.h` and `ggml-quants.c`, and their restatement in the `gguf` package of Python.

use half::{bf16, f16};

/// Hands each block with its elements to `decode`.
#[inline(always)]
pub(super) fn each<const TYPE_SIZE: usize, const BLOCK_SIZE: usize>(
    blocks: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; TYPE_SIZE], &mut [f32; BLOCK_SIZE]),
) {
    let (blocks, elements) = (blocks.as_chunks::<TYPE_SIZE>().0, out.as_chunks_mut().0);
    blocks.iter().zip(elements).for_each(|(block, out)| decode(block, out));
}

/// The f16 at a byte of a block.
#[inline(always)]
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

pub(super) fn f32s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [f32::from_le_bytes(*block)]);
}

pub(super) fn f16s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [f16::from_le_bytes(*block).to_f32()]);
}

pub(super) fn bf16s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [bf16::from_le_bytes(*block).to_f32()]);
}

pub(super) fn f64s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [f64::from_le_bytes(*block) as f32]);
}

pub(super) fn i8s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [f32::from(i8::from_le_bytes(*block))]);
}

pub(super) fn i16s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [f32::from(i16::from_le_bytes(*block))]);
}

pub(super) fn i32s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [i32::from_le_bytes(*block) as f32]);
}

pub(super) fn i64s(blocks: &[u8], out: &mut [f32]) {
    each(blocks, out, |block, out| *out = [i64::from_le_bytes(*block) as f32]);
}

pub(super) fn q4_0(blocks: &[u8], out: &mut [f32]) {
    each::<18, 32>(blocks, out, |block, out| {
        let d = half_at(block, 0);
        for (j, &byte) in block[2..].iter().enumerate() {
            out[j] = d * (f32::from(byte & 15) - 8.0);
            out[j + 16] = d * (f32::from(byte >> 4) - 8.0);
        }
    });
}

pub(super) fn q4_1(blocks: &[u8], out: &mut [f32]) {
    each::<20, 32>(blocks, out, |block, out| {
        let (d, m) = (half_at(block, 0), half_at(block, 2));
        for (j, &byte) in block[4..].iter().enumerate() {
            out[j] = d * f32::from(byte & 15) + m;
            out[j + 16] = d * f32::from(byte >> 4) + m;
        }
    });
}

/// Four bits of a byte and the fifth, which is bit `at` of all.
#[inline(always)]
fn five(low: u8, high: u32, at: usize) -> f32 {
    f32::from(low | ((high >> at) as u8 & 1) << 4)
}

fn fifth_bits(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

pub(super) fn q5_0(blocks: &[u8], out: &mut [f32]) {
    each::<22, 32>(blocks, out, |block, out| {
        let (d, high) = (half_at(block, 0), fifth_bits(block, 2));
        for (j, &byte) in block[6..].iter().enumerate() {
            out[j] = d * (five(byte & 15, high, j) - 16.0);
            out[j + 16] = d * (five(byte >> 4, high, j + 16) - 16.0);
        }
    });
}

pub(super) fn q5_1(blocks: &[u8], out: &mut [f32]) {
    each::<24, 32>(blocks, out, |block, out| {
        let (d, m, high) = (half_at(block, 0), half_at(block, 2), fifth_bits(block, 4));
        for (j, &byte) in block[8..].iter().enumerate() {
            out[j] = d * five(byte & 15, high, j) + m;
            out[j + 16] = d * five(byte >> 4, high, j + 16) + m;
        }
    });
}

pub(super) fn q8_0(blocks: &[u8], out: &mut [f32]) {
    each::<34, 32>(blocks, out, |block, out| {
        let d = half_at(block, 0);
        for (out, &byte) in out.iter_mut().zip(&block[2..]) {
            *out = f32::from(byte as i8) * d;
        }
    });
}

/// What four bits of IQ4_NL and IQ4_XS stand for.
pub(super) const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) fn iq4_nl(blocks: &[u8], out: &mut [f32]) {
    each::<18, 32>(blocks, out, |block, out| {
        by_table(half_at(block, 0), &block[2..], &IQ4_VALUES, out);
    });
}

/// A scale times the entries that halves of bytes name.
#[inline(always)]
pub(super) fn by_table(d: f32, bytes: &[u8], table: &[i8; 16], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(bytes.len());
    for ((&byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = d * f32::from(table[usize::from(byte & 15)]);
        *high = d * f32::from(table[usize::from(byte >> 4)]);
    }
}

/// The values of e2m1, doubled: the scale is halved.
const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) fn mxfp4(blocks: &[u8], out: &mut [f32]) {
    each::<17, 32>(blocks, out, |block, out| {
        // Half of 2^(e - 127); the two smallest are subnormal.
        let bits = match u32::from(block[0]) {
            e @ 0..2 => 0x0020_0000 << e,
            e => (e - 1) << 23,
        };
        by_table(f32::from_bits(bits), &block[1..], &MXFP4_VALUES, out);
    });
}
