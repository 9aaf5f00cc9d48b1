//! Constants, identities and control flow that is decided.
//!
//! ```text
//! %1 = const 2 : i64                          %4 = const 6 : i64
//! %2 = const 3 : i64                 ->       store %p, %4
//! %3 = mul %1, %2 : i64
//! store %p, %3
//! ```
//!
//! Only what is exact is done: `x + 0` stays for floats, since -0 + 0 is +0, and goes for integers.
//! Transcendental functions of constants stay until `expand_math` has said what their bits are.

mod arithmetic;
mod shapes;

use self::arithmetic::{FALSE, TRUE};
use super::Pass;
use super::rewrite::{Action, Rewriter, rewrite};
use crate::ir::{DType, Op, OpKind, Scalar, Type, UnaryOp, Value, scalar};

/// Folds one function.
pub const FOLD: Pass = Pass { name: "fold", run: |func| rewrite(func, &mut fold) };

fn fold(cx: &mut Rewriter<'_>, op: Op) -> Action {
    let simpler = match &cx.func.op(op).kind {
        OpKind::Unary(_)
        | OpKind::Binary(_)
        | OpKind::Compare(_)
        | OpKind::Select
        | OpKind::Fma
        | OpKind::Asm { .. }
        | OpKind::Cast
        | OpKind::Bitcast
        | OpKind::PtrAdd
        | OpKind::MultipleOf(_) => constant(cx, op)
            .or_else(|| arithmetic::simplify(cx, op))
            .or_else(|| of_scalars(cx, op))
            .map(Action::value),
        OpKind::Broadcast
        | OpKind::ExpandDims { .. }
        | OpKind::Reshape
        | OpKind::Transpose { .. }
        | OpKind::Reduce { .. }
        | OpKind::Scan { .. } => shapes::simplify(cx, op),
        OpKind::Load => masked_load(cx, op),
        OpKind::Store => masked_store(cx, op),
        OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => masked_atomic(cx, op),
        OpKind::Assert { .. } => (operand_const(cx, op, 0) == Some(TRUE)).then(removed),
        OpKind::If => decided_branch(cx, op),
        OpKind::For(_) => short_loop(cx, op),
        OpKind::Const(_)
        | OpKind::Iota
        | OpKind::ProgramId(_)
        | OpKind::NumPrograms(_)
        | OpKind::Join
        | OpKind::Split
        | OpKind::Gather { .. }
        | OpKind::Scatter { .. }
        | OpKind::Histogram
        | OpKind::ViewPtr
        | OpKind::ViewDim(_)
        | OpKind::ViewStride(_)
        | OpKind::ViewLoad
        | OpKind::ViewStore
        | OpKind::MakeView
        | OpKind::TmaLoad(_)
        | OpKind::TmaStore(_)
        | OpKind::Dot { .. }
        | OpKind::While
        | OpKind::Yield
        | OpKind::Return
        | OpKind::Print { .. }
        | OpKind::ConvertLayout => None,
    };
    simpler.unwrap_or(Action::Keep)
}

fn removed() -> Action {
    Action::Replace(Vec::new())
}

fn operand_const(cx: &Rewriter<'_>, op: Op, i: usize) -> Option<Scalar> {
    cx.func.op(op).operands.get(i).and_then(|&v| cx.func.as_const(v))
}

/// The result of an elementwise op on constants.
fn constant(cx: &mut Rewriter<'_>, op: Op) -> Option<Value> {
    let data = cx.func.op(op);
    let operands: Option<Vec<Scalar>> =
        data.operands.iter().map(|&v| cx.func.as_const(v)).collect();
    let (operands, ty) = (operands?, cx.func.tile(data.results[0]));
    let value = match (&data.kind, operands.as_slice()) {
        (OpKind::Unary(op), &[x]) if is_exact(*op) => scalar::unary(*op, x),
        (OpKind::Binary(op), &[a, b]) => scalar::binary(*op, a, b),
        (OpKind::Compare(predicate), &[a, b]) => {
            Scalar::int(DType::Bool, i64::from(scalar::compare(*predicate, a, b)))
        }
        (OpKind::Select, &[cond, a, b]) => scalar::select(cond, a, b),
        (OpKind::Fma, &[a, b, c]) => scalar::fma(a, b, c),
        (OpKind::Cast, &[x]) => scalar::cast(x, ty.dtype()),
        (OpKind::Bitcast, &[x]) => scalar::bitcast(x, ty.dtype()),
        (OpKind::MultipleOf(_), &[x]) => x,
        _ => return None,
    };
    Some(cx.full(value, ty))
}

