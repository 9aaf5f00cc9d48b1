//! One number with its dtype, and how it becomes one of another dtype: by one correct rounding.

use super::float8;
use super::types::DType;

/// One number with its dtype: integers sign- or zero-extended to 64 bits, floats as their own bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scalar {
    /// What the bits mean.
    pub dtype: DType,
    /// The bits. Floats of 8 bits in the low 8, f16 and bf16 in the low 16, f32 in the low 32; signed integers sign-extended.
    pub bits: u64,
}

impl Scalar {
    /// An integer or bool, wrapped to the dtype's width.
    pub fn int(dtype: DType, value: i64) -> Scalar {
        let bits = match dtype {
            DType::Bool => u64::from(value != 0),
            DType::I8 => i64::from(value as i8) as u64,
            DType::I16 => i64::from(value as i16) as u64,
            DType::I32 => i64::from(value as i32) as u64,
            DType::U8 => u64::from(value as u8),
            DType::U16 => u64::from(value as u16),
            DType::U32 => u64::from(value as u32),
            DType::I64 | DType::U64 => value as u64,
            DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
                return cast(Scalar::int(DType::I64, value), dtype);
            }
        };
        Scalar { dtype, bits }
    }

    /// A float, rounded once to the dtype (to nearest, ties to even).
    ///
    /// # Panics
    /// If `dtype` is not a float.
    pub fn float(dtype: DType, value: f64) -> Scalar {
        let bits = match dtype {
            DType::F16 | DType::BF16 => u64::from(round_to_half(dtype, value)),
            DType::F32 => u64::from((value as f32).to_bits()),
            DType::F64 => value.to_bits(),
            _ => match float8::format(dtype) {
                Some(format) => u64::from(format.encode(value)),
                None => panic!("{dtype} is not a float"),
            },
        };
        Scalar { dtype, bits }
    }

    /// Zero of any dtype.
    pub fn zero(dtype: DType) -> Scalar {
        Scalar { dtype, bits: 0 }
    }

    /// The value as f64; exact for every float dtype.
    pub fn to_f64(self) -> f64 {
        match self.dtype {
            DType::F16 => half::f16::from_bits(self.bits as u16).to_f64(),
            DType::BF16 => half::bf16::from_bits(self.bits as u16).to_f64(),
            DType::F32 => f64::from(f32::from_bits(self.bits as u32)),
            DType::F64 => f64::from_bits(self.bits),
            DType::F8E4M3 | DType::F8E5M2 => {
                float8::format(self.dtype).map_or(0.0, |format| format.decode(self.bits as u8))
            }
            DType::U64 => self.bits as f64,
            _ => self.bits as i64 as f64,
        }
    }

    /// The value of an integer or bool as i64 (u64 keeps its bits).
    pub fn to_i64(self) -> i64 {
        self.bits as i64
    }
}

/// To another dtype, rounded once; see the top of this file.
pub fn cast(x: Scalar, to: DType) -> Scalar {
    let from = x.dtype;
    if from == to {
        return x;
    }
    if to == DType::Bool {
        let is_nonzero = if from.is_float() { x.to_f64() != 0.0 } else { x.bits != 0 };
        return Scalar { dtype: DType::Bool, bits: u64::from(is_nonzero) };
    }
    match (from.is_float(), to.is_float()) {
        (true, true) => Scalar::float(to, x.to_f64()),
        (true, false) => float_to_int(x.to_f64(), to),
        (false, true) => int_to_float(x, to),
        (false, false) => Scalar::int(to, x.bits as i64),
    }
}

/// An f64 as f16 or bf16 bits, rounded once.
///
/// By way of an f32 rounded *to odd* (its last bit set where anything was cut off), from which the
/// second rounding gives what one rounding would: the f32 has more than two bits to spare.
pub fn round_to_half(dtype: DType, value: f64) -> u16 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let odd = if back == value || value.is_nan() {
        nearest
    } else {
        let is_above = back.abs() > value.abs();
        f32::from_bits((nearest.to_bits() - u32::from(is_above)) | 1)
    };
    half_bits(dtype, odd)
}

fn float_to_int(x: f64, to: DType) -> Scalar {
    let value = match to {
        DType::I8 => i64::from(x as i8),
        DType::I16 => i64::from(x as i16),
        DType::I32 => i64::from(x as i32),
        DType::U8 => i64::from(x as u8),
        DType::U16 => i64::from(x as u16),
        DType::U32 => i64::from(x as u32),
        DType::U64 => (x as u64) as i64,
        _ => x as i64,
    };
    Scalar::int(to, value)
}

fn int_to_float(x: Scalar, to: DType) -> Scalar {
    let is_unsigned = x.dtype == DType::U64;
    match to {
        DType::F32 if is_unsigned => from_f32(DType::F32, x.bits as f32),
        DType::F32 => from_f32(DType::F32, x.bits as i64 as f32),
        DType::F64 => Scalar::float(DType::F64, x.to_f64()),
        _ => {
            let magnitude = if is_unsigned { x.bits } else { (x.bits as i64).unsigned_abs() };
            let is_negative = !is_unsigned && (x.bits as i64) < 0;
            let odd = u64_to_odd_f64(magnitude);
            Scalar::float(to, if is_negative { -odd } else { odd })
        }
    }
}

/// Rounded to odd where it has more than the 53 bits of an f64.
fn u64_to_odd_f64(x: u64) -> f64 {
    if x >> 53 == 0 {
        return x as f64;
    }
    let sticky = u64::from(x & 0x7ff != 0);
    ((x >> 11) | sticky) as f64 * 2048.0
}

fn half_bits(dtype: DType, value: f32) -> u16 {
    if dtype == DType::F16 {
        half::f16::from_f32(value).to_bits()
    } else {
        half::bf16::from_f32(value).to_bits()
    }
}

pub(super) fn from_f32(dtype: DType, value: f32) -> Scalar {
    let bits = match dtype {
        DType::F32 => u64::from(value.to_bits()),
        _ => u64::from(half_bits(dtype, value)),
    };
    Scalar { dtype, bits }
}
