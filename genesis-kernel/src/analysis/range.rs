//! What is known about the size of integers: a lower and an upper bound of each value.
//!
//! It proves coordinates not negative and offsets small. One walk suffices: a loop's index is bounded by
//! its bounds, and of what a loop carries only the index that comes next is followed.
//!
//! ```text
//! %0 = program_id 0          0 ..= 2^31 - 2
//! %1 = mul %0, 128           0 ..= 2^38
//! %2 = iota : i64[128]       0 ..= 127
//! %3 = sub %2, 1            -1 ..= 126
//! ```

use crate::ir::{BinaryOp, Elem, Func, Op, OpKind, ParamAttrs, Region, TileType, Value};

/// Bounds of an integer, both inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// No element is less.
    pub low: i64,
    /// No element is greater.
    pub high: i64,
}

impl Range {
    /// Nothing is known.
    pub const ANY: Range = Range { low: i64::MIN, high: i64::MAX };

    /// One value.
    pub fn exactly(value: i64) -> Range {
        Range { low: value, high: value }
    }

    /// Bounds computed without overflow, else nothing.
    fn checked(bounds: [Option<i64>; 2]) -> Range {
        match bounds {
            [Some(low), Some(high)] => Range { low, high },
            _ => Range::ANY,
        }
    }

