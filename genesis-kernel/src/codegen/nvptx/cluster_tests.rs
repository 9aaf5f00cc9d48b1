//! Programs that are clusters: what goes from block to block, and which barriers stand around it.

use super::*;
use crate::ir::parse;
use crate::layout::warp_specialization::tests::MATMUL;
use crate::layout::{LayoutOptions, assign};
use crate::machine::tests::{machine_code, without_one};
use crate::machine::{print, verify};
use crate::passes::tma;

/// A softmax of `ROWS` rows of 4096 columns.
const SOFTMAX: &str = "
kernel softmax(%x: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %y: view<bf16,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = program_id 0 : i64
  %1 = const ROWS : i64
  %2 = mul %0, %1 : i64
  %3 = const 0 : i64
  %4 = view_load %x, %2, %3 : bf16[ROWSx4096]
  %5 = cast %4 : f32[ROWSx4096]
  %6 = reduce max 1 %5 : f32[ROWS]
  %7 = expand_dims 1 %6 : f32[ROWSx1]
  %8 = broadcast %7 : f32[ROWSx4096]
  %9 = sub %5, %8 : f32[ROWSx4096]
  %10 = exp %9 : f32[ROWSx4096]
  %11 = reduce add 1 %10 : f32[ROWS]
  %12 = expand_dims 1 %11 : f32[ROWSx1]
  %13 = broadcast %12 : f32[ROWSx4096]
  %14 = div %10, %13 : f32[ROWSx4096]
  %15 = cast %14 : bf16[ROWSx4096]
  view_store %y, %15, %2, %3
  return
}
";

fn clustered(text: &str, num_warps: u32, cluster: u32) -> LayoutIr {
    let func = parse(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let mut func = crate::passes::views::run(&func).unwrap_or_else(|why| panic!("{why}"));
    crate::passes::run(&mut func, crate::passes::PIPELINE);
    crate::passes::run(&mut func, crate::passes::NVPTX);
    let (num_warps, cluster) = (Some(num_warps), Some(cluster));
    let options = LayoutOptions { num_warps, cluster, ..LayoutOptions::default() };
    assign(&func, &options).unwrap_or_else(|why| panic!("{why}"))
}

/// Compiles for an H200, and assembles where the assembler is.
fn compiled(lir: &LayoutIr) -> GpuKernel {
    let target = GpuTarget::SM_90A;
    let kernel = compile(lir, &target).unwrap_or_else(|why| panic!("{why}"));
    if let Some(assembler) = ptxas::find_or_skip() {
        let assembled = ptxas::assemble(&assembler, &kernel.ptx, target.name())
            .unwrap_or_else(|why| panic!("{why}\n{}", kernel.ptx));
        assert_eq!((assembled.spill_stores, assembled.stack_bytes), (0, 0), "{}", kernel.ptx);
    }
    kernel
}

fn count(kernel: &GpuKernel, text: &str) -> usize {
    kernel.ptx.matches(text).count()
}

#[test]
fn a_row_is_reduced_through_the_memory_of_all_blocks() {
    for cluster in [2, 4, 8, 16] {
        let kernel = compiled(&clustered(&SOFTMAX.replace("ROWS", "1"), 4, cluster));
        assert_eq!(kernel.num_blocks, cluster);
        assert!(kernel.ptx.contains(&format!(".reqnctapercluster {cluster}")), "{}", kernel.ptx);
        // Every lane that a block has for it sends to that block, and one barrier in memory counts the
        // DSMEM stores of each reduction. All blocks have begun before, which is waited for beside the loads.
        assert_eq!(count(&kernel, "st.async"), 2, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "mbarrier.try_wait"), 2, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "barrier.cluster.arrive"), 1);
        assert_eq!(count(&kernel, "barrier.cluster.wait"), 1);
        assert_eq!(count(&kernel, "bar.sync") + count(&kernel, "barrier.sync"), 0);
        // Each block has its part of the row.
        let vectors = 4096 / cluster as usize / 128 / 8;
        assert_eq!(count(&kernel, "ld.global.v4"), vectors.max(1) * usize::from(vectors > 0));
        assert!(kernel.ptx.contains("%clusterid.x") && !kernel.ptx.contains("%ctaid"));
        assert_eq!(kernel.shared_bytes, 2 * (4 * 4 * cluster + 16));
    }
}

#[test]
fn rows_that_fill_the_blocks_stay_in_one() {
    let kernel = compiled(&clustered(&SOFTMAX.replace("ROWS", "4"), 4, 4));
    assert_eq!(count(&kernel, "shared::cluster"), 0, "{}", kernel.ptx);
    assert_eq!(count(&kernel, "barrier.cluster"), 0);
    // Of two rows and four blocks, two have a row.
    let kernel = compiled(&clustered(&SOFTMAX.replace("ROWS", "2"), 4, 4));
    assert_eq!(count(&kernel, "st.async"), 2, "{}", kernel.ptx);
}

