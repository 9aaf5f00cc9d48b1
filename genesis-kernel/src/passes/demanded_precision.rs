//! Demanded precision: which f32 values end in 16 bits, so that a cheaper function gives the same result.
//!
//! A backward analysis, as LLVM's demanded bits. A value is *rounded* where each use makes an f16 or bf16 of it at once,
//! or takes it into a value that is rounded by an op whose result is off by no more than its operand, relatively: a
//! product, a quotient, a selection, a root, `tanh`, `erf`, a move. A sum may cancel, so it ends the chain, unless neither
//! of its operands is negative; so does `log(1 + x)`.
//!
//! ```text
//! %1 = cast %0 : f32            not rounded: the product takes it, but so does `sigmoid`
//! %2 = sigmoid %1 : f32         rounded to 8 bits
//! %3 = mul %1, %2 : f32         rounded to 8 bits
//! %4 = cast %3 : bf16
//! ```

use crate::ir::{BinaryOp, DType, Func, Op, OpKind, Predicate, UnaryOp, Value};

/// The significant bits that are left of each value.
pub(crate) struct DemandedPrecision(Vec<Kept>);

/// What the uses seen so far leave of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// Nobody used it yet.
    Unused,
    /// As many significant bits.
    Bits(u32),
    /// All of it.
    All,
}

impl DemandedPrecision {
    /// Looks at every use, from the last op to the first.
    pub(crate) fn of(func: &Func) -> DemandedPrecision {
        let mut demanded = DemandedPrecision(vec![Kept::Unused; func.n_values()]);
        for op in func.walk().into_iter().rev() {
            for (i, &operand) in func.op(op).operands.iter().enumerate() {
                let kept = demanded.through(func, op, i);
                demanded.join(operand, kept);
            }
        }
        demanded
    }

    /// How many significant bits of a value matter; none if all do.
    pub(crate) fn bits(&self, value: Value) -> Option<u32> {
        match self.0.get(value.index()) {
            Some(Kept::Bits(bits)) => Some(*bits),
            _ => None,
        }
    }

    fn join(&mut self, value: Value, kept: Kept) {
        let slot = &mut self.0[value.index()];
        *slot = match (*slot, kept) {
            (Kept::Unused, kept) => kept,
            (Kept::Bits(a), Kept::Bits(b)) => Kept::Bits(a.max(b)),
            _ => Kept::All,
        };
    }

    /// What an op leaves of its operand number `i`.
    fn through(&self, func: &Func, op: Op, i: usize) -> Kept {
        let data = func.op(op);
        let passes = match &data.kind {
            OpKind::Cast => return kept_by_cast(func, data.results[0]),
            OpKind::Unary(UnaryOp::Log1p) => is_non_negative(func, data.operands[0], LOOKS),
            OpKind::Unary(op) => keeps_relative_error(*op),
            OpKind::Binary(BinaryOp::Add) => {
                data.operands.iter().all(|&x| is_non_negative(func, x, LOOKS))
            }
            OpKind::Binary(op) => matches!(op, BinaryOp::Mul | BinaryOp::Div | BinaryOp::Short),
            OpKind::Select => i > 0,
            kind => kind.is_view(),
        };
        match data.results.first() {
            Some(result) if passes => match self.0[result.index()] {
                // What is not used does not matter, but nothing should be made of that.
                Kept::Unused => Kept::All,
                kept => kept,
            },
            _ => Kept::All,
        }
    }
}

/// Whether the relative error of the result is at most that of the operand.
fn keeps_relative_error(op: UnaryOp) -> bool {
    use UnaryOp::{Abs, Erf, Neg, RecipApprox, Rsqrt, Sqrt, SqrtApprox, Tanh};
    matches!(op, Neg | Abs | Sqrt | Rsqrt | Tanh | Erf | RecipApprox | SqrtApprox)
}

/// As many ops back a value is looked at.
const LOOKS: u32 = 8;

