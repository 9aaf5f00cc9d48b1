//! What one lane computes: bits in, bits out.
//!
//! Functions that the hardware approximates are exact to the last place here, which is within what
//! any test of a kernel allows.

use half::{bf16, f16};

use super::program::{Alu, Compare, Element, Round, Ty};
use super::warp::{LANES, Values, lanes};
use crate::numbers::Float8;

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The bits as a signed number of that width.
fn signed(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits.clamp(1, 64);
    (value << shift) as i64 >> shift
}

fn is_signed(ty: Ty) -> bool {
    matches!(ty, Ty::S(_))
}

/// The bits of a float as a number; every type but f64 fits exactly.
fn float(value: u64, ty: Ty) -> f64 {
    match ty {
        Ty::F16 => f16::from_bits(value as u16).to_f64(),
        Ty::Bf16 => bf16::from_bits(value as u16).to_f64(),
        Ty::F64 => f64::from_bits(value),
        _ => f64::from(f32::from_bits(value as u32)),
    }
}

/// The nearest float's bits.
fn to_bits(value: f64, ty: Ty) -> u64 {
    match ty {
        Ty::F16 => u64::from(f16::from_f64(value).to_bits()),
        Ty::Bf16 => u64::from(nearest_bf16(value).to_bits()),
        Ty::F64 => value.to_bits(),
        _ => u64::from((value as f32).to_bits()),
    }
}

/// Rounds once: by way of an f32 that is odd where it is not exact.
fn nearest_bf16(value: f64) -> bf16 {
    let near = value as f32;
    if f64::from(near) == value || !near.is_finite() {
        return bf16::from_f32(near);
    }
    let is_above = f64::from(near).abs() > value.abs();
    let toward_zero = near.to_bits() - u32::from(is_above);
    bf16::from_f32(f32::from_bits(toward_zero | 1))
}

/// What a pair is of.
fn element_of_pair(ty: Ty) -> Option<Ty> {
    match ty {
        Ty::F16x2 => Some(Ty::F16),
        Ty::Bf16x2 => Some(Ty::Bf16),
        Ty::U16x2 => Some(Ty::U(16)),
        Ty::S16x2 => Some(Ty::S(16)),
        Ty::F32x2 => Some(Ty::F32),
        _ => None,
    }
}

/// Computes on each element of a pair, of which the lower bits hold the first.
fn on_pairs(what: Alu, element: Ty, args: [u64; 3]) -> Option<u64> {
    let bits = element.bits();
    let of = |shift: u32| {
        let value = compute(what, element, args.map(|pair| pair >> shift & mask(bits)))?;
        Some((value & mask(bits)) << shift)
    };
    Some(of(0)? | of(bits)?)
}

/// The value that an operation gives; none for one that is not of this type.
#[inline]
pub(super) fn compute(what: Alu, ty: Ty, args: [u64; 3]) -> Option<u64> {
    let [a, b, c] = args;
    match (what, ty) {
        (Alu::ConvertPair { saturate }, _) => return convert_pair(ty, a, b, saturate),
        (Alu::Convert { from, .. }, Ty::F16x2) => {
            return small(from).map(|format| widened(a, format));
        }
        (Alu::Convert { from, round, saturate }, _) => {
            return Some(convert(a, from, ty, round, saturate));
        }
        _ => {}
    }
    if let Some(element) = element_of_pair(ty) {
        return on_pairs(what, element, args);
    }
    let is_float = matches!(ty, Ty::F16 | Ty::Bf16 | Ty::F32 | Ty::F64);
    match what {
        Alu::Mov => Some(a & mask(ty.bits())),
        Alu::Select => Some(if c & 1 == 1 { a } else { b } & mask(ty.bits())),
        Alu::Compare(compare) => Some(u64::from(match is_float {
            true => compare_floats(compare, float(a, ty), float(b, ty)),
            false => compare_integers(compare, a, b, ty),
        })),
        _ if is_float => float_op(what, ty, args),
        _ => integer_op(what, ty, args),
    }
}

