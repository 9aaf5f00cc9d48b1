//! Syntax trees by hand: what `#[kernel]` writes as statics is leaked here.

use std::sync::{Mutex, OnceLock};

use crate::front::ast::*;
use crate::ir::{BinaryOp, Predicate};

pub(super) const SPAN: Span = Span { line: 1, column: 1, end_column: 2 };

pub(super) fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

pub(super) fn leak_all<T>(values: Vec<T>) -> &'static [T] {
    Box::leak(values.into_boxed_slice())
}

/// A name with a number behind it, made once.
pub(super) fn numbered(prefix: &'static str, number: usize) -> &'static str {
    static NAMES: OnceLock<Mutex<std::collections::BTreeSet<&'static str>>> = OnceLock::new();
    let names = NAMES.get_or_init(Mutex::default);
    let mut names = names.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = format!("{prefix}{number}");
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let name: &'static str = Box::leak(name.into_boxed_str());
    names.insert(name);
    name
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
    expr(ExprKind::Binary(op, leak(a), leak(b)))
}

pub(super) fn compare(predicate: Predicate, a: ExprAst, b: ExprAst) -> ExprAst {
    expr(ExprKind::Compare(predicate, leak(a), leak(b)))
}

pub(super) fn call(name: &'static str, generics: Vec<GenericAst>, args: Vec<ExprAst>) -> ExprAst {
    let (generics, args) = (leak_all(generics), leak_all(args));
    expr(ExprKind::Builtin { name, generics, args })
}

pub(super) fn method(
    receiver: ExprAst,
    name: &'static str,
    generics: Vec<GenericAst>,
    args: Vec<ExprAst>,
) -> ExprAst {
    let (generics, args) = (leak_all(generics), leak_all(args));
    expr(ExprKind::Method { receiver: leak(receiver), name, generics, args })
}

/// `::<4, 8>`
pub(super) fn extents(shape: &[i128]) -> impl Iterator<Item = GenericAst> {
    shape.iter().map(|&extent| GenericAst::Const(leak(int(extent))))
}

pub(super) fn arange(len: i128) -> ExprAst {
    call("arange", extents(&[len]).collect(), Vec::new())
}

pub(super) fn let_(name: &'static str, value: ExprAst) -> StmtAst {
    let (pattern, value) = (leak(PatternAst::Name(name)), leak(value));
    StmtAst::Let { pattern, ty: None, value, span: SPAN }
}

pub(super) fn assign(name: &'static str, value: ExprAst) -> StmtAst {
    let (pattern, value) = (leak(PatternAst::Name(name)), leak(value));
    StmtAst::Assign { pattern, value, span: SPAN }
}

pub(super) fn stmt(value: ExprAst) -> StmtAst {
    StmtAst::Expr(leak(value))
}

pub(super) fn block(stmts: Vec<StmtAst>, value: Option<ExprAst>) -> &'static BlockAst {
    leak(BlockAst { stmts: leak_all(stmts), value: value.map(|value| leak(value) as &_) })
}
