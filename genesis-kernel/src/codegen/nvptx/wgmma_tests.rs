//! Matrix products fed by the copy engine, from layout IR to machine code: what the PTX holds, and what
//! the assembler makes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ptxas::{self, Assembled};
use super::*;
use crate::ir::{Channel, DType, Multicast, Shape, Tma, TmaLoad, TmaStore, Value, parse};
use crate::layout::{DotOperand, DotPlan, DotUnit, RegisterOperand, SharedOperand, WgmmaKind, mma};
use crate::passes::views;

/// A persistent `c = a b`; the parts in capital letters are filled in.
const MATMUL: &str = "
kernel matmul(%a: view<IN,2> readonly, %b: view<IN,2> readonly, %c: view<OUT,2> exclusive) {
  %zero = const 0 : i64
  %one = const 1 : i64
  %first = program_id 0 : i64
  %stride = num_programs 0 : i64
  %m = view_dim 0 %a : i64
  %n = view_dim 1 %b : i64
  %k = view_dim 1 %a : i64
  %bm = const BM : i64
  %bn = const BN : i64
  %bk = const BK : i64
  %tm = div %m, %bm : i64
  %tn = div %n, %bn : i64
  %tiles = mul %tm, %tn : i64
  for %tile = %first to %tiles step %stride {
    %i = div %tile, %tn : i64
    %j = rem %tile, %tn : i64
    %row = mul %i, %bm : i64
    %column = mul %j, %bn : i64
    BODY
    yield
  }
  return
}
";
const CONSUMER: &str = "
    %nothing = const 0.0 : f32
    %start = broadcast %nothing : f32[BMxBN]
    %sum = for %p = %zero to %k step %bk carry (%acc = %start) {
      %u = tma_load 0 %row, %p : IN[BMxBK]
      %v = tma_load 1 %p, %column : IN[BKxBN]
      %next = dot PRECISION %u, %v, %acc : f32[BMxBN]
      yield %next
    } : f32[BMxBN]
    EPILOGUE
    tma_store 0 %out, %row, %column
";
const PRODUCER: &str = "
    for %p = %zero to %k step %bk {
      %u = tma_load 0 %row, %p : IN[BMxBK]
      %v = tma_load 1 %p, %column : IN[BKxBN]
      yield
    }
";

/// One configuration of the matrix product.
#[derive(Clone, Copy, Debug)]
struct Config {
    dtype: DType,
    out: DType,
    tile: [u32; 3],
    num_warps: u32,
    stages: u32,
    /// Whether K is the contiguous axis of A and B.
    k_major: [bool; 2],
    async_across_iterations: bool,
}

const FLAGSHIP: Config = Config {
    dtype: DType::BF16,
    out: DType::BF16,
    tile: [128, 256, 64],
    num_warps: 8,
    stages: 4,
    k_major: [true, false],
    async_across_iterations: true,
};

impl Config {
    fn operand(&self, number: usize) -> SharedOperand {
        let [m, n, k] = self.tile;
        let (size, rows) = (self.dtype.bytes() as u32, if number == 0 { m } else { n });
        let k_major = self.k_major[number];
        let swizzle = (if k_major { k } else { rows } * size).min(128);
        SharedOperand { load: number as u8, k_major, size, swizzle, rows, depth: k }
    }

