//! Syntax written by a program: leaked pieces of the kernel language.
//!
//! A composed kernel lives as long as the program, as the statics do that the macros write.

use crate::front::ast::{
    DTypeAst, ExprAst, ExprKind, FnAst, GenericAst, ParamAst, PatternAst, Span, StmtAst, TypeAst,
};
use crate::ir::{BinaryOp, DType, Scalar};

/// Where written code stands: nowhere in a file of the user's.
pub(super) const SPAN: Span = Span { line: 1, column: 1, end_column: 2 };

pub(super) fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

pub(super) fn keep_all<T>(values: Vec<T>) -> &'static [T] {
    values.leak()
}

pub(super) fn text(text: impl Into<String>) -> &'static str {
    text.into().leak()
}

pub(super) fn expr(kind: ExprKind) -> ExprAst {
    ExprAst { span: SPAN, kind }
}

pub(super) fn name(name: &'static str) -> ExprAst {
    expr(ExprKind::Name(name))
}

pub(super) fn int(value: i128) -> ExprAst {
    expr(ExprKind::Int(value, None))
}

pub(super) fn binary(op: BinaryOp, a: ExprAst, b: ExprAst) -> ExprAst {
    expr(ExprKind::Binary(op, keep(a), keep(b)))
}

/// A number with its dtype.
pub(super) fn number(value: Scalar) -> ExprAst {
    let dtype = value.dtype;
    match dtype {
        DType::Bool => expr(ExprKind::Bool(value.bits != 0)),
        _ if !dtype.is_float() => expr(ExprKind::Int(i128::from(value.to_i64()), Some(dtype))),
        _ => expr(ExprKind::Float(value.to_f64(), Some(dtype))),
    }
}

pub(super) fn dtype(dtype: DType) -> GenericAst {
    GenericAst::Type(TypeAst::Scalar(DTypeAst::Fixed(dtype)))
}

/// A const argument by the name of a const parameter.
pub(super) fn constant(of: &'static str) -> GenericAst {
    GenericAst::Const(keep(name(of)))
}

pub(super) fn one() -> GenericAst {
    GenericAst::Const(keep(int(1)))
}

pub(super) fn call(name: &'static str, generics: Vec<GenericAst>, args: Vec<ExprAst>) -> ExprAst {
    expr(ExprKind::Builtin { name, generics: keep_all(generics), args: keep_all(args) })
}

pub(super) fn method(
    receiver: ExprAst,
    name: &'static str,
    generics: Vec<GenericAst>,
    args: Vec<ExprAst>,
) -> ExprAst {
    let (generics, args) = (keep_all(generics), keep_all(args));
    expr(ExprKind::Method { receiver: keep(receiver), name, generics, args })
}

pub(super) fn device(
    callee: &'static FnAst,
    generics: Vec<GenericAst>,
    args: Vec<ExprAst>,
) -> ExprAst {
    expr(ExprKind::Device { callee, generics: keep_all(generics), args: keep_all(args) })
}

pub(super) fn array(parts: Vec<ExprAst>) -> ExprAst {
    expr(ExprKind::Array(keep_all(parts)))
}

pub(super) fn cast(value: ExprAst, to: DType) -> ExprAst {
    method(value, "to", vec![dtype(to)], Vec::new())
}

pub(super) fn let_(variable: &'static str, value: ExprAst) -> StmtAst {
    let pattern = keep(PatternAst::Name(variable));
    StmtAst::Let { pattern, ty: None, value: keep(value), span: SPAN }
}

pub(super) fn param(variable: &'static str, ty: TypeAst) -> ParamAst {
    ParamAst { span: SPAN, pattern: keep(PatternAst::Name(variable)), ty, optional: false }
}