/// What [`compute`] gives in the lanes of a mask; anything in the others.
///
/// Each of the frequent operations is a loop of its own: which one it is, and of what, is asked once and not in each lane.
pub(super) fn compute_all(what: Alu, ty: Ty, mask: u32, args: [&Values; 3]) -> Option<Values> {
    macro_rules! loops {
        ($function:expr, $($own:ident)+) => {
            match what {
                $(Alu::$own => Some(on_lanes(args, |values| $function(Alu::$own, ty, values))),)+
                _ => None,
            }
        };
    }
    let found = match (what, ty) {
        (Alu::Mov | Alu::Select, Ty::Pred | Ty::B(_) | Ty::U(_) | Ty::S(_) | Ty::F32) => {
            loops!(compute, Mov Select)
        }
        (Alu::Compare(compare), Ty::B(_) | Ty::U(_) | Ty::S(_)) => {
            let compared = |[a, b, _]: [u64; 3]| u64::from(compare_integers(compare, a, b, ty));
            Some(on_lanes(args, |values| Some(compared(values))))
        }
        (_, Ty::Pred | Ty::B(_) | Ty::U(_) | Ty::S(_)) => {
            loops!(integer_op, Add Sub Mul MulWide MadWide Fma And Or Xor Not Shl Shr)
        }
        (_, Ty::F32) => loops!(float_op, Add Sub Mul Fma Neg),
        _ => None,
    };
    found.or_else(|| {
        let mut found = [0; LANES];
        for lane in lanes(mask) {
            found[lane] = compute(what, ty, args.map(|values| values[lane]))?;
        }
        Some(found)
    })
}

/// The operation, which all values are of, in every lane.
#[inline(always)]
fn on_lanes(args: [&Values; 3], operation: impl Fn([u64; 3]) -> Option<u64>) -> Values {
    let of = |lane: usize| operation(args.map(|values| values[lane])).unwrap_or_default();
    std::array::from_fn(of)
}

fn compare_floats(compare: Compare, a: f64, b: f64) -> bool {
    let nan = a.is_nan() || b.is_nan();
    match compare {
        Compare::Eq { or_nan } => {
            if nan {
                or_nan
            } else {
                a == b
            }
        }
        Compare::Ne { or_nan } => {
            if nan {
                or_nan
            } else {
                a != b
            }
        }
        Compare::Lt { or_nan } => {
            if nan {
                or_nan
            } else {
                a < b
            }
        }
        Compare::Le { or_nan } => {
            if nan {
                or_nan
            } else {
                a <= b
            }
        }
        Compare::Gt { or_nan } => {
            if nan {
                or_nan
            } else {
                a > b
            }
        }
        Compare::Ge { or_nan } => {
            if nan {
                or_nan
            } else {
                a >= b
            }
        }
        Compare::Num => !nan,
        Compare::Nan => nan,
    }
}

fn compare_integers(compare: Compare, a: u64, b: u64, ty: Ty) -> bool {
    let bits = ty.bits();
    let order = match is_signed(ty) {
        true => signed(a, bits).cmp(&signed(b, bits)),
        false => (a & mask(bits)).cmp(&(b & mask(bits))),
    };
    match compare {
        Compare::Eq { .. } => order.is_eq(),
        Compare::Ne { .. } => order.is_ne(),
        Compare::Lt { .. } => order.is_lt(),
        Compare::Le { .. } => order.is_le(),
        Compare::Gt { .. } => order.is_gt(),
        Compare::Ge { .. } => order.is_ge(),
        Compare::Num | Compare::Nan => false,
    }
}

#[inline(always)]
fn float_op(what: Alu, ty: Ty, [a, b, c]: [u64; 3]) -> Option<u64> {
    let sign = 1 << (ty.bits() - 1);
    // Signs are bits, also those of NaN.
    match what {
        Alu::Abs => return Some(a & !sign & mask(ty.bits())),
        Alu::Neg => return Some((a ^ sign) & mask(ty.bits())),
        Alu::CopySign => return Some(b & !sign & mask(ty.bits()) | a & sign),
        _ => {}
    }
    let [x, y, z] = [a, b, c].map(|bits| float(bits, ty));
    if ty == Ty::F32 {
        // In f32, so that each operation rounds once.
        let [x, y, z] = [x, y, z].map(|value| value as f32);
        let value = match what {
            Alu::Add => x + y,
            Alu::Sub => x - y,
            Alu::Mul => x * y,
            Alu::Div => x / y,
            Alu::Fma => x.mul_add(y, z),
            Alu::Sqrt => x.sqrt(),
            Alu::Rcp => 1.0 / x,
            Alu::RcpFlush => flushed(1.0 / flushed(x)),
            Alu::Ex2Flush => flushed(flushed(x).exp2()),
            _ => return wide_op(what, f64::from(x), f64::from(y), 0.0).map(|v| to_bits(v, ty)),
        };
        return Some(u64::from(value.to_bits()));
    }
    wide_op(what, x, y, z).map(|value| to_bits(value, ty))
}