    /// The tables of the copy engine.
    fn tma(&self) -> Tma {
        let [m, n, k] = self.tile;
        let maps = [0, 1].map(|number| {
            let operand = self.operand(number);
            // The view's axis along K: 1 for A, 0 for B.
            let (along_k, other) = if number == 0 { (1, 0) } else { (0, 1) };
            let span = operand.swizzle / operand.size;
            let (axes, length) = match operand.k_major {
                true => (vec![along_k, other], operand.rows),
                false => (vec![other, along_k], k),
            };
            let (param, dtype, swizzle) = (number as u32, self.dtype, operand.swizzle);
            let block = vec![span, length];
            TensorMap { param, dtype, axes, block, swizzle, tf32: dtype == DType::F32 }
        });
        let size = self.out.bytes() as u32;
        let swizzle = (n * size).min(128);
        let (block, dtype) = (vec![swizzle / size, 64], self.out);
        let store = TensorMap { param: 2, dtype, axes: vec![1, 0], block, swizzle, tf32: false };
        let [a, b] = [m * k, n * k].map(|count| count * self.dtype.bytes() as u32);
        let second = a.next_multiple_of(1024);
        let load = |map: u8, offset, bytes| {
            let along_k = 1 - map;
            let contiguous = if self.k_major[map as usize] { along_k } else { 1 - along_k };
            TmaLoad {
                map,
                channel: 0,
                offset,
                bytes,
                contiguous,
                registers: false,
                multicast: Multicast::None,
                constant: false,
            }
        };
        let slot_bytes = second + b.next_multiple_of(1024);
        Tma {
            maps: maps.into_iter().chain([store]).collect(),
            loads: vec![load(0, 0, a), load(1, second, b)],
            stores: vec![TmaStore { map: 2, contiguous: 1 }],
            channels: vec![Channel { stages: self.stages, slot_bytes }],
        }
    }

    fn func(&self, body: &str, epilogue: &str) -> Func {
        let [m, n, k] = self.tile.map(|n| n.to_string());
        let precision = match self.dtype {
            DType::F32 => "tf32",
            dtype if dtype.is_f8() && self.async_across_iterations => "fast",
            _ => "ieee",
        };
        let text = MATMUL.replace("BODY", body).replace("EPILOGUE", epilogue);
        let text = text.replace("BM", &m).replace("BN", &n).replace("BK", &k);
        let text = text.replace("IN", self.dtype.name()).replace("OUT", self.out.name());
        let text = text.replace("PRECISION", precision);
        let func = parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let mut func = views::run(&func).unwrap();
        func.tma = self.tma();
        crate::ir::verify::verify(&func).unwrap();
        func
    }

    fn epilogue(&self) -> String {
        if self.out == DType::F32 {
            return "%out = mul %sum, %sum : f32[BMxBN]".to_owned();
        }
        "%out = cast %sum : OUT[BMxBN]".to_owned()
    }

    fn lir_of(&self, consumer: &str) -> LayoutIr {
        let func = self.func(consumer, &self.epilogue());
        let shape = Shape::new(&[self.tile[0] as usize, self.tile[1] as usize]);
        let layout = Arc::new(mma::wgmma_accumulator(shape, self.tile[1], [self.num_warps, 1]));
        let of = |i: usize| match func.ty(Value(i as u32)) {
            Type::Tile(tile) if tile.shape == shape => Some(layout.clone()),
            _ => None,
        };
        let kind = WgmmaKind::of(self.dtype).unwrap();
        let plan = DotPlan {
            unit: DotUnit::Wgmma(kind),
            a: DotOperand::Shared(self.operand(0)),
            b: DotOperand::Shared(self.operand(1)),
            async_across_iterations: self.async_across_iterations,
            promoted: self.dtype.is_f8() && !self.async_across_iterations,
        };
        let dots =
            func.walk().into_iter().filter(|&op| matches!(func.op(op).kind, OpKind::Dot { .. }));
        LayoutIr {
            layouts: (0..func.n_values()).map(of).collect(),
            num_warps: self.num_warps,
            num_blocks: 1,
            accesses: BTreeMap::new(),
            multistage: BTreeMap::new(),
            dots: dots.map(|op| (op, plan.clone())).collect(),
            producer: Some(self.func(PRODUCER, "")),
            program_bytes: None,
            func,
        }
    }

    fn compile(&self) -> (GpuKernel, Option<Assembled>) {
        assembled(&self.lir_of(CONSUMER))
    }
}

