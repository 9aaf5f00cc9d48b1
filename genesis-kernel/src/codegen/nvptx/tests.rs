//! Kernels from tile IR to machine code: what the PTX holds, and that the assembler takes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ptxas::{self, Assembled};
use super::*;
use crate::ir::{Shape, parse};
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
        let is_access = matches!(data.kind, OpKind::Load | OpKind::Store | OpKind::AtomicRmw(_));
        let Some(ptr) = data.operands.first().filter(|_| is_access) else { continue };
        let Some(layout) = &layouts[ptr.index()] else { continue };
        let bytes = func.tile(*ptr).dtype().bytes() as u32;
        let limit = if matches!(data.kind, OpKind::AtomicRmw(_)) { 1 } else { 16 / bytes };
        let groups = layout.vectors(0, limit);
        let alignment = groups[0].len() as u32 * bytes;
        let (lane_copies, warp_copies) = (layout.free_lanes(), layout.free_warps());
        accesses.insert(op, Access { groups, alignment, lane_copies, warp_copies });
    }
    LayoutIr { func, layouts, num_warps, accesses, dots: BTreeMap::new() }
}

/// Compiles for both GPUs and assembles where the assembler is; gives the PTX of each.
fn compile_all(lir: &LayoutIr) -> Vec<GpuKernel> {
    let assembler = ptxas::find();
    if assembler.is_none() {
        println!("skipped: no ptxas");
    }
    let targets = [GpuTarget::SM_80, GpuTarget::SM_90A];
    let compiled = targets.iter().map(|target| {
        let kernel = compile(lir, target).unwrap_or_else(|why| panic!("{why}"));
        if let Some(assembler) = &assembler {
            let found = ptxas::assemble(assembler, &kernel.ptx, &target.name())
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
            assert_eq!(count(&kernel, "ld.global.nc.v4.b32"), 2 * vectors, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "st.global.v4.b32"), vectors, "{}", kernel.ptx);
            assert_eq!(count(&kernel, "bar"), 0);
            assert_eq!(kernel.shared_bytes, 0);
        }
        let plain = masked.replace(", %7 :", " :").replace("%14, %7", "%14");
        for kernel in compile_all(&in_rows(&plain, vector, 4)) {
            assert_eq!(count(&kernel, "ld.global.nc.v4.b32"), 2 * vectors, "{}", kernel.ptx);
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
        assert_eq!(count(&kernel, "ld.global.nc.v4.b32"), 8, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "st.global.v4.b32"), 8);
        assert_eq!(count(&kernel, "ex2.approx.f32"), 32);
        assert_eq!(
            count(&kernel, "bar.sync") + count(&kernel, "barrier.sync"),
            2,
            "{}",
            kernel.ptx
        );
        assert_eq!(count(&kernel, "shfl.sync.bfly"), 10);
    }
}
