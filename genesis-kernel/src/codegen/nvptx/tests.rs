//! Kernels from tile IR to machine code: what the PTX holds, and that the assembler takes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ptxas::{self, Assembled};
use super::*;
use crate::ir::{DType, Shape, parse};
use crate::layout::{Access, Blocked, blocked_in};

/// Layout IR of a kernel whose tiles have one axis: vectors of `vector` elements, lanes, warps.
fn in_rows(text: &str, vector: u32, num_warps: u32) -> LayoutIr {
    let func = parse(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let layout = |ty: Type| {
        let shape: Shape = ty.as_tile().map(|tile| tile.shape).filter(|s| !s.is_scalar())?;
        let parameters = Blocked::cover(shape, &[0], vector, num_warps);
        Some(Arc::new(blocked_in(shape, &parameters, num_warps)))
    };
    let layouts: Vec<_> =
        (0..func.n_values()).map(|i| layout(func.ty(crate::ir::Value(i as u32)))).collect();
    let mut accesses = BTreeMap::new();
    for op in func.walk() {
        let data = func.op(op);
        let is_access = matches!(data.kind, OpKind::Load | OpKind::Store | OpKind::AtomicRmw(..));
        let Some(ptr) = data.operands.first().filter(|_| is_access) else { continue };
        let Some(layout) = &layouts[ptr.index()] else { continue };
        let bytes = func.tile(*ptr).dtype().bytes() as u32;
        let groups = layout.vectors(0, 16 / bytes);
        let alignment = groups[0].len() as u32 * bytes;
        let (lane_copies, warp_copies) = (layout.free_lanes(), layout.free_warps());
        let block_copies = layout.free_blocks();
        let access = Access { groups, alignment, lane_copies, warp_copies, block_copies };
        accesses.insert(op, access);
    }
    LayoutIr {
        func,
        layouts,
        num_warps,
        num_blocks: 1,
        accesses,
        dots: BTreeMap::new(),
        multistage: BTreeMap::new(),
        producer: None,
        program_bytes: None,
    }
}

/// GPUs with and without what sm_90 brought.
const TARGETS: [GpuTarget; 2] = [GpuTarget::SM_80, GpuTarget::SM_90A];

/// Compiles for both GPUs and assembles where the assembler is; gives the PTX of each.
fn compile_all(lir: &LayoutIr) -> Vec<GpuKernel> {
    let assembler = ptxas::find_or_skip();
    let compiled = TARGETS.iter().map(|target| {
        let kernel = compile(lir, target).unwrap_or_else(|why| panic!("{why}"));
        if let Some(assembler) = &assembler {
            let found = ptxas::assemble(assembler, &kernel.ptx, target.name())
                .unwrap_or_else(|why| panic!("{why}\n{}", kernel.ptx));
            let Assembled { spill_stores, stack_bytes, warnings, .. } = found;
            let uses_stack = kernel.ptx.contains("vprintf");
            assert!(uses_stack || (spill_stores, stack_bytes) == (0, 0), "{}", kernel.ptx);
            assert_eq!(warnings, [""; 0]);
        }
        assert!(kernel.ptx.contains("vprintf") || !kernel.ptx.contains(".local"), "{}", kernel.ptx);
        kernel
    });
    compiled.collect()
}

/// Loads of 16 bytes; those that are `.nc` where the GPU has no programmatic dependent launch.
fn wide_loads(kernel: &GpuKernel) -> usize {
    count(kernel, "ld.global.v4.b32") + count(kernel, "ld.global.nc.v4.b32")
}

fn count(kernel: &GpuKernel, what: &str) -> usize {
    kernel.ptx.matches(what).count()
}

const ADD: &str = "
kernel add(%x: *T readonly multiple_of 16, %y: *T readonly multiple_of 16, %out: *T exclusive multiple_of 16, %n: i64) {
  %0 = program_id 0 : i64
  %1 = const 2048 : i64
  %2 = mul %0, %1 : i64
  %3 = iota : i64[2048]
  %4 = broadcast %2 : i64[2048]
  %5 = add %4, %3 : i64[2048]
  %6 = broadcast %n : i64[2048]
  %7 = cmp lt %5, %6 : bool[2048]
  %8 = broadcast %x : *T[2048]
  %9 = ptr_add %8, %5 : *T[2048]
  %10 = load %9, %7 : T[2048]
  %11 = broadcast %y : *T[2048]
  %12 = ptr_add %11, %5 : *T[2048]
  %13 = load %12, %7 : T[2048]
  %14 = add %10, %13 : T[2048]
  %15 = broadcast %out : *T[2048]
  %16 = ptr_add %15, %5 : *T[2048]
  store %16, %14, %7
  return
}
";

#[test]
fn add_moves_16_bytes_at_a_time() {
    for (dtype, vector, vectors) in [("f32", 4, 4), ("bf16", 8, 2), ("f16", 8, 2), ("i8", 16, 1)] {
        let masked = ADD.replace('T', dtype);
        for kernel in compile_all(&in_rows(&masked, vector, 4)) {
            assert_eq!(wide_loads(&kernel), 2 * vectors, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "st.global.v4.b32"), vectors, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "bar"), 0);
            assert_eq!(kernel.shared_bytes, 0);
        }
        let plain = masked.replace(", %7 :", " :").replace("%14, %7", "%14");
        for kernel in compile_all(&in_rows(&plain, vector, 4)) {
            assert_eq!(wide_loads(&kernel), 2 * vectors, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "st.global.v4.b32"), vectors, "{}", kernel.ptx);
        }
    }
}

