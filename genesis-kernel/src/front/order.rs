//! Order along an axis: `flip`, `sort`, `argsort`, `topk`, and `histogram`.
//!
//! All are made of ops that there are. Elements change places with partners whose index differs in one bit: the
//! axis is cut at the bit, `[.., high, 2, low]`, and of both halves each gets `a ^ b`, which its own element
//! turns into the other:
//!
//! ```text
//! index            0 1 2 3 4 5 6 7
//! x                a b c d e f g h
//! bit 1, [2, 2, 2] (a b | c d)(e f | g h)
//! xor over axis 1  a^c b^d     e^g f^h
//! xor with x       c d a b     g h e f
//! ```
//!
//! Between lanes of a warp that is one shuffle an element, between registers nothing.
//!
//! Sorting is Batcher's bitonic network. What is sorted are integers in the order of the values; where indices
//! are wanted and the values have at most 32 bits, index and value are one integer of 64, which makes the sort
//! stable, and else a pair.

use crate::ir::{BinaryOp, Builder, DType, Predicate, Region, Scalar, Shape, Type, UnaryOp, Value};

use super::arguments::Call;
use super::broadcast::Class;
use super::lower::{Lower, Res};
use super::value::Val;

/// Axes that a tile may have besides the one that is cut in three.
const MAX_OTHERS: usize = 2;

/// Bins of a histogram, at most: each warp has counters for all of them in shared memory.
const MAX_BINS: usize = 1024;

/// `flip(x, axis)`
pub(super) fn flip(lower: &mut Lower, call: &Call) -> Res {
    let mut line = Line::of(lower, call)?;
    let dtype = line.dtype;
    let bits = signed(dtype);
    let mut x = lower.build().bitcast(line.value, bits);
    for bit in 0..line.log {
        x = line.cut(lower, x, bit);
        x = line.partners(lower, x);
    }
    x = line.whole(lower, x);
    line.value = lower.build().bitcast(x, dtype);
    let value = line.restored(lower);
    Ok(line.wrap(value))
}

/// `sort(x, axis)`; the flag `true` sorts the largest first.
pub(super) fn sort(lower: &mut Lower, call: &Call) -> Res {
    let descending = lower.known_flag(call.args.get(2), false)?;
    let mut line = Line::of(lower, call)?;
    let key = key_of(&mut lower.build(), line.value, line.dtype, descending);
    let keys = line.select(lower, Keys::One(key), line.log)?;
    let Keys::One(key) = keys else { return Err(lower.error(call.span, "`sort` lost its keys")) };
    line.value = value_of(&mut lower.build(), key, line.dtype, descending);
    let value = line.restored(lower);
    Ok(line.wrap(value))
}

/// `argsort(x, axis)`; the flag `true` takes the largest first.
pub(super) fn argsort(lower: &mut Lower, call: &Call) -> Res {
    let descending = lower.known_flag(call.args.get(2), false)?;
    let mut line = Line::of(lower, call)?;
    let (_, indices) = line.select_with_index(lower, line.log, descending)?;
    line.value = indices;
    Ok(Val::Ir(line.restored(lower)))
}

/// `topk::<K>(x, axis)`: values and indices.
pub(super) fn topk(lower: &mut Lower, call: &Call) -> Res {
    let mut line = Line::of(lower, call)?;
    let k = call.shape(lower)?.numel();
    if !k.is_power_of_two() || k > 1 << line.log {
        let message = format!("`topk` of {k} among {} elements", 1 << line.log);
        let help = "the number is a power of two and at most the axis' extent";
        return Err(lower.error(call.span, message).help(help));
    }
    let (values, indices) = line.select_with_index(lower, k.trailing_zeros(), true)?;
    line.value = values;
    let values = line.restored(lower);
    line.value = indices;
    let indices = line.restored(lower);
    Ok(Val::Tuple(vec![line.wrap(values), Val::Ir(indices)]))
}

/// `histogram::<BINS>(x)`
pub(super) fn histogram(lower: &mut Lower, call: &Call) -> Res {
    let (_, counts) = counted(lower, call, "`histogram`")?;
    Ok(Val::Ir(counts))
}

/// `histogram_with_ranks::<BINS>(x)`: how many equal elements come before each, and the histogram.
pub(super) fn histogram_with_ranks(lower: &mut Lower, call: &Call) -> Res {
    let (ranks, counts) = counted(lower, call, "`histogram_with_ranks`")?;
    Ok(Val::Tuple(vec![Val::Ir(ranks), Val::Ir(counts)]))
}

