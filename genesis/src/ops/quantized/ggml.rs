//! GGUF's blocks, unpacked to codes, scales and minimums.
//!
//! Every type is `w = (code - zero) * scale + min` in groups of 16 or 32, with numbers that f32 holds exactly, so
//! that a weight is, bit for bit, what the format's definition gives.
//!
//! | type | block | bytes | code | scale | min |
//! |---|---|---|---|---|---|
//! | Q4_0 | 32 | 18 | 4 bits - 8 | d | |
//! | Q4_1 | 32 | 20 | 4 bits | d | m |
//! | Q5_0 | 32 | 22 | 5 bits - 16 | d | |
//! | Q5_1 | 32 | 24 | 5 bits | d | m |
//! | Q8_0 | 32 | 34 | 8 bits - 128 | d | |
//! | Q4_K | 8 groups of 32 | 144 | 4 bits | d * 6 bits | -(dmin * 6 bits) |
//! | Q5_K | 8 groups of 32 | 176 | 5 bits | d * 6 bits | -(dmin * 6 bits) |
//! | Q6_K | 16 groups of 16 | 210 | 6 bits - 32 | d * 8 bits | |
//!
//! d, m and dmin are f16.

use half::f16;

/// How the weights of a quantized tensor are stored in a GGUF file.
///
/// # Source
/// `ggml.h`'s `ggml_type`, whose names these are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are the formats'")]
#[expect(non_camel_case_types, reason = "the names are the formats'")]
pub enum BlockType {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

/// What a type looks like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Weights of a block.
    pub(super) block: usize,
    /// Bytes of a block.
    pub(super) bytes: usize,
    /// Weights of a group.
    pub(super) group: usize,
    /// Bits of a code.
    pub(super) bits: u32,
    /// The code of 0.
    pub(super) zero: u8,
    pub(super) has_mins: bool,
    /// Whether scales and minimums are f16 as they are stored.
    pub(super) is_half: bool,
}

impl BlockType {
    pub(super) fn form(self) -> Form {
        let small = |bytes, bits, zero, has_mins| Form {
            block: 32,
            bytes,
            group: 32,
            bits,
            zero,
            has_mins,
            is_half: true,
        };
        let large = |bytes, group, bits, zero, has_mins| Form {
            block: 256,
            bytes,
            group,
            bits,
            zero,
            has_mins,
            is_half: false,
        };
        match self {
            BlockType::Q4_0 => small(18, 4, 8, false),
            BlockType::Q4_1 => small(20, 4, 0, true),
            BlockType::Q5_0 => small(22, 5, 16, false),
            BlockType::Q5_1 => small(24, 5, 0, true),
            BlockType::Q8_0 => small(34, 8, 128, false),
            BlockType::Q4_K => large(144, 32, 4, 0, true),
            BlockType::Q5_K => large(176, 32, 5, 0, true),
            BlockType::Q6_K => large(210, 16, 6, 32, false),
        }
    }

    /// Takes a block apart. `codes` has room for its weights, `scales` and `mins` for its groups; the minimums
    /// of a type that has none stay as they are.
    pub(super) fn unpack(
        self,
        block: &[u8],
        codes: &mut [u8],
        scales: &mut [f32],
        mins: &mut [f32],
    ) {
        let number = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match self {
            BlockType::Q4_0 => nibbles(&block[2..18], codes),
            BlockType::Q4_1 => nibbles(&block[4..20], codes),
            BlockType::Q5_0 => {
                nibbles(&block[6..22], codes);
                fifth_bits(&block[2..6], codes);
            }
            BlockType::Q5_1 => {
                nibbles(&block[8..24], codes);
                fifth_bits(&block[4..8], codes);
            }
            BlockType::Q8_0 => {
                codes.iter_mut().zip(&block[2..]).for_each(|(code, &b)| *code = b ^ 0x80);
            }
            BlockType::Q4_K | BlockType::Q5_K => {
                let of_codes = if self == BlockType::Q4_K { 16 } else { 48 };
                for (pair, bytes) in
                    codes.chunks_exact_mut(64).zip(block[of_codes..].chunks_exact(32))
                {
                    halves(bytes, pair);
                }
                if self == BlockType::Q5_K {
                    for (group, codes) in codes.chunks_exact_mut(32).enumerate() {
                        let high = |(code, &b): (&mut u8, &u8)| *code |= (b >> group & 1) << 4;
                        codes.iter_mut().zip(&block[16..48]).for_each(high);
                    }
                }
                let (d, dmin) = (number(0), number(2));
                for (group, (scale, min)) in scales.iter_mut().zip(mins).enumerate() {
                    let (of_scale, of_min) = six_bits(&block[4..16], group);
                    *scale = d * f32::from(of_scale);
                    *min = -(dmin * f32::from(of_min));
                }
                return;
            }
            BlockType::Q6_K => {
                for (part, codes) in codes.chunks_exact_mut(128).enumerate() {
                    sixes(&block[64 * part..][..64], &block[128 + 32 * part..][..32], codes);
                }
                let d = number(208);
                for (scale, &b) in scales.iter_mut().zip(&block[192..208]) {
                    *scale = d * f32::from(b.cast_signed());
                }
                return;
            }
        }
        scales[0] = number(0);
        if self.form().has_mins {
            mins[0] = number(2);
        }
    }
}

/// Codes of which byte `j` has number `j` in its low half and, in its high half, the one as many further as there
/// are bytes.
fn halves(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(bytes.len());
    for ((low, high), &byte) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    halves(bytes, codes);
}

/// Adds the fifth bits of 32 codes, which are those of one number.
fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    for (j, code) in codes.iter_mut().enumerate() {
        *code |= (bytes[j / 8] >> (j % 8) & 1) << 4;
    }
}

/// The scale and the minimum of a group, six bits each: those of the last four groups have their upper two
/// where those of the first four leave them free.
fn six_bits(bytes: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (bytes[group] & 63, bytes[group + 4] & 63);
    }
    let both = bytes[group + 4];
    (both & 15 | bytes[group - 4] >> 6 << 4, both >> 4 | bytes[group] >> 6 << 4)
}

/// 128 codes of six bits: four from 64 bytes, two from 32.
fn sixes(low: &[u8], high: &[u8], codes: &mut [u8]) {
    for (j, &upper) in high.iter().enumerate() {
        let (a, b) = (low[j], low[j + 32]);
        for (part, four) in [a & 15, b & 15, a >> 4, b >> 4].into_iter().enumerate() {
            codes[32 * part + j] = four | (upper >> (2 * part) & 3) << 4;
        }
    }
}
