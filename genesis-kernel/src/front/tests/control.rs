//! Control flow, literals and device functions as tile IR.

use expect_test::{Expect, expect};

use crate::front::{Hints, build};
use crate::ir::DType;
use crate::ir::verify::verify;
use crate::kernel::KernelDef;
use crate::prelude::*;

fn check(kernel: &'static KernelDef, dtypes: &[DType], consts: &[i64], expected: Expect) {
    match build(kernel.ast, dtypes, consts, &Hints::default()) {
        Ok(func) => {
            verify(&func).expect("the front end makes right functions");
            expected.assert_eq(&func.to_string());
        }
        Err(diagnostic) => panic!("{diagnostic}"),
    }
}

#[kernel]
fn count(x: Ptr<f32>, out: PtrMut<i64>, n: i64) {
    let mut i = 0;
    let mut found = 0;
    while i < n {
        if load(x + i) > 0.5 {
            found += 1;
        }
        i += 1;
    }
    store(out, found);
}

#[test]
fn literals_that_are_carried_are_indices_without_a_partner() {
    check(
        &count::KERNEL,
        &[],
        &[],
        expect![[r#"
        kernel count(%x: *f32 readonly, %out: *i64 exclusive, %n: i64) {
          %0 = const 0 : i64
          %1 = const 0 : i64
          %2, %3 = while carry (%4 = %0, %5 = %1) {
            %6 = cmp lt %5, %n : bool
            yield %6
          } do (%7, %8) {
            %9 = ptr_add %x, %8 : *f32
            %10 = load %9 : f32
            %11 = const 0.5 : f32
            %12 = cmp gt %10, %11 : bool
            %13 = if %12 {
              %14 = const 1 : i64
              %15 = add %7, %14 : i64
              yield %15
            } else {
              yield %7
            } : i64
            %16 = const 1 : i64
            %17 = add %8, %16 : i64
            yield %13, %17
          } : i64, i64
          store %out, %2
          return
        }
    "#]],
    );
}

#[kernel]
fn total<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i64) {
    let mut acc = 0.0;
    for i in range(0, n, N) {
        acc = acc + sum(load(x + i + arange::<N>()), 0).to::<f32>();
    }
    store(out, T::from(acc));
}

#[test]
fn a_carried_literal_takes_the_dtype_that_the_body_gives_it() {
    check(
        &total::KERNEL,
        &[DType::F32],
        &[8],
        expect![[r#"
        kernel total(%x: *f32 readonly, %out: *f32 exclusive, %n: i64) {
          %0 = const 0 : i64
          %1 = const 8 : i64
          %2 = const 0.0 : f32
          %3 = for %4 = %0 to %n step %1 carry (%5 = %2) {
            %6 = ptr_add %x, %4 : *f32
            %7 = iota : i64[8]
            %8 = broadcast %6 : *f32[8]
            %9 = ptr_add %8, %7 : *f32[8]
            %10 = load %9 : f32[8]
            %11 = reduce add 0 %10 : f32
            %12 = add %5, %11 : f32
            yield %12
          } : f32
          store %out, %3
          return
        }
    "#]],
    );
}

#[kernel]
fn guarded<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    let i = program_id(0);
    if i >= n {
        return;
    }
    let scale = if N > 4 { 2.0f32 } else { 3.0f32 };
    let mut v = load(x + i) * scale;
    if v < 0.0 {
        v = -v;
    }
    store(out + i, v);
}

#[test]
fn a_return_ends_its_branch_and_constant_conditions_leave_none() {
    check(
        &guarded::KERNEL,
        &[],
        &[8],
        expect![[r#"
        kernel guarded(%x: *f32 readonly, %out: *f32 exclusive, %n: i64) {
          %0 = program_id 0 : i64
          %1 = cmp ge %0, %n : bool
          if %1 {
            return
          } else {
            yield
          }
          %2 = ptr_add %x, %0 : *f32
          %3 = load %2 : f32
          %4 = const 2.0 : f32
          %5 = mul %3, %4 : f32
          %6 = const 0.0 : f32
          %7 = cmp lt %5, %6 : bool
          %8 = if %7 {
            %9 = neg %5 : f32
            yield %9
          } else {
            yield %5
          } : f32
          %10 = ptr_add %out, %0 : *f32
          store %10, %8
          return
        }
    "#]],
    );
}

#[kernel]
fn unrolled(x: Ptr<f32>, out: PtrMut<f32>) {
    let mut acc = 0.0f32;
    for i in static_range(0, 3) {
        acc = acc + load(x + i);
    }
    store(out, acc);
}

#[test]
fn a_static_range_is_unrolled() {
    check(
        &unrolled::KERNEL,
        &[],
        &[],
        expect![[r#"
        kernel unrolled(%x: *f32 readonly, %out: *f32 exclusive) {
          %0 = const 0 : i64
          %1 = ptr_add %x, %0 : *f32
          %2 = load %1 : f32
          %3 = const 0.0 : f32
          %4 = add %3, %2 : f32
          %5 = const 1 : i64
          %6 = ptr_add %x, %5 : *f32
          %7 = load %6 : f32
          %8 = add %4, %7 : f32
          %9 = const 2 : i64
          %10 = ptr_add %x, %9 : *f32
          %11 = load %10 : f32
          %12 = add %8, %11 : f32
          store %out, %12
          return
        }
    "#]],
    );
}

#[kernel]
fn guarded_load(x: Ptr<f32>, out: PtrMut<f32>, n: i64) {
    if n > 0 && load(x) > 0.0 {
        store(out, 1.0);
    }
    if n > 0 && n < 8 {
        store(out, 2.0);
    }
}

#[test]
fn the_right_side_of_and_runs_only_where_it_decides_unless_it_is_pure() {
    check(
        &guarded_load::KERNEL,
        &[],
        &[],
        expect![[r#"
        kernel guarded_load(%x: *f32 readonly, %out: *f32 exclusive, %n: i64) {
          %0 = const 0 : i64
          %1 = cmp gt %n, %0 : bool
          %2 = if %1 {
            %3 = load %x : f32
            %4 = const 0.0 : f32
            %5 = cmp gt %3, %4 : bool
            yield %5
          } else {
            %6 = const false : bool
            yield %6
          } : bool
          if %2 {
            %7 = const 1.0 : f32
            store %out, %7
            yield
          } else {
            yield
          }
          %8 = const 0 : i64
          %9 = cmp gt %n, %8 : bool
          %10 = const 8 : i64
          %11 = cmp lt %n, %10 : bool
          %12 = and %9, %11 : bool
          if %12 {
            %13 = const 2.0 : f32
            store %out, %13
            yield
          } else {
            yield
          }
          return
        }
    "#]],
    );
}

#[device]
fn larger(a: (f32, i64), b: (f32, i64)) -> (f32, i64) {
    if b.0 > a.0 || (b.0 == a.0 && b.1 < a.1) { b } else { a }
}

#[kernel]
fn best<const N: usize>(x: Ptr<f32>, value: PtrMut<f32>, at: PtrMut<i64>) {
    let i = arange::<N>();
    let (v, k) = reduce((load(x + i), i), 0, larger);
    store(value, v);
    store(at, k);
}

#[test]
fn branches_of_a_combining_function_become_selections() {
    check(
        &best::KERNEL,
        &[],
        &[16],
        expect![[r#"
        kernel best(%x: *f32 readonly, %value: *f32 exclusive, %at: *i64 exclusive) {
          %0 = iota : i64[16]
          %1 = broadcast %x : *f32[16]
          %2 = ptr_add %1, %0 : *f32[16]
          %3 = load %2 : f32[16]
          %4, %5 = reduce 0 %3, %0 by (%6: f32, %7: i64, %8: f32, %9: i64) {
            %10 = cmp gt %8, %6 : bool
            %11 = cmp eq %8, %6 : bool
            %12 = cmp lt %9, %7 : bool
            %13 = and %11, %12 : bool
            %14 = or %10, %13 : bool
            %15 = select %14, %8, %6 : f32
            %16 = select %14, %9, %7 : i64
            yield %15, %16
          } : f32, i64
          store %value, %4
          store %at, %5
          return
        }
    "#]],
    );
}

#[device]
fn centered<const N: usize>(x: Tile1<f32, N>) -> Tile1<f32, N> {
    x - sum(x, 0) / N as f32 + 0.0 * arange::<N>().to::<f32>()
}

#[kernel]
fn center<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange::<N>();
    store(out + i, centered(load(x + i)));
}

#[test]
fn a_device_function_knows_its_constants_from_the_arguments_shape() {
    check(
        &center::KERNEL,
        &[],
        &[24],
        expect![[r#"
        kernel center(%x: *f32 readonly, %out: *f32 exclusive) {
          %0 = iota : i64[24]
          %1 = broadcast %out : *f32[24]
          %2 = ptr_add %1, %0 : *f32[24]
          %3 = broadcast %x : *f32[24]
          %4 = ptr_add %3, %0 : *f32[24]
          %5 = load %4 : f32[24]
          %6 = reduce add 0 %5 : f32
          %7 = const 24.0 : f32
          %8 = div %6, %7 : f32
          %9 = broadcast %8 : f32[24]
          %10 = sub %5, %9 : f32[24]
          %11 = iota : i64[24]
          %12 = cast %11 : f32[24]
          %13 = const 0.0 : f32
          %14 = broadcast %13 : f32[24]
          %15 = mul %14, %12 : f32[24]
          %16 = add %10, %15 : f32[24]
          store %2, %16
          return
        }
    "#]],
    );
}

#[kernel]
fn nested(x: Ptr<f32>, out: PtrMut<f32>, n: i64, m: i64) {
    let mut acc = 0.0;
    for i in range(0, n, 1) {
        let mut row = 0.0;
        for j in range(0, m, 1) {
            row = row + load(x + i * m + j);
        }
        acc = maximum(acc, row);
    }
    store(out, acc);
}

#[test]
fn nested_loops_find_the_dtypes_of_their_literals() {
    check(
        &nested::KERNEL,
        &[],
        &[],
        expect![[r#"
        kernel nested(%x: *f32 readonly, %out: *f32 exclusive, %n: i64, %m: i64) {
          %0 = const 0 : i64
          %1 = const 1 : i64
          %2 = const 0.0 : f32
          %3 = for %4 = %0 to %n step %1 carry (%5 = %2) {
            %6 = const 0 : i64
            %7 = const 1 : i64
            %8 = const 0.0 : f32
            %9 = for %10 = %6 to %m step %7 carry (%11 = %8) {
              %12 = mul %4, %m : i64
              %13 = ptr_add %x, %12 : *f32
              %14 = ptr_add %13, %10 : *f32
              %15 = load %14 : f32
              %16 = add %11, %15 : f32
              yield %16
            } : f32
            %17 = max %5, %9 : f32
            yield %17
          } : f32
          store %out, %3
          return
        }
    "#]],
    );
}

#[kernel]
fn both_return(out: PtrMut<i32>, n: i64) {
    if n > 0 {
        store(out, 1);
        return;
    } else {
        store(out, 2);
        return;
    }
    store(out, 3);
}

#[test]
fn what_follows_two_returns_is_dropped() {
    check(
        &both_return::KERNEL,
        &[],
        &[],
        expect![[r#"
        kernel both_return(%out: *i32 exclusive, %n: i64) {
          %0 = const 0 : i64
          %1 = cmp gt %n, %0 : bool
          if %1 {
            %2 = const 1 : i32
            store %out, %2
            return
          } else {
            %3 = const 2 : i32
            store %out, %3
            return
          }
          return
        }
    "#]],
    );
}

#[kernel]
fn swap(out: PtrMut<i64>, n: i64) {
    let (mut a, mut b) = (0, 1);
    for _ in range(0, n, 1) {
        (a, b) = (b, a + b);
    }
    store(out, a);
}

#[test]
fn tuples_assign_at_once() {
    check(
        &swap::KERNEL,
        &[],
        &[],
        expect![[r#"
        kernel swap(%out: *i64 exclusive, %n: i64) {
          %0 = const 0 : i64
          %1 = const 1 : i64
          %2 = const 0 : i64
          %3 = const 1 : i64
          %4, %5 = for %6 = %0 to %n step %1 carry (%7 = %2, %8 = %3) {
            %9 = add %7, %8 : i64
            yield %8, %9
          } : i64, i64
          store %out, %4
          return
        }
    "#]],
    );
}
