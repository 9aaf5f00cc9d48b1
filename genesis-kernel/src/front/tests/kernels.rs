//! The kernels of the design as tile IR.

use expect_test::{Expect, expect};

use crate::front::build;
use crate::ir::DType;
use crate::kernel::{Hints, KernelDef, ParamHint};
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
        Ok(func) => expected.assert_eq(&func.to_string()),
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

#[test]
fn matmul() {
    check(
        &eight::matmul::KERNEL,
        &[DType::BF16],
        &[128, 64, 32],
        expect![[r#"
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
    "#]],
    );
}

#[test]
fn dropout() {
    check(
        &eight::dropout::KERNEL,
        &[DType::F32],
        &[64],
        expect![[r#"
        kernel dropout(%x: *f32 readonly, %y: *f32 exclusive, %n: i64, %p: f32, %seed: u64) {
          %0 = program_id 0 : i64
          %1 = const 64 : i64
          %2 = mul %0, %1 : i64
          %3 = iota : i64[64]
          %4 = broadcast %2 : i64[64]
          %5 = add %4, %3 : i64[64]
          %6 = cast %5 : u64[64]
          %7 = cast %seed : u32
          %8 = const 32 : u64
          %9 = shr %seed, %8 : u64
          %10 = cast %9 : u32
          %11 = const 0 : u32
          %12 = broadcast %11 : u32[64]
          %13 = cast %6 : u32[64]
          %14 = const 32 : u64
          %15 = broadcast %14 : u64[64]
          %16 = shr %6, %15 : u64[64]
          %17 = cast %16 : u32[64]
          %18 = const 3528531795 : u32
          %19 = broadcast %18 : u32[64]
          %20 = const 3449720151 : u32
          %21 = broadcast %20 : u32[64]
          %22 = broadcast %7 : u32[64]
          %23 = broadcast %10 : u32[64]
          %24 = mul_hi %19, %13 : u32[64]
          %25 = mul %19, %13 : u32[64]
          %26 = mul_hi %21, %12 : u32[64]
          %27 = mul %21, %12 : u32[64]
          %28 = xor %26, %17 : u32[64]
          %29 = xor %24, %12 : u32[64]
          %30 = xor %28, %22 : u32[64]
          %31 = xor %29, %23 : u32[64]
          %32 = const 2654435769 : u32
          %33 = add %7, %32 : u32
          %34 = const 3144134277 : u32
          %35 = add %10, %34 : u32
          %36 = broadcast %33 : u32[64]
          %37 = broadcast %35 : u32[64]
          %38 = mul_hi %19, %30 : u32[64]
          %39 = mul %19, %30 : u32[64]
          %40 = mul_hi %21, %31 : u32[64]
          %41 = mul %21, %31 : u32[64]
          %42 = xor %40, %27 : u32[64]
          %43 = xor %38, %25 : u32[64]
          %44 = xor %42, %36 : u32[64]
          %45 = xor %43, %37 : u32[64]
          %46 = const 2654435769 : u32
          %47 = add %33, %46 : u32
          %48 = const 3144134277 : u32
          %49 = add %35, %48 : u32
          %50 = broadcast %47 : u32[64]
          %51 = broadcast %49 : u32[64]
          %52 = mul_hi %19, %44 : u32[64]
          %53 = mul %19, %44 : u32[64]
          %54 = mul_hi %21, %45 : u32[64]
          %55 = mul %21, %45 : u32[64]
          %56 = xor %54, %41 : u32[64]
          %57 = xor %52, %39 : u32[64]
          %58 = xor %56, %50 : u32[64]
          %59 = xor %57, %51 : u32[64]
          %60 = const 2654435769 : u32
          %61 = add %47, %60 : u32
          %62 = const 3144134277 : u32
          %63 = add %49, %62 : u32
          %64 = broadcast %61 : u32[64]
          %65 = broadcast %63 : u32[64]
          %66 = mul_hi %19, %58 : u32[64]
          %67 = mul %19, %58 : u32[64]
          %68 = mul_hi %21, %59 : u32[64]
          %69 = mul %21, %59 : u32[64]
          %70 = xor %68, %55 : u32[64]
          %71 = xor %66, %53 : u32[64]
          %72 = xor %70, %64 : u32[64]
          %73 = xor %71, %65 : u32[64]
          %74 = const 2654435769 : u32
          %75 = add %61, %74 : u32
          %76 = const 3144134277 : u32
          %77 = add %63, %76 : u32
          %78 = broadcast %75 : u32[64]
          %79 = broadcast %77 : u32[64]
          %80 = mul_hi %19, %72 : u32[64]
          %81 = mul %19, %72 : u32[64]
          %82 = mul_hi %21, %73 : u32[64]
          %83 = mul %21, %73 : u32[64]
          %84 = xor %82, %69 : u32[64]
          %85 = xor %80, %67 : u32[64]
          %86 = xor %84, %78 : u32[64]
          %87 = xor %85, %79 : u32[64]
          %88 = const 2654435769 : u32
          %89 = add %75, %88 : u32
          %90 = const 3144134277 : u32
          %91 = add %77, %90 : u32
          %92 = broadcast %89 : u32[64]
          %93 = broadcast %91 : u32[64]
          %94 = mul_hi %19, %86 : u32[64]
          %95 = mul %19, %86 : u32[64]
          %96 = mul_hi %21, %87 : u32[64]
          %97 = mul %21, %87 : u32[64]
          %98 = xor %96, %83 : u32[64]
          %99 = xor %94, %81 : u32[64]
          %100 = xor %98, %92 : u32[64]
          %101 = xor %99, %93 : u32[64]
          %102 = const 2654435769 : u32
          %103 = add %89, %102 : u32
          %104 = const 3144134277 : u32
          %105 = add %91, %104 : u32
          %106 = broadcast %103 : u32[64]
          %107 = broadcast %105 : u32[64]
          %108 = mul_hi %19, %100 : u32[64]
          %109 = mul %19, %100 : u32[64]
          %110 = mul_hi %21, %101 : u32[64]
          %111 = mul %21, %101 : u32[64]
          %112 = xor %110, %97 : u32[64]
          %113 = xor %108, %95 : u32[64]
          %114 = xor %112, %106 : u32[64]
          %115 = xor %113, %107 : u32[64]
          %116 = const 2654435769 : u32
          %117 = add %103, %116 : u32
          %118 = const 3144134277 : u32
          %119 = add %105, %118 : u32
          %120 = broadcast %117 : u32[64]
          %121 = broadcast %119 : u32[64]
          %122 = mul_hi %19, %114 : u32[64]
          %123 = mul %19, %114 : u32[64]
          %124 = mul_hi %21, %115 : u32[64]
          %125 = mul %21, %115 : u32[64]
          %126 = xor %124, %111 : u32[64]
          %127 = xor %122, %109 : u32[64]
          %128 = xor %126, %120 : u32[64]
          %129 = xor %127, %121 : u32[64]
          %130 = const 2654435769 : u32
          %131 = add %117, %130 : u32
          %132 = const 3144134277 : u32
          %133 = add %119, %132 : u32
          %134 = broadcast %131 : u32[64]
          %135 = broadcast %133 : u32[64]
          %136 = mul_hi %19, %128 : u32[64]
          %137 = mul %19, %128 : u32[64]
          %138 = mul_hi %21, %129 : u32[64]
          %139 = mul %21, %129 : u32[64]
          %140 = xor %138, %125 : u32[64]
          %141 = xor %136, %123 : u32[64]
          %142 = xor %140, %134 : u32[64]
          %143 = xor %141, %135 : u32[64]
          %144 = const 2654435769 : u32
          %145 = add %131, %144 : u32
          %146 = const 3144134277 : u32
          %147 = add %133, %146 : u32
          %148 = broadcast %145 : u32[64]
          %149 = broadcast %147 : u32[64]
          %150 = mul_hi %19, %142 : u32[64]
          %151 = mul %19, %142 : u32[64]
          %152 = mul_hi %21, %143 : u32[64]
          %153 = mul %21, %143 : u32[64]
          %154 = xor %152, %139 : u32[64]
          %155 = xor %150, %137 : u32[64]
          %156 = xor %154, %148 : u32[64]
          %157 = xor %155, %149 : u32[64]
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
    "#]],
    );
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

#[test]
fn attention() {
    check(
        &eight::attention::KERNEL,
        &[DType::BF16],
        &[64, 32, 128],
        expect![[r#"
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
    "#]],
    );
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
