//! Ops that only move elements.

use super::super::rewrite::{Action, Rewriter};
use crate::ir::{Func, Op, OpKind, Scalar, Value};

pub(super) fn simplify(cx: &mut Rewriter<'_>, op: Op) -> Option<Action> {
    let data = cx.func.op(op);
    let (x, result) = (data.operands[0], cx.func.tile(data.results[0]));
    if let (OpKind::Reduce { axis, .. } | OpKind::Scan { axis, .. }, shape) =
        (&data.kind, cx.func.tile(x).shape)
    {
        let one = shape.extent(*axis as usize) == 1 && !result.shape.is_scalar();
        return one.then(|| of_one_element(cx, op));
    }
    if cx.func.tile(x).shape == result.shape && is_identity(&data.kind) {
        return Some(Action::value(x));
    }
    if let Some(scalar) = repeated_scalar(cx.func, x)
        && !matches!(cx.func.op(op).kind, OpKind::Broadcast if cx.func.tile(x).shape.is_scalar())
    {
        return Some(Action::value(cx.builder().broadcast(scalar, result.shape)));
    }
    let inner = cx.func.op(cx.func.def_op(x)?).clone();
    match (&cx.func.op(op).kind, &inner.kind) {
        (OpKind::Broadcast, OpKind::Broadcast) => {
            Some(Action::value(cx.builder().broadcast(inner.operands[0], result.shape)))
        }
        (OpKind::Reshape, OpKind::Reshape | OpKind::ExpandDims { .. }) => {
            Some(Action::value(cx.builder().reshape(inner.operands[0], result.shape)))
        }
        (OpKind::Transpose { perm: outer }, OpKind::Transpose { perm }) => {
            let both: Vec<u8> = outer.iter().map(|&axis| perm[axis as usize]).collect();
            let source = inner.operands[0];
            if both.iter().enumerate().all(|(i, &axis)| i == axis as usize) {
                return Some(Action::value(source));
            }
            Some(Action::value(cx.builder().transpose(source, &both)))
        }
        _ => None,
    }
}

/// Whether the op changes nothing where its shapes agree.
fn is_identity(kind: &OpKind) -> bool {
    match kind {
        OpKind::Broadcast | OpKind::Reshape => true,
        OpKind::Transpose { perm } => perm.iter().enumerate().all(|(i, &axis)| i == axis as usize),
        _ => false,
    }
}

/// A reduction or scan that combines nothing.
fn of_one_element(cx: &mut Rewriter<'_>, op: Op) -> Action {
    let data = cx.func.op(op).clone();
    let shapes: Vec<_> = data.results.iter().map(|&r| cx.func.tile(r).shape).collect();
    let mut builder = cx.builder();
    let values = data.operands.iter().zip(shapes);
    Action::Replace(values.map(|(&x, shape)| builder.reshape(x, shape)).collect())
}

/// The scalar that fills a tile, or that the value is.
pub(super) fn repeated_scalar(func: &Func, value: Value) -> Option<Value> {
    let tile = func.ty(value).as_tile()?;
    if tile.shape.is_scalar() {
        return Some(value);
    }
    let op = func.op(func.def_op(value)?);
    match op.kind {
        OpKind::Broadcast => repeated_scalar(func, op.operands[0]),
        _ => None,
    }
}

/// The constant that fills a tile, if it is this integer or bool.
pub(super) fn is_int(constant: Option<Scalar>, value: i64) -> bool {
    constant.is_some_and(|c| !c.dtype.is_float() && c == Scalar::int(c.dtype, value))
}
