//! Masks as conditions on a whole tile: when is every element true?
//!
//! A mask is a conjunction; each part that compares an index with a bound has one scalar condition that
//! decides it for the tile, since an index lies between known bounds around a scalar start:
//!
//! ```text
//! (i + iota 16 < n) and (row < m)      holds in every element if  i + 15 < n  and  row < m
//!  ^ a tile               ^ a scalar
//! ```
//!
//! Nothing is said about parts of another form, nor where the index might wrap.

use super::range::Ranges;
use crate::ir::{BinaryOp, Builder, DType, Func, OpKind, Predicate, Value};

/// One part of a mask.
#[derive(Clone, Debug)]
pub struct Part {
    /// The part: a bool, scalar or tile.
    pub value: Value,
    /// What makes all of its elements true.
    pub condition: Condition,
}

/// What makes all elements of a part true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The part is one scalar.
    Itself,
    /// `sum of starts + extreme PREDICATE bound`, of scalars of one dtype.
    Extreme {
        /// The scalars that every index has in it.
        starts: Vec<Value>,
        /// The least or greatest of what is added to them.
        extreme: i64,
        /// How the index compares with the bound.
        predicate: Predicate,
        /// The bound.
        bound: Value,
        /// No index wraps. Where that is not known, the condition must keep it from wrapping.
        fits: bool,
    },
}

/// The parts of a mask for which there is a condition, each once, in order; and whether there is one
/// for every part.
pub fn parts(func: &Func, ranges: &Ranges, mask: Value) -> (Vec<Part>, bool) {
    let mut found = Vec::new();
    let all = collect(func, ranges, mask, &mut found);
    (found, all)
}

fn collect(func: &Func, ranges: &Ranges, mask: Value, found: &mut Vec<Part>) -> bool {
    if found.iter().any(|part| part.value == mask) {
        return true;
    }
    if func.tile(mask).shape.is_scalar() {
        found.push(Part { value: mask, condition: Condition::Itself });
        return true;
    }
    let Some(op) = func.def_op(mask).map(|op| func.op(op)) else { return false };
    match op.kind {
        OpKind::Binary(BinaryOp::And) => {
            let all = op.operands.iter().map(|&operand| collect(func, ranges, operand, found));
            all.fold(true, |all, one| all & one)
        }
        _ if op.kind.is_view() => collect(func, ranges, op.operands[0], found),
        OpKind::Compare(predicate) => {
            let condition = compared(func, ranges, predicate, [op.operands[0], op.operands[1]]);
            let is_known = condition.is_some();
            found.extend(condition.map(|condition| Part { value: mask, condition }));
            is_known
        }
        _ => false,
    }
}

impl Part {
    /// Whether the condition says enough by itself.
    pub fn is_safe(&self) -> bool {
        !matches!(self.condition, Condition::Extreme { fits: false, .. })
    }

    /// The scalars that the condition is made of.
    pub fn inputs(&self) -> Vec<Value> {
        match &self.condition {
            Condition::Itself => vec![self.value],
            Condition::Extreme { starts, bound, .. } => [&starts[..], &[*bound]].concat(),
        }
    }

    /// Writes the condition as a scalar bool.
    pub fn write(&self, b: &mut Builder<'_>) -> Value {
        match &self.condition {
            Condition::Itself => self.value,
            Condition::Extreme { starts, extreme, predicate, bound, .. } => {
                let dtype = b.func.tile(*bound).dtype();
                let extreme = b.int(dtype, *extreme);
                let sum = |a: Value, start: &Value| b.binary(BinaryOp::Add, *start, a);
                let index = starts.iter().fold(extreme, sum);
                b.compare(*predicate, index, *bound)
            }
        }
    }

    /// Whether two parts have the same condition.
    pub fn is_as(&self, other: &Part) -> bool {
        match self.condition {
            Condition::Itself => self.value == other.value,
            Condition::Extreme { .. } => self.condition == other.condition,
        }
    }
}

fn compared(
    func: &Func,
    ranges: &Ranges,
    predicate: Predicate,
    [a, b]: [Value; 2],
) -> Option<Condition> {
    let (predicate, tile, bound) = match (repeated(func, a), repeated(func, b)) {
        (None, Some(bound)) => (predicate, a, bound),
        (Some(bound), None) => (swapped(predicate)?, b, bound),
        _ => return None,
    };
    let dtype = func.tile(tile).dtype();
    if !matches!(dtype, DType::I32 | DType::I64) {
        return None;
    }
    let mut index = Index { starts: Vec::new(), low: 0, high: 0, least: 0, most: 0 };
    index.add(func, ranges, tile)?;
    let lowest = if dtype == DType::I32 { i64::from(i32::MIN) } else { i64::MIN };
    let fits = index.least >= i128::from(lowest) && index.most <= i128::from(!lowest);
    let extreme = match predicate {
        Predicate::Lt | Predicate::Le => index.high,
        Predicate::Gt | Predicate::Ge => index.low,
        Predicate::Eq | Predicate::Ne => return None,
    };
    Some(Condition::Extreme { starts: index.starts, extreme, predicate, bound, fits })
}