/// Ranks in the shape of the tile, and counts.
fn counted(lower: &mut Lower, call: &Call, name: &str) -> Res<(Value, Value)> {
    let bins = call.shape(lower)?.numel();
    let aligned = lower.align(name, Class::Int, &[&call.args[0]])?;
    let elements = aligned.shape.numel();
    if aligned.shape.is_scalar() || !elements.is_power_of_two() {
        let found = lower.describe(&call.args[0].val);
        let error = lower.error(call.span, format!("{name} of {found}"));
        return Err(error.help("it takes a tile whose number of elements is a power of two"));
    }
    if bins > MAX_BINS {
        let error = lower.error(call.span, format!("{name} of {bins} bins"));
        return Err(error.help(format!("it takes at most {MAX_BINS}")));
    }
    let mut build = lower.build();
    let line = build.reshape(aligned.values[0], Shape::new(&[elements]));
    let bin = bin_of(&mut build, line, aligned.dtype, bins);
    let (ranks, counts) = build.histogram(bin, bins);
    Ok((build.reshape(ranks, aligned.shape), counts))
}

/// Integers of 32 bits that have a bin if these have one.
fn bin_of(build: &mut Builder<'_>, x: Value, dtype: DType, bins: usize) -> Value {
    if dtype.bits() <= 32 {
        return build.cast(x, DType::I32);
    }
    let shape = build.func.tile(x).shape;
    let [none, end] = [-1, bins as i64].map(|n| build.full(Scalar::int(DType::I64, n), shape));
    let x = build.bitcast(x, DType::I64);
    let is_above = build.compare(Predicate::Gt, x, none);
    let is_below = build.compare(Predicate::Lt, x, end);
    let inside = build.binary(BinaryOp::And, is_above, is_below);
    let bin = build.select(inside, x, none);
    build.cast(bin, DType::I32)
}

/// The signed integer with as many bits.
fn signed(dtype: DType) -> DType {
    match dtype.bits() {
        8 => DType::I8,
        16 => DType::I16,
        32 => DType::I32,
        _ => DType::I64,
    }
}

/// Integers in the order of the values, or its reverse: of floats the bits, those of negative ones turned around,
/// and the largest for NaN.
fn key_of(build: &mut Builder<'_>, x: Value, dtype: DType, reverse: bool) -> Value {
    let mut key = x;
    if dtype.is_float() {
        let bits = signed(dtype);
        let shape = build.func.tile(x).shape;
        let is_number = build.compare(Predicate::Eq, x, x);
        let raw = build.bitcast(x, bits);
        let ordered = turned(build, raw);
        let largest = build.full(Scalar::int(bits, magnitude(bits)), shape);
        key = build.select(is_number, ordered, largest);
    }
    if reverse { build.unary(UnaryOp::Not, key) } else { key }
}

/// The values of keys.
fn value_of(build: &mut Builder<'_>, key: Value, dtype: DType, reverse: bool) -> Value {
    let key = if reverse { build.unary(UnaryOp::Not, key) } else { key };
    if !dtype.is_float() {
        return key;
    }
    let raw = turned(build, key);
    build.bitcast(raw, dtype)
}

/// Integers whose other bits are flipped where the sign is set; its own inverse.
fn turned(build: &mut Builder<'_>, x: Value) -> Value {
    let tile = build.func.tile(x);
    let zero = build.full(Scalar::zero(tile.dtype()), tile.shape);
    let rest = build.full(Scalar::int(tile.dtype(), magnitude(tile.dtype())), tile.shape);
    let is_negative = build.compare(Predicate::Lt, x, zero);
    let other = build.binary(BinaryOp::Xor, x, rest);
    build.select(is_negative, other, x)
}

/// All bits but the sign's.
fn magnitude(dtype: DType) -> i64 {
    i64::MAX >> (64 - dtype.bits())
}

/// What a network moves: one integer an element, or a key and an index.
#[derive(Clone, Copy)]
enum Keys {
    One(Value),
    Pair(Value, Value),
}

impl Keys {
    fn map(self, mut f: impl FnMut(Value) -> Value) -> Keys {
        match self {
            Keys::One(x) => Keys::One(f(x)),
            Keys::Pair(key, index) => Keys::Pair(f(key), f(index)),
        }
    }
}

/// A tile with the axis at hand last.
struct Line {
    value: Value,
    dtype: DType,
    soft: bool,
    /// The other axes.
    others: Vec<usize>,
    /// Where the axis was, and the number of axes.
    axis: usize,
    /// The logarithm of its extent.
    log: u32,
}

