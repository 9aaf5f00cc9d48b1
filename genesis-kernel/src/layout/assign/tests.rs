//! Whole kernels: how many conversions they need and how they go to memory.

use expect_test::expect;

use super::*;
use crate::ir::OpKind;
use crate::ir::parse::parse;
use crate::layout::{Conversion, verify};

fn lir(text: &str, num_warps: u32) -> LayoutIr {
    let func = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let lir =
        assign(&func, &LayoutOptions { num_warps: Some(num_warps), ..LayoutOptions::default() })
            .unwrap();
    verify(&lir).unwrap_or_else(|error| panic!("{error}\n{}\n{}", lir.func, lir.layout_text()));
    lir
}

fn ops(lir: &LayoutIr, kind: impl Fn(&OpKind) -> bool) -> Vec<Op> {
    lir.func.walk().into_iter().filter(|&op| kind(&lir.func.op(op).kind)).collect()
}

fn converts(lir: &LayoutIr) -> Vec<Conversion> {
    let ops = ops(lir, |kind| *kind == OpKind::ConvertLayout);
    ops.into_iter().map(|op| lir.conversion(op).unwrap()).collect()
}

fn vectors(lir: &LayoutIr) -> Vec<u32> {
    lir.accesses.values().map(Access::vector).collect()
}

/// The layouts of a kernel's tiles and its accesses, as text.
pub(in crate::layout) fn layouts_of(text: &str, num_warps: u32) -> String {
    lir(text, num_warps).layout_text()
}

/// The ops of a kernel that load, move or store tiles, as text.
pub(in crate::layout) fn moves_of(text: &str, num_warps: u32) -> String {
    let text = crate::ir::print(&lir(text, num_warps).func);
    let moves = |line: &&str| {
        ["load", "store", "convert_layout", "for ", "dot", "yield"].iter().any(|w| line.contains(w))
    };
    // `expect_test` takes the indentation that all lines share off what it compares with.
    let in_the_body = |line: &str| format!("{}\n", line.strip_prefix("  ").unwrap_or(line));
    text.lines().filter(moves).map(in_the_body).collect()
}

pub(in crate::layout) const ADD: &str = "
kernel add(%x: *f32 readonly multiple_of 16, %y: *f32 readonly multiple_of 16, %out: *f32 exclusive multiple_of 16, %n: i64 multiple_of 16) {
    %0 = program_id 0 : i64
    %1 = const 1024 : i64
    %2 = mul %0, %1 : i64
    %3 = iota : i64[1024]
    %4 = broadcast %2 : i64[1024]
    %5 = add %4, %3 : i64[1024]
    %6 = broadcast %n : i64[1024]
    %7 = cmp lt %5, %6 : bool[1024]
    %8 = broadcast %x : *f32[1024]
    %9 = ptr_add %8, %5 : *f32[1024]
    %10 = load %9, %7 : f32[1024]
    %11 = broadcast %y : *f32[1024]
    %12 = ptr_add %11, %5 : *f32[1024]
    %13 = load %12, %7 : f32[1024]
    %14 = add %10, %13 : f32[1024]
    %15 = broadcast %out : *f32[1024]
    %16 = ptr_add %15, %5 : *f32[1024]
    store %16, %14, %7
    return
}
";