/// Zero in the place of what is not normal.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

fn wide_op(what: Alu, x: f64, y: f64, z: f64) -> Option<f64> {
    let nan = x.is_nan() || y.is_nan();
    // -0 is less than +0; `f64::min` may give either.
    let least = |x: f64, y: f64| match x == y {
        true if x.is_sign_negative() => x,
        true => y,
        false => x.min(y),
    };
    Some(match what {
        Alu::Add => x + y,
        Alu::Sub => x - y,
        Alu::Mul => x * y,
        Alu::Div => x / y,
        Alu::Fma => x.mul_add(y, z),
        Alu::Min { nan: true } | Alu::Max { nan: true } if nan => f64::NAN,
        Alu::Min { .. } => least(x, y),
        Alu::Max { .. } => -least(-x, -y),
        Alu::Sqrt => x.sqrt(),
        Alu::Rsqrt => 1.0 / x.sqrt(),
        Alu::Rcp => 1.0 / x,
        Alu::Ex2 => x.exp2(),
        Alu::Lg2 => x.log2(),
        Alu::Tanh => x.tanh(),
        Alu::Sin => x.sin(),
        Alu::Cos => x.cos(),
        _ => return None,
    })
}

#[inline(always)]
fn integer_op(what: Alu, ty: Ty, [a, b, c]: [u64; 3]) -> Option<u64> {
    let bits = ty.bits();
    let all = mask(bits);
    let signs = is_signed(ty);
    let (sa, sb) = (signed(a, bits), signed(b, bits));
    let (ua, ub) = (a & all, b & all);
    let wide = |a: u64, b: u64| match signs {
        true => (i128::from(signed(a, bits)) * i128::from(signed(b, bits))) as u128,
        false => u128::from(a & all) * u128::from(b & all),
    };
    // A shift by the width or more leaves nothing but the sign.
    let by = b & 0xffff_ffff;
    let value = match what {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Fma => a.wrapping_mul(b).wrapping_add(c),
        Alu::MulHigh => (wide(a, b) >> bits) as u64,
        Alu::MulWide => return Some(wide(a, b) as u64 & mask(2 * bits)),
        Alu::MadWide => return Some((wide(a, b) as u64).wrapping_add(c) & mask(2 * bits)),
        // The hardware gives all ones.
        Alu::Div if ub == 0 => u64::MAX,
        Alu::Rem if ub == 0 => a,
        Alu::Div if signs => sa.wrapping_div(sb) as u64,
        Alu::Rem if signs => sa.wrapping_rem(sb) as u64,
        Alu::Div => ua / ub,
        Alu::Rem => ua % ub,
        Alu::Min { .. } if signs => sa.min(sb) as u64,
        Alu::Max { .. } if signs => sa.max(sb) as u64,
        Alu::Min { .. } => ua.min(ub),
        Alu::Max { .. } => ua.max(ub),
        Alu::Abs => sa.wrapping_abs() as u64,
        Alu::Neg => a.wrapping_neg(),
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
        Alu::Not => !a,
        Alu::Shl if by >= u64::from(bits) => 0,
        Alu::Shl => a << by,
        Alu::Shr if signs => (sa >> by.min(63)) as u64,
        Alu::Shr if by >= u64::from(bits) => 0,
        Alu::Shr => ua >> by,
        Alu::Permute => permute(a, b, c),
        Alu::BitField => bit_field(a, b, c, ty),
        Alu::FunnelLeft => funnel(a, b, c, true),
        Alu::FunnelRight => funnel(a, b, c, false),
        Alu::Population => u64::from(ua.count_ones()),
        Alu::LeadingZeros => u64::from(ua.leading_zeros()) - (64 - u64::from(bits)),
        Alu::Reverse => ua.reverse_bits() >> (64 - bits),
        Alu::Logic(table) => logic(table, a, b, c),
        _ => return None,
    };
    Some(value & all)
}