impl Line {
    fn of(lower: &mut Lower, call: &Call) -> Res<Line> {
        let what = format!("`{}`", call.name);
        let aligned = lower.align(&what, Class::Number, &[&call.args[0]])?;
        let shape = aligned.shape;
        if shape.is_scalar() {
            let found = lower.describe(&call.args[0].val);
            return Err(lower.error(call.span, format!("{what} needs a tile, this is {found}")));
        }
        let axis = call.axis(lower, 1, shape.rank())?;
        let extent = shape.extent(axis);
        if !extent.is_power_of_two() {
            let message = format!("{what} along axis {axis} of {shape}, which is no power of two");
            let error = lower.error(call.span, message);
            return Err(error.help("make the tile larger, and fill it with what comes last"));
        }
        if shape.rank() > MAX_OTHERS + 1 {
            let most = MAX_OTHERS + 1;
            return Err(
                lower.error(call.span, format!("{what} takes tiles of at most {most} axes"))
            );
        }
        let mut others = shape.extents();
        others.remove(axis);
        let mut order: Vec<u8> = (0..shape.rank() as u8).collect();
        order.remove(axis);
        order.push(axis as u8);
        let mut value = aligned.values[0];
        if axis + 1 != shape.rank() {
            value = lower.build().transpose(value, &order);
        }
        let (dtype, soft, log) = (aligned.dtype, aligned.soft, extent.trailing_zeros());
        Ok(Line { value, dtype, soft, others, axis, log })
    }

    fn wrap(&self, value: Value) -> Val {
        if self.soft { Val::Soft(value) } else { Val::Ir(value) }
    }

    /// The value with the axis where it was.
    fn restored(&self, lower: &mut Lower) -> Value {
        let rank = self.others.len();
        if self.axis == rank {
            return self.value;
        }
        let mut order: Vec<u8> = (0..rank as u8).collect();
        order.insert(self.axis, rank as u8);
        lower.build().transpose(self.value, &order)
    }

    fn shape(&self, last: &[usize]) -> Shape {
        let extents: Vec<usize> = self.others.iter().chain(last).copied().collect();
        Shape::new(&extents)
    }

    /// The axis as three, of which the middle one is a bit of the index.
    fn cut(&self, lower: &mut Lower, x: Value, bit: u32) -> Value {
        let shape = self.shape(&[1 << (self.log - bit - 1), 2, 1 << bit]);
        lower.build().reshape(x, shape)
    }

    /// The axis as one.
    fn whole(&self, lower: &mut Lower, x: Value) -> Value {
        let shape = self.shape(&[1 << self.log]);
        lower.build().reshape(x, shape)
    }

    /// For each element the one whose index differs in the bit that the axis is cut at.
    fn partners(&self, lower: &mut Lower, x: Value) -> Value {
        let mut build = lower.build();
        let shape = build.func.tile(x).shape;
        let axis = self.others.len() + 1;
        let both = build.reduce(BinaryOp::Xor, x, axis);
        let both = build.expand_dims(both, axis);
        let both = build.broadcast(both, shape);
        build.binary(BinaryOp::Xor, both, x)
    }