/// Compiles and, where the assembler is, assembles.
fn assembled(lir: &LayoutIr) -> (GpuKernel, Option<Assembled>) {
    let started = std::time::Instant::now();
    let kernel = compile(lir, &GpuTarget::SM_90A).unwrap_or_else(|why| panic!("{why}"));
    println!("{:?} to PTX", started.elapsed());
    assert!(!kernel.ptx.contains(".local"), "{}", kernel.ptx);
    let Some(assembler) = ptxas::find_or_skip() else { return (kernel, None) };
    let found = ptxas::assemble(&assembler, &kernel.ptx, "sm_90a")
        .unwrap_or_else(|why| panic!("{why}\n{}", kernel.ptx));
    assert_eq!(found.warnings, [""; 0], "{}", kernel.ptx);
    assert_eq!((found.spill_stores, found.stack_bytes), (0, 0), "{}", kernel.ptx);
    (kernel, Some(found))
}

fn count(kernel: &GpuKernel, what: &str) -> usize {
    kernel.ptx.matches(what).count()
}

#[test]
fn the_flagship_is_one_fence_and_four_products_a_step() {
    let (kernel, found) = FLAGSHIP.compile();
    assert_eq!(count(&kernel, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"), 4);
    assert_eq!(count(&kernel, "wgmma.fence"), 1);
    assert_eq!(count(&kernel, "wgmma.wait_group"), 2);
    assert_eq!(count(&kernel, "setmaxnreg"), 2);
    // A is one box; N of B is four panels of 64 columns.
    assert_eq!(count(&kernel, "cp.async.bulk.tensor.2d.shared"), 5);
    assert_eq!(count(&kernel, "cp.async.bulk.tensor.2d.global"), 4);
    assert_eq!(count(&kernel, "stmatrix.sync.aligned.m8n8.x4"), 16);
    assert_eq!((kernel.threads, kernel.shared_bytes), (384, 229_440));
    if let Some(found) = found {
        assert!((160..=168).contains(&found.registers), "{}", found.registers);
    }
}

#[test]
fn every_order_of_operands_multiplies() {
    for k_major in [[true, true], [false, false], [false, true]] {
        let (kernel, _) = Config { k_major, ..FLAGSHIP }.compile();
        let flags = k_major.map(|is| if is { "0" } else { "1" }).join(", ");
        assert_eq!(count(&kernel, &format!("p, 1, 1, {flags};")), 4, "{}", kernel.ptx);
    }
}

#[test]
fn tiles_of_other_sizes_multiply() {
    let small = Config { tile: [64, 128, 64], num_warps: 4, stages: 7, ..FLAGSHIP };
    let (kernel, _) = small.compile();
    assert_eq!((count(&kernel, "setmaxnreg"), kernel.threads), (0, 256));
    let (kernel, _) = Config { tile: [128, 128, 64], stages: 5, ..FLAGSHIP }.compile();
    assert_eq!(count(&kernel, "m64n128k16"), 4);
    // Two blocks of 64 rows for each warpgroup.
    let tall = Config { tile: [128, 128, 64], num_warps: 4, stages: 5, ..FLAGSHIP };
    assert_eq!(count(&tall.compile().0, "m64n128k16"), 8);
    let narrow =
        Config { tile: [64, 32, 64], num_warps: 4, async_across_iterations: false, ..FLAGSHIP };
    let (kernel, _) = narrow.compile();
    assert_eq!((count(&kernel, "m64n32k16"), count(&kernel, "wait_group.sync.aligned 0")), (4, 1));
}

#[test]
fn other_dtypes_multiply() {
    let (kernel, _) = Config { dtype: DType::F16, out: DType::F16, ..FLAGSHIP }.compile();
    assert_eq!(count(&kernel, "m64n256k16.f32.f16.f16"), 4);
    let (kernel, _) = Config { out: DType::F32, ..FLAGSHIP }.compile();
    assert_eq!(count(&kernel, "cp.async.bulk.tensor.2d.global"), 8);
    let tf32 = Config {
        dtype: DType::F32,
        out: DType::F32,
        tile: [128, 256, 32],
        k_major: [true, true],
        ..FLAGSHIP
    };
    assert_eq!(count(&tf32.compile().0, "m64n256k8.f32.tf32.tf32"), 4);
}

#[test]
fn floats_of_8_bits_multiply() {
    for (dtype, name) in [(DType::F8E4M3, "e4m3"), (DType::F8E5M2, "e5m2")] {
        let fast = Config { dtype, tile: [128, 256, 128], k_major: [true, true], ..FLAGSHIP };
        let (kernel, _) = fast.compile();
        let product = format!("m64n256k32.f32.{name}.{name}");
        assert_eq!(count(&kernel, &product), 4, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "wgmma.wait_group.sync.aligned 1"), 1);
        // The sums of 128 of K apart, then added to the rest in f32.
        let exact = Config { tile: [128, 128, 128], async_across_iterations: false, ..fast };
        let (kernel, _) = exact.compile();
        assert_eq!((count(&kernel, ", p, 1, 1;"), count(&kernel, ", q, 1, 1;")), (3, 1));
        assert_eq!(count(&kernel, "wgmma.wait_group.sync.aligned 0"), 1);
        assert!(count(&kernel, "add.rn.f32") + count(&kernel, "add.f32") >= 64, "{}", kernel.ptx);
    }
}

/// A product with a bias and an activation, as the compiler gets it.
const LINEAR: &str = "
kernel linear(%a: view<bf16,3> readonly unit_stride multiple_of 16 stride_multiple_of 8, %b: view<bf16,3> readonly unit_stride multiple_of 16 stride_multiple_of 8, %bias: view<bf16,1> readonly unit_stride multiple_of 16, %c: view<bf16,3> exclusive unit_stride multiple_of 16 stride_multiple_of 8) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  %2 = const 0 : i64
  %3 = const 64 : i64
  %4 = view_dim 1 %c : i64
  %5 = view_dim 2 %a : i64
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[128x256]
  for %8 = %0 to %4 step %1 {
    %9 = mul %8, %3 : i64
    %10 = for %11 = %2 to %5 step %3 carry (%12 = %7) {
      %13 = view_load %a, %2, %9, %11 : bf16[1x128x64]
      %14 = reshape %13 : bf16[128x64]
      %15 = view_load %b, %2, %11, %9 : bf16[1x64x256]
      %16 = reshape %15 : bf16[64x256]
      %17 = dot ieee %14, %16, %12 : f32[128x256]
      yield %17
    } : f32[128x256]
    %18 = view_load %bias, %9 : bf16[256]
    %19 = cast %18 : f32[256]
    %20 = expand_dims 0 %19 : f32[1x256]
    %21 = broadcast %20 : f32[128x256]
    %22 = add %10, %21 : f32[128x256]
    %23 = exp2_approx %22 : f32[128x256]
    %24 = mul %22, %23 : f32[128x256]
    %25 = cast %24 : bf16[128x256]
    %26 = expand_dims 0 %25 : bf16[1x128x256]
    view_store %c, %26, %2, %9, %9
    yield
  }
  return
}
";