/// No element that is a number is below zero, by what computes it.
fn is_non_negative(func: &Func, value: Value, looks: u32) -> bool {
    let Some(op) = func.def_op(value).filter(|_| looks > 0) else { return false };
    let data = func.op(op);
    let operand = |i: usize| is_non_negative(func, data.operands[i], looks - 1);
    match &data.kind {
        OpKind::Const(scalar) => scalar.to_f64() >= 0.0,
        OpKind::Cast => operand(0),
        kind if kind.is_view() => operand(0),
        OpKind::Unary(op) => match op {
            UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::SqrtApprox | UnaryOp::Rsqrt => true,
            UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Exp2Flush | UnaryOp::Sigmoid => true,
            UnaryOp::Log1p | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::RecipApprox => operand(0),
            _ => false,
        },
        OpKind::Binary(op) => match op {
            BinaryOp::Mul if data.operands[0] == data.operands[1] => true,
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Short => {
                operand(0) && operand(1)
            }
            BinaryOp::Max => operand(0) || operand(1),
            _ => false,
        },
        OpKind::Select => {
            operand(1)
                && (operand(2) || is_less_than_zero(func, data.operands[0], data.operands[2]))
        }
        _ => false,
    }
}

/// Whether the condition is that the value is below zero.
fn is_less_than_zero(func: &Func, cond: Value, value: Value) -> bool {
    let Some(op) = func.def_op(cond) else { return false };
    let data = func.op(op);
    let is_less = matches!(data.kind, OpKind::Compare(Predicate::Lt | Predicate::Le));
    let is_zero = |x| func.as_const(x).is_some_and(|c| c.to_f64() == 0.0);
    is_less && data.operands[0] == value && is_zero(data.operands[1])
}

fn kept_by_cast(func: &Func, result: Value) -> Kept {
    match func.tile(result).dtype() {
        DType::BF16 => Kept::Bits(8),
        DType::F16 => Kept::Bits(11),
        _ => Kept::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;

    /// The bits of each value but constants and conditions, in the order of their ops.
    fn bits_of(text: &str) -> Vec<Option<u32>> {
        let func = parse::parse(text).unwrap();
        let demanded = DemandedPrecision::of(&func);
        let is_float = |&v: &Value| func.tile(v).dtype() == DType::F32;
        let ops =
            func.walk().into_iter().filter(|&op| !matches!(func.op(op).kind, OpKind::Const(_)));
        ops.flat_map(|op| func.op(op).results.clone())
            .filter(is_float)
            .map(|v| demanded.bits(v))
            .collect()
    }

    #[test]
    fn sums_of_what_is_not_negative_keep_the_relative_error() {
        // The softplus of an activation, times it: all but the argument of the exponential is rounded.
        let bits = bits_of(
            "kernel k(%p: *bf16, %x: f32) {
                %0 = const 0.0 : f32
                %1 = cmp lt %x, %0 : bool
                %2 = select %1, %0, %x : f32
                %3 = abs %x : f32
                %4 = neg %3 : f32
                %5 = exp %4 : f32
                %6 = log1p %5 : f32
                %7 = add %2, %6 : f32
                %8 = tanh %7 : f32
                %9 = mul %8, %x : f32
                %10 = cast %9 : bf16
                store %p, %10
                return
            }",
        );
        let half = Some(8);
        assert_eq!(bits, [half, None, None, half, half, half, half, half]);
        // What is added may be below zero.
        let bits = bits_of(
            "kernel k(%p: *bf16, %x: f32) {
                %0 = exp %x : f32
                %1 = log1p %x : f32
                %2 = add %0, %1 : f32
                %3 = cast %2 : bf16
                store %p, %3
                return
            }",
        );
        assert_eq!(bits, [None, None, half]);
    }

    #[test]
    fn the_example_of_the_header() {
        let func = parse::parse(
            "kernel k(%p: *bf16, %q: *f16, %x: bf16) {
                %0 = cast %x : f32
                %1 = sigmoid %0 : f32
                %2 = mul %0, %1 : f32
                %3 = cast %2 : bf16
                store %p, %3
                %4 = exp %0 : f32
                %5 = cast %4 : bf16
                %6 = cast %4 : f16
                store %p, %5
                store %q, %6
                %7 = tanh %0 : f32
                %8 = add %7, %0 : f32
                %9 = cast %8 : bf16
                store %p, %9
                return
            }",
        )
        .unwrap();
        let demanded = DemandedPrecision::of(&func);
        let mut bits = Vec::new();
        for op in func.walk() {
            if let [result] = func.op(op).results[..] {
                bits.push(demanded.bits(result));
            }
        }
        let [no, bf16, f16] = [None, Some(8), Some(11)];
        assert_eq!(bits, [no, bf16, bf16, no, f16, no, no, no, bf16, no]);
    }
}
