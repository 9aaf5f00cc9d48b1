//! The maths of an elementwise kernel as a device function of values.
//!
//! ```text
//! kernel tanh(x: View<T, 4>, y: ViewMut<T, 4>) {           device tanh(x) {
//!     let (a, b, i, j) = tile_origin::<ROWS, COLS>(..);
//!     let v = x.load::<1, 1, ROWS, COLS>([..]).to::<A>();      let v = x.to::<A>();
//!     y.store([a, b, i, j], tanh(v).to::<T>());                tanh(v).to::<T>()
//! }                                                        }
//! ```
//!
//! Every load of an operand becomes the operand, a number repeated over a tile the number, the store
//! the result; what only says where the tile stands is left out.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::write::{keep, keep_all};
use crate::diag::Error;
use crate::front::ast::{
    BlockAst, ExprAst, ExprKind, FnAst, ParamAst, PatternAst, StmtAst, TypeAst,
};
use crate::kernel::KernelDef;

/// The device function of a kernel's maths: it takes the operands, then the numbers.
pub(super) fn device_of(def: &'static KernelDef) -> Result<&'static FnAst, Error> {
    static KNOWN: Mutex<BTreeMap<usize, &'static FnAst>> = Mutex::new(BTreeMap::new());
    let key = std::ptr::from_ref(def).addr();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ast) = known.get(&key) {
        return Ok(ast);
    }
    let ast = rewrite(def.ast).ok_or_else(|| {
        Error::launch(format!(
            "{}: the kernel is not elementwise: it can't be composed",
            def.ast.name
        ))
    })?;
    known.insert(key, ast);
    Ok(ast)
}

fn rewrite(ast: &'static FnAst) -> Option<&'static FnAst> {
    let mut rewriter = Rewriter { operands: Vec::new(), result: None };
    let mut params = Vec::new();
    for param in ast.params {
        let PatternAst::Name(name) = *param.pattern else { return None };
        match param.ty {
            TypeAst::View { mutable: false, .. } => {
                rewriter.operands.push(name);
                params.push(ParamAst { ty: TypeAst::Inferred, ..*param });
            }
            TypeAst::View { .. } if rewriter.result.is_none() => rewriter.result = Some(name),
            TypeAst::Scalar(_) => params.push(*param),
            _ => return None,
        }
    }
    let (last, before) = ast.body.stmts.split_last()?;
    let mut stmts = Vec::new();
    for stmt in before {
        let StmtAst::Let { pattern, ty, value, span } = *stmt else { return None };
        if !is_place(value) {
            let value = keep(rewriter.expr(value)?);
            stmts.push(StmtAst::Let { pattern, ty, value, span });
        }
    }
    let StmtAst::Expr(ExprAst { kind: ExprKind::Method { receiver, name, args, .. }, .. }) = last
    else {
        return None;
    };
    let (ExprKind::Name(to), [_, value]) = (&receiver.kind, args) else { return None };
    if !name.starts_with("store") || Some(*to) != rewriter.result || ast.body.value.is_some() {
        return None;
    }
    let value = Some(keep(rewriter.expr(value)?));
    let body = keep(BlockAst { stmts: keep_all(stmts), value });
    let params = keep_all(params);
    Some(keep(FnAst { params, body, consts: &[], ret: None, ..copy(ast) }))
}

/// The parts of a function that stay.
pub(super) fn copy(ast: &'static FnAst) -> FnAst {
    let FnAst { name, module, file, span, doc, dtypes, consts, params, body, contract, ret } = *ast;
    FnAst { name, module, file, span, doc, dtypes, consts, params, body, contract, ret }
}

/// Whether an expression says where a tile stands.
fn is_place(expr: &ExprAst) -> bool {
    match &expr.kind {
        ExprKind::Builtin { name, args, .. } => *name == "program_id" || args.iter().any(is_place),
        ExprKind::Method { name, args, receiver, .. } => match *name {
            "dim" => true,
            name if name.starts_with("load") => false,
            _ => is_place(receiver) || args.iter().any(is_place),
        },
        ExprKind::Device { args, .. } | ExprKind::Tuple(args) => args.iter().any(is_place),
        ExprKind::Binary(_, a, b) => is_place(a) || is_place(b),
        _ => false,
    }
}

struct Rewriter {
    operands: Vec<&'static str>,
    result: Option<&'static str>,
}

impl Rewriter {
    fn expr(&self, expr: &'static ExprAst) -> Option<ExprAst> {
        let kind = match expr.kind {
            ExprKind::Name(name) if Some(name) == self.result => return None,
            ExprKind::Int(..)
            | ExprKind::Float(..)
            | ExprKind::Bool(_)
            | ExprKind::Name(_)
            | ExprKind::Constant(_)
            | ExprKind::DTypeConst(..)
            | ExprKind::DeviceRef(_) => expr.kind,
            ExprKind::From(dtype, inner) => ExprKind::From(dtype, self.kept(inner)?),
            ExprKind::As(inner, dtype) => ExprKind::As(self.kept(inner)?, dtype),
            ExprKind::Neg(inner) => ExprKind::Neg(self.kept(inner)?),
            ExprKind::Not(inner) => ExprKind::Not(self.kept(inner)?),
            ExprKind::Binary(op, a, b) => ExprKind::Binary(op, self.kept(a)?, self.kept(b)?),
            ExprKind::Compare(op, a, b) => ExprKind::Compare(op, self.kept(a)?, self.kept(b)?),
            ExprKind::Tuple(parts) => ExprKind::Tuple(self.all(parts)?),
            ExprKind::Array(parts) => ExprKind::Array(self.all(parts)?),
            ExprKind::Member(inner, name) => ExprKind::Member(self.kept(inner)?, name),
            ExprKind::Field(inner, index) => ExprKind::Field(self.kept(inner)?, index),
            ExprKind::Builtin { name: "full", args: [value], .. } => return self.expr(value),
            ExprKind::Builtin { name, generics, args } => {
                ExprKind::Builtin { name, generics, args: self.all(args)? }
            }
            ExprKind::Method { receiver, name, .. } if name.starts_with("load") => {
                let ExprKind::Name(operand) = receiver.kind else { return None };
                if !self.operands.contains(&operand) {
                    return None;
                }
                receiver.kind
            }
            ExprKind::Method { receiver, name, generics, args } => {
                let (receiver, args) = (self.kept(receiver)?, self.all(args)?);
                ExprKind::Method { receiver, name, generics, args }
            }
            // A function of the tile's extents: they are other ones in the kernel that it is composed into.
            ExprKind::Device { callee, .. } if !callee.consts.is_empty() => return None,
            ExprKind::Device { callee, generics, args } => {
                ExprKind::Device { callee, generics, args: self.all(args)? }
            }
            ExprKind::AndThen(..)
            | ExprKind::OrElse(..)
            | ExprKind::If { .. }
            | ExprKind::IfSome { .. }
            | ExprKind::Block(_)
            | ExprKind::Print(..)
            | ExprKind::Asm(..)
            | ExprKind::Assert(..)
            | ExprKind::StaticAssert(..) => return None,
        };
        Some(ExprAst { span: expr.span, kind })
    }

    fn kept(&self, expr: &'static ExprAst) -> Option<&'static ExprAst> {
        self.expr(expr).map(keep)
    }

    fn all(&self, parts: &'static [ExprAst]) -> Option<&'static [ExprAst]> {
        let parts = parts.iter().map(|part| self.expr(part)).collect::<Option<Vec<_>>>()?;
        Some(keep_all(parts))
    }
}