fn swapped(predicate: Predicate) -> Option<Predicate> {
    match predicate {
        Predicate::Lt => Some(Predicate::Gt),
        Predicate::Le => Some(Predicate::Ge),
        Predicate::Gt => Some(Predicate::Lt),
        Predicate::Ge => Some(Predicate::Le),
        Predicate::Eq | Predicate::Ne => None,
    }
}

/// An index: scalars and a tile between two numbers.
struct Index {
    starts: Vec<Value>,
    /// The bounds of the tile.
    low: i64,
    high: i64,
    /// The bounds of all of it.
    least: i128,
    most: i128,
}

impl Index {
    /// Adds a value; none where the bounds of the tile are too large.
    fn add(&mut self, func: &Func, ranges: &Ranges, value: Value) -> Option<()> {
        if let Some(start) = repeated(func, value) {
            let range = ranges.of_value(start);
            self.least += i128::from(range.low);
            self.most += i128::from(range.high);
            self.starts.push(start);
            return Some(());
        }
        let op = func.op(func.def_op(value)?);
        match op.kind {
            OpKind::MultipleOf(_) => self.add(func, ranges, op.operands[0]),
            _ if op.kind.is_view() => self.add(func, ranges, op.operands[0]),
            OpKind::Binary(BinaryOp::Add) => {
                self.add(func, ranges, op.operands[0])?;
                self.add(func, ranges, op.operands[1])
            }
            _ => {
                let range = ranges.of_value(value);
                self.low = self.low.checked_add(range.low)?;
                self.high = self.high.checked_add(range.high)?;
                self.least += i128::from(range.low);
                self.most += i128::from(range.high);
                Some(())
            }
        }
    }
}

/// The scalar that fills a tile, or that the value is.
fn repeated(func: &Func, value: Value) -> Option<Value> {
    if func.tile(value).shape.is_scalar() {
        return Some(value);
    }
    let op = func.op(func.def_op(value)?);
    matches!(op.kind, OpKind::Broadcast).then(|| repeated(func, op.operands[0])).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;

    /// The conditions of the mask of the first store.
    fn conditions(body: &str) -> Vec<String> {
        let text = format!("kernel k(%p: *f32, %n: i64, %m: i64, %x: f32[8]) {{{body}\nreturn }}");
        let text = text.replace(", %x: f32[8]", "");
        let func = parse::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let ranges = Ranges::of(&func);
        let store = func.walk().into_iter().find(|&op| func.op(op).kind == OpKind::Store).unwrap();
        let (parts, _) = parts(&func, &ranges, func.op(store).operands[2]);
        let text = |part: &Part| match &part.condition {
            Condition::Itself => format!("%{}", part.value.0),
            Condition::Extreme { starts, extreme, predicate, fits, .. } => {
                let wraps = if *fits { "" } else { ", may wrap" };
                format!("{} + {extreme} {predicate:?}{wraps}", starts.len())
            }
        };
        parts.iter().map(text).collect()
    }

    const STORE: &str = "
        %90 = const 0.0 : f32
        %91 = broadcast %90 : f32[16]
        %92 = broadcast %p : *f32[16]
        %93 = ptr_add %92, %2 : *f32[16]
        store %93, %91, %mask";

    fn masked(mask: &str) -> Vec<String> {
        let head = "
        %0 = program_id 0 : i64
        %1 = const 16 : i64
        %2 = iota : i64[16]
        %3 = mul %0, %1 : i64
        %4 = broadcast %3 : i64[16]
        %5 = add %4, %2 : i64[16]
        %6 = broadcast %n : i64[16]";
        let last = mask.lines().last().unwrap_or_default();
        let name = last.trim().split(' ').next().unwrap_or_default();
        conditions(&format!("{head}\n{mask}{}", STORE.replace("%mask", name)))
    }

    #[test]
    fn the_last_element_decides() {
        assert_eq!(masked("%7 = cmp lt %5, %6 : bool[16]"), ["1 + 15 Lt"]);
        assert_eq!(masked("%7 = cmp gt %6, %5 : bool[16]"), ["1 + 15 Lt"]);
        assert_eq!(masked("%7 = cmp ge %5, %6 : bool[16]"), ["1 + 0 Ge"]);
        assert_eq!(masked("%7 = cmp lt %2, %6 : bool[16]"), ["0 + 15 Lt"]);
    }

    #[test]
    fn conjunctions_have_several() {
        let text = "%7 = cmp lt %5, %6 : bool[16]
            %8 = cmp lt %0, %m : bool
            %9 = broadcast %8 : bool[16]
            %10 = and %7, %9 : bool[16]";
        assert_eq!(masked(text).len(), 2);
    }

    #[test]
    fn what_may_wrap_says_so() {
        let text = "%7 = broadcast %m : i64[16]
            %8 = add %7, %2 : i64[16]
            %9 = cmp lt %8, %6 : bool[16]";
        assert_eq!(masked(text), ["1 + 15 Lt, may wrap"]);
        assert_eq!(masked("%7 = cmp eq %5, %6 : bool[16]"), [""; 0]);
    }
}
