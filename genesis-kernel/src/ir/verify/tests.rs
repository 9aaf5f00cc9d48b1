//! One small text for each refusal, with the first line of what it says.

use super::super::func::{Builder, Func, ParamAttrs};
use super::super::ops::OpKind;
use super::super::parse::parse;
use super::super::types::{DType, Type};
use super::verify;

const PARAMS: &str = "%p: *f32, %q: *i8, %x: f32, %n: i64, %c: bool, %v: view<f32,2>";

fn parsed(body: &str) -> Func {
    let text = format!("kernel k({PARAMS}) {{\n{body}\n}}");
    parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn refused(body: &str) -> String {
    let error = verify(&parsed(body)).expect_err(body);
    error.lines().next().unwrap_or_default().to_owned()
}

fn check(cases: &[(&str, &str)]) {
    for (op, message) in cases {
        assert_eq!(refused(&format!("{op}\nreturn")), *message, "{op}");
    }
}

#[test]
fn accepts_a_whole_kernel() {
    let func = parsed(
        "%0 = iota : i64[6]
        %1 = broadcast %p : *f32[6]
        %2 = ptr_add %1, %0 : *f32[6]
        %3 = broadcast %n : i64[6]
        %4 = cmp lt %0, %3 : bool[6]
        %5 = load %2, %4 : f32[6]
        %6 = reshape %5 : f32[2x3]
        %7 = transpose [1, 0] %6 : f32[3x2]
        %8 = view_load %v, %n, %n : f32[2x3]
        %9 = const 0.0 : f32
        %10 = broadcast %9 : f32[2x2]
        %11 = dot tf32 %8, %7, %10 : f32[2x2]
        %12 = reduce max_num 1 %11 : f32[2]
        %13 = for %14 = %n to %n step %n carry (%15 = %12) {
          %16 = if %c { yield %15 } else { return } : f32[2]
          yield %16
        } : f32[2]
        %17, %18 = reduce 0 %13, %12 by (%19: f32, %20: f32, %21: f32, %22: f32) {
          %23 = add %19, %x : f32
          yield %23, %22
        } : f32, f32
        %24, %25 = split %13 : f32, f32
        %26 = join %24, %25 : f32[2]
        store %2, %5, %4
        %27 = while carry (%28 = %n) { yield %c } do (%29) { yield %29 } : i64
        return",
    );
    assert_eq!(verify(&func), Ok(()));
}

#[test]
fn a_message_shows_the_op() {
    let error = verify(&parsed("%0 = sqrt %n : i64\nreturn")).unwrap_err();
    assert_eq!(error, "operand 0 is i64, not a float\n  in: %0 = sqrt %n : i64");
    let nested = "for %1 = %n to %n step %n { %0 = not %x : f32 yield }\nreturn";
    let error = verify(&parsed(nested)).unwrap_err();
    assert_eq!(error, "operand 0 is f32, not an integer or bool\n  in: %1 = not %x : f32");
}

#[test]
fn refuses_operands_of_the_wrong_class() {
    check(&[
        ("%0 = sqrt %n : i64", "operand 0 is i64, not a float"),
        ("%0 = exp %c : bool", "operand 0 is bool, not a float"),
        ("%0 = neg %c : bool", "operand 0 is bool, not a number"),
        ("%0 = not %x : f32", "operand 0 is f32, not an integer or bool"),
        ("%0 = neg %p : *f32", "operand 0 is *f32, not a number"),
        ("%0 = neg %v : f32", "operand 0 is view<f32,2>, not a tile"),
        ("%0 = add %c, %c : bool", "operand 0 is bool, not a number"),
        ("%0 = and %x, %x : f32", "operand 0 is f32, not an integer or bool"),
        ("%0 = shl %x, %x : f32", "operand 0 is f32, not an integer"),
        ("%0 = mul_hi %x, %x : f32", "operand 0 is f32, not an integer"),
        ("%0 = fma %n, %n, %n : i64", "operand 0 is i64, not a float"),
        ("%0 = cmp eq %p, %p : bool", "operand 0 is *f32, not numbers"),
        ("%0 = cast %p : i64", "operand 0 is *f32, not numbers"),
        ("%0 = load %n : f32", "operand 0 is i64, not a pointer"),
        ("%0 = multiple_of 4 %x : f32", "operand 0 is f32, not an integer or pointer"),
        ("assert \"x\" %n", "operand 0 is i64, not a bool"),
        ("print \"{}\" %v", "operand 0 is view<f32,2>, not a tile"),
        ("%0 = view_ptr %p : *f32", "operand 0 is *f32, not a view"),
    ]);
}

#[test]
fn refuses_types_that_do_not_agree() {
    check(&[
        ("%0 = add %x, %n : f32", "operand 1 is i64 instead of f32"),
        ("%0 = add %x, %x : f64", "the result is f64 instead of f32"),
        ("%0 = cmp lt %x, %x : f32", "the result is f32 instead of bool"),
        ("%0 = select %n, %x, %x : f32", "operand 0 is i64 instead of bool"),
        ("%0 = select %c, %x, %n : f32", "operand 2 is i64 instead of f32"),
        (
            "%0 = iota : i64[4]\n%1 = select %c, %0, %0 : i64[4]",
            "operand 0 is bool instead of bool[4]",
        ),
        ("%0 = cast %x : *f32", "the result is *f32 instead of f32"),
        ("%0 = cast %x : i8[4]", "the result is i8[4] instead of i8"),
        ("%0 = bitcast %x : i64", "f32 and i64 differ in width"),
        ("%0 = bitcast %c : i8", "bool and i8 differ in width"),
        ("%0 = ptr_add %p, %x : *f32", "operand 1 is f32 instead of i64"),
        ("%0 = ptr_add %p, %n : *i8", "the result is *i8 instead of *f32"),
        ("%0 = load %p, %n : f32", "operand 1 is i64 instead of bool"),
        ("%0 = load %p, %c, %n : f32", "operand 2 is i64 instead of f32"),
        ("%0 = load %p : i8", "the result is i8 instead of f32"),
        ("store %p, %n", "operand 1 is i64 instead of f32"),
        ("store %p, %x, %x", "operand 2 is f32 instead of bool"),
        ("%0 = const 1 : i64[4]", "the result is i64[4] instead of i64"),
        ("%0 = program_id 0 : i32", "the result is i32 instead of i64"),
        ("%0 = convert_layout %x : f64", "the result is f64 instead of f32"),
    ]);
}

#[test]
fn refuses_wrong_counts() {
    check(&[
        ("%0 = add %x : f32", "has 1 operands"),
        ("%0 = load %p, %c, %x, %x : f32", "has 4 operands"),
        ("add %x, %x", "has 0 results"),
        ("%0 = store %p, %x : f32", "has 1 results"),
        ("%0 = iota : i64[4]\n%1 = split %0 : i64[2]", "has 1 results"),
        ("%0 = reduce add 0 : f32", "has 0 operands"),
        ("yield", "a region ends with its only terminator"),
    ]);
}

#[test]
fn refuses_wrong_shapes() {
    let iota = "%0 = iota : i64[6]\n%1 = reshape %0 : i64[2x3]\n";
    let cases = [
        ("%2 = iota : i64[2x3]", "the result is i64[2x3], not i64 of rank 1"),
        ("%2 = broadcast %1 : i64[4x3]", "[2, 3] does not broadcast to [4, 3]"),
        ("%2 = broadcast %0 : i64[1x6]", "[6] does not broadcast to [1, 6]"),
        ("%2 = broadcast %0 : i64", "[6] does not broadcast to []"),
        ("%2 = broadcast %x : f64[6]", "the result is f64[6] instead of f32[6]"),
        ("%2 = expand_dims 3 %1 : i64[2x3x1]", "rank 2 gets no axis 3"),
        ("%2 = expand_dims 0 %1 : i64[2x3x1]", "the result is i64[2x3x1] instead of i64[1x2x3]"),
        ("%2 = reshape %1 : i64[5]", "[2, 3] and [5] differ in elements"),
        ("%2 = transpose [0, 0] %1 : i64[2x2]", "[0, 0] does not permute 2 axes"),
        ("%2 = transpose [0] %1 : i64[2]", "[0] does not permute 2 axes"),
        ("%2 = transpose [1, 0] %1 : i64[2x3]", "the result is i64[2x3] instead of i64[3x2]"),
        ("%2, %3 = split %0 : i64, i64", "the last extent of [6] is not 2"),
        ("%2 = join %0, %0 : i64[12]", "the result is i64[12] instead of i64[6x2]"),
        ("%2 = add %0, %1 : i64[6]", "operand 1 is i64[2x3] instead of i64[6]"),
        ("%2 = reduce add 1 %0 : i64", "shape [6] has no axis 1"),
        ("%2 = reduce add 0 %0 : i64[6]", "result 0 is i64[6] instead of i64"),
        ("%2 = scan add 0 %0 : i64", "result 0 is i64 instead of i64[6]"),
        ("%2 = broadcast %x : f32[0]", "shape [0] has an extent of 0"),
        (
            "%2 = broadcast %x : f32[1048576x1048576]",
            "shape [1048576, 1048576] has over 33554432 elements",
        ),
    ];
    for (op, message) in cases {
        assert_eq!(refused(&format!("{iota}{op}\nreturn")), message, "{op}");
    }
}

#[test]
fn refuses_wrong_attributes() {
    check(&[
        ("%0 = program_id 3 : i64", "a grid has no axis 3"),
        ("%0 = view_dim 2 %v : i64", "a view of rank 2 has no axis 2"),
        ("%0 = multiple_of 0 %n : i64", "everything is no multiple of 0"),
        ("%0 = const bits 0x100 : i8", "0x100 is not a value of i8"),
        ("%0 = const bits 0x2 : bool", "0x2 is not a value of bool"),
        ("%0 = iota : i64[4]\n%1 = reduce sub 0 %0 : i64", "`sub` does not reduce"),
        (
            "%0 = iota : i64[4]\n%1, %2 = scan add 0 %0, %0 : i64[4], i64[4]",
            "an op combines 1 operand, here are 2",
        ),
        (
            "%0 = broadcast %c : bool[4]\n%1 = reduce add 0 %0 : bool",
            "operand 0 is bool[4], not a number",
        ),
    ]);
}

#[test]
fn refuses_wrong_atomics_and_views() {
    check(&[
        (
            "%0 = load %q : i8\n%1 = atomic_rmw add %q, %0 : i8",
            "operand 1 is i8, not a number of 32 or 64 bits",
        ),
        ("%0 = atomic_rmw xor %p, %x : f32", "operand 1 is f32, not an integer of 32 or 64 bits"),
        ("%0 = atomic_rmw add %p, %n : f32", "operand 1 is i64 instead of f32"),
        (
            "%0 = load %q : i8\n%1 = atomic_cas %q, %0, %0 : i8",
            "operand 1 is i8, not a number of 32 or 64 bits",
        ),
        ("%0 = view_load %v, %n : f32[1x4]", "1 coordinates for a view of rank 2"),
        ("%0 = view_load %v, %n, %x : f32[1x4]", "operand 2 is f32 instead of i64"),
        ("%0 = view_load %v, %n, %n : f32[4]", "a tile of rank 1 of a view of rank 2"),
        ("%0 = view_load %v, %n, %n : f64[1x4]", "the result is f64[1x4] instead of f32[1x4]"),
        ("view_store %v, %x, %n, %n", "a tile of rank 0 to a view of rank 2"),
    ]);
}

#[test]
fn refuses_wrong_dots() {
    let tiles = "%0 = broadcast %x : f32[2x3]\n%1 = broadcast %x : f32[3x4]
        %2 = broadcast %x : f32[2x4]\n%3 = cast %0 : bf16[2x3]\n%4 = cast %1 : bf16[3x4]
        %5 = cast %2 : f64[2x4]\n%6 = broadcast %x : f32[3]\n%7 = broadcast %n : i64[2x3]\n";
    let cases = [
        ("%8 = dot ieee %0, %0, %2 : f32[2x4]", "[2, 3] by [2, 3] does not give [2, 4]"),
        ("%8 = dot ieee %0, %1, %0 : f32[2x3]", "[2, 3] by [3, 4] does not give [2, 3]"),
        ("%8 = dot ieee %3, %1, %2 : f32[2x4]", "multiplies bf16 by f32"),
        ("%8 = dot ieee %0, %1, %5 : f64[2x4]", "products of f32 accumulate in f32, not f64"),
        ("%8 = dot tf32 %3, %4, %2 : f32[2x4]", "tf32 rounds f32, these are bf16"),
        ("%8 = dot ieee %0, %6, %2 : f32[2x4]", "ranks are [2, 1, 2], not 2"),
        (
            "%8 = dot ieee %7, %1, %2 : f32[2x4]",
            "operand 0 is i64[2x3], not a float or an integer of 8 bits",
        ),
    ];
    for (op, message) in cases {
        assert_eq!(refused(&format!("{tiles}{op}\nreturn")), message, "{op}");
    }
}

#[test]
fn refuses_wrong_control_flow() {
    check(&[
        (
            "for %0 = %x to %n step %n { yield }",
            "bounds are (f32, i64, i64) instead of (i64, i64, i64)",
        ),
        (
            "%0 = for %1 = %n to %n step %n carry (%2 = %x) { yield %n } : f32",
            "yields (i64) instead of (f32)",
        ),
        (
            "%0 = for %1 = %n to %n step %n carry (%2 = %x) { yield %x } : i64",
            "results are (i64) instead of (f32)",
        ),
        ("for %1 = %n to %n step %n carry (%2 = %x) { yield }", "results are () instead of (f32)"),
        ("for %1 = %n to %n step %n { }", "a region has no terminator"),
        (
            "for %1 = %n to %n step %n { %2 = neg %x : f32 }",
            "a region ends with its only terminator",
        ),
        ("for %1 = %n to %n step %n { yield yield }", "a region ends with its only terminator"),
        (
            "%0 = while carry (%1 = %n) { yield %1 } do (%2) { yield %2 } : i64",
            "yields (i64) instead of (bool)",
        ),
        ("while { return } do () { yield }", "this op may not stand in a condition"),
        ("if %n { yield } else { yield }", "takes (i64) instead of (bool)"),
        ("%0 = if %c { yield %x } else { yield %n } : f32", "yields (i64) instead of (f32)"),
        ("if %c { yield %x } else { yield }", "yields (f32) instead of ()"),
    ]);
}

#[test]
fn refuses_wrong_combine_regions() {
    let reduce =
        |region: &str| format!("%0 = iota : i64[4]\n%1 = reduce 0 %0 by {region} : i64\nreturn");
    let cases = [
        ("(%2: i64) { yield %2 }", "a region takes (i64) instead of (i64, i64)"),
        ("(%2: i64, %3: i64) { yield %2, %3 }", "yields (i64, i64) instead of (i64)"),
        ("(%2: i64, %3: i64) { return }", "this op may not stand in a combine region"),
        (
            "(%2: i64, %3: i64) { %4 = program_id 0 : i64 yield %4 }",
            "this op may not stand in a combine region",
        ),
        (
            "(%2: i64, %3: i64) { %4 = load %p : f32 yield %2 }",
            "this op may not stand in a combine region",
        ),
        (
            "(%2: i64, %3: i64) { %4 = neg %0 : i64[4] yield %2 }",
            "operand 0 in a combine region is not a scalar",
        ),
    ];
    for (region, message) in cases {
        assert_eq!(refused(&reduce(region)), message, "{region}");
    }
    assert_eq!(
        refused("%0 = iota : i64[4]\n%1 = reduce 0 %0 : i64\nreturn"),
        "has 0 regions instead of 1"
    );
}

#[test]
fn refuses_values_out_of_scope() {
    let inner = "for %1 = %n to %n step %n { %2 = neg %n : i64 yield }\n";
    check(&[
        (&format!("{inner}%3 = neg %2 : i64"), "operand 0 is not defined here"),
        (&format!("{inner}%3 = neg %1 : i64"), "operand 0 is not defined here"),
        (
            "if %c { %0 = neg %n : i64 yield } else { %1 = neg %0 : i64 yield }",
            "operand 0 is not defined here",
        ),
    ]);
}

#[test]
fn refuses_wrong_parameters() {
    let cases = [
        ("%x: f32[4]", "parameter \"x\" is a tile, f32[4]"),
        ("%x: view<f32,0>", "parameter \"x\" is a view of rank 0"),
        ("%x: view<f32,6>", "parameter \"x\" is a view of rank 6"),
        ("%0: f32", "parameter \"0\" is not an identifier"),
    ];
    for (params, message) in cases {
        let func = parse(&format!("kernel k({params}) {{ return }}")).unwrap();
        assert_eq!(verify(&func).unwrap_err(), message, "{params}");
    }
}

#[test]
fn refuses_what_is_not_a_tree() {
    let mut func = Func::new("k");
    let condition = func.add_param("c", Type::scalar(DType::Bool), ParamAttrs::default());
    let region = func.add_region();
    Builder::at(&mut func, region, None).yield_values(&[]);
    let mut build = Builder::new(&mut func);
    build.push(OpKind::If, &[condition], &[], &[region, region]);
    build.ret();
    assert_eq!(verify(&func).unwrap_err(), "a region has two owners");
}
