//! Rust types that can be elements of a tensor.

use crate::ir::float8::{f8e4m3, f8e5m2};
use crate::ir::{DType, Scalar};

/// A Rust type with a dtype: `bool`, the integers of fixed width, `f8e4m3`, `f8e5m2`, `f16`,
/// `bf16`, `f32`, `f64`.
///
/// # Safety
/// The type has no padding and the size of its dtype, and every value's bytes are what the dtype
/// says.
pub unsafe trait HostElement:
    Copy + Send + Sync + PartialEq + std::fmt::Debug + 'static
{
    /// Its dtype.
    const DTYPE: DType;
    /// All bytes zero: zero, or false.
    const ZEROED: Self;

    /// The value with its dtype.
    fn to_scalar(self) -> Scalar;

    /// The value of the bits of a [`Scalar`] of this dtype; of a bool, whether any bit is set.
    fn from_scalar(scalar: Scalar) -> Self;
}

macro_rules! host_int {
    ($($ty:ty => $dtype:ident),*) => {$(
        // SAFETY: an integer of fixed width has no padding and any bytes.
        unsafe impl HostElement for $ty {
            const DTYPE: DType = DType::$dtype;
            const ZEROED: $ty = 0;

            fn to_scalar(self) -> Scalar {
                Scalar::int(DType::$dtype, self as i64)
            }

            fn from_scalar(scalar: Scalar) -> $ty {
                scalar.bits as $ty
            }
        }
    )*};
}
host_int!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64);

macro_rules! host_float {
    ($($ty:ty, $bits:ty, $dtype:ident, $zero:expr);*) => {$(
        // SAFETY: a float has no padding and any bytes.
        unsafe impl HostElement for $ty {
            const DTYPE: DType = DType::$dtype;
            const ZEROED: $ty = $zero;

            fn to_scalar(self) -> Scalar {
                Scalar { dtype: DType::$dtype, bits: u64::from(self.to_bits()) }
            }

            fn from_scalar(scalar: Scalar) -> $ty {
                <$ty>::from_bits(scalar.bits as $bits)
            }
        }
    )*};
}
host_float!(
    f8e4m3, u8, F8E4M3, f8e4m3::ZERO;
    f8e5m2, u8, F8E5M2, f8e5m2::ZERO;
    half::f16, u16, F16, half::f16::ZERO;
    half::bf16, u16, BF16, half::bf16::ZERO;
    f32, u32, F32, 0.0;
    f64, u64, F64, 0.0
);

// SAFETY: a bool is one byte, 0 or 1, which is what the dtype says of true and false.
unsafe impl HostElement for bool {
    const DTYPE: DType = DType::Bool;
    const ZEROED: bool = false;

    fn to_scalar(self) -> Scalar {
        Scalar::int(DType::Bool, i64::from(self))
    }

    fn from_scalar(scalar: Scalar) -> bool {
        scalar.bits != 0
    }
}

/// The bytes of a slice.
pub fn bytes_of<T: HostElement>(values: &[T]) -> &[u8] {
    // SAFETY: the type has no padding, so every byte is initialised, and u8 is aligned anywhere.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

/// Elements from bytes that came from a device: each byte of a bool is taken as `!= 0`.
pub fn from_bytes<T: HostElement>(mut bytes: Vec<u8>) -> Vec<T> {
    if T::DTYPE == DType::Bool {
        // A kernel writes 0 and 1 only, but raw memory may hold anything and a Rust bool may not.
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    let len = bytes.len() / size_of::<T>();
    let mut values = vec![T::ZEROED; len];
    // SAFETY: both are `len * size_of::<T>()` bytes at least, they don't overlap, and the bytes are
    // values of T: any bytes are for numbers, and bools were made 0 or 1.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            values.as_mut_ptr().cast::<u8>(),
            len * size_of::<T>(),
        );
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_bits() {
        assert_eq!(i8::from_scalar((-3i8).to_scalar()), -3);
        assert_eq!(u64::from_scalar(u64::MAX.to_scalar()), u64::MAX);
        assert_eq!(f32::from_scalar((-0.0f32).to_scalar()).to_bits(), (-0.0f32).to_bits());
        let x = half::bf16::from_f32(1.5);
        assert_eq!(half::bf16::from_scalar(x.to_scalar()), x);
    }

    #[test]
    fn any_byte_makes_a_bool() {
        assert_eq!(from_bytes::<bool>(vec![0, 1, 2, 255]), [false, true, true, true]);
    }

    #[test]
    fn bytes_come_back() {
        let values = [1.0f32, -2.5, f32::INFINITY];
        assert_eq!(from_bytes::<f32>(bytes_of(&values).to_vec()), values);
    }
}