/// Whether every target gives the bits that `scalar` gives.
fn is_exact(op: UnaryOp) -> bool {
    match op {
        UnaryOp::Neg
        | UnaryOp::Not
        | UnaryOp::Abs
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc
        | UnaryOp::PopCount
        | UnaryOp::LeadingZeros => true,
        UnaryOp::Rsqrt
        | UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Log
        | UnaryOp::Log2
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::Sigmoid
        | UnaryOp::Exp2Approx
        | UnaryOp::Exp2Flush
        | UnaryOp::RecipApprox
        | UnaryOp::Log2Approx
        | UnaryOp::Log2Flush
        | UnaryOp::SqrtApprox
        | UnaryOp::Log1p
        | UnaryOp::Tan
        | UnaryOp::SinFar
        | UnaryOp::CosFar
        | UnaryOp::TanFar => false,
    }
}

/// An elementwise op whose operands are all one scalar repeated: computed once, then repeated.
fn of_scalars(cx: &mut Rewriter<'_>, op: Op) -> Option<Value> {
    let data = cx.func.op(op);
    let result = cx.func.tile(data.results[0]);
    if result.shape.is_scalar() {
        return None;
    }
    let sources: Option<Vec<Value>> =
        data.operands.iter().map(|&v| shapes::repeated_scalar(cx.func, v)).collect();
    let (kind, sources) = (data.kind.clone(), sources?);
    let ty = Type::Tile(result.with_shape(Default::default()));
    let mut builder = cx.builder();
    let op = builder.push(kind, &sources, &[ty], &[]);
    let value = builder.func.op(op).results[0];
    Some(builder.broadcast(value, result.shape))
}

/// A load whose mask is decided, or whose `other` is the zero that it would be anyway.
fn masked_load(cx: &mut Rewriter<'_>, op: Op) -> Option<Action> {
    let other = operand_const(cx, op, 2);
    let operands = &mut cx.func.op_mut(op).operands;
    if other.is_some_and(|s| s.bits == 0) {
        operands.truncate(2);
    }
    let mask = operand_const(cx, op, 1)?;
    let data = cx.func.op_mut(op);
    if mask == TRUE {
        data.operands.truncate(1);
        return None;
    }
    if let Some(&other) = data.operands.get(2) {
        return Some(Action::value(other));
    }
    Some(zero_result(cx, op))
}

fn zero_result(cx: &mut Rewriter<'_>, op: Op) -> Action {
    let ty = cx.func.tile(cx.func.op(op).results[0]);
    Action::value(cx.full(Scalar::zero(ty.dtype()), ty))
}

fn masked_store(cx: &mut Rewriter<'_>, op: Op) -> Option<Action> {
    let mask = operand_const(cx, op, 2)?;
    if mask == TRUE {
        cx.func.op_mut(op).operands.truncate(2);
        return None;
    }
    Some(removed())
}

fn masked_atomic(cx: &mut Rewriter<'_>, op: Op) -> Option<Action> {
    let position = cx.func.op(op).kind.mask_operand()?;
    let mask = operand_const(cx, op, position)?;
    if mask == TRUE {
        cx.func.op_mut(op).operands.truncate(position);
        return None;
    }
    Some(zero_result(cx, op))
}

fn decided_branch(cx: &mut Rewriter<'_>, op: Op) -> Option<Action> {
    let cond = operand_const(cx, op, 0)?;
    let taken = usize::from(cond == FALSE);
    Some(Action::Dissolve(cx.func.op(op).regions[taken], Vec::new()))
}

/// A loop of no iteration, or of exactly one.
fn short_loop(cx: &mut Rewriter<'_>, op: Op) -> Option<Action> {
    let bound = |i| operand_const(cx, op, i).map(Scalar::to_i64);
    let data = cx.func.op(op);
    let inits = data.operands[3..].to_vec();
    if bound(2).is_some_and(|step| step <= 0) {
        return Some(Action::Replace(inits));
    }
    let (lower, upper, step) = (bound(0)?, bound(1)?, bound(2)?);
    if lower >= upper {
        return Some(Action::Replace(inits));
    }
    if i128::from(upper) - i128::from(lower) > i128::from(step) {
        return None;
    }
    let mut args = vec![data.operands[0]];
    args.extend(inits);
    Some(Action::Dissolve(data.regions[0], args))
}

#[cfg(test)]
mod tests;