const SOFTMAX: &str = "
kernel softmax(%x: *f32 readonly multiple_of 16, %out: *f32 exclusive multiple_of 16, %n: i64 multiple_of 16) {
  %0 = program_id 0 : i64
  %1 = mul %0, %n : i64
  %2 = ptr_add %x, %1 : *f32
  %3 = iota : i64[8192]
  %4 = broadcast %n : i64[8192]
  %5 = cmp lt %3, %4 : bool[8192]
  %6 = broadcast %2 : *f32[8192]
  %7 = ptr_add %6, %3 : *f32[8192]
  %8 = const -inf : f32
  %9 = broadcast %8 : f32[8192]
  %10 = load %7, %5, %9 : f32[8192]
  %11 = reduce max 0 %10 : f32
  %12 = broadcast %11 : f32[8192]
  %13 = sub %10, %12 : f32[8192]
  %14 = const 1.44269502 : f32
  %15 = broadcast %14 : f32[8192]
  %16 = mul %13, %15 : f32[8192]
  %17 = exp2_approx %16 : f32[8192]
  %18 = reduce add 0 %17 : f32
  %19 = broadcast %18 : f32[8192]
  %20 = div %17, %19 : f32[8192]
  %21 = ptr_add %out, %1 : *f32
  %22 = broadcast %21 : *f32[8192]
  %23 = ptr_add %22, %3 : *f32[8192]
  store %23, %20, %5
  return
}
";

#[test]
fn softmax_has_one_barrier_a_reduction() {
    for kernel in compile_all(&in_rows(SOFTMAX, 4, 8)) {
        assert_eq!(wide_loads(&kernel), 8, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "st.global.v4.b32"), 8);
        assert_eq!(count(&kernel, "ex2.approx.f32"), 32);
        assert_eq!(
            count(&kernel, "bar.sync") + count(&kernel, "barrier.sync"),
            2,
            "{}",
            kernel.ptx
        );
        // Five over lanes, three over the parts of eight warps.
        assert_eq!(count(&kernel, "shfl.sync.bfly"), 16);
    }
}

const CAST: &str = "
kernel cast(%x: *FROM readonly multiple_of 16, %out: *TO exclusive multiple_of 16) {
  %0 = iota : i64[2048]
  %1 = broadcast %x : *FROM[2048]
  %2 = ptr_add %1, %0 : *FROM[2048]
  %3 = load %2 : FROM[2048]
  %4 = cast %3 : TO[2048]
  %5 = broadcast %out : *TO[2048]
  %6 = ptr_add %5, %0 : *TO[2048]
  store %6, %4
  return
}
";