/// Layout IR as the compiler makes it of [`LINEAR`] with a tile of other extents.
fn linear([m, n, k]: [u32; 3], num_warps: Option<u32>) -> LayoutIr {
    let text =
        LINEAR.replace("128x256", &format!("{m}x{n}")).replace("128x64", &format!("{m}x{k}"));
    let text = text.replace("64x256", &format!("{k}x{n}")).replace("1x256", &format!("1x{n}"));
    let text = text.replace("[256]", &format!("[{n}]"));
    by_the_compiler(&text, num_warps)
}

/// Layout IR of a function with views, as the compiler makes it.
fn by_the_compiler(text: &str, num_warps: Option<u32>) -> LayoutIr {
    crate::layout::warp_specialization::tests::compiled(text, num_warps, crate::passes::NVPTX)
}

#[test]
fn an_epilogue_stays_in_registers() {
    let (kernel, _) = assembled(&linear([128, 256, 64], None));
    assert_eq!(count(&kernel, "m64n256k16"), 4);
    assert_eq!(count(&kernel, "cp.async.bulk.tensor.3d.global"), 4);
    assert_eq!(count(&kernel, "ex2.approx.f32"), 128);
}

#[test]
fn tiles_that_launches_choose_from_assemble() {
    for (tile, warps) in
        [([64, 256, 64], 4), ([64, 16, 128], 4), ([64, 64, 128], 4), ([128, 64, 64], 8)]
    {
        let (kernel, _) = assembled(&linear(tile, Some(warps)));
        let [_, n, k] = tile;
        assert_eq!(count(&kernel, &format!("m64n{n}k16")), (k / 16) as usize);
        // What is narrower than a panel is stored as anything else.
        let panels = if n < 64 { 0 } else { n / 64 } as usize;
        assert_eq!(count(&kernel, "cp.async.bulk.tensor.3d.global"), panels, "{tile:?}");
    }
}

