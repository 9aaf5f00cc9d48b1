//! Select folding: a `select` on a masked load becomes the load's value for masked elements.
//!
//! A row is loaded under a mask, which leaves zeros, and then `where_` puts the neutral element of a reduction there. A
//! load can do that by itself, for nothing:
//!
//! ```text
//! %m = and %row, %col                          %o = select %col, 0, -inf     -inf if %m is %col
//! %v = load %p, %m                       ->    %v = load %p, %m, %o
//! %w = select %col, %v, -inf                   %w is %v
//! ```
//!
//! The mask must imply the choice's condition, and nothing else may use the load.

use super::Pass;
use super::rewrite::{Action, rewrite};
use crate::ir::{BinaryOp, Func, Op, OpKind, Scalar, Value};

/// Folds choices into the loads of one function.
pub const FOLD_SELECT: Pass = Pass { name: "fold_select", run };

/// A choice between a load's result and a constant.
#[derive(Clone, Copy)]
struct Choice {
    load: Op,
    cond: Value,
    constant: Scalar,
}

fn run(func: &mut Func) {
    let uses = func.count_uses();
    let choices: Vec<(Op, Choice)> =
        func.walk().into_iter().filter_map(|op| Some((op, choice(func, &uses, op)?))).collect();
    if choices.is_empty() {
        return;
    }
    rewrite(func, &mut |cx, op| {
        if let Some(&(_, choice)) = choices.iter().find(|(_, choice)| choice.load == op) {
            let data = cx.func.op(op).clone();
            let ty = cx.func.tile(data.results[0]);
            let mut b = cx.builder();
            let mut other = b.full(choice.constant, ty.shape);
            if data.operands[1] != choice.cond {
                let kept = data.operands.get(2).copied();
                let kept = kept.unwrap_or_else(|| b.full(Scalar::zero(ty.dtype()), ty.shape));
                other = b.select(choice.cond, kept, other);
            }
            let operands = vec![data.operands[0], data.operands[1], other];
            cx.func.op_mut(op).operands = operands;
            return Action::Keep;
        }
        match choices.iter().find(|(select, _)| *select == op) {
            Some(_) => Action::value(cx.func.op(op).operands[1]),
            None => Action::Keep,
        }
    });
}

/// The choice that an op makes, if it can go into its load.
fn choice(func: &Func, uses: &[u32], op: Op) -> Option<Choice> {
    let data = func.op(op);
    let (OpKind::Select, &[cond, loaded, constant]) = (&data.kind, &data.operands[..]) else {
        return None;
    };
    let constant = func.as_const(constant)?;
    let load = func.def_op(loaded)?;
    let mask = match &func.op(load).kind {
        OpKind::Load => *func.op(load).operands.get(1)?,
        _ => return None,
    };
    let is_tile = !func.tile(loaded).shape.is_scalar();
    let is_only = uses[loaded.index()] == 1;
    (is_tile && is_only && implies(func, mask, cond)).then_some(Choice { load, cond, constant })
}

/// Whether a mask is a conjunction that has this condition in it.
fn implies(func: &Func, mask: Value, cond: Value) -> bool {
    if mask == cond {
        return true;
    }
    let Some(op) = func.def_op(mask).map(|op| func.op(op)) else { return false };
    op.kind == OpKind::Binary(BinaryOp::And) && op.operands.iter().any(|&v| implies(func, v, cond))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::FOLD_SELECT;
    use expect_test::expect;

    #[test]
    fn a_choice_by_a_part_of_the_mask() {
        check(
            &FOLD_SELECT,
            "kernel k(%p: *f32, %a: i64, %b: i64) {
                %0 = iota : i64[8]
                %1 = broadcast %a : i64[8]
                %2 = cmp lt %0, %1 : bool[8]
                %3 = broadcast %b : i64[8]
                %4 = cmp ge %0, %3 : bool[8]
                %5 = and %2, %4 : bool[8]
                %6 = broadcast %p : *f32[8]
                %7 = ptr_add %6, %0 : *f32[8]
                %8 = const -inf : f32
                %9 = broadcast %8 : f32[8]
                %10 = load %7, %2 : f32[8]
                %11 = select %2, %10, %9 : f32[8]
                store %7, %11
                %12 = load %7, %5 : f32[8]
                %13 = select %2, %12, %9 : f32[8]
                store %7, %13
                %14 = load %7, %2 : f32[8]
                %15 = select %4, %14, %9 : f32[8]
                store %7, %15
                return
            }",
            expect![[r#"
                kernel k(%p: *f32, %a: i64, %b: i64) {
                  %0 = iota : i64[8]
                  %1 = broadcast %a : i64[8]
                  %2 = cmp lt %0, %1 : bool[8]
                  %3 = broadcast %b : i64[8]
                  %4 = cmp ge %0, %3 : bool[8]
                  %5 = and %2, %4 : bool[8]
                  %6 = broadcast %p : *f32[8]
                  %7 = ptr_add %6, %0 : *f32[8]
                  %8 = const -inf : f32
                  %9 = broadcast %8 : f32[8]
                  %10 = const -inf : f32
                  %11 = broadcast %10 : f32[8]
                  %12 = load %7, %2, %11 : f32[8]
                  store %7, %12
                  %13 = const -inf : f32
                  %14 = broadcast %13 : f32[8]
                  %15 = const 0.0 : f32
                  %16 = broadcast %15 : f32[8]
                  %17 = select %2, %16, %14 : f32[8]
                  %18 = load %7, %5, %17 : f32[8]
                  store %7, %18
                  %19 = load %7, %2 : f32[8]
                  %20 = select %4, %19, %9 : f32[8]
                  store %7, %20
                  return
                }
            "#]],
        );
    }
}