#[test]
fn floats_of_8_bits_are_cast_in_pairs_where_that_is_an_instruction() {
    for short in ["f8e4m3", "f8e5m2"] {
        for long in ["f16", "bf16", "f32", "f64", "i32"] {
            for (from, to) in [(short, long), (long, short)] {
                let text = CAST.replace("FROM", from).replace("TO", to);
                let [old, new] = &compile_all(&in_rows(&text, 16, 4))[..] else {
                    panic!("two targets")
                };
                let name = &short[2..];
                let pairs =
                    [format!("cvt.rn.f16x2.{name}x2"), format!("cvt.rn.satfinite.{name}x2")];
                let found = |kernel| pairs.iter().map(|what| count(kernel, what)).sum::<usize>();
                let is_direct = !matches!(long, "f64" | "i32");
                assert_eq!(
                    [found(old), found(new)],
                    [0, if is_direct { 8 } else { 0 }],
                    "{}",
                    new.ptx
                );
                if is_direct {
                    // Sixteen numbers of a thread, 16 bytes at a time.
                    let bytes = |name| DType::from_name(name).unwrap().bytes();
                    assert_eq!(wide_loads(new), bytes(from), "{}", new.ptx);
                    assert_eq!(count(new, "st.global.v4.b32"), bytes(to), "{}", new.ptx);
                }
            }
        }
    }
}

const ROW_SUM: &str = "
kernel row_sum(%x: *f32 readonly multiple_of 16, %out: *f32 exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const 1024 : i64
  %2 = iota : i64[1024]
  %3 = const 0.0 : f32
  %4 = broadcast %3 : f32[1024]
  %5 = broadcast %x : *f32[1024]
  %6 = for %7 = %0 to %n step %1 carry (%8 = %4) {
    %9 = broadcast %7 : i64[1024]
    %10 = add %9, %2 : i64[1024]
    %11 = broadcast %n : i64[1024]
    %12 = cmp lt %10, %11 : bool[1024]
    %13 = ptr_add %5, %10 : *f32[1024]
    %14 = load %13, %12 : f32[1024]
    %15 = add %8, %14 : f32[1024]
    yield %15
  } : f32[1024]
  %16 = reduce add 0 %6 : f32
  store %out, %16
  return
}
";

#[test]
fn loops_carry_registers() {
    for kernel in compile_all(&in_rows(ROW_SUM, 4, 4)) {
        assert_eq!(wide_loads(&kernel), 2, "{}", kernel.ptx);
        // One thread writes the sum.
        assert_eq!(count(&kernel, "st.global.b32"), 1);
    }
}

const LOOPED_MAX: &str = "
kernel looped(%x: *f32 readonly, %out: *f32 exclusive, %n: i64) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = iota : i64[128]
  %3 = broadcast %x : *f32[128]
  for %4 = %0 to %n step %1 {
    %5 = broadcast %4 : i64[128]
    %6 = add %5, %2 : i64[128]
    %7 = ptr_add %3, %6 : *f32[128]
    %8 = load %7 : f32[128]
    %9 = reduce max 0 %8 : f32
    %10 = reduce add 0 %8 : f32
    %11 = add %9, %10 : f32
    %12 = ptr_add %out, %4 : *f32
    store %12, %11
    yield
  }
  return
}
";

#[test]
fn scratch_waits_for_its_readers() {
    for kernel in compile_all(&in_rows(LOOPED_MAX, 1, 4)) {
        // One barrier in each of the two reductions: the readers of the first have passed that of the
        // second when the loop writes scratch again.
        let barriers = count(&kernel, "bar.sync") + count(&kernel, "barrier.sync");
        assert_eq!(barriers, 2, "{}", kernel.ptx);
        assert_eq!(kernel.shared_bytes, 32);
    }
    let single = LOOPED_MAX.replace("%10 = reduce add 0 %8 : f32", "%10 = mul %9, %9 : f32");
    for kernel in compile_all(&in_rows(&single, 1, 4)) {
        let barriers = count(&kernel, "bar.sync") + count(&kernel, "barrier.sync");
        assert_eq!(barriers, 2, "{}", kernel.ptx);
    }
}

