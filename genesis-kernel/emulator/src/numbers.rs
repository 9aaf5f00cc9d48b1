//! Numbers that Rust has no type for: floats of 8 bits, and f32 rounded to tf32.

/// How a float of 8 bits is made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Float8 {
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

impl Float8 {
    /// 4 bits of exponent, 3 of fraction, no infinity.
    pub const E4M3: Float8 = Float8 { fraction: 3, bias: 7, largest: 0x7e, beyond: NAN };
    /// 5 bits of exponent, 2 of fraction, infinity as in IEEE 754.
    pub const E5M2: Float8 = Float8 { fraction: 2, bias: 15, largest: 0x7b, beyond: 0x7c };

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

/// The bits of an f32 with the 10 bits of tf32's fraction, to nearest even; infinities and NaN stay.
pub fn round_tf32(bits: u32) -> u32 {
    if !f32::from_bits(bits).is_finite() {
        return bits;
    }
    let odd = (bits >> 13) & 1;
    (bits + 0x0fff + odd) & !0x1fff
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Float8; 2] = [Float8::E4M3, Float8::E5M2];

    #[test]
    fn every_value_comes_back() {
        for format in BOTH {
            for bits in 0..=u8::MAX {
                let value = format.decode(bits);
                let back = format.encode(value);
                assert!(
                    back == bits || value.is_nan() && back & 0x7f == NAN,
                    "{format:?} {bits:#x}"
                );
            }
        }
    }

    #[test]
    fn half_precision_agrees_where_it_has_the_same_exponent() {
        for bits in 0..=u8::MAX {
            let half = half::f16::from_bits(u16::from(bits) << 8).to_f64();
            let value = Float8::E5M2.decode(bits);
            assert!(value == half || value.is_nan() && half.is_nan(), "{bits:#x}");
        }
    }

    /// Each tie goes to the even neighbor, and what is nearer to one side goes there.
    #[test]
    fn rounds_to_nearest_even() {
        for format in BOTH {
            for bits in 0..format.largest {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                let tie = (low + high) / 2.0;
                let even = bits + (bits & 1);
                for (value, want) in [(tie, even), (tie * 0.999, bits), (tie * 1.001, bits + 1)] {
                    assert_eq!(format.encode(value), want, "{format:?} {value}");
                    assert_eq!(format.encode(-value), want | 0x80, "{format:?} -{value}");
                }
            }
        }
    }

    #[test]
    fn tf32_rounds_to_nearest_even() {
        assert_eq!(round_tf32(0x3f80_0fff), 0x3f80_0000);
        assert_eq!(round_tf32(0x3f80_1000), 0x3f80_0000);
        assert_eq!(round_tf32(0x3f80_3000), 0x3f80_4000);
        assert_eq!(round_tf32(0x7f80_0000), 0x7f80_0000);
    }
}
