//! Shape constraints: assertions at the start of a kernel body that two extents are equal.
//!
//! ```text
//! device_assert!(a.dim(1) == b.dim(0), "the inner extents");
//! ```
//!
//! A launch checks them before anything runs, and says what the two arguments are.

use crate::diag::Error;
use crate::front::ast::{ExprAst, ExprKind, FnAst, PatternAst, StmtAst};
use crate::ir::Predicate;
use crate::runtime::{Arg, ViewArg};

/// An extent of a view: which argument, which axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    arg: usize,
    axis: usize,
}

/// Two extents that must be equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShapeConstraint([Extent; 2]);

/// The shape constraints that a kernel's body begins with.
pub(crate) fn shape_constraints(ast: &FnAst) -> Vec<ShapeConstraint> {
    // What follows another statement might be about other variables of the same names.
    let asserted = ast.body.stmts.iter().map_while(|stmt| match stmt {
        StmtAst::Expr(ExprAst { kind: ExprKind::Assert(cond, _), .. }) => Some(Some(*cond)),
        StmtAst::Expr(ExprAst { kind: ExprKind::StaticAssert(..), .. }) => Some(None),
        _ => None,
    });
    asserted.flatten().filter_map(|cond| shape_constraint(ast, cond)).collect()
}

fn shape_constraint(ast: &FnAst, cond: &ExprAst) -> Option<ShapeConstraint> {
    let ExprKind::Compare(Predicate::Eq, a, b) = &cond.kind else { return None };
    Some(ShapeConstraint([extent(ast, a)?, extent(ast, b)?]))
}

/// `view.dim(1)` of a parameter.
fn extent(ast: &FnAst, expr: &ExprAst) -> Option<Extent> {
    let ExprKind::Method { receiver, name: "dim", args: [axis], .. } = &expr.kind else {
        return None;
    };
    let ExprKind::Int(axis, _) = &axis.kind else { return None };
    let is_it = |pattern: &PatternAst| match (pattern, &receiver.kind) {
        (PatternAst::Name(name), ExprKind::Name(view)) => name == view,
        (
            PatternAst::Name(name),
            ExprKind::Member(ExprAst { kind: ExprKind::Name(of), .. }, field),
        ) => name.split_once('.') == Some((of, field)),
        _ => false,
    };
    let arg = ast.params.iter().position(|param| is_it(param.pattern))?;
    Some(Extent { arg, axis: usize::try_from(*axis).ok()? })
}

/// Refuses views whose extents differ where the kernel constrains them to be equal.
pub(crate) fn check(
    ast: &FnAst,
    shape_constraints: &[ShapeConstraint],
    args: &[Arg],
) -> Result<(), Error> {
    for ShapeConstraint([a, b]) in shape_constraints {
        let (Some(left), Some(right)) = (view(args, a), view(args, b)) else { continue };
        if left.dims().get(a.axis) != right.dims().get(b.axis) {
            let [a_text, b_text] = [a, b].map(|at| format!("{}.dim({})", name(ast, at), at.axis));
            return Err(Error::launch(format!(
                "{}: `{}` is {:?} and `{}` is {:?}; the kernel ties {a_text} to {b_text}",
                ast.name,
                name(ast, a),
                left.dims(),
                name(ast, b),
                right.dims()
            )));
        }
    }
    Ok(())
}

fn view<'a>(args: &'a [Arg], at: &Extent) -> Option<&'a ViewArg> {
    match args.get(at.arg) {
        Some(Arg::View(view)) => Some(view),
        _ => None,
    }
}

fn name(ast: &FnAst, at: &Extent) -> &'static str {
    match ast.params.get(at.arg).map(|param| param.pattern) {
        Some(PatternAst::Name(name)) => name,
        _ => "_",
    }
}