const ARGMAX: &str = "
kernel argmax(%x: *f32 readonly, %out: *i64 exclusive) {
  %0 = iota : i64[1024]
  %1 = broadcast %x : *f32[1024]
  %2 = ptr_add %1, %0 : *f32[1024]
  %3 = load %2 : f32[1024]
  %4, %5 = reduce 0 %3, %0 by (%6: f32, %7: i64, %8: f32, %9: i64) {
    %10 = cmp gt %8, %6 : bool
    %11 = select %10, %8, %6 : f32
    %12 = select %10, %9, %7 : i64
    yield %11, %12
  } : f32, i64
  store %out, %5
  return
}
";

#[test]
fn regions_reduce_several_operands() {
    for kernel in compile_all(&in_rows(ARGMAX, 1, 8)) {
        // Three words a step, over lanes and over the parts of eight warps.
        assert_eq!(count(&kernel, "shfl.sync.bfly") % 3, 0, "{}", kernel.ptx);
        assert!(kernel.shared_bytes > 0);
    }
}

const SCAN: &str = "
kernel cumsum(%x: *T readonly multiple_of 16, %out: *T exclusive multiple_of 16) {
  %0 = iota : i64[2048]
  %1 = broadcast %x : *T[2048]
  %2 = ptr_add %1, %0 : *T[2048]
  %3 = load %2 : T[2048]
  %4 = scan add 0 WAY %3 : T[2048]
  %5 = broadcast %out : *T[2048]
  %6 = ptr_add %5, %0 : *T[2048]
  store %6, %4
  return
}
";

#[test]
fn scans_assemble() {
    for dtype in ["f32", "i64", "i32", "i8", "f64"] {
        for direction in ["", "reverse"] {
            let text = SCAN.replace('T', dtype).replace("WAY", direction);
            compile_all(&in_rows(&text, 2, 4));
        }
    }
}

const ATOMIC: &str = "
kernel atomic(%x: *T readonly, %out: *T exclusive, %old: *T exclusive, %n: i64) {
  %0 = iota : i64[64]
  %1 = broadcast %x : *T[64]
  %2 = ptr_add %1, %0 : *T[64]
  %3 = broadcast %n : i64[64]
  %4 = cmp lt %0, %3 : bool[64]
  %5 = load %2, %4 : T[64]
  %6 = broadcast %out : *T[64]
  %7 = ptr_add %6, %0 : *T[64]
  %8 = atomic_rmw OP %7, %5, %4 : T[64]
  %9 = broadcast %old : *T[64]
  %10 = ptr_add %9, %0 : *T[64]
  store %10, %8, %4
  return
}
";

#[test]
fn atomics_assemble() {
    let ints = ["add", "max", "min", "and", "or", "xor", "exchange"];
    let floats = ["add", "max", "min", "exchange"];
    let kinds: [(&str, &[&str]); 8] = [
        ("i32", &ints),
        ("u32", &ints),
        ("i64", &ints),
        ("u64", &ints),
        ("f32", &floats),
        ("f64", &floats),
        ("f16", &floats),
        ("bf16", &floats),
    ];
    for (dtype, ops) in kinds {
        for op in ops {
            let text = ATOMIC.replace('T', dtype).replace("OP", op);
            compile_all(&in_rows(&text, 1, 4));
            // The language exchanges no 16 bits; LLVM does it by those of the word around, of the GPU's scope.
            if !(dtype.ends_with("16") && *op == "exchange") {
                let scoped = format!("atomic_rmw {op} acq_rel system");
                let scoped = text.replace(&format!("atomic_rmw {op}"), &scoped);
                compile_all(&in_rows(&scoped, 1, 4));
            }
            let unused = text.replace("%10, %8", "%10, %5");
            for (target, kernel) in TARGETS.iter().zip(compile_all(&in_rows(&unused, 1, 2))) {
                let has_adds = dtype != "bf16" || target.features.bf16_reductions;
                let adds = *op == "add" && has_adds;
                assert_eq!(count(&kernel, "red.relaxed.gpu.global.add"), usize::from(adds));
            }
        }
    }
}