#[test]
fn an_operand_may_come_from_registers() {
    let body = CONSUMER
        .replace("%u = tma_load 0 %row, %p", "%half = const 0.5 : IN\n      %u = broadcast %half");
    let mut lir = Config { num_warps: 4, tile: [64, 128, 64], ..FLAGSHIP }.lir_of(&body);
    let shape = Shape::new(&[64, 64]);
    let fragment = Arc::new(mma::operand_a(shape, [4, 1], 2, 4));
    for plan in lir.dots.values_mut() {
        let fragment = fragment.clone();
        let operand = RegisterOperand { fragment, staging: None, ring: None };
        plan.a = DotOperand::Registers(Box::new(operand));
    }
    let walk = lir.func.walk();
    let operand = walk.iter().find(|op| lir.dots.contains_key(op)).map(|&op| lir.func.op(op));
    let value = operand.unwrap().operands[0];
    lir.layouts[value.index()] = Some(fragment);
    let (kernel, _) = assembled(&lir);
    assert_eq!(count(&kernel, "p, 1, 1, 1;"), 4, "{}", kernel.ptx);
    // Registers would change under products that run on.
    assert_eq!(count(&kernel, "wgmma.wait_group.sync.aligned 0"), 1);
}

/// Two products of one loop, both in flight, as a gated layer has them.
const GATED: &str = "
kernel gated(%a: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %b: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %g: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %c: view<bf16,2> exclusive unit_stride multiple_of 16 stride_multiple_of 8) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  %2 = const 0 : i64
  %3 = const 64 : i64
  %4 = view_dim 0 %c : i64
  %5 = view_dim 1 %a : i64
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[128x128]
  for %8 = %0 to %4 step %1 {
    %9 = mul %8, %3 : i64
    %10, %11 = for %12 = %2 to %5 step %3 carry (%13 = %7, %14 = %7) {
      %15 = view_load %a, %9, %12 : bf16[128x64]
      %16 = view_load %b, %12, %9 : bf16[64x128]
      %17 = dot ieee %15, %16, %13 : f32[128x128]
      %18 = view_load %a, %9, %12 : bf16[128x64]
      %19 = view_load %g, %12, %9 : bf16[64x128]
      %20 = dot ieee %18, %19, %14 : f32[128x128]
      yield %17, %20
    } : f32[128x128], f32[128x128]
    %21 = mul %10, %11 : f32[128x128]
    %22 = cast %21 : bf16[128x128]
    view_store %c, %22, %9, %9
    yield
  }
  return
}
";

#[test]
fn two_products_of_a_loop_overlap() {
    let (kernel, _) = assembled(&by_the_compiler(GATED, None));
    assert_eq!(count(&kernel, "m64n128k16"), 8);
    assert_eq!(count(&kernel, "wgmma.wait_group.sync.aligned 1"), 2);
    assert_eq!(count(&kernel, "cp.async.bulk.tensor.2d.global"), 2);
}