    /// Where the smaller of two partners goes: to the lower place, or to the upper one where the bit `run` of the
    /// index is set.
    fn takes_smaller(&self, lower: &mut Lower, bit: u32, run: u32) -> Value {
        let lead = self.others.len();
        let shape = self.shape(&[1 << (self.log - bit - 1), 2, 1 << bit]);
        let mut build = lower.build();
        let along = |build: &mut Builder<'_>, extent: usize, axis: usize| {
            let mut x = build.iota(extent);
            for _ in 0..axis {
                x = build.expand_dims(x, 0);
            }
            for axis in axis + 1..shape.rank() {
                x = build.expand_dims(x, axis);
            }
            build.broadcast(x, shape)
        };
        let place = along(&mut build, 2, lead + 1);
        let mut is_upper = place;
        if run < self.log {
            let high = along(&mut build, shape.extent(lead), lead);
            let distance = build.full(Scalar::int(DType::I64, i64::from(run - bit - 1)), shape);
            let turned = build.binary(BinaryOp::Shr, high, distance);
            is_upper = build.binary(BinaryOp::Xor, place, turned);
        }
        let one = build.full(Scalar::int(DType::I64, 1), shape);
        let is_upper = build.binary(BinaryOp::And, is_upper, one);
        let zero = build.full(Scalar::int(DType::I64, 0), shape);
        build.compare(Predicate::Eq, is_upper, zero)
    }

    /// One step of the network: partners at the distance of `bit` are put in order, by the bit `run`.
    fn exchange(&self, lower: &mut Lower, keys: Keys, bit: u32, run: u32) -> Keys {
        let keys = keys.map(|x| self.cut(lower, x, bit));
        let smaller = self.takes_smaller(lower, bit, run);
        let theirs = keys.map(|x| self.partners(lower, x));
        let mut build = lower.build();
        match (keys, theirs) {
            (Keys::One(a), Keys::One(b)) => {
                let low = build.binary(BinaryOp::Min, a, b);
                let high = build.binary(BinaryOp::Max, a, b);
                Keys::One(build.select(smaller, low, high))
            }
            (Keys::Pair(a, i), Keys::Pair(b, j)) => {
                let comes_first = before(&mut build, [b, j], [a, i]);
                let takes = build.compare(Predicate::Eq, comes_first, smaller);
                Keys::Pair(build.select(takes, b, a), build.select(takes, j, i))
            }
            (keys, _) => keys,
        }
    }

    /// The `2^log_k` smallest along the axis, in order; the axis is as long then.
    ///
    /// Runs of that many are sorted, up and down in turns. Of two such the smaller elements of each place are
    /// the smallest of both, and bitonic: they are put in order until one run is left.
    fn select(&mut self, lower: &mut Lower, mut keys: Keys, log_k: u32) -> Res<Keys> {
        for run in 1..=log_k {
            for bit in (0..run).rev() {
                keys = self.exchange(lower, keys, bit, run);
            }
        }
        while self.log > log_k {
            let shape = self.shape(&[1 << (self.log - log_k - 1), 2, 1 << log_k]);
            let axis = self.others.len() + 1;
            let pairs = keys.map(|x| lower.build().reshape(x, shape));
            keys = match pairs {
                Keys::One(x) => Keys::One(lower.build().reduce(BinaryOp::Min, x, axis)),
                Keys::Pair(key, index) => {
                    let region = smaller_region(lower, key);
                    let results = lower.build().reduce_region(&[key, index], axis, region);
                    Keys::Pair(results[0], results[1])
                }
            };
            self.log -= 1;
            for bit in (0..log_k).rev() {
                keys = self.exchange(lower, keys, bit, log_k);
            }
        }
        Ok(keys.map(|x| self.whole(lower, x)))
    }

    /// The first `2^log_k` in order, and their indices.
    fn select_with_index(
        &mut self,
        lower: &mut Lower,
        log_k: u32,
        descending: bool,
    ) -> Res<(Value, Value)> {
        let shape = self.shape(&[1 << self.log]);
        let mut build = lower.build();
        let mut index = build.iota(1 << self.log);
        for _ in &self.others {
            index = build.expand_dims(index, 0);
        }
        let index = build.broadcast(index, shape);
        let key = key_of(&mut build, self.value, self.dtype, descending);
        if self.dtype.bits() > 32 {
            let Keys::Pair(key, index) = self.select(lower, Keys::Pair(key, index), log_k)? else {
                return Ok((key, index));
            };
            let value = value_of(&mut lower.build(), key, self.dtype, descending);
            return Ok((value, index));
        }
        let own = build.func.tile(key).dtype();
        let wide = if own.is_signed_int() { DType::I64 } else { DType::U64 };
        let (key, index) = (build.cast(key, wide), build.cast(index, wide));
        let half = build.full(Scalar::int(wide, 32), shape);
        let key = build.binary(BinaryOp::Shl, key, half);
        let both = build.binary(BinaryOp::Or, key, index);
        let Keys::One(both) = self.select(lower, Keys::One(both), log_k)? else {
            return Ok((both, both));
        };
        let mut build = lower.build();
        let shape = build.func.tile(both).shape;
        let half = build.full(Scalar::int(wide, 32), shape);
        let low = build.full(Scalar::int(wide, 0xffff_ffff), shape);
        let key = build.binary(BinaryOp::Shr, both, half);
        let key = build.cast(key, own);
        let index = build.binary(BinaryOp::And, both, low);
        let index = build.cast(index, DType::I64);
        Ok((value_of(&mut build, key, self.dtype, descending), index))
    }
}

/// Whether the first of two (key, index) pairs comes before the second.
fn before(build: &mut Builder<'_>, [a, i]: [Value; 2], [b, j]: [Value; 2]) -> Value {
    let less = build.compare(Predicate::Lt, a, b);
    let same = build.compare(Predicate::Eq, a, b);
    let earlier = build.compare(Predicate::Lt, i, j);
    let tie = build.binary(BinaryOp::And, same, earlier);
    build.binary(BinaryOp::Or, less, tie)
}

/// The region that keeps the pair that comes first.
fn smaller_region(lower: &mut Lower, key: Value) -> Region {
    let dtype = lower.func.tile(key).dtype();
    let region = lower.func.add_region();
    let types = [dtype, DType::I64, dtype, DType::I64].map(Type::scalar);
    let [a, i, b, j] = types.map(|ty| lower.func.add_region_arg(region, ty));
    lower.within(region, |lower| {
        let mut build = lower.build();
        let takes = before(&mut build, [b, j], [a, i]);
        let key = build.select(takes, b, a);
        let index = build.select(takes, j, i);
        build.yield_values(&[key, index]);
    });
    region
}