#[test]
fn neighbouring_floats_are_added_to_in_one_instruction() {
    const ROWS: &str = "
kernel rows(%x: *T exclusive multiple_of 16, %y: *T readonly multiple_of 16, %n: i64 multiple_of 16) {
  %0 = iota : i64[1024]
  %1 = broadcast %n : i64[1024]
  %2 = cmp lt %0, %1 : bool[1024]
  %3 = broadcast %y : *T[1024]
  %4 = ptr_add %3, %0 : *T[1024]
  %5 = load %4, %2 : T[1024]
  %6 = broadcast %x : *T[1024]
  %7 = ptr_add %6, %0 : *T[1024]
  %8 = atomic_rmw add %7, %5, %2 : T[1024]
  return
}
";
    for (dtype, vector) in [("f32", 4), ("f16", 8), ("bf16", 8)] {
        let compiled = compile_all(&in_rows(&ROWS.replace('T', dtype), vector, 4));
        for (target, kernel) in TARGETS.iter().zip(compiled) {
            let noftz = if dtype == "f32" { "" } else { ".noftz" };
            let name = format!("red.relaxed.gpu.global.add{noftz}.v{vector}.{dtype}");
            let vectors = (1024 / 128 / vector) as usize;
            let expected = if target.features.vector_reductions { vectors } else { 0 };
            assert_eq!(count(&kernel, &name), expected, "{}", kernel.ptx);
            assert_eq!(count(&kernel, ".global.add.v") + count(&kernel, ".noftz.v"), expected);
        }
    }
}

#[test]
fn an_order_is_fences_and_a_scope_is_a_suffix() {
    // Of each: the fences, and their scope on GPUs with clusters.
    for (op, fences, scope) in [
        ("add relaxed", 0, "gpu"),
        ("max release", 1, "gpu"),
        ("xor acquire system", 1, "sys"),
        ("exchange acq_rel block", 2, "cta"),
        ("add acq_rel cluster", 2, "cluster"),
    ] {
        for used in ["%10, %8", "%10, %5"] {
            let text = ATOMIC.replace('T', "i32").replace("OP", op).replace("%10, %8", used);
            for (target, kernel) in TARGETS.iter().zip(compile_all(&in_rows(&text, 1, 4))) {
                let has_scope = scope != "cluster" || target.features.has_clusters();
                let scope = if has_scope { scope } else { "cta" };
                let fence = format!("fence.acq_rel.{scope};");
                assert_eq!(count(&kernel, &fence), fences, "{op}: {}", kernel.ptx);
                assert_eq!(count(&kernel, "fence.acq_rel"), fences, "{op}");
                // LLVM writes no scope where it is the GPU's, which is what PTX then means.
                let atom = match scope {
                    "gpu" => "atom.global".to_owned(),
                    scope => format!("atom.relaxed.{scope}.global"),
                };
                let atomics = count(&kernel, &atom);
                let reductions = count(&kernel, &format!("red.relaxed.{scope}.global"));
                assert_eq!(atomics + reductions, 1, "{op}: {}", kernel.ptx);
            }
        }
    }
}

const SCALAR_ATOMIC: &str = "
kernel ticket(%counter: *i32 exclusive, %out: *i32 exclusive) {
  %0 = const 1 : i32
  %1 = atomic_rmw add %counter, %0 : i32
  %2 = const 0 : i32
  %3 = atomic_cas %counter, %1, %2 : i32
  %4 = add %1, %3 : i32
  store %out, %4
  return
}
";

#[test]
fn one_thread_takes_a_ticket_for_all() {
    for kernel in compile_all(&in_rows(SCALAR_ATOMIC, 1, 4)) {
        assert_eq!(count(&kernel, "atom.") - count(&kernel, "atom.shared"), 2, "{}", kernel.ptx);
        assert_eq!(kernel.shared_bytes, 32);
    }
}

