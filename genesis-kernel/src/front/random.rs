//! Random numbers: Philox 4x32-10, a function of a seed and an index, the same on every machine.
//!
//! The counter is (low half of the index, high half, 0, 0), the key (low half of the seed, high
//! half), and the result four words w0..w3 of 32 bits.
//!
//! * `rand(seed, index)` is `(w0 >> 8) * 2^-24`: f32 in [0, 1), every value exact.
//! * `randn(seed, index)` is Box and Muller's `sqrt(-2 ln u) cos(2 pi v)` with
//!   `u = ((w0 >> 8) + 1) * 2^-24` in (0, 1] and `v = (w1 >> 8) * 2^-24`, all in f32.
//! * `randint(seed, index)` is `w0`: u32, every value equally likely.
//! * `randint4x(seed, index)` is all four.
//! * `randint(seed, index, low, high)` is `low + floor(w0 * (high - low) / 2^32)`: i64 in
//!   [low, high), for ranges up to 2^32 wide; an empty range gives `low`.
//!
//! Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).

use crate::ir::{BinaryOp, Builder, DType, Scalar, Shape, UnaryOp, Value};

use super::arguments::Call;
use super::broadcast::Class;
use super::lower::{Lower, Res};
use super::value::Val;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// `rand(seed, index)`
pub(super) fn rand(lower: &mut Lower, call: &Call) -> Res {
    let (words, shape) = words(lower, call)?;
    let mut build = lower.build();
    Ok(Val::Ir(unit_interval(&mut build, words[0], shape, 0)))
}

/// `randn(seed, index)`
pub(super) fn randn(lower: &mut Lower, call: &Call) -> Res {
    let (words, shape) = words(lower, call)?;
    let mut build = lower.build();
    let u = unit_interval(&mut build, words[0], shape, 1);
    let v = unit_interval(&mut build, words[1], shape, 0);
    let log = build.unary(UnaryOp::Log, u);
    let minus_two = build.full(Scalar::float(DType::F32, -2.0), shape);
    let square = build.binary(BinaryOp::Mul, minus_two, log);
    let radius = build.unary(UnaryOp::Sqrt, square);
    let turn = build.full(Scalar::float(DType::F32, std::f64::consts::TAU), shape);
    let angle = build.binary(BinaryOp::Mul, turn, v);
    let cos = build.unary(UnaryOp::Cos, angle);
    Ok(Val::Ir(build.binary(BinaryOp::Mul, radius, cos)))
}

/// `randint(seed, index)`, `randint(seed, index, low, high)`
pub(super) fn randint(lower: &mut Lower, call: &Call) -> Res {
    let (words, shape) = words(lower, call)?;
    let [_, _, low, high] = &call.args[..] else {
        return match call.args.len() {
            2 => Ok(Val::Ir(words[0])),
            _ => Err(lower.error(call.span, "`randint` takes both `low` and `high`, or neither")),
        };
    };
    let low = lower.scalar_index("`randint`", low)?;
    let high = lower.scalar_index("`randint`", high)?;
    let mut build = lower.build();
    let range = build.binary(BinaryOp::Sub, high, low);
    let range = build.cast(range, DType::U64);
    let range = build.broadcast(range, shape);
    let word = build.cast(words[0], DType::U64);
    let product = build.binary(BinaryOp::Mul, word, range);
    let bits = build.full(Scalar::int(DType::U64, 32), shape);
    let step = build.binary(BinaryOp::Shr, product, bits);
    let step = build.cast(step, DType::I64);
    let low = build.broadcast(low, shape);
    Ok(Val::Ir(build.binary(BinaryOp::Add, low, step)))
}

/// `randint4x(seed, index)`: all four words.
pub(super) fn randint4x(lower: &mut Lower, call: &Call) -> Res {
    let (words, _) = words(lower, call)?;
    Ok(Val::Tuple(words.map(Val::Ir).to_vec()))
}

