//! Warp specialization: the slice of a function that its producer warp runs.
//!
//! Loads by the copy engine are given to one thread of a warpgroup of its own, which runs the same
//! control flow as the consumers with nothing but those loads in it. Both walk the same slots of the
//! same pipelines, so they synchronize by mbarriers alone.
//!
//! Where a copy begins, and how often a loop runs, may come from memory: the producer loads scalars of its
//! own, as the start of a sequence among packed ones. It may run far ahead of the consumers, so
//! only of memory that nobody writes during the launch ([`is_constant`]): both get the same then.
//!
//! ```text
//! %4 = for %5 = .. carry (%6 = %3) {             for %5 = .. {
//!   %7 = tma_load 0, ..                            %7 = tma_load 0, ..
//!   %8 = tma_load 1, ..                 ->         %8 = tma_load 1, ..
//!   %9 = dot ieee %7, %8, %6                       yield
//!   yield %9                                     }
//! }
//! store %p, %4
//! ```

use super::convert::Conversion;
use super::lir::LayoutIr;
use super::ping_pong::computing_warps;
use crate::analysis::is_constant;
use crate::ir::{Func, OpKind, keep};
use crate::tuning::multiprocessor::WARPGROUP_WARPS;
use crate::tuning::shared::{PANELS_BYTES, REDUCTION_BYTES, SPARE_BYTES, pipeline_stages};

/// The function with nothing in it but loads by the copy engine, the control flow around them and
/// what they need.
///
/// # Errors
/// If they need what one thread can't compute: tiles, or memory that may be written meanwhile.
pub fn producer(func: &Func) -> Result<Func, String> {
    let mut producer = func.clone();
    keep(&mut producer, |kind| matches!(kind, OpKind::TmaLoad(_) | OpKind::Return));
    for op in producer.walk() {
        let data = producer.op(op);
        if matches!(data.kind, OpKind::TmaLoad(_)) {
            continue;
        }
        let flows = data.kind.is_control_flow() || data.kind.is_terminator();
        let reads = data.kind == OpKind::Load && is_constant(&producer, data.operands[0]);
        if !flows && !reads && !data.kind.is_pure() {
            return Err(format!("a load by the copy engine depends on {:?}", data.kind));
        }
        let args = data.regions.iter().flat_map(|&region| &producer.region(region).args);
        for &value in data.results.iter().chain(args) {
            let scalar = producer.ty(value).as_tile().is_some_and(|tile| tile.shape.is_scalar());
            if !scalar {
                return Err(format!("a load by the copy engine depends on {:?}", data.kind));
            }
        }
    }
    Ok(producer)
}

/// Gives pipelines without a chosen depth as many stages as fit a block's shared memory.
pub(super) fn choose_stages(lir: &mut LayoutIr, max_shared_bytes: u32) {
    let free = max_shared_bytes.saturating_sub(other_shared_bytes(lir));
    let tma = &mut lir.func.tma;
    let open: u32 =
        tma.channels.iter().filter(|c| c.stages == 0).map(|channel| channel.slot_bytes).sum();
    if open == 0 {
        return;
    }
    let stages = pipeline_stages(free.saturating_sub(tma.slot_bytes()), open);
    for channel in tma.channels.iter_mut().filter(|channel| channel.stages == 0) {
        channel.stages = stages;
    }
}

/// Shared memory besides the stages of pipelines.
fn other_shared_bytes(lir: &LayoutIr) -> u32 {
    let func = &lir.func;
    let staging = match func.tma.stores.is_empty() {
        true => 0,
        false => computing_warps(lir).div_ceil(WARPGROUP_WARPS) * PANELS_BYTES,
    };
    let scratch = func.walk().into_iter().map(|op| match &func.op(op).kind {
        OpKind::ConvertLayout => match lir.conversion(op) {
            Some(Conversion::Shared(plan)) => plan.bytes(),
            _ => 0,
        },
        OpKind::Dot { .. } => lir.dots.get(&op).map_or(0, |plan| {
            let operands = [&plan.a, &plan.b].into_iter().filter_map(|o| o.registers());
            operands.filter_map(|o| o.staging.as_ref()).map(|staging| staging.bytes()).sum()
        }),
        OpKind::Gather { .. } => lir.gather(op).map_or(0, |plan| plan.bytes()),
        OpKind::Scatter { .. } => lir.scatter(op).map_or(0, |plan| plan.bytes()),
        OpKind::Histogram => lir.histogram(op).bytes(),
        kind if kind.is_collective() => REDUCTION_BYTES,
        _ => 0,
    });
    staging + scratch.max().unwrap_or(0) + SPARE_BYTES
}