/// The product of [`crate::layout::warp_specialization::tests`] in tiles of 256 by 128, by clusters of two blocks.
#[test]
fn blocks_bring_the_right_operand_for_each_other() {
    let text = MATMUL.replace("128x256", "256x128").replace("64x256", "64x128");
    let text = text.replace("128x64", "256x64");
    for num_warps in [4, 8] {
        let max_shared_bytes = 232_448;
        let num_warps = Some(num_warps);
        let options = tma::Options { num_warps, num_blocks: 2, num_stages: None, max_shared_bytes };
        let func = tma::run(&parse(&text).unwrap(), &options);
        let mut func = crate::passes::views::run(&func).unwrap();
        crate::passes::run(&mut func, crate::passes::PIPELINE);
        let cluster = Some(2);
        let options =
            LayoutOptions { num_warps, cluster, max_shared_bytes, ..LayoutOptions::default() };
        let kernel = compiled(&assign(&func, &options).unwrap());
        assert_eq!(kernel.num_blocks, 2);
        // Of the two panels of the right operand each block brings half the lines, for both.
        assert_eq!(count(&kernel, ".multicast::cluster"), 2, "{}", kernel.ptx);
        assert_eq!(count(&kernel, "mbarrier.arrive.shared::cluster"), 2, "{}", kernel.ptx);
        // They meet when they have made their barriers, and before they leave.
        assert_eq!(count(&kernel, "barrier.cluster.arrive"), 2);
    }
}

/// A tile whose rows are too short for the copy engine is stored by the threads, which in a loop would wait
/// for the threads of all blocks, also those that load.
#[test]
fn blocks_that_multiply_store_by_the_copy_engine() {
    let text = MATMUL.replace("128x256", "128x16").replace("64x256", "64x16");
    let (num_warps, max_shared_bytes) = (Some(4), 232_448);
    let options = tma::Options { num_warps, num_blocks: 2, num_stages: None, max_shared_bytes };
    let func = tma::run(&parse(&text).unwrap(), &options);
    let mut func = crate::passes::views::run(&func).unwrap();
    crate::passes::run(&mut func, crate::passes::PIPELINE);
    let options = LayoutOptions { num_warps, cluster: Some(2), ..LayoutOptions::default() };
    let error = assign(&func, &options).unwrap_err();
    assert!(error.message.contains("store only by the copy engine"), "{error}");
}

/// Sums of the rows of a matrix, one after the other.
const SUMS: &str = "
kernel sums(%x: view<f32,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %y: view<f32,1> exclusive) {
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = view_dim 0 %x : i64
  for %3 = %0 to %2 step %1 {
    %4 = view_load %x, %3, %0 : f32[1x4096]
    %5 = reduce add 1 %4 : f32[1]
    view_store %y, %5, %3
    yield
  }
  return
}
";

#[test]
fn each_barrier_of_a_loop_keeps_blocks_apart() {
    let lir = clustered(SUMS, 4, 4);
    let kernel = compiled(&lir);
    // A sum is written once, by the first thread of the first block.
    assert_eq!(count(&kernel, "st.global"), 1, "{}", kernel.ptx);
    let code = machine_code(&lir, &GpuTarget::SM_90A);
    assert_eq!(verify(&code), Ok(()));
    // The last row's sum was read, this row's is there. The wait for the other blocks to run, before the loop, is one
    // that a barrier in it would do for.
    let broken: Vec<_> =
        without_one(&code).into_iter().filter(|code| verify(code).is_err()).collect();
    assert_eq!(broken.len(), 2, "{}", print(&code, &lir.func));
}

/// A running sum of 4096 numbers.
const CUMSUM: &str = "
kernel cumsum(%x: view<f32,1> readonly unit_stride multiple_of 16, %y: view<f32,1> exclusive unit_stride multiple_of 16) {
  %0 = const 0 : i64
  %1 = view_load %x, %0 : f32[4096]
  %2 = scan add 0 %1 : f32[4096]
  view_store %y, %2, %0
  return
}
";

#[test]
fn a_scan_goes_on_from_block_to_block() {
    let kernel = compiled(&clustered(CUMSUM, 4, 4));
    assert_eq!(count(&kernel, "st.shared::cluster.b32"), 1, "{}", kernel.ptx);
}

/// A matrix written transposed in a layout that suits neither side.
const TURNED: &str = "
kernel turned(%x: view<f32,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %y: view<f32,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = const 0 : i64
  %1 = view_load %x, %0, %0 : f32[64x64]
  %2 = transpose [1, 0] %1 : f32[64x64]
  view_store %y, %2, %0, %0
  return
}
";

#[test]
fn what_would_move_between_blocks_is_refused() {
    let func = parse(TURNED).unwrap();
    let func = crate::passes::views::run(&func).unwrap();
    let (num_warps, cluster) = (Some(4), Some(2));
    let error = assign(&func, &LayoutOptions { num_warps, cluster, ..Default::default() });
    assert!(error.unwrap_err().message.contains("between the blocks of a cluster"));
    let options = LayoutOptions { cluster: Some(3), ..LayoutOptions::default() };
    assert!(assign(&func, &options).unwrap_err().message.contains("a cluster of 3 blocks"));
}

#[test]
fn random_programs_run_in_clusters_or_are_refused() {
    let (mut compiled, mut refused) = (0, 0);
    for seed in 0..150 {
        let func = crate::ir::random::random_program(seed).func;
        let func = crate::passes::views::run(&func).unwrap();
        let Ok(mut func) = crate::passes::pad::run(&func) else { continue };
        crate::passes::run(&mut func, crate::passes::PIPELINE);
        let options =
            LayoutOptions { num_warps: Some(2), cluster: Some(4), ..LayoutOptions::default() };
        let alone = LayoutOptions { num_warps: Some(2), ..LayoutOptions::default() };
        let alone = assign(&func, &alone).unwrap();
        match assign(&func, &options) {
            Ok(lir) => {
                crate::layout::verify(&lir).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                // Some programs have ops that only other back ends have.
                if Module::new(&alone, &GpuTarget::SM_90, false).is_ok() {
                    let module = Module::new(&lir, &GpuTarget::SM_90, false);
                    module.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                    compiled += 1;
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(compiled > 50, "{compiled} compiled, {refused} refused");
}
