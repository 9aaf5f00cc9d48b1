//! Products as the pass finds and leaves them.

use expect_test::{Expect, expect};

use super::{Options, run};
use crate::ir::{parse, print, verify};

const OPTIONS: Options =
    Options { num_warps: None, num_blocks: 1, num_stages: None, max_shared_bytes: 232_448 };

/// A product of views with these promises; A as `[BM, BK]`, B as `[BK, BN]`.
fn product(a: &str, b: &str, c: &str) -> String {
    let promises = "multiple_of 16 stride_multiple_of 8";
    format!(
        "kernel matmul(%a: view<bf16,2> readonly {promises} {a}, \
                       %b: view<bf16,2> readonly {promises} {b}, \
                       %c: view<bf16,2> exclusive {promises} {c}) {{
  %20 = program_id 0 : i64
  %1 = const 0 : i64
  %2 = const 64 : i64
  %0 = mul %20, %2 : i64
  %3 = view_dim 1 %a : i64
  %4 = const 0.0 : f32
  %5 = broadcast %4 : f32[128x256]
  %6 = for %7 = %1 to %3 step %2 carry (%8 = %5) {{
    %9 = view_load %a, %0, %7 : bf16[128x64]
    %10 = view_load %b, %7, %0 : bf16[64x256]
    %11 = dot ieee %9, %10, %8 : f32[128x256]
    yield %11
  }} : f32[128x256]
  %12 = cast %6 : bf16[128x256]
  view_store %c, %12, %0, %0
  return
}}"
    )
}

fn after(text: &str, options: &Options) -> String {
    let func = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&func).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let func = run(&func, options);
    let text = print(&func);
    verify(&func).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(print(&parse(&text).unwrap()), text);
    text
}

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&after(text, &OPTIONS));
}

/// The tables alone.
fn check_tables(text: &str, expected: Expect) {
    let text = after(text, &OPTIONS);
    let lines = text.lines().filter(|line| line.contains("tma"));
    expected.assert_eq(&lines.map(|line| format!("{}\n", line.trim())).collect::<String>());
}

fn refuses(text: &str, options: &Options) {
    let text = after(text, options);
    assert!(!text.contains("tma"), "{text}");
}

const LAST: &str = "unit_stride";
const FIRST: &str = "unit_axis 0";