#[test]
fn elementwise_kernels_take_vectors_and_convert_nothing() {
    let lir = lir(ADD, 4);
    assert_eq!(converts(&lir), []);
    assert_eq!(vectors(&lir), [4, 4, 4]);
    let load = ops(&lir, |kind| *kind == OpKind::Load)[0];
    let layout = lir.layout(lir.func.op(load).results[0]).unwrap();
    assert_eq!(layout.reg, [1, 2, 512]);
    assert_eq!(layout.lane, [4, 8, 16, 32, 64]);
    let access = &lir.accesses[&load];
    assert_eq!(access.groups, [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
    assert_eq!(access.alignment, 16);
}

#[test]
fn an_odd_extent_takes_single_elements() {
    let text = ADD.replace("%n: i64 multiple_of 16", "%n: i64");
    assert_eq!(vectors(&lir(&text, 4)), [1, 1, 1]);
}

/// The differences of all pairs of 64 numbers.
pub(in crate::layout) const PAIRS: &str = "
kernel pairs(%x: *f32 readonly multiple_of 16, %out: *f32 exclusive multiple_of 16) {
    %i = iota : i64[64]
    %p = broadcast %x : *f32[64]
    %q = ptr_add %p, %i : *f32[64]
    %v = load %q : f32[64]
    %two = const 2.0 : f32
    %twos = broadcast %two : f32[64]
    %w = mul %v, %twos : f32[64]
    %c = expand_dims 1 %w : f32[64x1]
    %r = expand_dims 0 %w : f32[1x64]
    %cs = broadcast %c : f32[64x64]
    %rs = broadcast %r : f32[64x64]
    %d = sub %cs, %rs : f32[64x64]
    %n = const 64 : i64
    %ns = broadcast %n : i64[64]
    %line = mul %i, %ns : i64[64]
    %lc = expand_dims 1 %line : i64[64x1]
    %ic = expand_dims 0 %i : i64[1x64]
    %lcs = broadcast %lc : i64[64x64]
    %ics = broadcast %ic : i64[64x64]
    %at = add %lcs, %ics : i64[64x64]
    %o = broadcast %out : *f32[64x64]
    %op = ptr_add %o, %at : *f32[64x64]
    store %op, %d
    return
}
";

#[test]
fn a_vector_along_rows_and_columns_is_read_twice() {
    let repeated = lir(PAIRS, 4);
    assert_eq!(converts(&repeated), []);
    assert_eq!(ops(&repeated, |kind| *kind == OpKind::Load).len(), 2);
    // Memory that the kernel may write is read once.
    let moved = lir(&PAIRS.replace("readonly", "exclusive"), 4);
    assert_eq!(converts(&moved).len(), 1);
    assert_eq!(ops(&moved, |kind| *kind == OpKind::Load).len(), 1);
}

/// Layer norm of 4 rows without its shift: statistics along rows, a weight along columns.
pub(in crate::layout) const NORM: &str = "
kernel norm(%x: *bf16 readonly multiple_of 16, %w: *f32 readonly multiple_of 16, %y: *bf16 exclusive multiple_of 16, %stats: *f32 exclusive) {
    %0 = iota : i64[4]
    %1 = expand_dims 1 %0 : i64[4x1]
    %2 = const 256 : i64
    %3 = broadcast %2 : i64[4x1]
    %4 = mul %1, %3 : i64[4x1]
    %5 = broadcast %4 : i64[4x256]
    %6 = iota : i64[256]
    %7 = expand_dims 0 %6 : i64[1x256]
    %8 = broadcast %7 : i64[4x256]
    %9 = add %5, %8 : i64[4x256]
    %10 = broadcast %x : *bf16[4x256]
    %11 = ptr_add %10, %9 : *bf16[4x256]
    %12 = load %11 : bf16[4x256]
    %13 = cast %12 : f32[4x256]
    %14 = reduce add 1 %13 : f32[4]
    %15 = expand_dims 1 %14 : f32[4x1]
    %16 = broadcast %15 : f32[4x256]
    %17 = sub %13, %16 : f32[4x256]
    %18 = broadcast %w : *f32[256]
    %19 = ptr_add %18, %6 : *f32[256]
    %20 = load %19 : f32[256]
    %21 = expand_dims 0 %20 : f32[1x256]
    %22 = broadcast %21 : f32[4x256]
    %23 = mul %17, %22 : f32[4x256]
    %24 = cast %23 : bf16[4x256]
    %25 = broadcast %y : *bf16[4x256]
    %26 = ptr_add %25, %9 : *bf16[4x256]
    store %26, %24
    %27 = broadcast %stats : *f32[4]
    %28 = ptr_add %27, %0 : *f32[4]
    store %28, %14
    return
}
";

#[test]
fn every_tile_of_a_row_kernel_has_a_layout() {
    expect![[r#"
        // 4 warps
        // %0: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // %1: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // %3: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // %4: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // %5: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %6: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
        // %7: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
        // %8: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %9: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %10: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %11: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %12: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %13: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %14: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // %15: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // %16: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %17: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %18: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
        // %19: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
        // %20: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
        // %21: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
        // %22: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %23: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %24: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %25: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %26: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        // %27: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // %28: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
        // access: 1 x 8 elements, 16 bytes
        // access: 2 x 4 elements, 16 bytes
        // access: 1 x 8 elements, 16 bytes
        // access: 1 x 1 elements, 4 bytes
    "#]]
    .assert_eq(&layouts_of(NORM, 4));
}

#[test]
fn row_kernels_convert_nothing() {
    let lir = lir(NORM, 4);
    assert_eq!(converts(&lir), []);
    let reduce = ops(&lir, |kind| matches!(kind, OpKind::Reduce { .. }))[0];
    let reduction = lir.reduction(reduce).unwrap();
    assert_eq!(reduction.warps, 0, "a row stays in a warp: {reduction:?}");
    // bf16 by 8, the weight by 4 of f32, statistics one by one.
    assert_eq!(vectors(&lir), [8, 4, 8, 1]);
}

#[test]
fn a_transposed_store_converts_its_value_once() {
    let lir = lir(
        "
kernel transpose(%x: *f32 readonly multiple_of 16, %y: *f32 exclusive multiple_of 16) {
    %0 = iota : i64[64]
    %1 = expand_dims 1 %0 : i64[64x1]
    %2 = const 64 : i64
    %3 = broadcast %2 : i64[64x1]
    %4 = mul %1, %3 : i64[64x1]
    %5 = broadcast %4 : i64[64x64]
    %6 = expand_dims 0 %0 : i64[1x64]
    %7 = broadcast %6 : i64[64x64]
    %8 = add %5, %7 : i64[64x64]
    %9 = broadcast %x : *f32[64x64]
    %10 = ptr_add %9, %8 : *f32[64x64]
    %11 = load %10 : f32[64x64]
    %12 = transpose [1, 0] %11 : f32[64x64]
    %13 = broadcast %y : *f32[64x64]
    %14 = ptr_add %13, %8 : *f32[64x64]
    store %14, %12
    return
}
",
        4,
    );
    let converts = converts(&lir);
    let [Conversion::Shared(plan)] = &converts[..] else { panic!("{converts:?}") };
    assert_eq!((plan.store.ways, plan.load.ways), (1, 1));
    assert_eq!(vectors(&lir), [4, 4]);
}

/// One block of a matrix product; N is 64, K runs over `%k` by 32.
fn matmul(dtype: &str) -> String {
    let text = "
kernel matmul(%a: *T readonly multiple_of 16, %b: *T readonly multiple_of 16, %c: *T exclusive multiple_of 16, %k: i64 multiple_of 16) {
    %0 = iota : i64[64]
    %1 = expand_dims 1 %0 : i64[64x1]
    %2 = broadcast %k : i64[64x1]
    %3 = mul %1, %2 : i64[64x1]
    %4 = broadcast %3 : i64[64x32]
    %5 = iota : i64[32]
    %6 = expand_dims 0 %5 : i64[1x32]
    %7 = broadcast %6 : i64[64x32]
    %8 = add %4, %7 : i64[64x32]
    %9 = expand_dims 1 %5 : i64[32x1]
    %10 = const 64 : i64
    %11 = broadcast %10 : i64[32x1]
    %12 = mul %9, %11 : i64[32x1]
    %13 = broadcast %12 : i64[32x64]
    %14 = expand_dims 0 %0 : i64[1x64]
    %15 = broadcast %14 : i64[32x64]
    %16 = add %13, %15 : i64[32x64]
    %17 = const 0.0 : f32
    %18 = broadcast %17 : f32[64x64]
    %19 = const 0 : i64
    %20 = const 32 : i64
    %21 = for %22 = %19 to %k step %20 carry (%23 = %18) {
        %24 = ptr_add %a, %22 : *T
        %25 = broadcast %24 : *T[64x32]
        %26 = ptr_add %25, %8 : *T[64x32]
        %27 = load %26 : T[64x32]
        %28 = mul %22, %10 : i64
        %29 = ptr_add %b, %28 : *T
        %30 = broadcast %29 : *T[32x64]
        %31 = ptr_add %30, %16 : *T[32x64]
        %32 = load %31 : T[32x64]
        %33 = dot PRECISION %27, %32, %23 : f32[64x64]
        yield %33
    } : f32[64x64]
    %34 = cast %21 : T[64x64]
    %35 = broadcast %10 : i64[64x1]
    %36 = mul %1, %35 : i64[64x1]
    %37 = broadcast %36 : i64[64x64]
    %38 = broadcast %14 : i64[64x64]
    %39 = add %37, %38 : i64[64x64]
    %40 = broadcast %c : *T[64x64]
    %41 = ptr_add %40, %39 : *T[64x64]
    store %41, %34
    return
}
";
    let (dtype, precision) = dtype.split_once(' ').unwrap_or((dtype, "ieee"));
    let text = text.replace("PRECISION", precision);
    let text = text.replace("*T", &format!("*{dtype}")).replace(": T[", &format!(": {dtype}["));
    // A cast to the same dtype is none.
    if dtype == "f32" {
        text.replace("    %34 = cast %21 : f32[64x64]\n", "").replace("%34", "%21")
    } else {
        text
    }
}

#[test]
fn dots_of_16_bits_use_tensor_cores_and_stage_without_conflicts() {
    let lir = lir(&matmul("bf16"), 4);
    let dot = lir.dots.values().next().unwrap();
    assert_eq!(dot.unit, DotUnit::Mma16);
    for operand in [&dot.a, &dot.b] {
        let plan = operand.registers().unwrap().staging.as_ref().unwrap();
        assert_eq!((plan.store.ways, plan.load.ways), (1, 1));
    }
    // The result is converted once, as bf16, so that it is stored by vectors.
    assert!(matches!(&converts(&lir)[..], [Conversion::Shared(plan)] if plan.bits == 16));
    assert_eq!(vectors(&lir), [8, 8, 8]);
}

#[test]
fn each_step_of_a_dot_loads_its_own_groups() {
    for dtype in ["bf16", "f32", "f32 tf32"] {
        let lir = lir(&matmul(dtype), 4);
        let dot = lir.dots.values().next().unwrap();
        for (i, operand) in [&dot.a, &dot.b].into_iter().enumerate() {
            let operand = operand.registers().unwrap();
            let plan = operand.staging.as_ref().unwrap();
            for group in &plan.load.groups {
                let steps = group.regs.iter().map(|&reg| {
                    let at = crate::layout::HwIndex { reg, ..Default::default() };
                    let flat = operand.fragment.apply(at);
                    (flat & operand.steps(dot.unit, i)) >> operand.fragment.shift(1 - i)
                });
                let mut steps: Vec<u32> = steps.collect();
                steps.dedup();
                assert_eq!(steps.len(), 1, "{dtype} {i} {group:?}");
            }
        }
    }
}

#[test]
fn dots_of_f32_multiply_and_add() {
    let lir = lir(&matmul("f32"), 4);
    let dot = lir.dots.values().next().unwrap();
    assert_eq!(dot.unit, DotUnit::Fma);
    // Each thread multiplies its own rows and columns.
    let acc = ops(&lir, |kind| matches!(kind, OpKind::Dot { .. }))[0];
    let acc = lir.layout(lir.func.op(acc).results[0]).unwrap();
    let [a, b] = [&dot.a, &dot.b].map(|operand| operand.registers().unwrap().fragment.num_regs());
    assert_eq!(a * b, acc.num_regs() * 32 * 32);
    assert_eq!(converts(&lir), []);
}

#[test]
fn a_chained_dot_takes_its_operand_from_registers() {
    let lir = lir(
        "
kernel chain(%x: *f16 readonly multiple_of 16, %y: *f32 exclusive multiple_of 16) {
    %0 = iota : i64[64]
    %1 = expand_dims 1 %0 : i64[64x1]
    %2 = const 64 : i64
    %3 = broadcast %2 : i64[64x1]
    %4 = mul %1, %3 : i64[64x1]
    %5 = broadcast %4 : i64[64x64]
    %6 = expand_dims 0 %0 : i64[1x64]
    %7 = broadcast %6 : i64[64x64]
    %8 = add %5, %7 : i64[64x64]
    %9 = broadcast %x : *f16[64x64]
    %10 = ptr_add %9, %8 : *f16[64x64]
    %11 = load %10 : f16[64x64]
    %12 = const 0.0 : f32
    %13 = broadcast %12 : f32[64x64]
    %14 = transpose [1, 0] %11 : f16[64x64]
    %15 = dot ieee %11, %14, %13 : f32[64x64]
    %16 = reduce max 1 %15 : f32[64]
    %17 = expand_dims 1 %16 : f32[64x1]
    %18 = broadcast %17 : f32[64x64]
    %19 = sub %15, %18 : f32[64x64]
    %20 = cast %19 : f16[64x64]
    %21 = dot ieee %20, %11, %13 : f32[64x64]
    %22 = broadcast %y : *f32[64x64]
    %23 = ptr_add %22, %8 : *f32[64x64]
    store %23, %21
    return
}
",
        4,
    );
    let dots: Vec<&DotPlan> = lir.dots.values().collect();
    assert!(dots[0].a.registers().unwrap().staging.is_some());
    assert!(dots[1].a.registers().unwrap().staging.is_none());
    let reduce = ops(&lir, |kind| matches!(kind, OpKind::Reduce { .. }))[0];
    assert_eq!(lir.reduction(reduce).unwrap().warps, 0);
    assert!(converts(&lir).iter().all(|c| matches!(c, Conversion::Registers(_))));
}

#[test]
fn scans_hold_contiguous_pieces() {
    let lir = lir(
        "
kernel scan(%x: *i32 readonly multiple_of 16, %y: *i32 exclusive multiple_of 16) {
    %0 = iota : i64[2048]
    %1 = broadcast %x : *i32[2048]
    %2 = ptr_add %1, %0 : *i32[2048]
    %3 = load %2 : i32[2048]
    %4 = scan add 0 %3 : i32[2048]
    %5 = broadcast %y : *i32[2048]
    %6 = ptr_add %5, %0 : *i32[2048]
    store %6, %4
    return
}
",
        4,
    );
    let scan = ops(&lir, |kind| matches!(kind, OpKind::Scan { .. }))[0];
    let layout = lir.layout(lir.func.op(scan).results[0]).unwrap();
    assert_eq!(layout.reg, [1, 2, 4, 8]);
    assert_eq!(vectors(&lir)[0], 4);
}

#[test]
fn gathers_atomics_and_branches_are_placed() {
    let lir = lir(
        "
kernel mixed(%x: *i64 readonly multiple_of 16, %counts: *i32, %n: i64) {
    %0 = iota : i64[256]
    %1 = broadcast %x : *i64[256]
    %2 = ptr_add %1, %0 : *i64[256]
    %3 = load %2 : i64[256]
    %4 = const 0 : i64
    %5 = cmp lt %n, %4 : bool
    %6 = if %5 {
        %7 = add %3, %0 : i64[256]
        yield %7
    } else {
        yield %0
    } : i64[256]
    %8 = while carry (%9 = %6) {
        yield %5
    } do (%10) {
        %11 = add %10, %0 : i64[256]
        yield %11
    } : i64[256]
    %12 = broadcast %counts : *i32[256]
    %13 = ptr_add %12, %8 : *i32[256]
    %14 = const 1 : i32
    %15 = broadcast %14 : i32[256]
    %16 = atomic_rmw add %13, %15 : i32[256]
    %17 = join %16, %15 : i32[256x2]
    %18, %19 = split %17 : i32[256], i32[256]
    %20 = add %18, %19 : i32[256]
    %21 = reduce add 0 %20 : i32
    store %counts, %21
    return
}
",
        2,
    );
    assert_eq!(converts(&lir), []);
}

#[test]
fn an_odd_number_of_warps_is_refused() {
    let func = parse(ADD).unwrap();
    let error = assign(&func, &LayoutOptions { num_warps: Some(3), ..LayoutOptions::default() })
        .unwrap_err();
    assert!(error.message.contains("3 warps"), "{error}");
}

#[test]
fn random_programs_get_layouts() {
    let mut compiled = 0;
    for seed in 0..300 {
        let func = crate::ir::random::random_program(seed).func;
        let func = crate::passes::views::run(&func).unwrap();
        let Ok(mut func) = crate::passes::pad::run(&func) else { continue };
        crate::passes::run(&mut func, crate::passes::PIPELINE);
        for num_warps in [Some(1), Some(8), None] {
            let lir =
                assign(&func, &LayoutOptions { num_warps, ..LayoutOptions::default() }).unwrap();
            verify(&lir).unwrap_or_else(|error| {
                panic!("seed {seed}: {error}\n{}{}", lir.func, lir.layout_text())
            });
            compiled += 1;
        }
    }
    assert!(compiled > 400, "{compiled}");
}

#[test]
fn a_tile_beyond_all_registers_is_refused() {
    let text = ADD.replace("1024", "262144");
    let error = assign(
        &parse(&text).unwrap(),
        &LayoutOptions { num_warps: Some(4), ..LayoutOptions::default() },
    )
    .unwrap_err();
    assert!(error.message.contains("[262144] is too large"), "{error}");
}