#[cfg(test)]
pub(crate) mod tests {
    use expect_test::expect;

    use crate::ir::{parse, print};
    use crate::layout::ping_pong::{computing_warps, ping_pong_loop};
    use crate::layout::{LayoutIr, LayoutOptions, assign};
    use crate::passes::{self, Pass, tma, views};

    pub(crate) const MATMUL: &str = "
kernel matmul(%a: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %b: view<bf16,2> readonly multiple_of 16 unit_stride stride_multiple_of 8, %c: view<bf16,2> exclusive multiple_of 16 unit_stride stride_multiple_of 8) {
  %0 = program_id 0 : i64
  %1 = num_programs 0 : i64
  %2 = const 0 : i64
  %3 = const 64 : i64
  %4 = view_dim 0 %c : i64
  %5 = view_dim 1 %a : i64
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[128x256]
  for %8 = %0 to %4 step %1 {
    %9 = mul %8, %3 : i64
    %10 = for %11 = %2 to %5 step %3 carry (%12 = %7) {
      %13 = view_load %a, %9, %11 : bf16[128x64]
      %14 = view_load %b, %11, %9 : bf16[64x256]
      %15 = dot ieee %13, %14, %12 : f32[128x256]
      yield %15
    } : f32[128x256]
    %16 = cast %10 : bf16[128x256]
    view_store %c, %16, %9, %9
    yield
  }
  return
}
";

    fn lir(text: &str) -> LayoutIr {
        lir_of(text, None)
    }

    fn lir_of(text: &str, num_warps: Option<u32>) -> LayoutIr {
        compiled(text, num_warps, &[])
    }

    /// Layout IR of a function with views for a GPU with a copy engine, after some passes more than
    /// every back end's.
    pub(crate) fn compiled(text: &str, num_warps: Option<u32>, last: &[Pass]) -> LayoutIr {
        let max_shared_bytes = 232_448;
        let options = tma::Options { num_warps, num_blocks: 1, num_stages: None, max_shared_bytes };
        let func = tma::run(&parse(text).unwrap(), &options);
        let mut func = views::run(&func).unwrap();
        passes::run(&mut func, passes::PIPELINE);
        passes::run(&mut func, last);
        let options = LayoutOptions { num_warps, max_shared_bytes, ..LayoutOptions::default() };
        assign(&func, &options).unwrap()
    }

    #[test]
    fn eight_warps_take_turns_where_four_compute_a_large_tile() {
        let square = MATMUL.replace("128x256", "128x128").replace("64x256", "64x128");
        let computing = |text: &str, warps| computing_warps(&lir_of(text, Some(warps)));
        assert_eq!((computing(&square, 4), computing(&square, 8)), (8, 8));
        assert!(ping_pong_loop(&lir_of(&square, Some(4))).is_some());
        assert!(ping_pong_loop(&lir_of(&square, Some(8))).is_none());
        // Sums that half as many registers hold are stored soon.
        let small = square.replace("128x", "64x");
        assert_eq!(computing(&small, 4), 4);
        // Every program has one tile.
        let single = square.replace("for %8 = %0 to %4 step %1", "for %8 = %2 to %4 step %3");
        assert_eq!(computing(&single, 4), 4);
    }

