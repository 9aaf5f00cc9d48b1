//! Floats of 8 bits: what they mean, and the two of them as Rust types.
//!
//! They are for storage: a tile of them is loaded, stored, moved, compared and cast, and `dot`
//! multiplies it; other arithmetic happens after a cast. A cast to one rounds once to nearest even. What is
//! too large becomes NaN in `f8e4m3`, which has no infinity, and infinity in `f8e5m2`, as it does under
//! PyTorch's `x.to(torch.float8_e4m3fn)` and `.to(torch.float8_e5m2)`; who wants the largest number
//! instead limits `x` first, `clamp(x, -448.0, 448.0)`.
//!
//! ```text
//!           exponent  fraction  bias  largest  smallest  infinity       NaN
//! f8e4m3       4         3        7      448      2^-9   none           0x7f, 0xff
//! f8e5m2       5         2       15    57344     2^-16   0x7c, 0xfc     0x7d to 0x7f, 0xfd to 0xff
//! ```

use std::cmp::Ordering;
use std::fmt;

pub use genesis_emulator::numbers::{Float8, NAN};

use super::types::DType;

/// The format of a dtype of 8 bits; none for others.
pub fn format(dtype: DType) -> Option<Float8> {
    match dtype {
        DType::F8E4M3 => Some(Float8::E4M3),
        DType::F8E5M2 => Some(Float8::E5M2),
        _ => None,
    }
}

macro_rules! float8 {
    ($name:ident, $dtype:ident, $what:literal) => {
        #[doc = $what]
        #[allow(non_camel_case_types, reason = "named as `f32` and `bf16` are")]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// 0
            pub const ZERO: $name = $name(0);
            /// Not a number.
            pub const NAN: $name = $name(NAN);

            /// The value with these bits.
            pub const fn from_bits(bits: u8) -> $name {
                $name(bits)
            }

            /// Its bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Rounded once to nearest even; see the [module](self) for what is too large.
            pub fn from_f32(value: f32) -> $name {
                $name::from_f64(f64::from(value))
            }

            /// Rounded once to nearest even; see the [module](self) for what is too large.
            pub fn from_f64(value: f64) -> $name {
                $name($name::format().encode(value))
            }

            /// The value; exact.
            pub fn to_f32(self) -> f32 {
                self.to_f64() as f32
            }

            /// The value; exact.
            pub fn to_f64(self) -> f64 {
                $name::format().decode(self.0)
            }

            fn format() -> Float8 {
                Float8::$dtype
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                self.to_f64() == other.to_f64()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<Ordering> {
                self.to_f64().partial_cmp(&other.to_f64())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}

float8!(f8e4m3, E4M3, "A float of 8 bits, 4 of them the exponent; no infinity, at most 448.");
float8!(f8e5m2, E5M2, "A float of 8 bits, 5 of them the exponent; at most 57344.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_what_pytorch_makes_of_it() {
        let e4m3 = |value| f8e4m3::from_f32(value).to_bits();
        assert_eq!([e4m3(448.0), e4m3(464.0), e4m3(464.1), e4m3(480.0)], [0x7e, 0x7e, 0x7f, 0x7f]);
        assert_eq!([e4m3(1e30), e4m3(f32::INFINITY), e4m3(-500.0)], [0x7f, 0x7f, 0xff]);
        let e5m2 = |value| f8e5m2::from_f32(value).to_bits();
        assert_eq!([e5m2(57344.0), e5m2(61439.0), e5m2(61440.0)], [0x7b, 0x7b, 0x7c]);
        assert_eq!([e5m2(f32::INFINITY), e5m2(-1e9), e5m2(f32::NAN)], [0x7c, 0xfc, 0x7f]);
        assert_eq!([e4m3(2f32.powi(-9)), e4m3(2f32.powi(-10)), e4m3(-0.0)], [1, 0, 0x80]);
    }
}