/// The 64 bits `b:a` shifted; the upper half of a shift to the left, the lower of one to the right.
fn funnel(a: u64, b: u64, by: u64, left: bool) -> u64 {
    let pair = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
    let by = by & 31;
    if left { pair << by >> 32 } else { pair >> by & 0xffff_ffff }
}

fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
    let byte = |i: u64| {
        let choice = selector >> (4 * i) & 0xf;
        let byte = bytes >> (8 * (choice & 7)) & 0xff;
        let replicates = choice & 8 != 0;
        (if replicates { (byte >> 7) * 0xff } else { byte }) << (8 * i)
    };
    (0..4).map(byte).sum()
}

fn bit_field(a: u64, start: u64, len: u64, ty: Ty) -> u64 {
    let (start, len) = ((start & 0xff).min(63) as u32, (len & 0xff) as u32);
    let field = (a & mask(ty.bits())) >> start & mask(len);
    match is_signed(ty) && (1..64).contains(&len) {
        true => signed(field, len) as u64,
        false => field,
    }
}

fn logic(table: u8, a: u64, b: u64, c: u64) -> u64 {
    let terms = (0..8).filter(|i| table >> i & 1 == 1).map(|i| {
        let one = |bit: u32, value: u64| if i >> bit & 1 == 1 { value } else { !value };
        one(2, a) & one(1, b) & one(0, c)
    });
    terms.fold(0, |all, term| all | term)
}

/// Bits of one type as those of another.
/// What a conversion leaves in a register: a signed integer that is narrower fills it with its sign.
fn convert(value: u64, from: Ty, to: Ty, round: Round, saturate: bool) -> u64 {
    let value = converted(value, from, to, round, saturate);
    match to {
        Ty::S(bits @ (8 | 16)) => signed(value, bits) as u64,
        _ => value,
    }
}

fn converted(value: u64, from: Ty, to: Ty, round: Round, saturate: bool) -> u64 {
    let is_float = |ty| matches!(ty, Ty::F16 | Ty::Bf16 | Ty::F32 | Ty::F64);
    match (is_float(from), is_float(to)) {
        _ if to == Ty::Tf32 => value.wrapping_add(0x1000) & 0xffff_e000,
        (false, false) if is_signed(from) => signed(value, from.bits()) as u64 & mask(to.bits()),
        (false, false) => value & mask(from.bits()) & mask(to.bits()),
        (false, true) => integer_to_float(value, from, to),
        (true, false) => to_integer(float(value, from), round, to),
        (true, true) => {
            let mut number = whole(float(value, from), round);
            if saturate {
                number = if number.is_nan() { 0.0 } else { number.clamp(0.0, 1.0) };
            }
            to_bits(number, to)
        }
    }
}

fn integer_to_float(value: u64, from: Ty, to: Ty) -> u64 {
    let (bits, signs) = (from.bits(), is_signed(from));
    match (to, signs) {
        (Ty::F32, true) => u64::from((signed(value, bits) as f32).to_bits()),
        (Ty::F32, false) => u64::from(((value & mask(bits)) as f32).to_bits()),
        (_, true) => to_bits(signed(value, bits) as f64, to),
        (_, false) => to_bits((value & mask(bits)) as f64, to),
    }
}

fn whole(number: f64, round: Round) -> f64 {
    match round {
        Round::NearestInt => number.round_ties_even(),
        Round::ZeroInt => number.trunc(),
        // Between floats PTX writes these for whole numbers too.
        Round::DownInt | Round::Down => number.floor(),
        Round::UpInt | Round::Up => number.ceil(),
        Round::Nearest | Round::Zero | Round::Away => number,
    }
}

fn to_integer(number: f64, round: Round, to: Ty) -> u64 {
    let number = match round {
        Round::Nearest | Round::NearestInt => number.round_ties_even(),
        Round::Down | Round::DownInt => number.floor(),
        Round::Up | Round::UpInt => number.ceil(),
        _ => number.trunc(),
    };
    let bits = to.bits();
    match is_signed(to) {
        true => {
            let most = (mask(bits) >> 1) as i64;
            (number as i64).clamp(-most - 1, most) as u64 & mask(bits)
        }
        false => (number as u64).min(mask(bits)),
    }
}

