//! Values of blocks of 256 elements: smaller blocks whose scales are quantized themselves.
//!
//! A super-block has one or two f16, scales of 4 to 8 bits for each 16 or 32 elements, and the elements' bits
//! in planes: byte `j` of a run holds elements `j`, `j + 32`, .. of the run.
//!
//! ```text
//! Q2_K  d s q - dmin m   16 x (4 + 4) bits | 64 bytes of 4 elements | d | dmin
//! Q3_K  d (s - 32) q     32 bytes of third bits | 64 bytes | 16 x 6 bits | d
//! Q4_K  d s q - dmin m   d | dmin | 8 x (6 + 6) bits | 128 bytes of 2 elements
//! Q5_K  d s q - dmin m   as Q4_K, with 32 bytes of fifth bits ahead of the 128
//! Q6_K  d s (q - 32)     128 bytes of low bits | 64 of high ones | 16 signed bytes | d
//! ```
//!
//! # Source
//! `ggml-common.h` and `ggml-quants.c`, and their restatement in the `gguf` package of Python.

use super::blocks::{IQ4_VALUES, by_table, each, half_at};

/// The element of a super-block whose two bits are `shift` bits up in byte `j` of the 64.
#[inline(always)]
fn quarter(j: usize, shift: usize) -> usize {
    j / 32 * 128 + shift / 2 * 32 + j % 32
}

pub(super) fn q2_k(blocks: &[u8], out: &mut [f32]) {
    each::<84, 256>(blocks, out, |block, out| {
        let (d, dmin) = (half_at(block, 80), half_at(block, 82));
        for (j, &byte) in block[16..80].iter().enumerate() {
            for shift in [0, 2, 4, 6] {
                let at = quarter(j, shift);
                let scale = block[at / 16];
                let (d, m) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
                out[at] = d * f32::from(byte >> shift & 3) - m;
            }
        }
    });
}

/// 16 scales of 6 bits: the low four in 8 bytes, the high two in 4.
fn six_bits(bytes: &[u8], index: usize) -> f32 {
    let low = bytes[index % 8] >> (index / 8 * 4) & 15;
    let high = bytes[8 + index % 4] >> (index / 4 * 2) & 3;
    f32::from((low | high << 4) as i8 - 32)
}

pub(super) fn q3_k(blocks: &[u8], out: &mut [f32]) {
    each::<110, 256>(blocks, out, |block, out| {
        let (third_bits, scales, d) = (&block[..32], &block[96..108], half_at(block, 108));
        let scales: [f32; 16] = std::array::from_fn(|index| d * six_bits(scales, index));
        for (j, &byte) in block[32..96].iter().enumerate() {
            for shift in [0, 2, 4, 6] {
                let at = quarter(j, shift);
                // A third bit that is not set takes 4 away.
                let third = third_bits[at % 32] >> (at / 32) & 1;
                let q = (byte >> shift & 3) as i8 - ((third ^ 1) << 2) as i8;
                out[at] = scales[at / 16] * f32::from(q);
            }
        }
    });
}

/// Scale and least value of the 32 elements `index`, 6 bits each: four of both as they are, and the bits
/// that these leave with 4 more of each of the other four.
fn scale_and_min(bytes: &[u8], index: usize) -> (f32, f32) {
    let (scale, min) = match index {
        0..4 => (bytes[index] & 63, bytes[index + 4] & 63),
        _ => (
            bytes[index + 4] & 15 | bytes[index - 4] >> 2 & 48,
            bytes[index + 4] >> 4 | bytes[index] >> 2 & 48,
        ),
    };
    (f32::from(scale), f32::from(min))
}

pub(super) fn q4_k(blocks: &[u8], out: &mut [f32]) {
    each::<144, 256>(blocks, out, |block, out| {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (index, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, min) = scale_and_min(&block[4..16], index);
            let (d, m) = (d * scale, dmin * min);
            for (j, out) in out.iter_mut().enumerate() {
                let q = block[16 + index / 2 * 32 + j] >> (index % 2 * 4) & 15;
                *out = d * f32::from(q) - m;
            }
        }
    });
}

pub(super) fn q5_k(blocks: &[u8], out: &mut [f32]) {
    each::<176, 256>(blocks, out, |block, out| {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (index, out) in out.chunks_exact_mut(32).enumerate() {
            let (scale, min) = scale_and_min(&block[4..16], index);
            let (d, m) = (d * scale, dmin * min);
            for (j, out) in out.iter_mut().enumerate() {
                let low = block[48 + index / 2 * 32 + j] >> (index % 2 * 4) & 15;
                let fifth = block[16 + j] >> index & 1;
                *out = d * f32::from(low | fifth << 4) - m;
            }
        }
    });
}

pub(super) fn q6_k(blocks: &[u8], out: &mut [f32]) {
    each::<210, 256>(blocks, out, |block, out| {
        let d = half_at(block, 208);
        let scales: [f32; 16] =
            std::array::from_fn(|index| d * f32::from(block[192 + index] as i8));
        for (at, out) in out.iter_mut().enumerate() {
            let (half, rest) = (at / 128, at % 128);
            let low = block[half * 64 + rest % 64] >> (rest / 64 * 4) & 15;
            let high = block[128 + half * 32 + rest % 32] >> (rest / 32 * 2) & 3;
            *out = scales[at / 16] * f32::from((low | high << 4) as i8 - 32);
        }
    });
}

pub(super) fn iq4_xs(blocks: &[u8], out: &mut [f32]) {
    each::<136, 256>(blocks, out, |block, out| {
        let (d, high) = (half_at(block, 0), u16::from_le_bytes([block[2], block[3]]));
        for (index, out) in out.chunks_exact_mut(32).enumerate() {
            let low = block[4 + index / 2] >> (index % 2 * 4) & 15;
            let high = (high >> (index * 2) & 3) as u8;
            let scale = (low | high << 4) as i8 - 32;
            let bytes = &block[8 + index * 16..24 + index * 16];
            by_table(d * f32::from(scale), bytes, &IQ4_VALUES, out);
        }
    });
}
