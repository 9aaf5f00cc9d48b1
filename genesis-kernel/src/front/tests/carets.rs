//! Refusals of real kernels, as a person reads them: constants and dtypes that only a
//! specialisation knows.

use expect_test::{Expect, expect};

use crate::front::{Hints, build};
use crate::ir::DType;
use crate::kernel::KernelDef;
use crate::prelude::*;

/// Checks the message as printed, without the line number, which moves as this file grows.
fn check(kernel: &'static KernelDef, dtypes: &[DType], consts: &[i64], expected: Expect) {
    let text = match build(kernel.ast, dtypes, consts, &Hints::default()) {
        Ok(_) => "accepted".to_owned(),
        Err(diagnostic) => diagnostic.to_string(),
    };
    let line = |line: &str| {
        if line.starts_with("  -->") {
            return "  --> this file".to_owned();
        }
        match line.split_once(" |") {
            Some((number, rest)) if number.trim().parse::<u32>().is_ok() => format!(" n |{rest}"),
            Some((number, rest)) if number.trim().is_empty() => format!("   |{rest}"),
            _ => line.to_owned(),
        }
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

#[kernel]
fn asserts<const BK: usize>(out: PtrMut<f32>) {
    static_assert!(BK % 16 == 0, "BK must be a multiple of 16");
    store(out, 0.0);
}

#[test]
fn a_static_assertion_shows_the_constants() {
    check(
        &asserts::KERNEL,
        &[],
        &[24],
        expect![[r#"
        error: static assertion failed: BK must be a multiple of 16
          --> this file
           |
         n |     static_assert!(BK % 16 == 0, "BK must be a multiple of 16");
           |                    ^^^^^^^^^^^^ BK is 24
    "#]],
    );
    check(
        &asserts::KERNEL,
        &[],
        &[32],
        expect![[r#"
        accepted
    "#]],
    );
}

#[kernel]
fn fills<T: Number>(out: PtrMut<T>) {
    store(out, 300);
}

#[test]
fn a_literal_must_fit_the_dtype() {
    check(
        &fills::KERNEL,
        &[DType::U8],
        &[],
        expect![[r#"
        error: the literal 300 does not fit u8
          --> this file
           |
         n |     store(out, 300);
           |                ^^^ taken as u8
    "#]],
    );
    check(
        &fills::KERNEL,
        &[DType::Bool],
        &[],
        expect![[r#"
        error: `T` of `fills` is a number, not bool
          --> this file
           |
         n | fn fills<T: Number>(out: PtrMut<T>) {
           |    ^^^^^
    "#]],
    );
    check(
        &fills::KERNEL,
        &[],
        &[],
        expect![[r#"
        error: `fills` has 1 dtype parameter, 0 given
          --> this file
           |
         n | fn fills<T: Number>(out: PtrMut<T>) {
           |    ^^^^^
    "#]],
    );
}

#[kernel]
fn reshapes<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let v = load(x + arange::<M>());
    store(out + arange::<N>(), v.reshape::<N>());
}

#[test]
fn a_reshape_keeps_the_number_of_elements() {
    check(
        &reshapes::KERNEL,
        &[],
        &[64, 32],
        expect![[r#"
        error: `reshape` of [64] to [32]: 64 elements and 32
          --> this file
           |
         n |     store(out + arange::<N>(), v.reshape::<N>());
           |                                ^^^^^^^^^^^^^^^^
           = help: the number of elements must stay
    "#]],
    );
}

#[kernel]
fn regroups(out: PtrMut<f32>) {
    let v = zeros::<f32, 6, 20>().reshape::<4, 5, 6>();
    store(out, sum(sum(sum(v, 2), 1), 0));
}

#[test]
fn a_reshape_that_a_gpu_has_not_is_refused_everywhere() {
    check(
        &regroups::KERNEL,
        &[],
        &[],
        expect![[r#"
        error: can't reshape [6, 20] to [4, 5, 6]
          --> this file
           |
         n |     let v = zeros::<f32, 6, 20>().reshape::<4, 5, 6>();
           |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           = help: extents that are merged or split must be powers of two, but for the first
    "#]],
    );
}

#[kernel]
fn large<const M: usize, const N: usize>(out: ViewMut<f32, 2>) {
    out.store([0, 0], zeros::<f32, M, N>());
}

#[test]
fn tiles_have_a_largest_size() {
    check(
        &large::KERNEL,
        &[],
        &[2048, 1024],
        expect![[r#"
            error: a tile of shape [2048, 1024] has 2097152 elements, the most are 1048576
              --> this file
               |
             n |     out.store([0, 0], zeros::<f32, M, N>());
               |                       ^^^^^^^^^^^^^^^^^^^^
               = help: use smaller blocks, and loop over parts or launch more programs
        "#]],
    );
    check(
        &large::KERNEL,
        &[],
        &[0, 4],
        expect![[r#"
            error: an extent must be at least 1, this is 0
              --> this file
               |
             n |     out.store([0, 0], zeros::<f32, M, N>());
               |                                    ^
               = help: use a const parameter or a literal
        "#]],
    );
    check(
        &large::KERNEL,
        &[],
        &[1 << 21, 1],
        expect![[r#"
            error: an extent of 2097152, where a tile has at most 1048576 elements
              --> this file
               |
             n |     out.store([0, 0], zeros::<f32, M, N>());
               |                                    ^
               = help: use a smaller block, and loop over parts or launch more programs
        "#]],
    );
}

#[kernel]
fn products<const M: usize, const N: usize>(out: ViewMut<f32, 2>) {
    let column = zeros::<f32, M>().col();
    let row = zeros::<f32, N>().row();
    out.store([0, 0], column * row);
}

#[test]
fn broadcasting_has_the_same_limit() {
    check(
        &products::KERNEL,
        &[],
        &[2048, 2048],
        expect![[r#"
            error: a tile of shape [2048, 2048] has 4194304 elements, the most are 1048576
              --> this file
               |
             n |     out.store([0, 0], column * row);
               |                       ^^^^^^^^^^^^
               = help: use smaller blocks, and loop over parts or launch more programs
        "#]],
    );
}

#[kernel]
fn unrolls<const N: usize>(out: PtrMut<i64>) {
    let mut total = 0;
    for i in static_range(0, N) {
        for j in static_range(0, N) {
            total = total + i * j;
        }
    }
    store(out, total);
}

#[test]
fn unrolling_has_a_limit() {
    check(
        &unrolls::KERNEL,
        &[],
        &[100],
        expect![[r#"
            error: over 4096 iterations would be unrolled
              --> this file
               |
             n |         for j in static_range(0, N) {
               |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
               = help: loop with `range(a, b, step)` instead
        "#]],
    );
}

#[kernel]
fn counts<T: Number>(x: PtrMut<T>) {
    atomic_max(x, T::ONE);
}

#[test]
fn atomics_need_their_dtypes() {
    check(
        &counts::KERNEL,
        &[DType::I8],
        &[],
        expect![[r#"
            error: `atomic_max` does not work on i8
              --> this file
               |
             n |     atomic_max(x, T::ONE);
               |     ^^^^^^^^^^^^^^^^^^^^^
               = help: use 32 or 64 bit numbers
        "#]],
    );
}

#[kernel]
fn promises<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    static_assert!(N < 8 && N % 2 == 1, "N is small and odd");
    store(out, load(x + multiple_of(n, 16)));
}

#[test]
fn conditions_of_several_constants_name_them_all() {
    check(
        &promises::KERNEL,
        &[],
        &[4],
        expect![[r#"
            error: static assertion failed: N is small and odd
              --> this file
               |
             n |     static_assert!(N < 8 && N % 2 == 1, "N is small and odd");
               |                    ^^^^^^^^^^^^^^^^^^^ N is 4
        "#]],
    );
}
