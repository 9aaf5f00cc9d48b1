//! Floats of 8 bits to f32 and back by integers, which any processor has.
//!
//! To f32 the bits move to where an f32 has them, and a multiplication mends the exponent, of subnormal
//! numbers too. From f32 the lowest bits that stay are rounded by an integer addition, in subnormal
//! numbers by adding a number so large that its last place is the smallest one of the format:
//!
//! ```text
//! f8e4m3 0.0101.011  ->  f32 0.00000101.01100..  * 2^(127 - 7)
//! ```

use super::super::llvm::{Emitter, FloatPred, IntPred, Val};
use super::target::with_lanes_of;
use crate::ir::DType;
use crate::ir::float8::{self, Float8, NAN};

/// Bits of the fraction of an f32, and what is added to its exponent.
const FRACTION: u32 = 23;
const BIAS: i32 = 127;

fn format(dtype: DType) -> Float8 {
    float8::format(dtype).expect("callers ask for floats of 8 bits")
}

/// To f32; exact.
pub(super) fn widen(e: &Emitter, x: Val, from: DType) -> Val {
    let format = format(from);
    let (i32s, f32s) = (with_lanes_of(e, e.i32(), x), with_lanes_of(e, e.f32(), x));
    let int = |n: i64| e.int(i32s, n);
    let bits = e.zext(x, i32s);
    let magnitude = e.and(bits, int(0x7f));
    let moved = e.bitcast(e.shl(magnitude, int(i64::from(FRACTION - format.fraction))), f32s);
    let value = e.fmul(moved, e.float(f32s, 2f64.powi(BIAS - format.bias)));
    let largest = int(i64::from(format.largest));
    let special = match format.beyond {
        NAN => e.float(f32s, f64::NAN),
        beyond => {
            let is_infinite = e.icmp(IntPred::Eq, magnitude, int(i64::from(beyond)));
            e.select(is_infinite, e.float(f32s, f64::INFINITY), e.float(f32s, f64::NAN))
        }
    };
    let value = e.select(e.icmp(IntPred::Ugt, magnitude, largest), special, value);
    let sign = e.shl(e.and(bits, int(0x80)), int(24));
    e.bitcast(e.or(e.bitcast(value, i32s), sign), f32s)
}

/// From f32, rounded once to nearest even.
pub(super) fn narrow(e: &Emitter, x: Val, to: DType) -> Val {
    let format = format(to);
    let (i32s, f32s) = (with_lanes_of(e, e.i32(), x), with_lanes_of(e, e.f32(), x));
    let int = |n: i64| e.int(i32s, n);
    let bits = e.bitcast(x, i32s);
    let magnitude = e.and(bits, int(0x7fff_ffff));
    let shift = FRACTION - format.fraction;
    // Half of the last place that stays, a little less where that place is even.
    let odd = e.and(e.lshr(magnitude, int(i64::from(shift))), int(1));
    let half = e.add(odd, int((1 << (shift - 1)) - 1));
    let offset = i64::from(BIAS - format.bias) << FRACTION;
    let normal = e.lshr(e.sub(e.add(magnitude, half), int(offset)), int(i64::from(shift)));
    // The smallest number is the last place of `large`.
    let large = 2f64.powi(FRACTION as i32 + 1 - format.bias - format.fraction as i32);
    let sum = e.fadd(e.bitcast(magnitude, f32s), e.float(f32s, large));
    let subnormal = e.sub(e.bitcast(sum, i32s), int(i64::from((large as f32).to_bits())));
    let smallest = 2f64.powi(1 - format.bias) as f32;
    let is_subnormal = e.icmp(IntPred::Ult, magnitude, int(i64::from(smallest.to_bits())));
    let rounded = e.select(is_subnormal, subnormal, normal);
    let limited = beyond(e, format, e.bitcast(magnitude, f32s), rounded);
    let sign = e.and(e.lshr(bits, int(24)), int(0x80));
    e.trunc(e.or(limited, sign), with_lanes_of(e, e.i8(), x))
}

/// What was rounded from a magnitude, or what stands for a magnitude that is too large.
fn beyond(e: &Emitter, format: Float8, magnitude: Val, rounded: Val) -> Val {
    let (f32s, ints) = (e.type_of(magnitude), e.type_of(rounded));
    let int = |n: u8| e.int(ints, i64::from(n));
    let (limit, is_beyond_too) = format.limit();
    let pred = if is_beyond_too { FloatPred::Oge } else { FloatPred::Ogt };
    let is_beyond = e.fcmp(pred, magnitude, e.float(f32s, limit));
    let is_nan = e.fcmp(FloatPred::Uno, magnitude, magnitude);
    e.select(is_nan, int(NAN), e.select(is_beyond, int(format.beyond), rounded))
}
