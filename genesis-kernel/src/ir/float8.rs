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

use super::types::DType;

/// How a float of 8 bits is made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Bits of the stored fraction.
    pub fraction: u32,
    /// What is added to the exponent of 2.
    pub bias: i32,
    /// The bits of the largest number.
    pub largest: u8,
    /// The bits of what is larger: infinity, or NaN where there is none.
    pub beyond: u8,
}

/// The bits of NaN, whatever the format.
pub const NAN: u8 = 0x7f;

impl Format {
    /// The format of a dtype of 8 bits; none for others.
    pub fn of(dtype: DType) -> Option<Format> {
        match dtype {
            DType::F8E4M3 => Some(Format { fraction: 3, bias: 7, largest: 0x7e, beyond: NAN }),
            DType::F8E5M2 => Some(Format { fraction: 2, bias: 15, largest: 0x7b, beyond: 0x7c }),
            _ => None,
        }
    }

    /// Rounded once to nearest even.
    pub fn encode(self, value: f64) -> u8 {
        let sign = u8::from(value.is_sign_negative()) << 7;
        let magnitude = value.abs();
        if magnitude.is_nan() {
            return sign | NAN;
        }
        if magnitude.is_infinite() {
            return sign | self.beyond;
        }
        // The exponent of 2, or that of subnormal numbers.
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        let unit = 2f64.powi(exponent - self.fraction as i32);
        // Below 2^fraction for a subnormal number, at 2^(fraction + 1) for the next exponent.
        let units = (magnitude / unit).round_ties_even();
        let bits = (i64::from(exponent + self.bias - 1) << self.fraction) + units as i64;
        sign | if bits <= i64::from(self.largest) { bits as u8 } else { self.beyond }
    }

    /// The tie of the largest number and what would follow, and whether the tie itself is too large: it
    /// goes to the even pattern.
    pub fn limit(self) -> (f64, bool) {
        let [largest, below] = [self.largest, self.largest - 1].map(|bits| self.decode(bits));
        (largest + (largest - below) / 2.0, self.largest & 1 == 1)
    }

    /// The value; exact.
    pub fn decode(self, bits: u8) -> f64 {
        let magnitude = bits & 0x7f;
        let exponent = i32::from(magnitude >> self.fraction);
        let fraction = f64::from(magnitude & ((1 << self.fraction) - 1));
        let hidden = f64::from(1u32 << self.fraction);
        let value = match exponent {
            _ if magnitude > self.largest && magnitude == self.beyond && magnitude != NAN => {
                f64::INFINITY
            }
            _ if magnitude > self.largest => f64::NAN,
            0 => fraction * 2f64.powi(1 - self.bias - self.fraction as i32),
            _ => (hidden + fraction) * 2f64.powi(exponent - self.bias - self.fraction as i32),
        };
        if bits >> 7 == 0 { value } else { -value }
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

            fn format() -> Format {
                Format::of(DType::$dtype).expect("the dtype has 8 bits")
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

float8!(f8e4m3, F8E4M3, "A float of 8 bits, 4 of them the exponent; no infinity, at most 448.");
float8!(f8e5m2, F8E5M2, "A float of 8 bits, 5 of them the exponent; at most 57344.");

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [DType; 2] = [DType::F8E4M3, DType::F8E5M2];

    fn format(dtype: DType) -> Format {
        Format::of(dtype).unwrap()
    }

    #[test]
    fn every_value_comes_back() {
        for dtype in BOTH {
            for bits in 0..=u8::MAX {
                let value = format(dtype).decode(bits);
                let back = format(dtype).encode(value);
                assert!(back == bits || value.is_nan() && back & 0x7f == NAN, "{dtype} {bits:#x}");
            }
        }
    }

    #[test]
    fn half_precision_agrees_where_it_has_the_same_exponent() {
        for bits in 0..=u8::MAX {
            let half = half::f16::from_bits(u16::from(bits) << 8).to_f64();
            let value = format(DType::F8E5M2).decode(bits);
            assert!(value == half || value.is_nan() && half.is_nan(), "{bits:#x}");
        }
    }

    /// Each tie goes to the even neighbor, and what is nearer to one side goes there.
    #[test]
    fn rounds_to_nearest_even() {
        for dtype in BOTH {
            let format = format(dtype);
            for bits in 0..format.largest {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                let tie = (low + high) / 2.0;
                let even = bits + (bits & 1);
                for (value, want) in [(tie, even), (tie * 0.999, bits), (tie * 1.001, bits + 1)] {
                    assert_eq!(format.encode(value), want, "{dtype} {value}");
                    assert_eq!(format.encode(-value), want | 0x80, "{dtype} -{value}");
                }
            }
        }
    }

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
