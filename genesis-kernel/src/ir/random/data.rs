//! Random numbers of every dtype, one in twenty of them special.

use super::super::number::Scalar;
use super::super::types::DType;
use super::rng::Rng;

impl Rng {
    /// Any number of a dtype.
    pub(crate) fn scalar(&mut self, dtype: DType) -> Scalar {
        if dtype == DType::Bool {
            return Scalar::int(dtype, (self.bits() & 1) as i64);
        }
        let is_special = self.chance(5);
        match (dtype.is_float(), is_special) {
            (true, true) => self.special_float(dtype),
            (true, false) => self.float(dtype),
            (false, true) => self.special_int(dtype),
            (false, false) => self.int(dtype),
        }
    }

    /// The bytes of so many numbers.
    pub(crate) fn data(&mut self, dtype: DType, len: usize) -> Vec<u8> {
        let size = dtype.bytes();
        (0..len)
            .flat_map(|_| self.scalar(dtype).bits.to_le_bytes().into_iter().take(size))
            .collect()
    }

    /// Small integers, plain fractions, and magnitudes from tiny to huge.
    fn float(&mut self, dtype: DType) -> Scalar {
        let value = match self.below(4) {
            0 => self.range(0, 16) as f64 - 8.0,
            1 | 2 => (self.unit() - 0.5) * 8.0,
            _ => (self.unit() - 0.5) * 2.0_f64.powi(self.range(0, 60) as i32 - 30),
        };
        Scalar::float(dtype, value)
    }

    fn special_float(&mut self, dtype: DType) -> Scalar {
        let (largest, smallest, tiny) = match dtype {
            DType::F8E4M3 => (448.0, 0.015_625, 0.001_953_125),
            DType::F8E5M2 => (57344.0, 6.103_515_625e-5, 1.525_878_906_25e-5),
            DType::F16 => (65504.0, 6.103_515_625e-5, 5.960_464_477_539_063e-8),
            DType::BF16 => (3.389_531_389_251_535_5e38, f64::from(f32::MIN_POSITIVE), 9.2e-41),
            DType::F32 => (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), 1e-45),
            _ => (f64::MAX, f64::MIN_POSITIVE, 5e-324),
        };
        let values = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            largest,
            -largest,
            smallest,
            tiny,
            -tiny,
            // Around the limits of integers, where casts saturate.
            2_147_483_648.0,
            -9_223_372_036_854_775_808.0,
            1.0,
        ];
        Scalar::float(dtype, self.pick(&values))
    }

    fn int(&mut self, dtype: DType) -> Scalar {
        let value = match self.below(4) {
            0 => self.bits() as i64,
            1 => self.range(0, 200) as i64 - 100,
            _ => self.range(0, 16) as i64 - 4,
        };
        Scalar::int(dtype, value)
    }

    fn special_int(&mut self, dtype: DType) -> Scalar {
        let top = 1_i64 << (dtype.bits() - 1);
        let values = [0, 1, -1, top, top.wrapping_sub(1), i64::from(dtype.bits())];
        Scalar::int(dtype, self.pick(&values))
    }
}