fn convert_pair(ty: Ty, upper: u64, lower: u64, saturate: bool) -> Option<u64> {
    let [upper, lower] = [upper, lower].map(|bits| f64::from(f32::from_bits(bits as u32)));
    if let Some(format) = small(ty) {
        let byte = |value| encoded(value, format, saturate);
        return Some(byte(upper) << 8 | byte(lower));
    }
    let half = |value| match ty {
        Ty::F16x2 => Some(to_bits(value, Ty::F16)),
        Ty::Bf16x2 => Some(to_bits(value, Ty::Bf16)),
        _ => None,
    };
    Some(half(upper)? << 16 | half(lower)?)
}

/// An element of a product's operand, from its bits.
pub(super) fn element(bits: u64, ty: Element) -> f64 {
    if ty == Element::F64 {
        return f64::from_bits(bits);
    }
    let bits = bits as u32;
    match ty {
        Element::S8 => f64::from(bits as i8),
        Element::U8 => f64::from(bits as u8),
        Element::F64 => f64::NAN,
        Element::F16 => f16::from_bits(bits as u16).to_f64(),
        Element::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        // The hardware does not look at the lower bits.
        Element::Tf32 => f64::from(f32::from_bits(bits & 0xffff_e000)),
        Element::E4m3 => Float8::E4M3.decode(bits as u8),
        Element::E5m2 => Float8::E5M2.decode(bits as u8),
    }
}

/// The format of a byte of a type.
fn small(ty: Ty) -> Option<Float8> {
    match ty {
        Ty::E4m3x2 => Some(Float8::E4M3),
        Ty::E5m2x2 => Some(Float8::E5M2),
        _ => None,
    }
}

/// A byte; where it saturates, what is too large becomes the largest number.
fn encoded(value: f64, format: Float8, saturate: bool) -> u64 {
    let bits = format.encode(value);
    let is_beyond = !value.is_nan() && bits & 0x7f > format.largest;
    u64::from(if saturate && is_beyond { bits & 0x80 | format.largest } else { bits })
}