const CHECKED: &str = r#"
kernel checked(%x: *f32 readonly, %out: *f32 exclusive, %flag: bool, %half: bf16, %n: i32) {
  %0 = iota : i64[64]
  %1 = broadcast %x : *f32[64]
  %2 = ptr_add %1, %0 : *f32[64]
  %3 = load %2 : f32[64]
  %4 = const 0.0 : f32
  %5 = broadcast %4 : f32[64]
  %6 = cmp ge %3, %5 : bool[64]
  assert "x is negative" %6
  if %flag {
    print "half {} of {} 100%\n" %half, %n
    return
  } else {
    yield
  }
  print "x {}" %3
  %7 = broadcast %out : *f32[64]
  %8 = ptr_add %7, %0 : *f32[64]
  store %8, %3
  return
}
"#;

#[test]
fn assertions_and_prints_assemble() {
    for kernel in compile_all(&in_rows(CHECKED, 1, 2)) {
        assert_eq!(kernel.asserts, ["x is negative"]);
        assert_eq!(count(&kernel, ".param .u64 checked_param_5"), 1, "{}", kernel.ptx);
        assert!(kernel.ptx.contains("trap;") && kernel.ptx.contains("vprintf"));
    }
}

const WHILE: &str = "
kernel halve(%x: *i64 exclusive, %n: i64) {
  %0 = const 1 : i64
  %1 = const 2 : i64
  %2 = while carry (%3 = %n) {
    %4 = cmp gt %3, %0 : bool
    yield %4
  } do (%5) {
    %6 = cmp eq %5, %1 : bool
    %7 = if %6 {
      yield %0
    } else {
      %8 = div %5, %1 : i64
      yield %8
    } : i64
    yield %7
  } : i64
  %9 = load %x : i64
  %10 = add %9, %2 : i64
  store %x, %10
  return
}
";

#[test]
fn a_store_waits_for_other_threads_loads() {
    for kernel in compile_all(&in_rows(WHILE, 1, 2)) {
        assert_eq!(
            count(&kernel, "bar.sync") + count(&kernel, "barrier.sync"),
            1,
            "{}",
            kernel.ptx
        );
    }
}

/// Layout IR as the compiler makes it.
fn assigned(text: &str, num_warps: u32) -> LayoutIr {
    let func = parse(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let func = crate::passes::views::run(&func).unwrap_or_else(|why| panic!("{why}"));
    let options = crate::layout::LayoutOptions { num_warps: Some(num_warps), ..Default::default() };
    crate::layout::assign(&func, &options).unwrap_or_else(|why| panic!("{why}"))
}

const MATMUL: &str = "
kernel matmul(%a: view<T,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %b: view<T,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %c: view<f32,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = program_id 0 : i64
  %1 = program_id 1 : i64
  %2 = const 64 : i64
  %3 = mul %0, %2 : i64
  %4 = mul %1, %2 : i64
  %5 = const 0.0 : f32
  %6 = broadcast %5 : f32[64x64]
  %7 = const 0 : i64
  %8 = view_dim 1 %a : i64
  %9 = const 32 : i64
  %10 = for %11 = %7 to %8 step %9 carry (%12 = %6) {
    %13 = view_load %a, %3, %11 : T[64x32]
    %14 = view_load %b, %11, %4 : T[32x64]
    %15 = dot PRECISION %13, %14, %12 : f32[64x64]
    yield %15
  } : f32[64x64]
  view_store %c, %10, %3, %4
  return
}
";

#[test]
fn tensor_cores_multiply_16_bits() {
    for dtype in ["bf16", "f16"] {
        let text = MATMUL.replace('T', dtype).replace("PRECISION", "ieee");
        for kernel in compile_all(&assigned(&text, 4)) {
            // 64 x 64 x 32 over 4 warps in steps of 16 x 8 x 16.
            assert_eq!(count(&kernel, "mma.sync.aligned.m16n8k16"), 16, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "fma.rn"), 0);
        }
    }
}

