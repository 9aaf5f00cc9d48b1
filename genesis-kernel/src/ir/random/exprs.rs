//! Pure ops: elementwise, casts, shapes, reductions, scans, dots.

use super::super::func::Value;
use super::super::number::Scalar;
use super::super::ops::{BinaryOp, DotPrecision, Predicate, UnaryOp};
use super::super::types::{DType, Shape};
use super::Maker;

/// What reduces and scans, by dtype.
const REDUCTIONS: [BinaryOp; 9] = [
    BinaryOp::Add,
    BinaryOp::Mul,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::MinNum,
    BinaryOp::MaxNum,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
];

/// Exact in every dtype that has them.
const EXACT_FLOAT: [UnaryOp; 7] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sqrt,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::Round,
    UnaryOp::Trunc,
];

/// Exact once they are expanded.
pub(super) const TRANSCENDENTAL: [UnaryOp; 12] = [
    UnaryOp::Rsqrt,
    UnaryOp::Exp,
    UnaryOp::Exp2,
    UnaryOp::Log,
    UnaryOp::Log2,
    UnaryOp::Log1p,
    UnaryOp::Tan,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Sigmoid,
];

impl Maker {
    /// Adds one op, or one construct, of any kind.
    pub(super) fn step(&mut self) {
        match self.rng.below(100) {
            0..14 => self.unary(),
            14..42 => self.binary(),
            42..49 => self.compare(),
            49..55 => self.select(),
            55..58 => self.fma(),
            58..64 => self.cast(),
            64..67 => self.bitcast(),
            67..74 => self.reshape_or_move(),
            74..79 => self.reduce(),
            79..82 => self.scan(),
            82..84 => self.combine_pairs(),
            84..86 => self.dot(),
            86..88 => self.load_block(),
            88..90 => self.gather(),
            90..92 => self.view_load(),
            92..94 => self.atomics(),
            94..96 => self.for_loop(),
            96 => self.while_loop(),
            _ => self.branch(),
        }
    }

    fn unary(&mut self) {
        let Some(x) = self.pick(has_arithmetic) else { return };
        let (dtype, _) = self.data_type(x);
        let op = if dtype == DType::Bool {
            UnaryOp::Not
        } else if !dtype.is_float() {
            self.rng.pick(&[UnaryOp::Neg, UnaryOp::Not, UnaryOp::Abs])
        } else if self.options.transcendental && self.rng.chance(50) {
            self.rng.pick(&TRANSCENDENTAL)
        } else {
            self.rng.pick(&EXACT_FLOAT)
        };
        let value = self.build().unary(op, x);
        self.keep_above(value, &[x]);
    }

    fn binary_op(&mut self, dtype: DType) -> BinaryOp {
        let all: Vec<BinaryOp> =
            BinaryOp::ALL.iter().copied().filter(|&op| is_binary_of(op, dtype)).collect();
        // Plain arithmetic half of the time.
        let op = self.rng.pick(&all);
        if dtype != DType::Bool && self.rng.chance(50) {
            self.rng.pick(&[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul])
        } else {
            op
        }
    }

    fn binary(&mut self) {
        let Some(a) = self.pick(has_arithmetic) else { return };
        let (dtype, shape) = self.data_type(a);
        let op = self.binary_op(dtype);
        let b = self.operand(dtype, shape);
        let (left, right) = if self.rng.chance(50) { (a, b) } else { (b, a) };
        let value = self.build().binary(op, left, right);
        self.keep_above(value, &[a, b]);
    }

    fn compare(&mut self) {
        let Some(a) = self.pick(|ty| !ty.is_ptr()) else { return };
        let (dtype, shape) = self.data_type(a);
        let b = self.operand(dtype, shape);
        let predicate = self.rng.pick(Predicate::ALL);
        let value = self.build().compare(predicate, a, b);
        self.keep_above(value, &[a, b]);
    }

    fn select(&mut self) {
        let Some(a) = self.pick(|ty| !ty.is_ptr()) else { return };
        let (dtype, shape) = self.data_type(a);
        let b = self.operand(dtype, shape);
        let cond = self.operand(DType::Bool, shape);
        let value = self.build().select(cond, a, b);
        self.keep_above(value, &[a, b, cond]);
    }

