//! FMA contraction: `a * b + c` with one rounding, where the kernel allows it.
//!
//! Only under `#[kernel(contract)]`, and only where the product has no other use: a product that is
//! needed anyway would be computed twice. A sum that ends a matrix product joins it there:
//! `dot(a, b, 0) + c` is `dot(a, b, c)`.

use super::Pass;
use super::rewrite::{Action, Rewriter, rewrite};
use crate::ir::{BinaryOp, Func, Op, OpKind, Scalar, UnaryOp, Value};

/// Contracts what a kernel allows to be contracted.
pub const CONTRACT: Pass = Pass { name: "contract", run };

fn run(func: &mut Func) {
    if !func.contract {
        return;
    }
    let uses = func.count_uses();
    let is_single = |v: Value| uses.get(v.index()).is_some_and(|&n| n == 1);
    rewrite(func, &mut |cx, op| contract(cx, op, &is_single).unwrap_or(Action::Keep));
}

fn contract(cx: &mut Rewriter<'_>, op: Op, is_single: &dyn Fn(Value) -> bool) -> Option<Action> {
    let data = cx.func.op(op);
    let is_sum = match data.kind {
        OpKind::Binary(BinaryOp::Add) => true,
        OpKind::Binary(BinaryOp::Sub) => false,
        _ => return None,
    };
    let (a, b) = (data.operands[0], data.operands[1]);
    if !cx.func.tile(a).dtype().is_float() {
        return None;
    }
    if is_sum {
        let joined = into_dot(cx, a, b, is_single).or_else(|| into_dot(cx, b, a, is_single));
        if let Some(value) = joined {
            return Some(Action::value(value));
        }
    }
    // x y + b or x y - b, else a + x y or a - x y.
    if let Some((x, y)) = product(cx.func, a, is_single) {
        let mut builder = cx.builder();
        let b = if is_sum { b } else { builder.unary(UnaryOp::Neg, b) };
        return Some(Action::value(builder.fma(x, y, b)));
    }
    let (x, y) = product(cx.func, b, is_single)?;
    let mut builder = cx.builder();
    let x = if is_sum { x } else { builder.unary(UnaryOp::Neg, x) };
    Some(Action::value(builder.fma(x, y, a)))
}

fn product(func: &Func, value: Value, is_single: &dyn Fn(Value) -> bool) -> Option<(Value, Value)> {
    let op = func.op(func.def_op(value)?);
    let is_product = op.kind == OpKind::Binary(BinaryOp::Mul) && is_single(value);
    is_product.then(|| (op.operands[0], op.operands[1]))
}

/// The matrix product that starts from `addend` instead of zero.
fn into_dot(
    cx: &mut Rewriter<'_>,
    product: Value,
    addend: Value,
    is_single: &dyn Fn(Value) -> bool,
) -> Option<Value> {
    let dot = cx.func.op(cx.func.def_op(product)?);
    let OpKind::Dot { precision } = dot.kind else { return None };
    let (a, b, acc) = (dot.operands[0], dot.operands[1], dot.operands[2]);
    let is_zero = cx.func.as_const(acc).is_some_and(|c| c == Scalar::zero(c.dtype));
    if !is_zero || !is_single(product) {
        return None;
    }
    Some(cx.builder().dot(a, b, addend, precision))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::CONTRACT;
    use expect_test::expect;

    #[test]
    fn products_that_only_a_sum_uses() {
        check(
            &CONTRACT,
            "kernel k(%p: *f32, %x: f32, %y: f32) contract {
                %0 = mul %x, %y : f32
                %1 = add %0, %x : f32
                store %p, %1
                %2 = mul %x, %x : f32
                %3 = sub %y, %2 : f32
                store %p, %3
                %4 = mul %y, %y : f32
                %5 = add %4, %x : f32
                store %p, %4
                store %p, %5
                return
            }",
            expect![[r#"
                kernel k(%p: *f32, %x: f32, %y: f32) contract {
                  %0 = mul %x, %y : f32
                  %1 = fma %x, %y, %x : f32
                  store %p, %1
                  %2 = mul %x, %x : f32
                  %3 = neg %x : f32
                  %4 = fma %3, %x, %y : f32
                  store %p, %4
                  %5 = mul %y, %y : f32
                  %6 = add %5, %x : f32
                  store %p, %5
                  store %p, %6
                  return
                }
            "#]],
        );
    }

    #[test]
    fn only_where_it_is_allowed() {
        check(
            &CONTRACT,
            "kernel k(%p: *f32, %x: f32) {
                %0 = mul %x, %x : f32
                %1 = add %0, %x : f32
                store %p, %1
                return
            }",
            expect![[r#"
                kernel k(%p: *f32, %x: f32) {
                  %0 = mul %x, %x : f32
                  %1 = add %0, %x : f32
                  store %p, %1
                  return
                }
            "#]],
        );
    }

    #[test]
    fn sums_start_matrix_products() {
        check(
            &CONTRACT,
            "kernel k(%v: view<f32,2>, %n: i64) contract {
                %0 = view_load %v, %n, %n : f32[4x4]
                %1 = const 0.0 : f32
                %2 = broadcast %1 : f32[4x4]
                %3 = dot ieee %0, %0, %2 : f32[4x4]
                %4 = add %0, %3 : f32[4x4]
                view_store %v, %4, %n, %n
                return
            }",
            expect![[r#"
                kernel k(%v: view<f32,2>, %n: i64) contract {
                  %0 = view_load %v, %n, %n : f32[4x4]
                  %1 = const 0.0 : f32
                  %2 = broadcast %1 : f32[4x4]
                  %3 = dot ieee %0, %0, %2 : f32[4x4]
                  %4 = dot ieee %0, %0, %0 : f32[4x4]
                  view_store %v, %4, %n, %n
                  return
                }
            "#]],
        );
    }
}