/// Weights of 8 bits by activations of 16.
const MIXED: &str = "
kernel mixed(%a: view<i8,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %b: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %c: view<bf16,2> exclusive unit_stride multiple_of 16 stride_multiple_of 8) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  %2 = const 0 : i64
  %3 = const 64 : i64
  %4 = view_dim 0 %c : i64
  %5 = view_dim 1 %a : i64
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[128x128]
  for %8 = %0 to %4 step %1 {
    %9 = mul %8, %3 : i64
    %10 = for %11 = %2 to %5 step %3 carry (%12 = %7) {
      %13 = view_load %a, %9, %11 : i8[128x64]
      %14 = cast %13 : bf16[128x64]
      %15 = view_load %b, %11, %9 : bf16[64x128]
      %16 = dot ieee %14, %15, %12 : f32[128x128]
      yield %16
    } : f32[128x128]
    %17 = cast %10 : bf16[128x128]
    view_store %c, %17, %9, %9
    yield
  }
  return
}
";

#[test]
fn an_operand_that_is_cast_goes_from_its_slot_to_registers() {
    for dtype in ["i8", "f8e4m3", "f16"] {
        let lir = by_the_compiler(&MIXED.replace("i8", dtype), None);
        let registers: Vec<bool> = lir.func.tma.loads.iter().map(|load| load.registers).collect();
        assert_eq!(registers, [true, false]);
        assert!(lir.func.walk().iter().all(|&op| lir.func.op(op).kind != OpKind::ConvertLayout));
        let (kernel, _) = assembled(&lir);
        assert_eq!(count(&kernel, "wgmma.mma_async"), 4);
        // B is not K-major; four registers stand where A's descriptor would.
        assert_eq!(count(&kernel, "p, 1, 1, 1;"), 4, "{}", kernel.ptx);
        // 32 elements of a thread, two at a time, and none goes back to shared memory.
        let moved = ["\tld.shared", "\tst.shared"].map(|what| count(&kernel, what));
        assert_eq!(moved, [16, 0], "{}", kernel.ptx);
    }
}

#[test]
fn a_scaled_operand_stays_in_registers() {
    let text = MIXED
        .replace(
            "%a: view<i8,2>",
            "%s: view<f32,1> readonly unit_stride multiple_of 16, %a: view<bf16,2>",
        )
        .replace(
            "%13 = view_load %a, %9, %11 : i8[128x64]",
            "%13 = view_load %a, %9, %11 : bf16[128x64]
      %20 = cast %13 : f32[128x64]
      %21 = view_load %s, %11 : f32[64]
      %22 = expand_dims 0 %21 : f32[1x64]
      %23 = broadcast %22 : f32[128x64]
      %24 = mul %20, %23 : f32[128x64]",
        )
        .replace("cast %13 : bf16", "cast %24 : bf16");
    let (kernel, _) = assembled(&by_the_compiler(&text, None));
    assert_eq!(count(&kernel, "p, 1, 1, 1;"), 4, "{}", kernel.ptx);
    // The scales come through the copy engine too.
    let moved = ["\tld.shared", "\tst.shared", "\tld.global"].map(|what| count(&kernel, what));
    assert_eq!(moved, [24, 0, 0], "{}", kernel.ptx);
    assert_eq!(count(&kernel, "cp.async.bulk.tensor.1d"), 1, "{}", kernel.ptx);
}

#[test]
fn a_line_is_read_before_its_slot_goes_back() {
    let text = MIXED
        .replace(
            "%a: view<i8,2>",
            "%s: view<f32,1> readonly unit_stride multiple_of 16, %a: view<i8,2>",
        )
        .replace(
            "%13 = view_load %a, %9, %11 : i8[128x64]",
            "%20 = view_load %s, %11 : f32[64]\n      %13 = view_load %a, %9, %11 : i8[128x64]",
        );
    // The line is used behind the product that it comes with.
    let (head, rest) = text.split_once("    yield ").unwrap();
    let (sums, tail) = rest.split_once('\n').unwrap();
    let text = format!(
        "{head}    %21 = reduce max 0 %20 : f32\n    %22 = broadcast %21 : f32[128x128]\n    \
         %23 = mul {sums}, %22 : f32[128x128]\n    yield %23\n{tail}"
    );
    let (kernel, _) = assembled(&by_the_compiler(&text, Some(4)));
    let at = |what: &str| kernel.ptx.find(what).unwrap_or_else(|| panic!("{}", kernel.ptx));
    let line = kernel.ptx.match_indices("ld.shared.b32").map(|(at, _)| at).min();
    assert!(line.is_some_and(|line| line < at("wgmma.mma_async")), "{}", kernel.ptx);
}