    fn fma(&mut self) {
        let (dtype, shape) = (self.float_dtype(), self.shape());
        let [a, b, c] = [(); 3].map(|()| self.operand(dtype, shape));
        let value = self.build().fma(a, b, c);
        self.keep_above(value, &[a, b, c]);
    }

    fn float_dtype(&mut self) -> DType {
        self.rng.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64])
    }

    fn cast(&mut self) {
        let Some(x) = self.pick(|ty| !ty.is_ptr()) else { return };
        let to = self.dtype();
        let value = self.build().cast(x, to);
        if value != x {
            self.keep_above(value, &[x]);
        }
    }

    fn bitcast(&mut self) {
        let Some(x) = self.pick(|ty| !ty.is_ptr() && ty.dtype() != DType::Bool) else { return };
        let (from, _) = self.data_type(x);
        let all: Vec<DType> =
            DType::ALL.into_iter().filter(|d| d.bits() == from.bits() && *d != from).collect();
        let to = self.rng.pick(&all);
        let clean = self.without_nan(x);
        let value = self.build().bitcast(clean, to);
        self.keep_above(value, &[x]);
    }

    /// The value with 0 where it is NaN: a NaN's bits are not defined.
    fn without_nan(&mut self, x: Value) -> Value {
        let (dtype, shape) = self.data_type(x);
        if !dtype.is_float() {
            return x;
        }
        let mut build = self.build();
        let is_number = build.compare(Predicate::Eq, x, x);
        let zero = build.full(Scalar::zero(dtype), shape);
        build.select(is_number, x, zero)
    }

    fn reshape_or_move(&mut self) {
        let Some(x) = self.pick(|ty| !ty.is_ptr()) else { return };
        let (_, shape) = self.data_type(x);
        let value = match self.rng.below(6) {
            0 => self.reshape(x, shape),
            1 => self.transpose(x, shape),
            2 => self.widen(x, shape),
            3 => self.join(x, shape),
            4 => self.gather_along(x, shape),
            _ => self.split(x, shape),
        };
        if let Some(value) = value {
            self.keep_above(value, &[x]);
        }
    }

    /// Flattens, or divides one extent in two.
    fn reshape(&mut self, x: Value, shape: Shape) -> Option<Value> {
        let n = shape.numel();
        if !self.may_reshape(n) {
            return None;
        }
        let factors: Vec<usize> = (2..n).filter(|f| n.is_multiple_of(*f)).collect();
        let to = if factors.is_empty() || self.rng.chance(30) {
            Shape::new(&[n])
        } else {
            let first = self.rng.pick(&factors);
            Shape::new(&[first, n / first])
        };
        (to != shape).then(|| self.build().reshape(x, to))
    }

    fn transpose(&mut self, x: Value, shape: Shape) -> Option<Value> {
        let rank = shape.rank();
        if rank < 2 {
            return None;
        }
        let mut perm: Vec<u8> = (0..rank as u8).collect();
        let by = self.rng.range(1, rank - 1);
        perm.rotate_left(by);
        if rank > 2 && self.rng.chance(50) {
            perm.swap(0, 1);
        }
        Some(self.build().transpose(x, &perm))
    }

    /// A new axis, repeated.
    fn widen(&mut self, x: Value, shape: Shape) -> Option<Value> {
        let extent = self.rng.pick(&[1, 2, 3, 4, 8]);
        if shape.rank() > 2 || shape.numel() * extent > self.most_elements() {
            return None;
        }
        let axis = self.rng.range(0, shape.rank());
        let to = shape.with(axis, extent);
        let mut build = self.build();
        let unit = build.expand_dims(x, axis);
        Some(build.broadcast(unit, to))
    }

    /// Elements at places that are computed, most of them inside of the tile.
    fn gather_along(&mut self, x: Value, shape: Shape) -> Option<Value> {
        if shape.is_scalar() {
            return None;
        }
        let axis = self.rng.below(shape.rank());
        let extent = self.rng.pick(&[shape.extent(axis), shape.extent(axis), 1, 3, 8]);
        let to = shape.without(axis).with(axis, extent);
        if to.numel() > self.most_elements() {
            return None;
        }
        let dtype = self.rng.pick(&[DType::I64, DType::I32, DType::U32, DType::I8, DType::U8]);
        let index = self.operand(dtype, to);
        let mut build = self.build();
        let most = (shape.extent(axis) as i64 + 1).min(i64::from(i8::MAX));
        let most = build.full(Scalar::int(dtype, most), to);
        let index = build.binary(BinaryOp::Rem, index, most);
        Some(build.gather(x, index, axis))
    }

    fn join(&mut self, x: Value, shape: Shape) -> Option<Value> {
        if shape.rank() > 2 || shape.numel() * 2 > self.most_elements() {
            return None;
        }
        let (dtype, _) = self.data_type(x);
        let other = self.operand(dtype, shape);
        Some(self.build().join(x, other))
    }

    fn split(&mut self, x: Value, shape: Shape) -> Option<Value> {
        let n = shape.numel();
        if !n.is_multiple_of(2) || !self.may_reshape(n) {
            return None;
        }
        let mut build = self.build();
        let pairs = build.reshape(x, Shape::new(&[n / 2, 2]));
        let (even, odd) = build.split(pairs);
        self.keep_above(odd, &[x]);
        Some(even)
    }

    /// Whether combining this dtype by this op gives the same bits in every order.
    fn reduces(&self, op: BinaryOp, dtype: DType) -> bool {
        let in_order = dtype.is_float() && matches!(op, BinaryOp::Add | BinaryOp::Mul);
        is_binary_of(op, dtype) && (self.options.ordered_floats || self.options.wide || !in_order)
    }

    fn reduction(&mut self) -> Option<(BinaryOp, Value, usize)> {
        let x = self.pick(|ty| has_arithmetic(ty) && !ty.shape.is_scalar())?;
        let (dtype, shape) = self.data_type(x);
        let ops: Vec<BinaryOp> =
            REDUCTIONS.into_iter().filter(|&op| self.reduces(op, dtype)).collect();
        let (op, axis) = (self.rng.pick(&ops), self.rng.below(shape.rank()));
        let exact = !self.options.ordered_floats && dtype.is_float();
        match op {
            // bf16 holds whole numbers up to 256.
            BinaryOp::Add if exact && dtype == DType::BF16 && shape.extent(axis) > 256 => None,
            BinaryOp::Add if exact => Some((op, self.small(x, 2), axis)),
            BinaryOp::Mul if exact => Some((op, self.sign(x), axis)),
            _ => Some((op, x, axis)),
        }
    }

    fn reduce(&mut self) {
        let Some((op, x, axis)) = self.reduction() else { return };
        let value = self.build().reduce(op, x, axis);
        self.keep_above(value, &[x]);
    }

    fn scan(&mut self) {
        let Some((op, x, axis)) = self.reduction() else { return };
        let reverse = self.rng.chance(30);
        let value = self.build().scan(op, x, axis, reverse);
        self.keep_above(value, &[x]);
    }

    /// The largest value and its index, by a region that decides ties and NaN: any order will do.
    fn combine_pairs(&mut self) {
        let fits = |ty: super::TileType| {
            !ty.is_ptr() && !ty.shape.is_scalar() && ty.dtype() != DType::Bool
        };
        let Some(x) = self.pick(fits) else { return };
        let (dtype, shape) = self.data_type(x);
        let axis = self.rng.below(shape.rank());
        let mut build = self.build();
        let line = build.iota(shape.extent(axis));
        let mut extents = vec![1; shape.rank()];
        extents[axis] = shape.extent(axis);
        let along = build.reshape(line, Shape::new(&extents));
        let index = build.broadcast(along, shape);
        let region = self.larger(dtype);
        let results = if self.rng.chance(70) {
            self.build().reduce_region(&[x, index], axis, region)
        } else {
            let reverse = self.rng.chance(30);
            self.build().scan_region(&[x, index], axis, reverse, region)
        };
        for value in results {
            self.keep_above(value, &[x]);
        }
    }

    /// Left and right (value, index): the larger value, NaN above all, the smaller index of equals.
    fn larger(&mut self, dtype: DType) -> super::Region {
        let region = self.func.add_region();
        let scalars = [dtype, DType::I64, dtype, DType::I64].map(super::Type::scalar);
        let [x, i, y, j] = scalars.map(|ty| self.func.add_region_arg(region, ty));
        let mut build = super::Builder::at(&mut self.func, region, None);
        let x_is_number = build.compare(Predicate::Eq, x, x);
        let y_is_number = build.compare(Predicate::Eq, y, y);
        let y_is_nan = build.unary(UnaryOp::Not, y_is_number);
        let only_y_is_nan = build.binary(BinaryOp::And, y_is_nan, x_is_number);
        let is_larger = build.compare(Predicate::Gt, y, x);
        let wins = build.binary(BinaryOp::Or, only_y_is_nan, is_larger);
        let is_equal = build.compare(Predicate::Eq, x, y);
        let x_is_nan = build.unary(UnaryOp::Not, x_is_number);
        let both_nan = build.binary(BinaryOp::And, x_is_nan, y_is_nan);
        let ties = build.binary(BinaryOp::Or, is_equal, both_nan);
        let is_first = build.compare(Predicate::Lt, j, i);
        let tie_wins = build.binary(BinaryOp::And, ties, is_first);
        let takes_y = build.binary(BinaryOp::Or, wins, tie_wins);
        let value = build.select(takes_y, y, x);
        let index = build.select(takes_y, j, i);
        build.yield_values(&[value, index]);
        region
    }

    pub(super) fn dot(&mut self) {
        if self.options.wide {
            return self.exact_dot();
        }
        if !self.options.ordered_floats {
            return;
        }
        let extents = [1, 2, 3, 4, 5, 7, 8, 16, 17];
        let [m, k, n] = [(); 3].map(|()| self.rng.pick(&extents));
        let from = match self.rng.below(4) {
            0 => self.rng.pick(&[DType::F8E4M3, DType::F8E5M2, DType::I8, DType::U8]),
            _ => self.float_dtype(),
        };
        let to = from.accumulator().unwrap_or(from);
        let a = self.matrix(from, m, k);
        let b = self.matrix(from, k, n);
        let acc = self.operand(to, Shape::new(&[m, n]));
        let tf32 = from == DType::F32 && self.rng.chance(20);
        let precision = if tf32 { DotPrecision::Tf32 } else { DotPrecision::Ieee };
        let value = self.build().dot(a, b, acc, precision);
        self.keep_above(value, &[a, b, acc]);
    }

    /// A product of small integers: the same bits in any order, and by any tensor core.
    fn exact_dot(&mut self) {
        let (from, precision) = self.factors();
        let [m, n] = [(); 2].map(|()| self.rng.pick(&[3, 8, 16, 16, 16, 32]));
        let k = self.rng.pick(&[5, 8, 16, 16, 32]);
        let to = from.accumulator().unwrap_or(from);
        let [a, b] = [[m, k], [k, n]].map(|[rows, columns]| {
            let x = self.matrix(from, rows, columns);
            self.small(x, 3)
        });
        let acc = self.operand(to, Shape::new(&[m, n]));
        let acc = self.small(acc, 9);
        let value = self.build().dot(a, b, acc, precision);
        self.keep_above(value, &[a, b]);
    }

    /// A matrix of this shape, mostly gathered from an input.
    fn matrix(&mut self, dtype: DType, rows: usize, columns: usize) -> Value {
        let shape = Shape::new(&[rows, columns]);
        if self.rng.chance(30) {
            return self.operand(dtype, shape);
        }
        let offsets = self.positions(shape);
        let value = self.gather_at(offsets);
        self.build().cast(value, dtype)
    }
}

/// Whether a tile is of numbers or bool, and not of floats that are only stored.
fn has_arithmetic(ty: super::TileType) -> bool {
    !ty.is_ptr() && !ty.dtype().is_f8()
}

/// Whether the verifier takes this op on this dtype.
fn is_binary_of(op: BinaryOp, dtype: DType) -> bool {
    match op {
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !dtype.is_float(),
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => dtype.is_int(),
        BinaryOp::Short => dtype.is_float(),
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNum
        | BinaryOp::MaxNum => dtype != DType::Bool,
    }
}
