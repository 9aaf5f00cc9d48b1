//! Pipelined loops, as text.

use expect_test::expect;

use super::run;
use crate::ir::{parse, print, verify};
use crate::passes::tma;

/// `sums += exp2(q kᵀ) v` over blocks of keys.
const CHAIN: &str = "
kernel chain(%q: view<bf16,2> readonly, %k: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %v: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %n: i64, %o: view<f32,2> exclusive) {
  %0 = const 0 : i64
  %1 = const 64 : i64
  %2 = const 0.0 : f32
  %3 = broadcast %2 : f32[64x64]
  %4 = view_load %q, %0, %0 : bf16[64x64]
  %5 = for %6 = %0 to %n step %1 carry (%7 = %3) {
    %8 = view_load %k, %6, %0 : bf16[64x64]
    %9 = transpose [1, 0] %8 : bf16[64x64]
    %10 = dot ieee %4, %9, %3 : f32[64x64]
    %11 = exp2 %10 : f32[64x64]
    %12 = cast %11 : bf16[64x64]
    %13 = view_load %v, %6, %0 : bf16[64x64]
    %14 = dot ieee %12, %13, %7 : f32[64x64]
    yield %14
  } : f32[64x64]
  view_store %o, %5, %0, %0
  return
}
";

fn pipelined(text: &str) -> String {
    let options = tma::Options {
        num_warps: None,
        num_blocks: 1,
        num_stages: None,
        max_shared_bytes: 232_448,
    };
    let mut func = tma::run(&parse(text).unwrap(), &options);
    run(&mut func);
    verify(&func).unwrap_or_else(|error| panic!("{error}\n{}", print(&func)));
    print(&func)
}

#[test]
fn the_second_product_goes_to_the_next_iteration() {
    expect![[r#"
        kernel chain(%q: view<bf16,2> readonly, %k: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %v: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %n: i64, %o: view<f32,2> exclusive) {
          tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
          tma map param 2 bf16 axes [1, 0] block [64, 64] swizzle 128
          tma channel stages 0 bytes 8192
          tma channel stages 0 bytes 8192
          tma load map 0 channel 0 offset 0 bytes 8192 contiguous 0
          tma load map 1 channel 1 offset 0 bytes 8192 contiguous 1
          %0 = const 0 : i64
          %1 = const 64 : i64
          %2 = const 0.0 : f32
          %3 = broadcast %2 : f32[64x64]
          %4 = view_load %q, %0, %0 : bf16[64x64]
          %5 = const 0 : i64
          %6 = cmp gt %1, %5 : bool
          %7 = cmp lt %0, %n : bool
          %8 = and %6, %7 : bool
          %9 = if %8 {
            %10 = tma_load 0 %0, %0 : bf16[64x64]
            %11 = dot ieee %4, %10, %3 : f32[64x64]
            %12 = exp2 %11 : f32[64x64]
            %13 = cast %12 : bf16[64x64]
            %14 = add %0, %1 : i64
            %15, %16, %17 = for %18 = %14 to %n step %1 carry (%19 = %0, %20 = %13, %21 = %3) {
              %22 = tma_load 0 %18, %0 : bf16[64x64]
              %23 = dot ieee %4, %22, %3 : f32[64x64]
              %24 = tma_load 1 %19, %0 : bf16[64x64]
              %25 = dot ieee %20, %24, %21 : f32[64x64]
              %26 = exp2 %23 : f32[64x64]
              %27 = cast %26 : bf16[64x64]
              yield %18, %27, %25
            } : i64, bf16[64x64], f32[64x64]
            %28 = tma_load 1 %15, %0 : bf16[64x64]
            %29 = dot ieee %16, %28, %17 : f32[64x64]
            yield %29
          } else {
            yield %3
          } : f32[64x64]
          view_store %o, %9, %0, %0
          return
        }
    "#]].assert_eq(&pipelined(CHAIN));
}

#[test]
fn products_that_do_not_wait_for_each_other_stay() {
    // The first product needs the sums of the iteration before.
    let chained = CHAIN.replace("dot ieee %4, %9, %3", "dot ieee %4, %9, %7");
    assert_eq!(pipelined(&chained).matches("dot ieee").count(), 2);
    assert_eq!(pipelined(CHAIN).matches("dot ieee").count(), 4);
}

#[test]
fn a_loop_whose_sums_are_used_inside_stays() {
    let used = CHAIN.replace("    yield %14\n", "    view_store %o, %14, %0, %0\n    yield %14\n");
    assert_eq!(pipelined(&used).matches("dot ieee").count(), 2);
}

#[test]
fn a_loop_inside_another_is_rotated() {
    let outer = CHAIN
        .replace("  %5 = for %6", "  for %40 = %0 to %n step %1 {\n  %5 = for %6")
        .replace("  view_store %o, %5, %0, %0", "  view_store %o, %5, %40, %0\n  yield\n  }");
    assert_eq!(pipelined(&outer).matches("dot ieee").count(), 4);
}