#[test]
fn f32_multiplies_exactly_unless_tf32_is_asked_for() {
    let text = MATMUL.replace('T', "f32").replace("PRECISION", "ieee");
    for kernel in compile_all(&assigned(&text, 4)) {
        assert_eq!(count(&kernel, "mma.sync"), 0);
        assert_eq!(count(&kernel, "fma.rn.f32"), 32 * 32, "{}", kernel.ptx);
    }
    let text = MATMUL.replace('T', "f32").replace("PRECISION", "tf32");
    for kernel in compile_all(&assigned(&text, 4)) {
        assert_eq!(count(&kernel, "mma.sync.aligned.m16n8k8"), 32, "{}", kernel.ptx);
    }
}

const TRANSPOSE: &str = "
kernel transpose(%x: view<T,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %y: view<T,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = const 0 : i64
  %1 = view_load %x, %0, %0 : T[64x64]
  %2 = transpose [1, 0] %1 : T[64x64]
  view_store %y, %2, %0, %0
  return
}
";

#[test]
fn transposes_go_through_shared_memory() {
    for dtype in ["f32", "bf16", "i8", "f64", "bool"] {
        for kernel in compile_all(&assigned(&TRANSPOSE.replace('T', dtype), 4)) {
            assert!(kernel.shared_bytes >= 4096, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "bar.sync") + count(&kernel, "barrier.sync"), 1);
        }
    }
}

const TILES: &str = "
kernel tiles(%x: view<f32,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %y: view<f32,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16, %z: view<f32,1> exclusive) {
  %0 = const 0 : i64
  %1 = view_load %x, %0, %0 : f32[32x128]
  %2 = reduce max 1 %1 : f32[32]
  %3 = expand_dims 1 %2 : f32[32x1]
  %4 = broadcast %3 : f32[32x128]
  %5 = sub %1, %4 : f32[32x128]
  %6 = reduce add 0 %5 : f32[128]
  %7 = expand_dims 0 %6 : f32[1x128]
  %8 = broadcast %7 : f32[32x128]
  %9 = div %5, %8 : f32[32x128]
  %10 = scan add 0 reverse %9 : f32[32x128]
  %11 = scan max 1 %10 : f32[32x128]
  view_store %y, %11, %0, %0
  %12 = reshape %11 : f32[32x64x2]
  %13, %14 = split %12 : f32[32x64], f32[32x64]
  %15 = join %14, %13 : f32[32x64x2]
  %16 = reduce add 1 %15 : f32[32x2]
  %17 = reshape %16 : f32[64]
  view_store %z, %17, %0
  return
}
";

#[test]
fn tiles_reduce_scan_and_change_shape() {
    for warps in [1, 2, 4, 8] {
        compile_all(&assigned(TILES, warps));
    }
}

/// `c = a b` in tiles of BM x BN x BK with a result of the operands' dtype, as the pipeline makes it.
fn large_matmul(dtype: &str, precision: &str, tile: [u32; 3], num_warps: u32) -> LayoutIr {
    let [m, n, k] = tile.map(|extent| extent.to_string());
    let text = LARGE_MATMUL
        .replace("BM", &m)
        .replace("BN", &n)
        .replace("BK", &k)
        .replace('T', dtype)
        .replace("PRECISION", precision);
    let func = parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let mut func = crate::passes::views::run(&func).unwrap_or_else(|why| panic!("{why}"));
    crate::passes::run(&mut func, crate::passes::PIPELINE);
    crate::passes::run(&mut func, crate::passes::NVPTX);
    let options = crate::layout::LayoutOptions { num_warps: Some(num_warps), ..Default::default() };
    let lir = crate::layout::assign(&func, &options).unwrap_or_else(|why| panic!("{why}"));
    for operand in lir.dots.values().flat_map(|dot| [&dot.a, &dot.b]) {
        let plan = operand.registers().and_then(|operand| operand.staging.as_ref()).unwrap();
        assert_eq!((plan.store.ways, plan.load.ways), (1, 1), "no bank conflicts");
    }
    lir
}

