//! Snapshots of folding.

use super::super::tests::check;
use super::FOLD;
use expect_test::expect;

/// The text of a function around ops, with a few parameters.
fn kernel(ops: &str) -> String {
    format!("kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {{\n{ops}\nreturn\n}}")
}

#[test]
fn folds_a_chain() {
    check(
        &FOLD,
        &kernel(
            "%0 = const 2 : i64
            %1 = const 3 : i64
            %2 = mul %0, %1 : i64
            %3 = cast %2 : f32
            store %p, %3",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = const 2 : i64
              %1 = const 3 : i64
              %2 = const 6 : i64
              %3 = const 6.0 : f32
              store %p, %3
              return
            }
        "#]],
    );
}

#[test]
fn integer_identities_are_not_those_of_floats() {
    check(
        &FOLD,
        &kernel(
            "%0 = const 0 : i64
            %1 = add %0, %n : i64
            store %q, %1
            %2 = const 0.0 : f32
            %3 = add %x, %2 : f32
            store %p, %3
            %4 = mul %x, %2 : f32
            store %p, %4
            %5 = const -0.0 : f32
            %6 = add %x, %5 : f32
            store %p, %6
            %7 = const 8.0 : f32
            %8 = div %x, %7 : f32
            store %p, %8
            %9 = const 3.0 : f32
            %10 = div %x, %9 : f32
            store %p, %10",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = const 0 : i64
              store %q, %n
              %1 = const 0.0 : f32
              %2 = add %x, %1 : f32
              store %p, %2
              %3 = mul %x, %1 : f32
              store %p, %3
              %4 = const -0.0 : f32
              store %p, %x
              %5 = const 8.0 : f32
              %6 = const 0.125 : f32
              %7 = mul %x, %6 : f32
              store %p, %7
              %8 = const 3.0 : f32
              %9 = div %x, %8 : f32
              store %p, %9
              return
            }
        "#]],
    );
}

#[test]
fn constants_of_wrapped_sums_gather() {
    check(
        &FOLD,
        &kernel(
            "%0 = const 5 : i64
            %1 = add %n, %0 : i64
            %2 = add %0, %1 : i64
            store %q, %2",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = const 5 : i64
              %1 = add %n, %0 : i64
              %2 = const 10 : i64
              %3 = add %n, %2 : i64
              store %q, %3
              return
            }
        "#]],
    );
}

#[test]
fn uniform_tiles_are_computed_once() {
    check(
        &FOLD,
        &kernel(
            "%0 = broadcast %n : i64[8]
            %1 = const 4 : i64
            %2 = broadcast %1 : i64[8]
            %3 = mul %0, %2 : i64[8]
            %4 = iota : i64[8]
            %5 = add %3, %4 : i64[8]
            %6 = broadcast %q : *i64[8]
            %7 = ptr_add %6, %5 : *i64[8]
            store %7, %5",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = broadcast %n : i64[8]
              %1 = const 4 : i64
              %2 = broadcast %1 : i64[8]
              %3 = mul %n, %1 : i64
              %4 = broadcast %3 : i64[8]
              %5 = iota : i64[8]
              %6 = add %4, %5 : i64[8]
              %7 = broadcast %q : *i64[8]
              %8 = ptr_add %7, %6 : *i64[8]
              store %8, %6
              return
            }
        "#]],
    );
}

#[test]
fn decided_masks_go() {
    check(
        &FOLD,
        &kernel(
            "%0 = const true : bool
            %1 = const false : bool
            %2 = load %p, %0 : f32
            %3 = load %p, %1, %x : f32
            %4 = const 0.0 : f32
            %5 = load %p, %c, %4 : f32
            %6 = add %2, %3 : f32
            %7 = add %6, %5 : f32
            store %p, %7, %0
            store %p, %7, %1",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = const true : bool
              %1 = const false : bool
              %2 = load %p : f32
              %3 = const 0.0 : f32
              %4 = load %p, %c : f32
              %5 = add %2, %x : f32
              %6 = add %5, %4 : f32
              store %p, %6
              return
            }
        "#]],
    );
}

#[test]
fn decided_control_flow_dissolves() {
    check(
        &FOLD,
        &kernel(
            "%0 = const 0 : i64
            %1 = const 1 : i64
            %2 = const true : bool
            %3 = for %4 = %0 to %1 step %1 carry (%5 = %n) {
              %6 = add %5, %4 : i64
              %7 = mul %6, %n : i64
              yield %7
            } : i64
            %8 = for %9 = %n to %n step %0 carry (%10 = %3) {
              yield %n
            } : i64
            store %q, %8
            if %2 {
              return
            } else { yield }
            store %q, %n",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = const 0 : i64
              %1 = const 1 : i64
              %2 = const true : bool
              %3 = mul %n, %n : i64
              store %q, %3
              return
            }
        "#]],
    );
}

#[test]
fn casts_that_lose_nothing_merge() {
    check(
        &FOLD,
        &kernel(
            "%0 = cast %x : f64
            %1 = cast %0 : f32
            store %p, %1
            %2 = cast %n : f64
            %3 = cast %2 : i64
            store %q, %3",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = cast %x : f64
              store %p, %x
              %1 = cast %n : f64
              %2 = cast %1 : i64
              store %q, %2
              return
            }
        "#]],
    );
}

#[test]
fn exp_of_a_constant_waits_for_its_expansion() {
    check(
        &FOLD,
        &kernel(
            "%0 = const 1.0 : f32
            %1 = exp %0 : f32
            store %p, %1",
        ),
        expect![[r#"
            kernel k(%p: *f32, %q: *i64, %n: i64, %x: f32, %c: bool) {
              %0 = const 1.0 : f32
              %1 = exp %0 : f32
              store %p, %1
              return
            }
        "#]],
    );
}