/// The weighted sum of an attention: what one product leaves is the next one's left operand.
const CHAINED: &str = "
kernel chained(%q: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %k: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %v: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %c: view<bf16,2> exclusive unit_stride multiple_of 16 stride_multiple_of 8) {
  %0 = program_id 0 : i64
  %2 = const 0 : i64
  %3 = const 64 : i64
  %5 = view_dim 1 %k : i64
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[128x64]
  %9 = mul %0, %3 : i64
  %10 = view_load %q, %9, %2 : bf16[128x64]
  %11 = for %12 = %2 to %5 step %3 carry (%13 = %7) {
    %14 = view_load %k, %2, %12 : bf16[64x64]
    %15 = dot ieee %10, %14, %7 : f32[128x64]
    %16 = exp2_approx %15 : f32[128x64]
    %17 = cast %16 : bf16[128x64]
    %18 = view_load %v, %12, %2 : bf16[64x64]
    %19 = dot ieee %17, %18, %13 : f32[128x64]
    yield %19
  } : f32[128x64]
  %20 = cast %11 : bf16[128x64]
  view_store %c, %20, %9, %2
  return
}
";

#[test]
fn a_product_is_the_next_ones_operand_without_moving() {
    let (kernel, _) = assembled(&by_the_compiler(CHAINED, None));
    assert_eq!(count(&kernel, "wgmma.mma_async"), 8);
    // Scores start anew each time, sums go on; weights come from registers, queries from shared memory.
    let starts = ["q, 1, 1", "p, 1, 1"].map(|how| count(&kernel, how));
    assert_eq!(starts, [1, 7], "{}", kernel.ptx);
    assert_eq!(count(&kernel, "p, 1, 1, 1;"), 4, "{}", kernel.ptx);
    assert_eq!((count(&kernel, "shfl.sync.bfly"), count(&kernel, "st.shared")), (0, 0));
}

/// The loop of an attention as it is scheduled: scores of the next block begin beside the weighted sum of this.
const ROTATED: &str = "
kernel rotated(%q: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %k: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %v: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 8, %c: view<bf16,2> exclusive unit_stride multiple_of 16 stride_multiple_of 8) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  %2 = const 0 : i64
  %3 = const 64 : i64
  %4 = view_dim 0 %c : i64
  %5 = view_dim 1 %k : i64
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[128x64]
  for %8 = %0 to %4 step %1 {
    %9 = mul %8, %3 : i64
    %10 = view_load %q, %9, %2 : bf16[128x64]
    %11 = cast %7 : bf16[128x64]
    %12, %13 = for %14 = %2 to %5 step %3 carry (%15 = %11, %16 = %7) {
      %17 = view_load %k, %2, %14 : bf16[64x64]
      %18 = dot ieee %10, %17, %7 : f32[128x64]
      %19 = view_load %v, %14, %2 : bf16[64x64]
      %20 = dot ieee %15, %19, %16 : f32[128x64]
      %21 = exp2_approx %18 : f32[128x64]
      %22 = cast %21 : bf16[128x64]
      yield %22, %20
    } : bf16[128x64], f32[128x64]
    %23 = cast %13 : bf16[128x64]
    view_store %c, %23, %9, %2
    yield
  }
  return
}
";

/// Two warpgroups: the first order barrier gets an arrival once, each next one in the loop.
#[test]
fn warpgroups_begin_products_in_turns() {
    let order_barriers = |warps| {
        let (kernel, _) = assembled(&by_the_compiler(ROTATED, Some(warps)));
        ["bar.sync \t%r", "bar.arrive"].map(|what| count(&kernel, what))
    };
    assert_eq!([4, 8].map(order_barriers), [[0, 0], [3, 2]]);
}