/// Two bytes as two halves of f16.
fn widened(value: u64, format: Float8) -> u64 {
    let half = |byte: u64| to_bits(format.decode(byte as u8), Ty::F16);
    half(value & 0xff) | half(value >> 8 & 0xff) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(what: Alu, ty: Ty, args: [u64; 3], wanted: u64) {
        assert_eq!(compute(what, ty, args), Some(wanted), "{what:?} {ty:?} {args:x?}");
    }

    /// The loops of frequent operations give what one lane does.
    #[test]
    fn lanes_compute_as_one_does() {
        let mut state = 7u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> (state >> 58)
        };
        let operations = [
            Alu::Mov,
            Alu::Select,
            Alu::Add,
            Alu::Sub,
            Alu::Mul,
            Alu::MulWide,
            Alu::MadWide,
            Alu::Fma,
            Alu::And,
            Alu::Or,
            Alu::Xor,
            Alu::Not,
            Alu::Shl,
            Alu::Shr,
            Alu::Neg,
            Alu::Div,
            Alu::Compare(Compare::Lt { or_nan: false }),
            Alu::Compare(Compare::Ne { or_nan: true }),
        ];
        let types = [
            Ty::Pred,
            Ty::B(32),
            Ty::U(16),
            Ty::S(16),
            Ty::U(32),
            Ty::S(32),
            Ty::B(64),
            Ty::S(64),
            Ty::F16,
            Ty::Bf16,
            Ty::F32,
            Ty::F64,
            Ty::Bf16x2,
            Ty::F32x2,
        ];
        let cases = operations.iter().flat_map(|what| types.iter().map(move |ty| (*what, *ty)));
        for (what, ty) in cases {
            let args: [Values; 3] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
            let mask = draw() as u32 | 1;
            let one = |lane: usize| compute(what, ty, args.each_ref().map(|values| values[lane]));
            let is_known = lanes(mask).all(|lane| one(lane).is_some());
            let found = compute_all(what, ty, mask, args.each_ref());
            assert_eq!(found.is_some(), is_known, "{what:?} of {ty:?}");
            for (lane, found) in lanes(mask).filter_map(|lane| Some((lane, found?[lane]))) {
                assert_eq!(Some(found), one(lane), "{what:?} of {ty:?}: {args:x?}");
            }
        }
    }

    #[test]
    fn integers_wrap_and_sign() {
        check(Alu::Add, Ty::B(32), [u64::from(u32::MAX), 2, 0], 1);
        check(Alu::Shr, Ty::S(32), [0x8000_0000, 31, 0], 0xffff_ffff);
        check(Alu::MulWide, Ty::S(32), [0xffff_ffff, 3, 0], (-3_i64) as u64);
        check(Alu::MulHigh, Ty::U(32), [0x8000_0000, 6, 0], 3);
        check(Alu::Div, Ty::S(64), [(-7_i64) as u64, 2, 0], (-3_i64) as u64);
        check(Alu::BitField, Ty::U(32), [0xabcd, 4, 8], 0xbc);
        check(Alu::Permute, Ty::B(32), [0x4433_2211, 0x8877_6655, 0x7610], 0x8877_2211);
        check(Alu::FunnelLeft, Ty::B(32), [0x8000_0000, 1, 1], 3);
        check(Alu::LeadingZeros, Ty::B(32), [1, 0, 0], 31);
        check(Alu::Logic(0x96), Ty::B(32), [5, 3, 1], 5 ^ 3 ^ 1);
    }

    #[test]
    fn floats_round_once() {
        let one = u64::from(1.0_f32.to_bits());
        check(Alu::Fma, Ty::F32, [one, one, one], u64::from(2.0_f32.to_bits()));
        check(Alu::Max { nan: true }, Ty::F32, [0x7fc0_0000, one, 0], 0x7fc0_0000);
        check(Alu::Max { nan: false }, Ty::F32, [0x7fc0_0000, one, 0], one);
        let minus = 0x8000_0000;
        for nan in [false, true] {
            for operands in [[minus, 0, 0], [0, minus, 0]] {
                check(Alu::Max { nan }, Ty::F32, operands, 0);
                check(Alu::Min { nan }, Ty::F32, operands, minus);
            }
        }
        check(Alu::Neg, Ty::Bf16x2, [0x3f80_3f80, 0, 0], 0xbf80_bf80);
        check(Alu::ConvertPair { saturate: false }, Ty::Bf16x2, [one, 0, 0], 0x3f80_0000);
        let convert = Alu::Convert { from: Ty::F32, round: Round::ZeroInt, saturate: false };
        check(convert, Ty::S(32), [u64::from((-2.5_f32).to_bits()), 0, 0], 0xffff_fffe);
        let narrow = Alu::Convert { from: Ty::S(32), round: Round::Nearest, saturate: false };
        check(narrow, Ty::S(8), [0x1fe, 0, 0], u64::MAX - 1);
        check(narrow, Ty::U(8), [0x1fe, 0, 0], 0xfe);
        check(Alu::Add, Ty::S16x2, [0x0001_ffff, 0x0001_0001, 0], 0x0002_0000);
        let [two, three] = [2.0_f32, 3.0].map(|value| u64::from(value.to_bits()));
        check(Alu::Fma, Ty::F32x2, [one << 32 | two, two << 32 | one, one], two << 32 | three);
        let convert = Alu::Convert { from: Ty::F32, round: Round::Nearest, saturate: false };
        // A half of the last place, and a bit more.
        check(convert, Ty::Bf16, [0x3f80_8001, 0, 0], 0x3f81);
        check(convert, Ty::Bf16, [0x3f80_8000, 0, 0], 0x3f80);
    }

    #[test]
    fn bytes_are_floats() {
        assert_eq!(element(0x38, Element::E4m3), 1.0);
        assert_eq!(element(0x7e, Element::E4m3), 448.0);
        assert_eq!(element(0x3c, Element::E5m2), 1.0);
        let convert = Alu::Convert { from: Ty::E4m3x2, round: Round::Nearest, saturate: false };
        check(convert, Ty::F16x2, [0x38b8, 0, 0], 0x3c00_bc00);
        let [large, one] = [1e9_f32, 1.0].map(|value| u64::from(value.to_bits()));
        check(Alu::ConvertPair { saturate: true }, Ty::E4m3x2, [large, one, 0], 0x7e38);
    }
}
