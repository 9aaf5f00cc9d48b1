//! Demanded precision: which f32 values end in 16 bits, so that a cheaper function gives the same result.
//!
//! A backward analysis, as LLVM's demanded bits. A value is *rounded* where each use makes an f16 or bf16 of it at once,
//! or multiplies, divides, selects or moves it into a value that is rounded: a relative error is preserved by these. A
//! sum may cancel, so it ends the chain.
//!
//! ```text
//! %1 = cast %0 : f32            not rounded: the product takes it, but so does `sigmoid`
//! %2 = sigmoid %1 : f32         rounded to 8 bits
//! %3 = mul %1, %2 : f32         rounded to 8 bits
//! %4 = cast %3 : bf16
//! ```

use crate::ir::{BinaryOp, DType, Func, Op, OpKind, UnaryOp, Value};

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
            OpKind::Unary(op) => matches!(op, UnaryOp::Neg | UnaryOp::Abs),
            OpKind::Binary(op) => matches!(op, BinaryOp::Mul | BinaryOp::Div),
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