const LARGE_MATMUL: &str = "
kernel matmul(%a: view<T,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %b: view<T,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %c: view<T,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = program_id 0 : i64
  %1 = program_id 1 : i64
  %2 = const BM : i64
  %22 = const BN : i64
  %3 = mul %0, %2 : i64
  %4 = mul %1, %22 : i64
  %5 = const 0.0 : f32
  %6 = broadcast %5 : f32[BMxBN]
  %7 = const 0 : i64
  %8 = view_dim 1 %a : i64
  %9 = const BK : i64
  %10 = for %11 = %7 to %8 step %9 carry (%12 = %6) {
    %13 = view_load %a, %3, %11 : T[BMxBK]
    %14 = view_load %b, %11, %4 : T[BKxBN]
    %15 = dot PRECISION %13, %14, %12 : f32[BMxBN]
    yield %15
  } : f32[BMxBN]
  %16 = cast %10 : T[BMxBN]
  view_store %c, %16, %3, %4
  return
}
";

#[test]
fn tensor_cores_read_matrices_from_a_ring() {
    let lir = large_matmul("bf16", "ieee", [128, 128, 32], 4);
    for kernel in compile_all(&lir) {
        // A warp's 64 x 64 x 32: 2 steps of 4 x 8 tiles, 4 matrices of 8 x 8 at a time.
        assert_eq!(count(&kernel, "mma.sync.aligned.m16n8k16"), 64, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "ldmatrix.sync.aligned.m8n8.x4.shared"), 8);
        assert_eq!(count(&kernel, "ldmatrix.sync.aligned.m8n8.x4.trans.shared"), 8);
        // 8 copies for each iteration before the loop, 3 of the 4 slots, and in it.
        assert_eq!(count(&kernel, "cp.async.cg.shared.global.L2::128B"), 4 * 8);
        assert_eq!(count(&kernel, "cp.async.wait_group 2"), 1);
        assert_eq!(count(&kernel, "ld.global"), 0);
        // One barrier an iteration, two around the result's way to rows.
        assert_eq!(count(&kernel, "bar.sync") + count(&kernel, "barrier.sync"), 3);
        // The result's way shares the ring's bytes.
        assert_eq!(kernel.shared_bytes, 4 * 2 * 128 * 32 * 2);
    }
}

#[test]
fn multiply_adds_read_vectors_from_a_ring() {
    let lir = large_matmul("f32", "ieee", [128, 128, 16], 8);
    for kernel in compile_all(&lir) {
        assert_eq!(count(&kernel, "fma.rn.f32"), 64 * 16, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "ld.shared.v4"), 4 * 16);
        assert_eq!(count(&kernel, "ld.shared"), 4 * 16);
        assert_eq!(count(&kernel, "cp.async.cg.shared.global.L2::128B"), 4 * 4);
        assert_eq!(count(&kernel, "ld.global"), 0);
        assert_eq!(count(&kernel, "st.global.v4"), 16);
        assert_eq!(count(&kernel, "bar.sync") + count(&kernel, "barrier.sync"), 1);
    }
}

#[test]
fn tf32_is_multiplied_once_or_three_times() {
    for (precision, products) in [("tf32", 1), ("tf32x3", 3)] {
        for kernel in compile_all(&large_matmul("f32", precision, [64, 64, 32], 4)) {
            // A warp's 32 x 32 x 32: 4 steps of 2 x 4 tiles.
            assert_eq!(count(&kernel, "mma.sync.aligned.m16n8k8"), 32 * products, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "ldmatrix.sync.aligned.m8n8.x4.shared"), 8);
        }
    }
}

#[test]
fn operands_of_single_elements_are_stored_to_the_ring() {
    let text = MATMUL.replace('T', "bf16").replace("PRECISION", "ieee");
    let text = text.replace(" multiple_of 16 stride_multiple_of 16", "");
    for kernel in compile_all(&assigned(&text, 4)) {
        assert_eq!(count(&kernel, "cp.async.cg"), 0, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "ldmatrix.sync.aligned.m8n8.x4"), 8);
        assert!(count(&kernel, "st.shared.b16") > 0);
    }
}