#[test]
fn row_major_operands() {
    check(
        &product(LAST, LAST, LAST),
        expect![[r#"
            kernel matmul(%a: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %b: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %c: view<bf16,2> exclusive multiple_of 16 unit_stride stride_multiple_of 8) {
              tma map param 0 bf16 axes [1, 0] block [64, 128] swizzle 128
              tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
              tma map param 2 bf16 axes [1, 0] block [64, 64] swizzle 128
              tma channel stages 0 bytes 49152
              tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
              tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 1
              tma store map 2
              %0 = program_id 0 : i64
              %1 = const 0 : i64
              %2 = const 64 : i64
              %3 = mul %0, %2 : i64
              %4 = view_dim 1 %a : i64
              %5 = const 0.0 : f32
              %6 = broadcast %5 : f32[128x256]
              %7 = for %8 = %1 to %4 step %2 carry (%9 = %6) {
                %10 = tma_load 0 %3, %8 : bf16[128x64]
                %11 = tma_load 1 %8, %3 : bf16[64x256]
                %12 = dot ieee %10, %11, %9 : f32[128x256]
                yield %12
              } : f32[128x256]
              %13 = cast %7 : bf16[128x256]
              tma_store 0 %13, %3, %3
              return
            }
        "#]],
    );
}

#[test]
fn a_transposed_view_has_the_other_axis_contiguous() {
    check_tables(
        &product(LAST, FIRST, LAST),
        expect![[r#"
            tma map param 0 bf16 axes [1, 0] block [64, 128] swizzle 128
            tma map param 1 bf16 axes [0, 1] block [64, 256] swizzle 128
            tma map param 2 bf16 axes [1, 0] block [64, 64] swizzle 128
            tma channel stages 0 bytes 49152
            tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
            tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 0
            tma store map 2
            %10 = tma_load 0 %3, %8 : bf16[128x64]
            %11 = tma_load 1 %8, %3 : bf16[64x256]
            tma_store 0 %13, %3, %3
        "#]],
    );
    check_tables(
        &product(FIRST, LAST, LAST),
        expect![[r#"
            tma map param 0 bf16 axes [0, 1] block [64, 64] swizzle 128
            tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
            tma map param 2 bf16 axes [1, 0] block [64, 64] swizzle 128
            tma channel stages 0 bytes 49152
            tma load map 0 channel 0 offset 0 bytes 16384 contiguous 0
            tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 1
            tma store map 2
            %10 = tma_load 0 %3, %8 : bf16[128x64]
            %11 = tma_load 1 %8, %3 : bf16[64x256]
            tma_store 0 %13, %3, %3
        "#]],
    );
}

#[test]
fn a_result_by_columns_is_stored_transposed() {
    check_tables(
        &product(LAST, LAST, FIRST),
        expect![[r#"
            tma map param 0 bf16 axes [1, 0] block [64, 128] swizzle 128
            tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
            tma map param 2 bf16 axes [0, 1] block [64, 64] swizzle 128
            tma channel stages 0 bytes 49152
            tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
            tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 1
            tma store map 2 transposed
            %10 = tma_load 0 %3, %8 : bf16[128x64]
            %11 = tma_load 1 %8, %3 : bf16[64x256]
            tma_store 0 %13, %3, %3
        "#]],
    );
}

#[test]
fn a_result_of_32_bits_by_columns_is_stored_as_ever() {
    let of_32_bits = product(LAST, LAST, FIRST)
        .replace("%c: view<bf16,2>", "%c: view<f32,2>")
        .replace("  %12 = cast %6 : bf16[128x256]\n", "")
        .replace("view_store %c, %12", "view_store %c, %6");
    assert!(!after(&of_32_bits, &OPTIONS).contains("tma_store"));
}

#[test]
fn both_operands_or_neither() {
    for text in [product("", LAST, LAST), product(LAST, "", LAST)] {
        refuses(&text, &OPTIONS);
    }
    refuses(&product(LAST, LAST, LAST).replace("view<bf16,2> readonly", "view<bf16,2>"), &OPTIONS);
}

#[test]
fn addresses_and_strides_must_be_multiples_of_16_bytes() {
    let text = product(LAST, LAST, LAST);
    refuses(&text.replace("stride_multiple_of 8", "stride_multiple_of 4"), &OPTIONS);
    refuses(&text.replacen("multiple_of 16", "multiple_of 8", 1), &OPTIONS);
}

#[test]
fn warps_come_by_fours_and_share_the_rows() {
    let text = product(LAST, LAST, LAST);
    for warps in [1, 2, 16, 4] {
        // Four warps would hold 256 accumulators a thread.
        refuses(&text, &Options { num_warps: Some(warps), ..OPTIONS });
    }
    let small = text.replace("128x256", "64x256").replace("128x64", "64x64");
    refuses(&small, &Options { num_warps: Some(8), ..OPTIONS });
    assert!(after(&small, &Options { num_warps: Some(4), ..OPTIONS }).contains("tma_load"));
}

#[test]
fn stages_are_the_loops_or_the_launchs() {
    let text = product(LAST, LAST, LAST);
    let asked = Options { num_stages: Some(3), ..OPTIONS };
    assert!(after(&text, &asked).contains("channel stages 3 "));
    let own = text.replace("carry (%8 = %5) {", "carry (%8 = %5) stages 4 {");
    assert!(after(&own, &asked).contains("channel stages 4 "));
}

#[test]
fn shapes_that_tensor_cores_do_not_take() {
    let text = product(LAST, LAST, LAST);
    refuses(&text.replace("128x256", "32x256").replace("128x64", "32x64"), &OPTIONS);
    refuses(&text.replace("128x64", "128x8").replace("64x256", "8x256"), &OPTIONS);
    refuses(&text.replace("bf16", "f32").replace("cast %6 : f32", "neg %6 : f32"), &OPTIONS);
}

#[test]
fn a_tile_that_is_wanted_in_registers_too() {
    let text = product(LAST, LAST, LAST);
    let stored = |value| format!("    view_store %c, {value}, %7, %7\n    yield %11");
    // Tensor cores read the right operand in shared memory alone.
    refuses(&text.replace("    yield %11", &stored("%10")), &OPTIONS);
    let left = after(&text.replace("    yield %11", &stored("%9")), &OPTIONS);
    assert!(left.contains("offset 0 bytes 16384 contiguous 1 registers\n"), "{left}");
}

#[test]
fn f32_by_tf32_needs_k_contiguous() {
    let text = product(LAST, LAST, LAST).replace("bf16", "f32").replace("ieee", "tf32");
    let text = text.replace("cast %6 : f32", "neg %6 : f32");
    refuses(&text, &OPTIONS);
    let mut b_transposed = text.clone();
    let at = b_transposed.find("%b: ").unwrap();
    b_transposed.replace_range(at.., &text[at..].replacen(LAST, FIRST, 1));
    check_tables(
        &b_transposed,
        expect![[r#"
            tma map param 0 f32 axes [1, 0] block [32, 128] swizzle 128 tf32
            tma map param 1 f32 axes [0, 1] block [32, 256] swizzle 128 tf32
            tma map param 2 f32 axes [1, 0] block [32, 64] swizzle 128
            tma channel stages 0 bytes 98304
            tma load map 0 channel 0 offset 0 bytes 32768 contiguous 1
            tma load map 1 channel 0 offset 32768 bytes 65536 contiguous 0
            tma store map 2
            %10 = tma_load 0 %3, %8 : f32[128x64]
            %11 = tma_load 1 %8, %3 : f32[64x256]
            tma_store 0 %13, %3, %3
        "#]],
    );
}

/// A batched product in a loop over tiles, as the framework writes it.
const BATCHED: &str = "
kernel matmul(%a: view<bf16,3> readonly multiple_of 16 unit_stride stride_multiple_of 16, %b: view<bf16,3> readonly multiple_of 16 unit_axis 1 stride_multiple_of 16, %c: view<bf16,3> exclusive multiple_of 16 unit_stride stride_multiple_of 16) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  %2 = const 0 : i64
  %3 = const 64 : i64
  %4 = view_dim 0 %c : i64
  %5 = view_dim 2 %a : i64
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[128x256]
  for %8 = %0 to %4 step %1 {
    %9 = mul %8, %3 : i64
    %10 = for %11 = %2 to %5 step %3 carry (%12 = %7) {
      %13 = view_load %a, %8, %9, %11 : bf16[1x128x64]
      %14 = reshape %13 : bf16[128x64]
      %15 = view_load %b, %8, %11, %9 : bf16[1x64x256]
      %16 = reshape %15 : bf16[64x256]
      %17 = dot ieee %14, %16, %12 : f32[128x256]
      yield %17
    } : f32[128x256]
    %18 = cast %10 : bf16[128x256]
    %19 = expand_dims 0 %18 : bf16[1x128x256]
    view_store %c, %19, %8, %9, %9
    yield
  }
  return
}
";

#[test]
fn batches_are_an_axis_of_the_map() {
    check(
        BATCHED,
        expect![[r#"
        kernel matmul(%a: view<bf16,3> readonly multiple_of 16 unit_stride stride_multiple_of 16, %b: view<bf16,3> readonly multiple_of 16 unit_axis 1 stride_multiple_of 16, %c: view<bf16,3> exclusive multiple_of 16 unit_stride stride_multiple_of 16) {
          tma map param 0 bf16 axes [2, 1, 0] block [64, 128, 1] swizzle 128
          tma map param 1 bf16 axes [1, 2, 0] block [64, 256, 1] swizzle 128
          tma map param 2 bf16 axes [2, 1, 0] block [64, 64, 1] swizzle 128
          tma channel stages 0 bytes 49152
          tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
          tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 0
          tma store map 2
          %0 = program_id 0 : i64
          %1 = num_programs 0 : i64
          %2 = const 0 : i64
          %3 = const 64 : i64
          %4 = view_dim 0 %c : i64
          %5 = view_dim 2 %a : i64
          %6 = const 0.0 : f32
          %7 = broadcast %6 : f32[128x256]
          for %8 = %0 to %4 step %1 {
            %9 = mul %8, %3 : i64
            %10 = for %11 = %2 to %5 step %3 carry (%12 = %7) {
              %13 = tma_load 0 %8, %9, %11 : bf16[128x64]
              %14 = tma_load 1 %8, %11, %9 : bf16[64x256]
              %15 = dot ieee %13, %14, %12 : f32[128x256]
              yield %15
            } : f32[128x256]
            %16 = cast %10 : bf16[128x256]
            %17 = expand_dims 0 %16 : bf16[1x128x256]
            tma_store 0 %16, %8, %9, %9
            yield
          }
          return
        }
    "#]],
    );
}

#[test]
fn a_transpose_is_no_obstacle() {
    let text = BATCHED
        .replace(
            "view_load %b, %8, %11, %9 : bf16[1x64x256]",
            "view_load %b, %8, %9, %11 : bf16[1x256x64]",
        )
        .replace(
            "%16 = reshape %15 : bf16[64x256]",
            "%20 = reshape %15 : bf16[256x64]\n      %16 = transpose [1, 0] %20 : bf16[64x256]",
        );
    check_tables(
        &text,
        expect![[r#"
        tma map param 0 bf16 axes [2, 1, 0] block [64, 128, 1] swizzle 128
        tma map param 1 bf16 axes [1, 2, 0] block [64, 64, 1] swizzle 128
        tma map param 2 bf16 axes [2, 1, 0] block [64, 64, 1] swizzle 128
        tma channel stages 0 bytes 49152
        tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
        tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 1
        tma store map 2
        %13 = tma_load 0 %8, %9, %11 : bf16[128x64]
        %14 = tma_load 1 %8, %9, %11 : bf16[64x256]
        tma_store 0 %16, %8, %9, %9
    "#]],
    );
}

/// The product with coordinates of this factor.
fn by(factor: u32) -> String {
    product(LAST, LAST, LAST)
        .replace("%0 = mul %20, %2", &format!("%22 = const {factor} : i64\n  %0 = mul %20, %22"))
}

#[test]
fn boxes_start_at_multiples_of_16_bytes() {
    assert!(after(&by(8), &OPTIONS).contains("tma_load"));
    // Columns of the right operand and of the result.
    refuses(&by(4), &OPTIONS);
    // The step along K, of the left operand's columns.
    let text = product(LAST, LAST, LAST);
    refuses(
        &text.replace("%0 = mul", "%22 = const 4 : i64\n  %0 = mul").replace("step %2", "step %22"),
        &OPTIONS,
    );
    // A constant offset.
    let moved = |by: u32| {
        text.replace("%9 = view_load %a, %0, %7", &format!(
            "%23 = const {by} : i64\n    %24 = add %7, %23 : i64\n    %9 = view_load %a, %0, %24"
        ))
    };
    assert!(after(&moved(24), &OPTIONS).contains("tma_load"));
    refuses(&moved(1), &OPTIONS);
    // Rows may start anywhere, and what the user promises holds.
    let any_row = text.replace("view_load %a, %0, %7", "view_load %a, %20, %7");
    assert!(after(&any_row, &OPTIONS).contains("tma_load"));
    let promised = by(1).replace("%0 = mul %20, %22", "%0 = multiple_of 8 %20");
    assert!(after(&promised, &OPTIONS).contains("tma_load"));
}

#[test]
fn a_result_at_any_column_is_stored_as_ever() {
    let text = product(LAST, LAST, LAST)
        .replace("view_store %c, %12, %0, %0", "view_store %c, %12, %0, %20");
    let text = after(&text, &OPTIONS);
    assert!(text.contains("tma_load") && !text.contains("tma_store"), "{text}");
}

#[test]
fn coordinates_that_one_thread_can_not_compute() {
    let text = BATCHED.replace(
        "    %9 = mul %8, %3 : i64",
        "    %21 = view_load %a, %8, %2, %2 : bf16[1x1x16]
    %22 = reduce max 2 %21 : bf16[1x1]
    %23 = reshape %22 : bf16
    %9 = cast %23 : i64",
    );
    refuses(&text, &OPTIONS);
}

#[test]
fn blocks_of_a_cluster_share_the_operands() {
    let options = Options { num_blocks: 2, ..OPTIONS };
    let loads = |a: &str, b: &str| -> Vec<String> {
        let text = after(&product(a, b, LAST), &options);
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with("tma "));
        lines.filter(|line| !line.contains("param 2")).map(str::to_owned).collect()
    };
    expect![[r#"
        tma map param 0 bf16 axes [1, 0] block [64, 64] swizzle 128
        tma map param 1 bf16 axes [1, 0] block [64, 32] swizzle 128
        tma channel stages 0 bytes 40960
        tma load map 0 channel 0 offset 0 bytes 8192 contiguous 1 parts 2
        tma load map 1 channel 0 offset 8192 bytes 32768 contiguous 1 multicast 2
        tma store map 2"#]]
    .assert_eq(&loads(LAST, LAST).join("\n"));
    expect![[r#"
        tma map param 0 bf16 axes [0, 1] block [64, 64] swizzle 128
        tma map param 1 bf16 axes [0, 1] block [64, 128] swizzle 128
        tma channel stages 0 bytes 40960
        tma load map 0 channel 0 offset 0 bytes 8192 contiguous 0 parts 2
        tma load map 1 channel 0 offset 8192 bytes 32768 contiguous 0 multicast 2
        tma store map 2"#]]
    .assert_eq(&loads(FIRST, FIRST).join("\n"));
    // A block would have 32 rows, and an instruction takes 64.
    refuses(&product(LAST, LAST, LAST), &Options { num_blocks: 4, ..OPTIONS });
}

/// A product of weights and boxes of rows and columns of positions, channels last.
#[test]
fn a_box_of_positions_is_one_axis_of_an_operand() {
    let promises = "multiple_of 16 unit_stride stride_multiple_of 8";
    check_tables(
        &format!(
            "kernel conv(%w: view<bf16,2> readonly {promises}, %x: view<bf16,4> readonly {promises}, \
                         %c: view<f32,2> exclusive) {{
  %0 = program_id 0 : i64
  %1 = const 0 : i64
  %2 = const 64 : i64
  %3 = view_dim 1 %w : i64
  %4 = const 0.0 : f32
  %5 = broadcast %4 : f32[64x128]
  %6 = for %7 = %1 to %3 step %2 carry (%8 = %5) {{
    %9 = view_load %w, %0, %7 : bf16[64x64]
    %10 = view_load %x, %0, %0, %0, %7 : bf16[1x16x8x64]
    %11 = reshape %10 : bf16[128x64]
    %12 = transpose [1, 0] %11 : bf16[64x128]
    %13 = dot ieee %9, %12, %8 : f32[64x128]
    yield %13
  }} : f32[64x128]
  view_store %c, %6, %0, %0
  return
}}"
        ),
        expect![[r#"
            tma map param 0 bf16 axes [1, 0] block [64, 64] swizzle 128
            tma map param 1 bf16 axes [3, 2, 1, 0] block [64, 8, 16, 1] swizzle 128
            tma channel stages 0 bytes 24576
            tma load map 0 channel 0 offset 0 bytes 8192 contiguous 1
            tma load map 1 channel 0 offset 8192 bytes 16384 contiguous 0
            %9 = tma_load 0 %0, %7 : bf16[64x64]
            %10 = tma_load 1 %0, %0, %0, %7 : bf16[64x128]
        "#]],
    );
}

#[test]
fn a_box_of_rows_is_one_axis_of_an_operand_in_registers() {
    let promises = "multiple_of 16 unit_stride stride_multiple_of 16";
    check_tables(
        &format!(
            "kernel codes(%w: view<u8,4> readonly {promises}, %x: view<bf16,2> readonly {promises}, \
                          %c: view<f32,2> exclusive) {{
  %0 = program_id 0 : i64
  %1 = const 0 : i64
  %2 = const 128 : i64
  %3 = view_dim 3 %w : i64
  %4 = const 0.0 : f32
  %5 = broadcast %4 : f32[64x8]
  %6 = for %7 = %1 to %3 step %2 carry (%8 = %5) {{
    %9 = view_load %w, %0, %1, %1, %7 : u8[4x2x8x128]
    %10 = reshape %9 : u8[64x128]
    %11 = cast %10 : bf16[64x128]
    %12 = view_load %x, %0, %7 : bf16[8x128]
    %13 = transpose [1, 0] %12 : bf16[128x8]
    %14 = dot ieee %11, %13, %8 : f32[64x8]
    yield %14
  }} : f32[64x8]
  view_store %c, %6, %0, %0
  return
}}"
        ),
        expect![[r#"
            tma map param 0 u8 axes [3, 2, 1, 0] block [128, 8, 2, 4] swizzle 128
            tma map param 1 bf16 axes [1, 0] block [64, 8] swizzle 128
            tma channel stages 0 bytes 10240
            tma load map 0 channel 0 offset 0 bytes 8192 contiguous 1 registers
            tma load map 1 channel 0 offset 8192 bytes 2048 contiguous 0
            %9 = tma_load 0 %0, %1, %1, %7 : u8[64x128]
            %11 = tma_load 1 %0, %7 : bf16[128x8]
        "#]],
    );
}

/// Two products of the same tiles, one of them of what a line scales.
const SHARED: &str = "
kernel shared(%k: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %q: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %l: view<f32,1> readonly multiple_of 16 unit_stride, %o: view<f32,2> exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const 64 : i64
  %2 = const 0.0 : f32
  %3 = broadcast %2 : f32[64x64]
  %4 = view_load %k, %0, %0 : bf16[64x64]
  %5 = for %6 = %0 to %n step %1 carry (%7 = %3) {
    %8 = view_load %q, %6, %0 : bf16[64x64]
    %9 = transpose [1, 0] %8 : bf16[64x64]
    %10 = dot ieee %4, %9, %3 : f32[64x64]
    %11 = view_load %l, %6 : f32[64]
    %12 = expand_dims 0 %11 : f32[1x64]
    %13 = broadcast %12 : f32[64x64]
    %14 = mul %10, %13 : f32[64x64]
    %15 = cast %14 : bf16[64x64]
    %16 = dot ieee %15, %8, %7 : f32[64x64]
    yield %16
  } : f32[64x64]
  view_store %o, %5, %0, %0
  return
}
";

#[test]
fn what_two_products_read_is_copied_once_and_lines_come_with_it() {
    check_tables(
        SHARED,
        expect![[r#"
        tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
        tma map param 2 f32 axes [0] block [64] swizzle 0
        tma channel stages 0 bytes 9216
        tma load map 0 channel 0 offset 0 bytes 8192 contiguous 0
        tma load map 0 channel 0 offset 0 bytes 8192 contiguous 1
        tma load map 1 channel 0 offset 8192 bytes 256 contiguous 0 registers
        %9 = tma_load 0 %6, %0 : bf16[64x64]
        %10 = tma_load 1 %6, %0 : bf16[64x64]
        %13 = tma_load 2 %6 : f32[64]
    "#]],
    );
}

/// Two products of one tile that run on into the next iteration, as of a gate and what it lets through.
const GATED: &str = "
kernel gated(%a: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %b: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %c: view<f32,2> exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const 64 : i64
  %2 = const 0.0 : f32
  %3 = broadcast %2 : f32[64x128]
  %4, %5 = for %6 = %0 to %n step %1 carry (%7 = %3, %8 = %3) {
    %9 = view_load %b, %6, %0 : bf16[64x128]
    %10 = view_load %a, %0, %6 : bf16[64x64]
    %11 = dot ieee %10, %9, %7 : f32[64x128]
    %12 = view_load %a, %1, %6 : bf16[64x64]
    %13 = dot ieee %12, %9, %8 : f32[64x128]
    yield %11, %13
  } : f32[64x128], f32[64x128]
  %14 = mul %4, %5 : f32[64x128]
  view_store %c, %14, %0, %0
  return
}
";

#[test]
fn what_two_products_read_in_flight_is_copied_once() {
    check_tables(
        GATED,
        expect![[r#"
        tma map param 0 bf16 axes [1, 0] block [64, 64] swizzle 128
        tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
        tma channel stages 0 bytes 32768
        tma load map 0 channel 0 offset 0 bytes 8192 contiguous 1
        tma load map 1 channel 0 offset 8192 bytes 16384 contiguous 1
        tma load map 1 channel 0 offset 8192 bytes 16384 contiguous 1
        tma load map 0 channel 0 offset 24576 bytes 8192 contiguous 1
        %10 = tma_load 1 %6, %0 : bf16[64x128]
        %11 = tma_load 2 %6, %0 : bf16[64x128]
        %12 = tma_load 0 %0, %6 : bf16[64x64]
        %14 = tma_load 3 %1, %6 : bf16[64x64]
    "#]],
    );
}

#[test]
fn what_two_products_of_a_cluster_read_is_multicast_once() {
    let text = GATED.replace("bf16[64x64]", "bf16[128x64]").replace("f32[64x128]", "f32[128x128]");
    let text = after(&text, &Options { num_blocks: 2, ..OPTIONS });
    let lines =
        text.lines().filter(|line| line.contains("tma channel") || line.contains("tma load"));
    expect![[r#"
        tma channel stages 0 bytes 32768
        tma load map 0 channel 0 offset 0 bytes 8192 contiguous 1 parts 2
        tma load map 1 channel 0 offset 8192 bytes 16384 contiguous 1 multicast 2
        tma load map 1 channel 0 offset 8192 bytes 16384 contiguous 1 multicast 2
        tma load map 0 channel 0 offset 24576 bytes 8192 contiguous 1 parts 2"#]]
    .assert_eq(&lines.map(str::trim).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_line_that_begins_anywhere_is_loaded_by_threads() {
    let text = SHARED.replace("view_load %l, %6", "view_load %l, %n");
    let text = after(&text, &OPTIONS);
    assert!(text.contains("view_load %l"), "{text}");
    assert!(!after(SHARED, &OPTIONS).contains("view_load %l"));
}

/// The product with this ahead of the sums that a loop begins with, and this behind the store.
fn read(ahead: &str, start: &str, behind: &str) -> String {
    product(LAST, LAST, LAST)
        .replace("  %6 = for", &format!("{ahead}  %6 = for"))
        .replace("(%8 = %5)", &format!("(%8 = {start})"))
        .replace("  return", &format!("{behind}  return"))
}

const READ: &str =
    "  %13 = view_load %c, %0, %0 : bf16[128x256]\n  %14 = cast %13 : f32[128x256]\n";

fn is_copied(text: &str) -> bool {
    let text = after(text, &OPTIONS);
    assert!(text.contains("tma_load"), "{text}");
    text.contains("tma_store")
}

#[test]
fn a_result_that_was_read_by_then_is_copied() {
    assert!(is_copied(&read(READ, "%14", "")));
    let epilogue = "  %15 = add %6, %14 : f32[128x256]\n  %12 = cast %15 : bf16[128x256]";
    let product = product(LAST, LAST, LAST);
    let added = product.replace("  %12 = cast %6 : bf16[128x256]", &format!("{READ}{epilogue}"));
    assert!(is_copied(&added));
}

#[test]
fn a_result_that_is_read_later_is_stored_as_ever() {
    assert!(!is_copied(&read("", "%5", READ)), "behind the store");
    assert!(!is_copied(&read(READ, "%5", "")), "ahead of it, but it need not have come by then");
}

/// The next iteration reads what this one wrote, but in a share of a grid, whose iterations have no order.
#[test]
fn a_result_that_the_next_iteration_reads_is_stored_as_ever() {
    let looped = |first: &str, step: &str| {
        let head =
            format!("  %21 = num_programs 0 : i64\n  for %22 = {first} to %3 step {step} {{\n");
        read(&format!("{head}{READ}"), "%14", "    yield\n  }\n")
    };
    assert!(is_copied(&looped("%20", "%21")));
    assert!(!is_copied(&looped("%1", "%2")));
}
