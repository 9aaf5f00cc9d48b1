//! The kernels of the design as tile IR.

use expect_test::{Expect, expect};

use crate::front::{Hints, ParamHint, build};
use crate::ir::DType;
use crate::ir::verify::verify;
use crate::kernel::KernelDef;
use crate::lang::eight;

fn check(kernel: &'static KernelDef, dtypes: &[DType], consts: &[i64], expected: Expect) {
    check_with(kernel, dtypes, consts, &Hints::default(), expected);
}

fn check_with(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    consts: &[i64],
    hints: &Hints,
    expected: Expect,
) {
    match build(kernel.ast, dtypes, consts, hints) {
        Ok(func) => {
            verify(&func).expect("the front end makes right functions");
            expected.assert_eq(&func.to_string());
        }
        Err(diagnostic) => panic!("{diagnostic}"),
    }
}

#[test]
fn add() {
    check(
        &eight::add::KERNEL,
        &[DType::F32],
        &[1024],
        expect![[r#"
        kernel add(%x: *f32 readonly, %y: *f32 readonly, %out: *f32 exclusive, %n: i64) {
          %0 = program_id 0 : i64
          %1 = const 1024 : i64
          %2 = mul %0, %1 : i64
          %3 = iota : i64[1024]
          %4 = broadcast %2 : i64[1024]
          %5 = add %4, %3 : i64[1024]
          %6 = broadcast %n : i64[1024]
          %7 = cmp lt %5, %6 : bool[1024]
          %8 = broadcast %out : *f32[1024]
          %9 = ptr_add %8, %5 : *f32[1024]
          %10 = broadcast %x : *f32[1024]
          %11 = ptr_add %10, %5 : *f32[1024]
          %12 = load %11, %7 : f32[1024]
          %13 = broadcast %y : *f32[1024]
          %14 = ptr_add %13, %5 : *f32[1024]
          %15 = load %14, %7 : f32[1024]
          %16 = add %12, %15 : f32[1024]
          store %9, %16, %7
          return
        }
    "#]],
    );
}

#[test]
fn softmax() {
    check(
        &eight::softmax::KERNEL,
        &[DType::BF16],
        &[1000],
        expect![[r#"
        kernel softmax(%x: *bf16 readonly, %y: *bf16 exclusive, %n_cols: i64) {
          %0 = program_id 0 : i64
          %1 = mul %0, %n_cols : i64
          %2 = iota : i64[1000]
          %3 = broadcast %n_cols : i64[1000]
          %4 = cmp lt %2, %3 : bool[1000]
          %5 = ptr_add %x, %1 : *bf16
          %6 = broadcast %5 : *bf16[1000]
          %7 = ptr_add %6, %2 : *bf16[1000]
          %8 = const -inf : bf16
          %9 = broadcast %8 : bf16[1000]
          %10 = load %7, %4, %9 : bf16[1000]
          %11 = cast %10 : f32[1000]
          %12 = reduce max 0 %11 : f32
          %13 = broadcast %12 : f32[1000]
          %14 = sub %11, %13 : f32[1000]
          %15 = exp %14 : f32[1000]
          %16 = ptr_add %y, %1 : *bf16
          %17 = broadcast %16 : *bf16[1000]
          %18 = ptr_add %17, %2 : *bf16[1000]
          %19 = reduce add 0 %15 : f32
          %20 = broadcast %19 : f32[1000]
          %21 = div %15, %20 : f32[1000]
          %22 = cast %21 : bf16[1000]
          store %18, %22, %4
          return
        }
    "#]],
    );
}

#[test]
fn layer_norm() {
    check(
        &eight::layer_norm::KERNEL,
        &[DType::F16],
        &[256],
        expect![[r#"
        kernel layer_norm(%x: view<f16,2> readonly, %weight: view<f16,1> readonly, %bias: view<f16,1> readonly, %y: view<f16,2> exclusive, %stats: view<f32,2> exclusive, %eps: f32) {
          %0 = program_id 0 : i64
          %1 = view_dim 1 %x : i64
          %2 = const 0 : i64
          %3 = view_load %x, %0, %2 : f16[1x256]
          %4 = cast %3 : f32[1x256]
          %5 = reduce add 1 %4 : f32[1]
          %6 = cast %1 : f32
          %7 = broadcast %6 : f32[1]
          %8 = div %5, %7 : f32[1]
          %9 = iota : i64[256]
          %10 = expand_dims 0 %9 : i64[1x256]
          %11 = broadcast %1 : i64[1x256]
          %12 = cmp lt %10, %11 : bool[1x256]
          %13 = expand_dims 1 %8 : f32[1x1]
          %14 = broadcast %13 : f32[1x256]
          %15 = sub %4, %14 : f32[1x256]
          %16 = const 0.0 : f32
          %17 = broadcast %16 : f32[1x256]
          %18 = select %12, %15, %17 : f32[1x256]
          %19 = mul %18, %18 : f32[1x256]
          %20 = reduce add 1 %19 : f32[1]
          %21 = cast %1 : f32
          %22 = broadcast %21 : f32[1]
          %23 = div %20, %22 : f32[1]
          %24 = broadcast %eps : f32[1]
          %25 = add %23, %24 : f32[1]
          %26 = rsqrt %25 : f32[1]
          %27 = const 0 : i64
          %28 = view_load %weight, %27 : f16[256]
          %29 = cast %28 : f32[256]
          %30 = const 0 : i64
          %31 = view_load %bias, %30 : f16[256]
          %32 = cast %31 : f32[256]
          %33 = expand_dims 1 %26 : f32[1x1]
          %34 = broadcast %33 : f32[1x256]
          %35 = mul %18, %34 : f32[1x256]
          %36 = expand_dims 0 %29 : f32[1x256]
          %37 = mul %35, %36 : f32[1x256]
          %38 = expand_dims 0 %32 : f32[1x256]
          %39 = add %37, %38 : f32[1x256]
          %40 = cast %39 : f16[1x256]
          %41 = const 0 : i64
          view_store %y, %40, %0, %41
          %42 = join %8, %26 : f32[1x2]
          %43 = const 0 : i64
          view_store %stats, %42, %0, %43
          return
        }
    "#]],
    );
}

/// Persistent programs: each takes tiles in grouped order, and loops over K in each.
const MATMUL: Expect = expect![[r#"
    kernel matmul(%a: view<bf16,2> readonly, %b: view<bf16,2> readonly, %c: view<bf16,2> exclusive) {
      %0 = view_dim 0 %a : i64
      %1 = view_dim 1 %b : i64
      %2 = view_dim 1 %a : i64
      %3 = const 128 : i64
      %4 = const 1 : i64
      %5 = sub %3, %4 : i64
      %6 = add %0, %5 : i64
      %7 = div %6, %3 : i64
      %8 = const 64 : i64
      %9 = const 1 : i64
      %10 = sub %8, %9 : i64
      %11 = add %1, %10 : i64
      %12 = div %11, %8 : i64
      %13 = mul %7, %12 : i64
      %14 = program_id 0 : i64
      %15 = num_programs 0 : i64
      for %16 = %14 to %13 step %15 {
        %17 = const 128 : i64
        %18 = const 1 : i64
        %19 = sub %17, %18 : i64
        %20 = add %0, %19 : i64
        %21 = div %20, %17 : i64
        %22 = const 64 : i64
        %23 = const 1 : i64
        %24 = sub %22, %23 : i64
        %25 = add %1, %24 : i64
        %26 = div %25, %22 : i64
        %27 = const 8 : i64
        %28 = mul %27, %26 : i64
        %29 = div %16, %28 : i64
        %30 = mul %29, %27 : i64
        %31 = sub %21, %30 : i64
        %32 = min %31, %27 : i64
        %33 = rem %16, %28 : i64
        %34 = rem %33, %32 : i64
        %35 = add %30, %34 : i64
        %36 = div %33, %32 : i64
        %37 = const 0.0 : f32
        %38 = broadcast %37 : f32[128x64]
        %39 = const 0 : i64
        %40 = const 32 : i64
        %41 = for %42 = %39 to %2 step %40 carry (%43 = %38) {
          %44 = const 128 : i64
          %45 = mul %35, %44 : i64
          %46 = view_load %a, %45, %42 : bf16[128x32]
          %47 = const 64 : i64
          %48 = mul %36, %47 : i64
          %49 = view_load %b, %42, %48 : bf16[32x64]
          %50 = dot ieee %46, %49, %43 : f32[128x64]
          yield %50
        } : f32[128x64]
        %51 = const 128 : i64
        %52 = mul %35, %51 : i64
        %53 = const 64 : i64
        %54 = mul %36, %53 : i64
        %55 = cast %41 : bf16[128x64]
        view_store %c, %55, %52, %54
        yield
      }
      return
    }
"#]];

#[test]
fn matmul() {
    check(&eight::matmul::KERNEL, &[DType::BF16], &[128, 64, 32], MATMUL);
}

#[test]
fn dropout_draws_ten_rounds_of_philox() {
    let func = build(eight::dropout::KERNEL.ast, &[DType::F32], &[64], &Hints::default());
    let text = func.expect("the kernel is right").to_string();
    assert_eq!(text.matches("mul_hi").count(), 20);
    let draws = text.rfind(" xor ").expect("each round ends in one");
    let tail = text[draws..].split_once('\n').expect("a line ends").1;
    expect![[r#"
          %158 = const 8 : u32
          %159 = broadcast %158 : u32[64]
          %160 = shr %156, %159 : u32[64]
          %161 = cast %160 : f32[64]
          %162 = const 5.9604645e-8 : f32
          %163 = broadcast %162 : f32[64]
          %164 = mul %161, %163 : f32[64]
          %165 = broadcast %p : f32[64]
          %166 = cmp ge %164, %165 : bool[64]
          %167 = broadcast %y : *f32[64]
          %168 = ptr_add %167, %5 : *f32[64]
          %169 = broadcast %x : *f32[64]
          %170 = ptr_add %169, %5 : *f32[64]
          %171 = broadcast %n : i64[64]
          %172 = cmp lt %5, %171 : bool[64]
          %173 = load %170, %172 : f32[64]
          %174 = const 1.0 : f32
          %175 = sub %174, %p : f32
          %176 = const 1.0 : f32
          %177 = div %176, %175 : f32
          %178 = broadcast %177 : f32[64]
          %179 = mul %173, %178 : f32[64]
          %180 = const 0.0 : f32
          %181 = broadcast %180 : f32[64]
          %182 = select %166, %179, %181 : f32[64]
          %183 = broadcast %n : i64[64]
          %184 = cmp lt %5, %183 : bool[64]
          store %168, %182, %184
          return
        }
    "#]]
    .assert_eq(tail);
}

#[test]
fn histogram() {
    check(
        &eight::histogram::KERNEL,
        &[],
        &[256],
        expect![[r#"
        kernel histogram(%x: *u8 readonly, %counts: *i32 exclusive, %n: i64) {
          %0 = program_id 0 : i64
          %1 = const 256 : i64
          %2 = mul %0, %1 : i64
          %3 = iota : i64[256]
          %4 = broadcast %2 : i64[256]
          %5 = add %4, %3 : i64[256]
          %6 = broadcast %x : *u8[256]
          %7 = ptr_add %6, %5 : *u8[256]
          %8 = broadcast %n : i64[256]
          %9 = cmp lt %5, %8 : bool[256]
          %10 = load %7, %9 : u8[256]
          %11 = cast %10 : i64[256]
          %12 = broadcast %counts : *i32[256]
          %13 = ptr_add %12, %11 : *i32[256]
          %14 = broadcast %n : i64[256]
          %15 = cmp lt %5, %14 : bool[256]
          %16 = const 1 : i32
          %17 = broadcast %16 : i32[256]
          %18 = atomic_rmw add %13, %17, %15 : i32[256]
          return
        }
    "#]],
    );
}

/// Online softmax: the sum, the result and the maximum of a row are carried over blocks of keys.
const ATTENTION: Expect = expect![[r#"
    kernel attention(%q: view<bf16,3> readonly, %k: view<bf16,3> readonly, %v: view<bf16,3> readonly, %o: view<bf16,3> exclusive, %lse: view<f32,2> exclusive, %scale: f32) {
      %0 = program_id 1 : i64
      %1 = program_id 0 : i64
      %2 = const 64 : i64
      %3 = mul %1, %2 : i64
      %4 = const 0 : i64
      %5 = view_load %q, %0, %3, %4 : bf16[1x64x128]
      %6 = reshape %5 : bf16[64x128]
      %7 = const 0.0 : f32
      %8 = broadcast %7 : f32[64x128]
      %9 = const -inf : f32
      %10 = broadcast %9 : f32[64]
      %11 = const 0.0 : f32
      %12 = broadcast %11 : f32[64]
      %13 = const 64 : i64
      %14 = add %3, %13 : i64
      %15 = const 0 : i64
      %16 = const 32 : i64
      %17, %18, %19 = for %20 = %15 to %14 step %16 carry (%21 = %12, %22 = %8, %23 = %10) {
        %24 = const 0 : i64
        %25 = view_load %k, %0, %20, %24 : bf16[1x32x128]
        %26 = reshape %25 : bf16[32x128]
        %27 = transpose [1, 0] %26 : bf16[128x32]
        %28 = const 0.0 : f32
        %29 = broadcast %28 : f32[64x32]
        %30 = dot ieee %6, %27, %29 : f32[64x32]
        %31 = broadcast %scale : f32[64x32]
        %32 = mul %30, %31 : f32[64x32]
        %33 = iota : i64[64]
        %34 = broadcast %3 : i64[64]
        %35 = add %34, %33 : i64[64]
        %36 = expand_dims 1 %35 : i64[64x1]
        %37 = iota : i64[32]
        %38 = broadcast %20 : i64[32]
        %39 = add %38, %37 : i64[32]
        %40 = expand_dims 0 %39 : i64[1x32]
        %41 = broadcast %36 : i64[64x32]
        %42 = broadcast %40 : i64[64x32]
        %43 = cmp ge %41, %42 : bool[64x32]
        %44 = const -inf : f32
        %45 = broadcast %44 : f32[64x32]
        %46 = select %43, %32, %45 : f32[64x32]
        %47 = reduce max 1 %46 : f32[64]
        %48 = max %23, %47 : f32[64]
        %49 = expand_dims 1 %48 : f32[64x1]
        %50 = broadcast %49 : f32[64x32]
        %51 = sub %46, %50 : f32[64x32]
        %52 = exp %51 : f32[64x32]
        %53 = sub %23, %48 : f32[64]
        %54 = exp %53 : f32[64]
        %55 = mul %21, %54 : f32[64]
        %56 = reduce add 1 %52 : f32[64]
        %57 = add %55, %56 : f32[64]
        %58 = cast %52 : bf16[64x32]
        %59 = const 0 : i64
        %60 = view_load %v, %0, %20, %59 : bf16[1x32x128]
        %61 = reshape %60 : bf16[32x128]
        %62 = expand_dims 1 %54 : f32[64x1]
        %63 = broadcast %62 : f32[64x128]
        %64 = mul %22, %63 : f32[64x128]
        %65 = dot ieee %58, %61, %64 : f32[64x128]
        yield %57, %65, %48
      } : f32[64], f32[64x128], f32[64]
      %66 = expand_dims 1 %17 : f32[64x1]
      %67 = broadcast %66 : f32[64x128]
      %68 = div %18, %67 : f32[64x128]
      %69 = cast %68 : bf16[64x128]
      %70 = expand_dims 0 %69 : bf16[1x64x128]
      %71 = const 0 : i64
      view_store %o, %70, %0, %3, %71
      %72 = log %17 : f32[64]
      %73 = add %19, %72 : f32[64]
      %74 = expand_dims 0 %73 : f32[1x64]
      view_store %lse, %74, %0, %3
      return
    }
"#]];

#[test]
fn attention() {
    check(&eight::attention::KERNEL, &[DType::BF16], &[64, 32, 128], ATTENTION);
}

#[test]
fn hints_become_promises_and_constants() {
    let hint =
        |multiple_of, equals_one| ParamHint { multiple_of, equals_one, ..Default::default() };
    let params = vec![hint(16, false), hint(0, false), hint(16, false), hint(0, true)];
    let hints = Hints { params, ..Hints::default() };
    check_with(
        &eight::add::KERNEL,
        &[DType::F32],
        &[4],
        &hints,
        expect![[r#"
        kernel add(%x: *f32 readonly multiple_of 16, %y: *f32 readonly, %out: *f32 exclusive multiple_of 16, %n: i64) {
          %0 = program_id 0 : i64
          %1 = const 4 : i64
          %2 = mul %0, %1 : i64
          %3 = iota : i64[4]
          %4 = broadcast %2 : i64[4]
          %5 = add %4, %3 : i64[4]
          %6 = const 1 : i64
          %7 = broadcast %6 : i64[4]
          %8 = cmp lt %5, %7 : bool[4]
          %9 = broadcast %out : *f32[4]
          %10 = ptr_add %9, %5 : *f32[4]
          %11 = broadcast %x : *f32[4]
          %12 = ptr_add %11, %5 : *f32[4]
          %13 = load %12, %8 : f32[4]
          %14 = broadcast %y : *f32[4]
          %15 = ptr_add %14, %5 : *f32[4]
          %16 = load %15, %8 : f32[4]
          %17 = add %13, %16 : f32[4]
          store %10, %17, %8
          return
        }
    "#]],
    );
}