    #[test]
    fn a_product_is_split_into_consumers_and_a_producer() {
        let lir = lir(MATMUL);
        let text = lir.layout_text();
        let facts = text.lines().filter(|line| !line.starts_with("// %"));
        let facts: String = facts.map(|line| format!("{line}\n")).collect();
        expect![[r#"
            // 8 warps
            // dot: Wgmma(Bf16), load 0 (128 of 64, K-major, panels of 128 bytes) by load 1 (256 of 64, MN-major, panels of 128 bytes), async across iterations
        "#]].assert_eq(&facts);
        expect![[r#"
            kernel matmul(%a: *bf16 readonly multiple_of 16, %a_dim0: i64 natural, %a_dim1: i64 multiple_of 8 natural, %a_stride0: i64 multiple_of 8, %a_stride1: i64, %b: *bf16 readonly multiple_of 16, %b_dim0: i64 natural, %b_dim1: i64 multiple_of 8 natural, %b_stride0: i64 multiple_of 8, %b_stride1: i64, %c: *bf16 exclusive multiple_of 16, %c_dim0: i64 natural, %c_dim1: i64 multiple_of 8 natural, %c_stride0: i64 multiple_of 8, %c_stride1: i64) {
              tma map param 0 bf16 axes [1, 0] block [64, 128] swizzle 128
              tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
              tma map param 2 bf16 axes [1, 0] block [64, 64] swizzle 128
              tma channel stages 4 bytes 49152
              tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
              tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 1
              tma store map 2
              %0 = program_id 0 : i64
              %1 = num_programs 0 : i64
              %2 = const 0 : i64
              %3 = const 64 : i64
              %4 = const 0.0 : f32
              %5 = broadcast %4 : f32[128x256]
              for %6 = %0 to %c_dim0 step %1 {
                %7 = mul %6, %3 : i64
                %8 = for %9 = %2 to %a_dim1 step %3 carry (%10 = %5) {
                  %11 = tma_load 0 %7, %9 : bf16[128x64]
                  %12 = tma_load 1 %9, %7 : bf16[64x256]
                  %13 = dot ieee %11, %12, %10 : f32[128x256]
                  yield %13
                } : f32[128x256]
                %14 = cast %8 : bf16[128x256]
                tma_store 0 %14, %7, %7
                yield
              }
              return
            }
        "#]].assert_eq(&print(&lir.func));
        expect![[r#"
            kernel matmul(%a: *bf16 readonly multiple_of 16, %a_dim0: i64 natural, %a_dim1: i64 multiple_of 8 natural, %a_stride0: i64 multiple_of 8, %a_stride1: i64, %b: *bf16 readonly multiple_of 16, %b_dim0: i64 natural, %b_dim1: i64 multiple_of 8 natural, %b_stride0: i64 multiple_of 8, %b_stride1: i64, %c: *bf16 exclusive multiple_of 16, %c_dim0: i64 natural, %c_dim1: i64 multiple_of 8 natural, %c_stride0: i64 multiple_of 8, %c_stride1: i64) {
              tma map param 0 bf16 axes [1, 0] block [64, 128] swizzle 128
              tma map param 1 bf16 axes [1, 0] block [64, 64] swizzle 128
              tma map param 2 bf16 axes [1, 0] block [64, 64] swizzle 128
              tma channel stages 4 bytes 49152
              tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
              tma load map 1 channel 0 offset 16384 bytes 32768 contiguous 1
              tma store map 2
              %0 = program_id 0 : i64
              %1 = num_programs 0 : i64
              %2 = const 0 : i64
              %3 = const 64 : i64
              for %4 = %0 to %c_dim0 step %1 {
                %5 = mul %4, %3 : i64
                for %6 = %2 to %a_dim1 step %3 {
                  %7 = tma_load 0 %5, %6 : bf16[128x64]
                  %8 = tma_load 1 %6, %5 : bf16[64x256]
                  yield
                }
                yield
              }
              return
            }
        "#]].assert_eq(&print(lir.producer.as_ref().unwrap()));
        // Nothing is converted on the way to the store.
        assert!(!print(&lir.func).contains("convert_layout"));
    }

    #[test]
    fn copies_may_begin_where_memory_that_stays_says() {
        let start = "%9 = mul %8, %3 : i64
    %17 = ptr_add %starts, %8 : *i64
    %18 = load %17 : i64";
        let text = |attrs: &str| {
            MATMUL
                .replace("kernel matmul(", &format!("kernel matmul(%starts: *i64 {attrs}, "))
                .replace("%9 = mul %8, %3 : i64", start)
                .replace("view_load %a, %9", "view_load %a, %18")
        };
        let moved = lir(&text("readonly"));
        let producer = print(moved.producer.as_ref().expect("the load is of constant memory"));
        assert!(producer.contains(" = load "), "{producer}");
        // A program's store may be what another one's producer would load.
        for attrs in ["", "exclusive"] {
            let stored = text(attrs).replace("view_store", "store %17, %18\n    view_store");
            for text in [text(attrs), stored] {
                let lir = lir(&text);
                assert!(lir.producer.is_none() && lir.func.tma.is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn an_accumulator_that_is_read_in_its_loop_does_not_overlap() {
        assert!(lir(MATMUL).dots.values().all(|plan| plan.async_across_iterations));
        let text = MATMUL
            .replace("      yield %15", "      %17 = neg %15 : f32[128x256]\n      yield %17");
        assert!(lir(&text).dots.values().all(|plan| !plan.async_across_iterations));
    }
}