    fn union(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The number of programs along an axis is at most 2^31 - 1 on any device.
const MAX_PROGRAMS: i64 = i32::MAX as i64;

/// No tensor in memory has more elements along an axis.
pub(crate) const MAX_EXTENT: i64 = 1 << 48;

/// Nor one whose launch promises that its extents are narrow: a few can be added in 32 bits.
const MAX_NARROW: i64 = (1 << 30) - 1;

/// Bounds of every value of a function.
#[derive(Clone, Debug)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// Analyses a function.
    pub fn of(func: &Func) -> Ranges {
        let mut ranges = Ranges::of_params(func);
        for op in func.walk() {
            ranges.visit(func, op);
        }
        ranges
    }

    /// The bounds of one value, also where the function is still being written: from the ops that it is
    /// computed by, without loops and branches.
    pub(crate) fn of_one(func: &Func, value: Value) -> Range {
        let (mut found, mut next) = (Vec::new(), vec![value]);
        while let Some(value) = next.pop() {
            let Some(op) = func.def_op(value) else { continue };
            let data = func.op(op);
            if data.regions.is_empty() && !found.contains(&op) {
                found.push(op);
                next.extend(&data.operands);
            }
        }
        // Operands were defined before what reads them.
        found.sort();
        let mut ranges = Ranges::of_params(func);
        for op in found {
            ranges.visit(func, op);
        }
        ranges.of_value(value)
    }

    fn of_params(func: &Func) -> Ranges {
        let mut ranges = Ranges(vec![Range::ANY; func.n_values()]);
        for param in &func.params {
            let is_int = func.ty(param.value).as_tile().is_some_and(is_int);
            if is_int {
                ranges.0[param.value.index()] = promised(&param.attrs);
            }
        }
        ranges
    }

    /// The bounds of an integer value; [`Range::ANY`] for anything else.
    pub fn of_value(&self, value: Value) -> Range {
        self.0[value.index()]
    }

    fn visit(&mut self, func: &Func, op: Op) {
        let data = func.op(op);
        if let (OpKind::For(_), Some(&body)) = (&data.kind, data.regions.first()) {
            let (lower, upper) = (self.of_value(data.operands[0]), self.of_value(data.operands[1]));
            let index = func.region(body).args[0];
            self.0[index.index()] = Range { low: lower.low, high: upper.high.saturating_sub(1) };
            self.carried(func, op, body);
            return;
        }
        let &[result] = data.results.as_slice() else { return };
        let Some(tile) = func.ty(result).as_tile() else { return };
        if is_int(tile) {
            let range = self.result(func, op);
            self.0[result.index()] = clamp(range, tile.dtype());
        }
    }

    /// What a loop carries where that is the index it comes to next: the same as the index in an iteration,
    /// and the first one that was not reached behind the loop.
    fn carried(&mut self, func: &Func, op: Op, body: Region) {
        let data = func.op(op);
        let args = &func.region(body).args;
        let step = func.as_const(data.operands[2]).map_or(0, |step| step.to_i64());
        for (k, &result) in data.results.iter().enumerate() {
            if step > 0 && data.operands[k + 3] == data.operands[0] && is_next(func, op, body, k) {
                let index = self.of_value(args[0]);
                let last = index.high.checked_add(step);
                let after =
                    Range::checked([Some(index.low), last]).union(self.of_value(data.operands[0]));
                self.0[args[k + 1].index()] = after;
                self.0[result.index()] = after;
            }
        }
    }

    fn result(&self, func: &Func, op: Op) -> Range {
        let data = func.op(op);
        let operand = |i: usize| self.of_value(data.operands[i]);
        match &data.kind {
            OpKind::Const(scalar) => Range::exactly(scalar.to_i64()),
            OpKind::Iota => {
                let extent = func.tile(data.results[0]).shape.numel() as i64;
                Range { low: 0, high: extent - 1 }
            }
            OpKind::ProgramId(_) => Range { low: 0, high: MAX_PROGRAMS - 1 },
            OpKind::NumPrograms(_) => Range { low: 1, high: MAX_PROGRAMS },
            OpKind::ViewDim(_) => Range { low: 0, high: MAX_EXTENT },
            OpKind::Binary(op) => {
                let (a, b) = (operand(0), operand(1));
                // Unsigned values of 2^63 and up read as negative: their order is another.
                let signed = func.tile(data.results[0]).dtype().is_signed_int();
                if !signed && a.low.min(b.low) < 0 { Range::ANY } else { binary(*op, a, b) }
            }
            OpKind::Select => operand(1).union(operand(2)),
            OpKind::Cast if func.tile(data.operands[0]).dtype().is_int() => operand(0),
            OpKind::MultipleOf(_) | OpKind::ConvertLayout | OpKind::Scatter { .. } => operand(0),
            OpKind::Gather { .. } => operand(0).union(Range::exactly(0)),
            kind if kind.is_view() => operand(0),
            _ => Range::ANY,
        }
    }
}

/// Whether value `k` that a loop carries is the index with the step added.
fn is_next(func: &Func, op: Op, body: Region, k: usize) -> bool {
    let last = func.region(body).ops.last().map(|&last| func.op(last));
    let Some(last) = last.filter(|last| last.kind == OpKind::Yield) else { return false };
    let Some(next) = func.def_op(last.operands[k]) else { return false };
    let wanted = [func.region(body).args[0], func.op(op).operands[2]];
    func.op(next).kind == OpKind::Binary(BinaryOp::Add) && func.op(next).operands[..] == wanted
}

fn is_int(tile: TileType) -> bool {
    matches!(tile.elem, Elem::Data(dtype) if dtype.is_int())
}

/// What is promised about a parameter. An extent counts elements in memory, so that a few of them can
/// be added.
fn promised(attrs: &ParamAttrs) -> Range {
    match (attrs.narrow, attrs.natural) {
        (true, true) => Range { low: 0, high: MAX_NARROW },
        (true, false) => Range { low: i64::from(i32::MIN), high: i64::from(i32::MAX) },
        (false, true) => Range { low: 0, high: MAX_EXTENT },
        (false, false) => Range::ANY,
    }
}

/// The range where it fits the dtype; what does not fit has wrapped.
fn clamp(range: Range, dtype: crate::ir::DType) -> Range {
    let bits = dtype.bits();
    let (low, high) = match (dtype.is_signed_int(), bits) {
        (true, 64) => (i64::MIN, i64::MAX),
        (true, _) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        // Values of 2^63 and up read as negative.
        (false, 64) => (i64::MIN, i64::MAX),
        (false, _) => (0, (1 << bits) - 1),
    };
    if range.low < low || range.high > high { Range { low, high } } else { range }
}

fn binary(op: BinaryOp, a: Range, b: Range) -> Range {
    match op {
        BinaryOp::Add => Range::checked([a.low.checked_add(b.low), a.high.checked_add(b.high)]),
        BinaryOp::Sub => Range::checked([a.low.checked_sub(b.high), a.high.checked_sub(b.low)]),
        BinaryOp::Mul => product(a, b),
        BinaryOp::Min => Range { low: a.low.min(b.low), high: a.high.min(b.high) },
        BinaryOp::Max => Range { low: a.low.max(b.low), high: a.high.max(b.high) },
        // A quotient by zero is 0, a remainder by zero the dividend: both are within these.
        BinaryOp::Div if a.low >= 0 && b.low >= 0 => Range { low: 0, high: a.high / b.low.max(1) },
        BinaryOp::Rem if a.low >= 0 && b.low > 0 => Range { low: 0, high: a.high.min(b.high - 1) },
        BinaryOp::Rem if a.low >= 0 => Range { low: 0, high: a.high },
        BinaryOp::And if a.low >= 0 && b.low >= 0 => Range { low: 0, high: a.high.min(b.high) },
        BinaryOp::Shr if a.low >= 0 => Range { low: 0, high: a.high },
        _ => Range::ANY,
    }
}

fn product(a: Range, b: Range) -> Range {
    let corners = [(a.low, b.low), (a.low, b.high), (a.high, b.low), (a.high, b.high)];
    let products: Option<Vec<i64>> = corners.iter().map(|(x, y)| x.checked_mul(*y)).collect();
    let Some(products) = products else { return Range::ANY };
    let fold = |f: fn(i64, i64) -> i64| products.iter().copied().reduce(f);
    Range::checked([fold(i64::min), fold(i64::max)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, DType};

    #[test]
    fn follows_the_example_of_the_header() {
        let mut func = Func::new("f");
        let mut b = Builder::new(&mut func);
        let pid = b.program_id(0);
        let block = b.int(DType::I64, 128);
        let start = b.binary(BinaryOp::Mul, pid, block);
        let iota = b.iota(128);
        let one = b.int(DType::I64, 1);
        let ones = b.broadcast(one, b.func.tile(iota).shape);
        let less = b.binary(BinaryOp::Sub, iota, ones);
        let rem = b.binary(BinaryOp::Rem, start, block);
        let ranges = Ranges::of(&func);
        assert_eq!(ranges.of_value(start).low, 0);
        assert!(ranges.of_value(start).high < 1 << 38);
        assert_eq!(ranges.of_value(less), Range { low: -1, high: 126 });
        assert_eq!(ranges.of_value(rem), Range { low: 0, high: 127 });
    }

    #[test]
    fn promises_bound_parameters() {
        let func = crate::ir::parse(
            "kernel k(%n: i64 narrow natural, %s: i64 narrow, %m: i64 natural, %i: i64) {
  %0 = mul %n, %s : i64
  return
}",
        );
        let func = func.expect("it is tile IR");
        let ranges = Ranges::of(&func);
        let of = |i: usize| ranges.of_value(func.params[i].value);
        let int = i64::from(i32::MAX);
        let extent = (1 << 30) - 1;
        assert_eq!(of(0), Range { low: 0, high: extent });
        assert_eq!(of(1), Range { low: -int - 1, high: int });
        assert_eq!(of(2), Range { low: 0, high: 1 << 48 });
        assert_eq!(of(3), Range::ANY);
        // A product of two is exact in 64 bits.
        let product = func.op(func.walk()[0]).results[0];
        assert_eq!(ranges.of_value(product).high, extent * int);
    }

    #[test]
    fn a_loop_bounds_its_index_and_the_next_one() {
        let func = crate::ir::parse(
            "kernel k(%n: i64 narrow natural) {
  %0 = const 0 : i64
  %1 = const 8 : i64
  %2, %3 = for %4 = %0 to %n step %1 carry (%5 = %0, %6 = %0) {
    %7 = add %4, %1 : i64
    %8 = add %6, %1 : i64
    yield %7, %8
  } : i64, i64
  return
}",
        )
        .expect("it is tile IR");
        let ranges = Ranges::of(&func);
        let looped = func.walk()[2];
        let results = &func.op(looped).results;
        let index = func.region(func.op(looped).regions[0]).args[0];
        let most = (1 << 30) - 1;
        assert_eq!(ranges.of_value(index), Range { low: 0, high: most - 1 });
        assert_eq!(ranges.of_value(results[0]), Range { low: 0, high: most + 7 });
        assert_eq!(ranges.of_value(results[1]), Range::ANY);
    }

    #[test]
    fn overflow_leaves_nothing_known() {
        let mut func = Func::new("f");
        let mut b = Builder::new(&mut func);
        let big = b.int(DType::I64, i64::MAX);
        let sum = b.binary(BinaryOp::Add, big, big);
        let byte = b.int(DType::I8, 100);
        let wrapped = b.binary(BinaryOp::Add, byte, byte);
        let ranges = Ranges::of(&func);
        assert_eq!(ranges.of_value(sum), Range::ANY);
        assert_eq!(ranges.of_value(wrapped), Range { low: -128, high: 127 });
    }
}