/// The four words for the seed and index of a call, with the index's shape.
fn words(lower: &mut Lower, call: &Call) -> Res<([Value; 4], Shape)> {
    let what = format!("the seed of `{}`", call.name);
    let seed = &call.args[0];
    if !lower.number_dtype(&what, seed)?.is_int() {
        return Err(lower.wrong_class(&what, Class::Int, seed));
    }
    let key = if lower.is_soft(&seed.val) {
        lower.coerce(seed, DType::U64)?
    } else {
        let (value, _) = lower.number(&what, seed)?;
        lower.build().cast(value, DType::U64)
    };
    if !lower.func.tile(key).shape.is_scalar() {
        let found = lower.describe(&seed.val);
        return Err(lower.error(seed.span(), format!("{what} is a scalar, this is {found}")));
    }
    let index = lower.index(&format!("the index of `{}`", call.name), &call.args[1])?;
    let shape = lower.func.tile(index).shape;
    let mut build = lower.build();
    let index = build.cast(index, DType::U64);
    let key = halves(&mut build, key, Shape::SCALAR);
    let [low, high] = halves(&mut build, index, shape);
    let zero = build.full(Scalar::zero(DType::U32), shape);
    Ok((philox(&mut build, [low, high, zero, zero], key), shape))
}

/// `((word >> 8) + plus) * 2^-24` as f32.
fn unit_interval(build: &mut Builder<'_>, word: Value, shape: Shape, plus: i64) -> Value {
    let eight = build.full(Scalar::int(DType::U32, 8), shape);
    let mut bits = build.binary(BinaryOp::Shr, word, eight);
    if plus != 0 {
        let plus = build.full(Scalar::int(DType::U32, plus), shape);
        bits = build.binary(BinaryOp::Add, bits, plus);
    }
    let value = build.cast(bits, DType::F32);
    let scale = build.full(Scalar::float(DType::F32, 1.0 / f64::from(1 << 24)), shape);
    build.binary(BinaryOp::Mul, value, scale)
}

/// The four words of Philox 4x32-10 for a counter of tiles and a key of scalars, all u32.
fn philox(build: &mut Builder<'_>, mut counter: [Value; 4], mut key: [Value; 2]) -> [Value; 4] {
    let shape = build.func.tile(counter[0]).shape;
    let multipliers = MULTIPLIERS.map(|m| build.full(Scalar::int(DType::U32, i64::from(m)), shape));
    for round in 0..ROUNDS {
        if round > 0 {
            for (half, weyl) in key.iter_mut().zip(WEYL) {
                let weyl = build.int(DType::U32, i64::from(weyl));
                *half = build.binary(BinaryOp::Add, *half, weyl);
            }
        }
        let [c0, c1, c2, c3] = counter;
        let [k0, k1] = key.map(|half| build.broadcast(half, shape));
        let high0 = build.binary(BinaryOp::MulHi, multipliers[0], c0);
        let low0 = build.binary(BinaryOp::Mul, multipliers[0], c0);
        let high1 = build.binary(BinaryOp::MulHi, multipliers[1], c2);
        let low1 = build.binary(BinaryOp::Mul, multipliers[1], c2);
        let mixed0 = build.binary(BinaryOp::Xor, high1, c1);
        let mixed1 = build.binary(BinaryOp::Xor, high0, c3);
        counter = [
            build.binary(BinaryOp::Xor, mixed0, k0),
            low1,
            build.binary(BinaryOp::Xor, mixed1, k1),
            low0,
        ];
    }
    counter
}

/// The low and high half of u64 as u32.
fn halves(build: &mut Builder<'_>, value: Value, shape: Shape) -> [Value; 2] {
    let low = build.cast(value, DType::U32);
    let bits = build.full(Scalar::int(DType::U64, 32), shape);
    let high = build.binary(BinaryOp::Shr, value, bits);
    [low, build.cast(high, DType::U32)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Func, OpKind, scalar};

    fn check(counter: [u32; 4], key: [u32; 2], expected: [u32; 4]) {
        let mut func = Func::new("test");
        let mut build = Builder::new(&mut func);
        let counter = counter.map(|word| build.int(DType::U32, i64::from(word)));
        let key = key.map(|word| build.int(DType::U32, i64::from(word)));
        let words = philox(&mut build, counter, key);
        let mut known = std::collections::BTreeMap::new();
        for op in func.walk() {
            let data = func.op(op);
            let operand = |i: usize| known[&data.operands[i]];
            let result = match data.kind {
                OpKind::Const(scalar) => scalar,
                OpKind::Broadcast => operand(0),
                OpKind::Binary(kind) => scalar::binary(kind, operand(0), operand(1)),
                ref kind => panic!("{kind:?}"),
            };
            known.insert(data.results[0], result);
        }
        assert_eq!(words.map(|word| known[&word].bits as u32), expected);
    }

    /// The vectors that come with Random123.
    #[test]
    fn gives_the_known_answers() {
        check([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        check([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }
}
