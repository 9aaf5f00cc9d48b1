//! Every mistake that rustc can't see has a message of its own.

use expect_test::{Expect, expect};

use super::asts::*;
use crate::front::ast::{ExprKind, IterAst, StmtAst};
use crate::ir::{BinaryOp, DType};

fn check(stmts: Vec<StmtAst>, expected: Expect) {
    expected.assert_eq(&refusal(stmts));
}

fn arange(n: i128) -> crate::front::ast::ExprAst {
    call("arange", vec![extent(n)], vec![])
}

#[test]
fn shapes_that_do_not_broadcast() {
    let (a, b) = (zeros(DType::F32, &[128, 64]), zeros(DType::F32, &[128, 32]));
    check(
        vec![let_("a", a), let_("b", b), let_("c", add(name("a"), name("b")))],
        expect![[r#"
        tiles of shapes [128, 64] and [128, 32] do not broadcast together
          here: this has shape [128, 32], `a` has [128, 64]
          help: extents must be equal or 1; `.row()` and `.col()` add a unit axis"#]],
    );
}

#[test]
fn ranks_that_differ() {
    let (a, b) = (zeros(DType::F32, &[128, 64]), zeros(DType::F32, &[64]));
    check(
        vec![let_("a", a), let_("c", add(name("a"), b))],
        expect![[r#"
        tiles of shapes [128, 64] and [64] do not broadcast together
          here: this has shape [64], `a` has [128, 64]
          help: ranks must be equal; `.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"#]],
    );
}

#[test]
fn dtypes_that_differ() {
    check(
        vec![let_("c", add(name("n"), name("m")))],
        expect![[r#"
        `+` needs one dtype, i64 and i32 differ
          here: this is i32, `n` is i64
          help: convert one of them, for example with `.to::<i64>()`"#]],
    );
}

#[test]
fn a_literal_that_does_not_fit() {
    check(
        vec![let_("c", add(name("m"), int(1 << 40)))],
        expect![[r#"
        the literal 1099511627776 does not fit i32
          here: taken as i32"#]],
    );
    check(
        vec![let_("c", add(name("m"), float(0.5)))],
        expect![[r#"
        the float literal 0.5 is taken as i32 here
          help: write a literal without a point, or convert"#]],
    );
}

#[test]
fn a_tile_as_a_condition() {
    let cond = less(arange(64), name("n"));
    check(
        vec![stmt(if_(cond, vec![], vec![]))],
        expect![[r#"
        `if` needs a scalar, this is a tile of bool [64]
          help: choose element by element with `where_(cond, a, b)`"#]],
    );
}

#[test]
fn a_number_as_a_condition() {
    check(
        vec![stmt(if_(name("n"), vec![], vec![]))],
        expect![[r#"
        `if` needs a bool, `n` is a scalar of i64
          help: compare it: `x != 0`"#]],
    );
}

#[test]
fn inner_extents_of_dot() {
    let (a, b) = (zeros(DType::F32, &[16, 32]), zeros(DType::F32, &[64, 16]));
    check(
        vec![let_("c", call("dot", vec![], vec![a, b]))],
        expect![[r#"
        `dot` needs equal inner extents, 32 and 64 differ
          here: a tile of f32 [16, 32] by a tile of f32 [64, 16]
          help: the second must be [32, N]; transpose it with `.trans()` if it is [N, 32]"#]],
    );
}

#[test]
fn a_store_of_another_shape() {
    let ptr = add(name("out"), arange(64));
    let store = call("store", vec![], vec![ptr, zeros(DType::F32, &[32])]);
    check(
        vec![stmt(store)],
        expect![[r#"
        the value has shape [32], the pointer has [64]
          here: a tile of f32 [32]
          help: the value must have the pointer's extents, or 1"#]],
    );
}

#[test]
fn a_store_of_another_dtype() {
    check(
        vec![stmt(call("store", vec![], vec![name("out"), name("n")]))],
        expect![[r#"
        `n` is i64, the pointer is to f32
          help: convert it: `.to::<f32>()`"#]],
    );
}

#[test]
fn a_store_to_read_only_memory() {
    let ptr = add(name("x"), arange(64));
    check(
        vec![stmt(call("store", vec![], vec![ptr, float(0.0)]))],
        expect![[r#"
        `x` is read-only memory
          help: declare it as `PtrMut`"#]],
    );
}

#[test]
fn a_mask_that_is_no_bool() {
    let ptr = add(name("x"), arange(64));
    check(
        vec![let_("y", call("load", vec![], vec![ptr, arange(64)]))],
        expect![[r#"
        a mask is a tile of bool, this is a tile of i64 [64]
          help: compare: `i < n`"#]],
    );
}

#[test]
fn a_mask_of_another_shape() {
    let ptr = add(name("x"), arange(64));
    let mask = less(arange(32), name("n"));
    check(
        vec![let_("y", call("load", vec![], vec![ptr, mask]))],
        expect![[r#"
            tiles of shapes [64] and [32] do not broadcast together
              here: this has shape [32], the other operand has [64]
              help: extents must be equal or 1; `.row()` and `.col()` add a unit axis"#]],
    );
}

#[test]
fn a_static_assertion_that_fails() {
    let cond = less(binary(BinaryOp::Mul, int(3), int(4)), int(8));
    let kind = ExprKind::StaticAssert(leak(cond), "twelve is too much");
    check(vec![stmt(expr(kind))], expect!["static assertion failed: twelve is too much"]);
    let cond = less(name("n"), int(8));
    check(
        vec![stmt(expr(ExprKind::StaticAssert(leak(cond), "")))],
        expect![[r#"
        `static_assert!` needs a condition on constants, this is a bool
          help: check run-time values with `device_assert!`"#]],
    );
}

#[test]
fn a_loop_that_changes_a_type() {
    let body = vec![assign("acc", zeros(DType::F32, &[64]))];
    check(
        vec![let_("acc", name("s")), range("i", name("n"), body)],
        expect![[r#"
        `acc` is a scalar of f32 before the loop and a tile of f32 [64] after one pass
          help: start it with the dtype and shape that the loop gives it"#]],
    );
}

#[test]
fn branches_that_differ() {
    let branch = if_(
        name("flag"),
        vec![assign("a", zeros(DType::F32, &[64]))],
        vec![assign("a", zeros(DType::F32, &[32]))],
    );
    check(
        vec![let_("a", name("s")), stmt(branch)],
        expect![[r#"
        `a` is a tile of f32 [64] in one branch and a tile of f32 [32] in the other
          help: give both branches one dtype and one shape"#]],
    );
}

#[test]
fn a_tile_that_is_too_large() {
    check(
        vec![let_("a", zeros(DType::F32, &[1 << 11, 1 << 10]))],
        expect![[r#"
            a tile of shape [2048, 1024] has 2097152 elements, the most are 1048576
              help: use smaller blocks, and loop over parts or launch more programs"#]],
    );
    check(
        vec![let_("a", zeros(DType::F32, &[0]))],
        expect![[r#"
        an extent must be at least 1, this is 0
          help: use a const parameter or a literal"#]],
    );
    check(
        vec![let_("a", zeros(DType::F32, &[1, 1, 1, 1, 1, 1]))],
        expect!["a tile has at most 5 axes, this would have 6"],
    );
}

#[test]
fn a_loop_unrolled_too_often() {
    let iter = IterAst::Range {
        start: leak(int(0)),
        end: leak(int(5000)),
        step: None,
        stages: 0,
        unroll: 0,
        is_static: true,
    };
    let pattern = leak(crate::front::ast::PatternAst::Wild);
    let body = block(vec![], None);
    check(
        vec![StmtAst::For { pattern, iter: leak(iter), body, span: SPAN }],
        expect![[r#"
        over 4096 iterations would be unrolled
          help: loop with `range(a, b, step)` instead"#]],
    );
}

#[test]
fn a_static_range_that_is_not_static() {
    let iter = IterAst::Range {
        start: leak(int(0)),
        end: leak(name("n")),
        step: None,
        stages: 0,
        unroll: 0,
        is_static: true,
    };
    let pattern = leak(crate::front::ast::PatternAst::Wild);
    let body = block(vec![], None);
    check(
        vec![StmtAst::For { pattern, iter: leak(iter), body, span: SPAN }],
        expect![[r#"
        the bounds of `static_range` are not constants
          help: loop over run-time bounds with `range`"#]],
    );
}

#[test]
fn an_axis_that_is_not_there() {
    let x = zeros(DType::F32, &[64]);
    check(
        vec![let_("y", call("sum", vec![], vec![x, int(1)]))],
        expect![[r#"
        `sum` along axis 1 of something with 1 axis
          help: axes count from 0"#]],
    );
    check(
        vec![let_("y", method(name("v"), "dim", vec![], vec![int(2)]))],
        expect![[r#"
        `dim` along axis 2 of something with 2 axes
          help: axes count from 0"#]],
    );
}

#[test]
fn coordinates_that_are_too_few() {
    let coords = expr(ExprKind::Array(leak_all(vec![int(0)])));
    let load = method(name("v"), "load", vec![extent(8), extent(8)], vec![coords]);
    check(vec![let_("y", load)], expect!["the view has 2 axes, 1 coordinates are given"]);
}

#[test]
fn a_reshape_to_another_size() {
    let x = zeros(DType::F32, &[64]);
    check(
        vec![let_("y", method(x, "reshape", vec![extent(8), extent(9)], vec![]))],
        expect![[r#"
        `reshape` of [64] to [8, 9]: 64 elements and 72
          help: the number of elements must stay"#]],
    );
}

#[test]
fn an_unknown_function() {
    check(
        vec![stmt(call("sotre", vec![], vec![]))],
        expect![[r#"
            there is no function `sotre`
              help: did you mean `store`?"#]],
    );
    check(
        vec![stmt(method(name("v"), "laod", vec![], vec![]))],
        expect![[r#"
        a view of f32 with 2 axes has no method `laod`
          help: did you mean `load`?"#]],
    );
}

#[test]
fn a_float_where_an_integer_is_needed() {
    check(
        vec![let_("y", add(name("x"), name("s")))],
        expect!["the offset of a pointer needs integers, this is a scalar of f32"],
    );
}

#[test]
fn memory_in_a_combining_function() {
    let body = block(vec![], Some(call("load", vec![], vec![name("a")])));
    let params = ["a", "b"].map(|n| param(n, crate::front::ast::TypeAst::Inferred));
    let combine = function("combine", params.into(), body);
    let kind = ExprKind::DeviceRef(combine);
    let reduce = call("reduce", vec![], vec![zeros(DType::F32, &[8]), int(0), expr(kind)]);
    check(
        vec![let_("y", reduce)],
        expect![[r#"
        `load` can't stand in a function that combines two elements
          help: such a function only computes with its arguments"#]],
    );
}

#[test]
fn a_view_in_arithmetic() {
    check(
        vec![let_("y", add(name("v"), int(1)))],
        expect![[r#"
        `+` needs a number, this is a view of f32 with 2 axes
          help: read a tile of the view first, with its `load`"#]],
    );
}

#[test]
fn a_print_with_too_few_values() {
    let kind = ExprKind::Print("{} {}", leak_all(vec![name("n")]));
    check(vec![stmt(expr(kind))], expect!["the format has 2 `{}` for 1 arguments"]);
}

#[test]
fn nothing_names_the_compilers_own_types() {
    let source = include_str!("refusals.rs");
    let internal = ["Val::", "TileType", "Soft", "DType::", "Lower", "IR ", "Region"];
    let messages = source.split("expect![[r#\"").skip(1).filter_map(|s| s.split("\"#]]").next());
    for message in messages {
        for word in internal {
            assert!(!message.contains(word), "{message}");
        }
    }
}
