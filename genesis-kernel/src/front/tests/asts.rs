//! Syntax made by hand, for what the macros or rustc would refuse before it gets here.

use crate::Diagnostic;
use crate::front::Hints;
use crate::front::ast::*;
use crate::front::build;
use crate::ir::{BinaryOp, DType, Func, Predicate};

pub(super) fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

pub(super) fn leak_all<T>(values: Vec<T>) -> &'static [T] {
    Box::leak(values.into_boxed_slice())
}

pub(super) const SPAN: Span = Span { line: 1, column: 1, end_column: 2 };

pub(super) fn expr(kind: ExprKind) -> ExprAst {
    ExprAst { span: SPAN, kind }
}

pub(super) fn name(name: &'static str) -> ExprAst {
    expr(ExprKind::Name(name))
}

pub(super) fn int(value: i128) -> ExprAst {
    expr(ExprKind::Int(value, None))
}

pub(super) fn float(value: f64) -> ExprAst {
    expr(ExprKind::Float(value, None))
}

pub(super) fn binary(op: BinaryOp, a: ExprAst, b: ExprAst) -> ExprAst {
    expr(ExprKind::Binary(op, leak(a), leak(b)))
}

pub(super) fn add(a: ExprAst, b: ExprAst) -> ExprAst {
    binary(BinaryOp::Add, a, b)
}

pub(super) fn less(a: ExprAst, b: ExprAst) -> ExprAst {
    expr(ExprKind::Compare(Predicate::Lt, leak(a), leak(b)))
}

pub(super) fn dtype(dtype: DType) -> GenericAst {
    GenericAst::Type(TypeAst::Scalar(DTypeAst::Fixed(dtype)))
}

pub(super) fn extent(value: i128) -> GenericAst {
    GenericAst::Const(leak(int(value)))
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

pub(super) fn device(callee: &'static FnAst, args: Vec<ExprAst>) -> ExprAst {
    expr(ExprKind::Device { callee, generics: &[], args: leak_all(args) })
}

/// `zeros::<dtype, extents..>()`
pub(super) fn zeros(of: DType, extents: &[i128]) -> ExprAst {
    let generics = std::iter::once(dtype(of)).chain(extents.iter().map(|&e| extent(e)));
    call("zeros", generics.collect(), Vec::new())
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

pub(super) fn range(name: &'static str, end: ExprAst, body: Vec<StmtAst>) -> StmtAst {
    let iter = IterAst::Range {
        start: leak(int(0)),
        end: leak(end),
        step: None,
        stages: 0,
        unroll: 0,
        is_static: false,
    };
    let pattern = leak(PatternAst::Name(name));
    StmtAst::For { pattern, iter: leak(iter), body: block(body, None), span: SPAN }
}

pub(super) fn block(stmts: Vec<StmtAst>, value: Option<ExprAst>) -> &'static BlockAst {
    leak(BlockAst { stmts: leak_all(stmts), value: value.map(leak) })
}

pub(super) fn if_(cond: ExprAst, then: Vec<StmtAst>, otherwise: Vec<StmtAst>) -> ExprAst {
    let (then, otherwise) = (block(then, None), Some(block(otherwise, None)));
    expr(ExprKind::If { cond: leak(cond), then, otherwise })
}

pub(super) fn param(name: &'static str, ty: TypeAst) -> ParamAst {
    ParamAst { span: SPAN, pattern: leak(PatternAst::Name(name)), ty, optional: false }
}

/// A function of these parameters.
pub(super) fn function(
    name: &'static str,
    params: Vec<ParamAst>,
    body: &'static BlockAst,
) -> &'static FnAst {
    leak(FnAst {
        name,
        module: "tests",
        file: "no such file",
        span: SPAN,
        doc: "",
        dtypes: &[],
        consts: &[],
        params: leak_all(params),
        body,
        contract: false,
        ret: None,
    })
}

/// A kernel with one parameter of each kind:
/// `x: Ptr<f32>, out: PtrMut<f32>, v: View<f32, 2>, n: i64, m: i32, flag: bool, s: f32`.
pub(super) fn kernel(stmts: Vec<StmtAst>) -> &'static FnAst {
    let f32 = DTypeAst::Fixed(DType::F32);
    let scalar = |dtype| TypeAst::Scalar(DTypeAst::Fixed(dtype));
    let params = vec![
        param("x", TypeAst::Ptr { dtype: f32, mutable: false }),
        param("out", TypeAst::Ptr { dtype: f32, mutable: true }),
        param("v", TypeAst::View { dtype: f32, rank: 2, mutable: false }),
        param("n", scalar(DType::I64)),
        param("m", scalar(DType::I32)),
        param("flag", scalar(DType::Bool)),
        param("s", scalar(DType::F32)),
    ];
    function("kernel", params, block(stmts, None))
}

pub(super) fn lower(stmts: Vec<StmtAst>) -> Result<Func, Diagnostic> {
    build(kernel(stmts), &[], &[], &Hints::default())
}

/// Message, label and help of the refusal.
pub(super) fn refusal(stmts: Vec<StmtAst>) -> String {
    match lower(stmts) {
        Ok(_) => "accepted".to_owned(),
        Err(diagnostic) => text(&diagnostic),
    }
}

pub(super) fn text(diagnostic: &Diagnostic) -> String {
    let mut text = diagnostic.message.clone();
    if !diagnostic.label.is_empty() {
        text += &format!("\n  here: {}", diagnostic.label);
    }
    if let Some(help) = &diagnostic.help {
        text += &format!("\n  help: {help}");
    }
    text
}
