//! Code as the passes make it: what it looks like, that it reads back, and that each barrier is needed.

use super::pipeline::lower;
use super::*;
use crate::ir::{Func, parse as parse_ir};
use crate::layout::{LayoutIr, LayoutOptions, assign};
use crate::target::GpuTarget;
use expect_test::{Expect, expect};

/// Layout IR as the compiler makes it.
fn assigned(text: &str, num_warps: u32) -> LayoutIr {
    let func = parse_ir(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    let mut func = crate::passes::views::run(&func).unwrap_or_else(|why| panic!("{why}"));
    crate::passes::run(&mut func, crate::passes::PIPELINE);
    crate::passes::run(&mut func, crate::passes::NVPTX);
    let options = LayoutOptions { num_warps: Some(num_warps), ..LayoutOptions::default() };
    assign(&func, &options).unwrap_or_else(|why| panic!("{why}"))
}

/// The code of a kernel without a producer.
pub(crate) fn machine_code(lir: &LayoutIr, gpu: &GpuTarget) -> Block {
    let memory = SharedMemory::of(lir, gpu).unwrap_or_else(|why| panic!("{why}"));
    lower(lir, &memory, gpu, RunBy::Block).body
}

/// Every code that lacks one barrier or wait of this.
pub(crate) fn without_one(code: &Block) -> Vec<Block> {
    let mut all = Vec::new();
    for (at, inst) in code.iter().enumerate() {
        let with = |new: Option<Inst>| -> Block {
            code[..at].iter().cloned().chain(new).chain(code[at + 1..].iter().cloned()).collect()
        };
        match inst {
            Inst::Barrier
            | Inst::ClusterBarrier
            | Inst::ClusterWait
            | Inst::AwaitCluster(_)
            | Inst::WaitCopies(_) => all.push(with(None)),
            Inst::For(inner) => all.extend(
                without_one(&inner.body)
                    .into_iter()
                    .map(|body| with(Some(Inst::For(Box::new(For { body, ..(**inner).clone() }))))),
            ),
            _ => {}
        }
    }
    all
}

/// The text without what runs in each thread or warp alone.
fn shared_part(text: &str) -> String {
    let is_alone = |line: &&str| {
        let inst = line.trim_start();
        inst.starts_with("combine") || inst.starts_with("exec") && !line.contains("reads")
    };
    text.lines().filter(|line| !is_alone(line)).map(|line| format!("{line}\n")).collect()
}

/// Compares what the code does beside running ops in each thread; it reads back, and has no race.
fn check(lir: &LayoutIr, gpu: &GpuTarget, expected: &Expect) -> Block {
    let code = machine_code(lir, gpu);
    let text = print(&code, &lir.func);
    let memory = SharedMemory::of(lir, gpu).unwrap();
    let entry = print(&lower(lir, &memory, gpu, RunBy::Block).entry, &lir.func);
    expected.assert_eq(&(entry + &shared_part(&text)));
    assert_eq!(parse(&text, &lir.func.walk()).unwrap(), code, "{text}");
    assert_eq!(verify(&code), Ok(()), "{text}");
    code
}

/// Two reductions of a row by four warps.
const SOFTMAX: &str = "
kernel softmax(%x: *f32 readonly multiple_of 16, %out: *f32 exclusive multiple_of 16) {
  %0 = iota : i64[1024]
  %1 = broadcast %x : *f32[1024]
  %2 = ptr_add %1, %0 : *f32[1024]
  %3 = load %2 : f32[1024]
  %4 = reduce max 0 %3 : f32
  %5 = broadcast %4 : f32[1024]
  %6 = sub %3, %5 : f32[1024]
  %7 = reduce add 0 %6 : f32
  %8 = broadcast %7 : f32[1024]
  %9 = div %6, %8 : f32[1024]
  %10 = broadcast %out : *f32[1024]
  %11 = ptr_add %10, %0 : *f32[1024]
  store %11, %9
  return
}
";

#[test]
fn partial_results_go_through_shared_memory() {
    let lir = assigned(SOFTMAX, 4);
    let code = check(
        &lir,
        &GpuTarget::SM_90A,
        &expect![[r#"
            wait.grid
            store.shared 4.0 0..16                  // reduce
            barrier
            load.shared 4.0 0..16                   // reduce
            store.shared 7.0 16..32                 // reduce
            barrier
            load.shared 7.0 16..32                  // reduce
            return 13                               // return
        "#]],
    );
    let broken = without_one(&code);
    assert_eq!(broken.len(), 2);
    assert!(broken.iter().all(|code| verify(code).is_err()));
}

/// A product by `mma.sync`, of operands that `cp.async` brings, with something that is loaded before its loop and added
/// behind it.
pub(crate) const MATMUL: &str = "
kernel matmul(%a: view<bf16,2> readonly CONSTANT unit_stride multiple_of 16 stride_multiple_of 16, %b: view<bf16,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %d: *f32 readonly, %c: view<f32,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = program_id 0 : i64
  %1 = const 64 : i64
  %2 = mul %0, %1 : i64
  %3 = load %d : f32
  %4 = broadcast %3 : f32[64x64]
  %5 = const 0.0 : f32
  %6 = broadcast %5 : f32[64x64]
  %7 = const 0 : i64
  %8 = view_dim 1 %a : i64
  %9 = const 32 : i64
  %10 = for %11 = %7 to %8 step %9 carry (%12 = %6) {
    %13 = view_load %a, %2, %11 : bf16[64x32]
    %14 = view_load %b, %11, %7 : bf16[32x64]
    %15 = dot ieee %13, %14, %12 : f32[64x64]
    yield %15
  } : f32[64x64]
  %16 = add %10, %4 : f32[64x64]
  view_store %c, %16, %2, %7
  return
}
";

#[test]
fn a_multistage_buffer_is_filled_ahead() {
    let lir = assigned(&MATMUL.replace("CONSTANT", ""), 4);
    let code = check(
        &lir,
        &GpuTarget::SM_80,
        &expect![[r#"
            for 45 {
              prologue {
                addresses 45+0                      // for
                copy 58+0 0..4096                   // load
                copy 67+0 4096..8192                // load
                commit
                finish 45                           // for
                addresses 45+1                      // for
                copy 58+1 8192..12288               // load
                copy 67+1 12288..16384              // load
                commit
                finish 45                           // for
                addresses 45+2                      // for
                copy 58+2 16384..20480              // load
                copy 67+2 20480..24576              // load
                commit
                finish 45                           // for
              }
              wait.copies 2
              barrier
              addresses 45+3                        // for
              copy 58+3 0..4096 stage 3 of 4 by 8192 // load
              copy 67+3 4096..8192 stage 3 of 4 by 8192 // load
              commit
              exec 68 reads 0..4096 stage 0 of 4 by 8192, 4096..8192 stage 0 of 4 by 8192 // dot
              finish 45                             // for
              yield 69                              // yield
            }
            return 91                               // return
        "#]],
    );
    let broken = without_one(&code);
    assert_eq!(broken.len(), 2, "a wait and a barrier: {}", print(&code, &lir.func));
    assert!(broken.iter().all(|code| verify(code).is_err()));
}

#[test]
fn constant_tiles_are_copied_before_the_wait_for_the_grid() {
    let lir = assigned(&MATMUL.replace("CONSTANT", "constant"), 4);
    check(
        &lir,
        &GpuTarget::SM_90A,
        &expect![[r#"
            for 45 hoisted {
              prologue {
                addresses 45+0                      // for
                copy 58+0 0..4096                   // load
                addresses 45+1                      // for
                copy 58+1 8192..12288               // load
                addresses 45+2                      // for
                copy 58+2 16384..20480              // load
                wait.grid
                launch.dependents
                addresses 45+0                      // for
                copy 67+0 4096..8192                // load
                commit
                finish 45                           // for
                addresses 45+1                      // for
                copy 67+1 12288..16384              // load
                commit
                finish 45                           // for
                addresses 45+2                      // for
                copy 67+2 20480..24576              // load
                commit
                finish 45                           // for
              }
              wait.copies 2
              barrier
              addresses 45+3                        // for
              copy 58+3 0..4096 stage 3 of 4 by 8192 // load
              copy 67+3 4096..8192 stage 3 of 4 by 8192 // load
              commit
              exec 68 reads 0..4096 stage 0 of 4 by 8192, 4096..8192 stage 0 of 4 by 8192 // dot
              finish 45                             // for
              yield 69                              // yield
            }
            return 91                               // return
        "#]],
    );
}

/// A tile whose rows and columns change places, then its sums.
const TRANSPOSED: &str = "
kernel transposed(%x: view<f32,2> readonly unit_stride multiple_of 16 stride_multiple_of 16, %y: view<f32,2> exclusive unit_stride multiple_of 16 stride_multiple_of 16) {
  %0 = const 0 : i64
  %1 = const 64 : i64
  %2 = view_load %x, %0, %0 : f32[64x64]
  %3 = transpose [1, 0] %2 : f32[64x64]
  view_store %y, %3, %0, %0
  %4 = view_load %x, %1, %0 : f32[64x64]
  %5 = transpose [1, 0] %4 : f32[64x64]
  view_store %y, %5, %1, %0
  return
}
";

#[test]
fn conversions_share_bytes_and_wait_for_each_other() {
    let func = crate::passes::views::run(&parse_ir(TRANSPOSED).unwrap()).unwrap();
    let options = LayoutOptions { num_warps: Some(4), ..LayoutOptions::default() };
    let lir = assign(&func, &options).unwrap();
    let code = machine_code(&lir, &GpuTarget::SM_80);
    let exchanges = |inst: &Inst| match inst {
        Inst::StoreShared(part) => Some(("store", part.bytes.clone())),
        Inst::LoadShared(part) => Some(("load", part.bytes.clone())),
        Inst::Barrier => Some(("barrier", 0..0)),
        _ => None,
    };
    let found: Vec<_> = code.iter().filter_map(exchanges).collect();
    let (barrier, bytes) = (("barrier", 0..0), found[0].1.clone());
    let one = [("store", bytes.clone()), barrier.clone(), ("load", bytes)];
    assert_eq!(found, [&one[..], &[barrier], &one].concat());
    assert!(without_one(&code).iter().all(|code| verify(code).is_err()));
}

/// Old values go to all threads, and order the program.
const TICKET: &str = "
kernel ticket(%counter: *i32 exclusive, %out: *i32 exclusive) {
  %0 = const 1 : i32
  %1 = atomic_rmw add %counter, %0 : i32
  %2 = load %out : i32
  %3 = add %1, %2 : i32
  store %out, %3
  return
}
";

#[test]
fn accesses_of_global_memory_wait_for_those_of_other_threads() {
    check(
        &assigned(TICKET, 4),
        &GpuTarget::SM_80,
        &expect![[r#"
            fence.gpu
            atomic.atom 1                           // atomic_rmw
            fence.gpu
            store.shared 1.0 0..16                  // atomic_rmw
            barrier
            load.shared 1.0 0..16                   // atomic_rmw
            barrier
            barrier
            return 5                                // return
        "#]],
    );
}

/// Scratch that a loop writes again.
const LOOPED: &str = "
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
    %10 = ptr_add %out, %4 : *f32
    store %10, %9
    yield
  }
  return
}
";

#[test]
fn a_loop_waits_for_the_readers_of_its_last_iteration() {
    let lir = assigned(LOOPED, 4);
    let code = check(
        &lir,
        &GpuTarget::SM_80,
        &expect![[r#"
            for 4 {
              barrier
              store.shared 9.0 0..16                // reduce
              barrier
              load.shared 9.0 0..16                 // reduce
              yield 12                              // yield
            }
            return 13                               // return
        "#]],
    );
    assert!(without_one(&code).iter().all(|code| verify(code).is_err()));
}

#[test]
fn random_programs_read_back_and_have_no_race() {
    for seed in 0..200 {
        let func: Func = crate::ir::random::random_program(seed).func;
        let func = crate::passes::views::run(&func).unwrap();
        let Ok(mut func) = crate::passes::pad::run(&func) else { continue };
        crate::passes::run(&mut func, crate::passes::PIPELINE);
        let options = LayoutOptions { num_warps: Some(4), ..LayoutOptions::default() };
        let lir = assign(&func, &options).unwrap();
        let code = machine_code(&lir, &GpuTarget::SM_80);
        let text = print(&code, &lir.func);
        assert_eq!(parse(&text, &lir.func.walk()).as_ref(), Ok(&code), "seed {seed}:\n{text}");
        assert_eq!(verify(&code), Ok(()), "seed {seed}:\n{text}");
    }
}

/// One producer warp group fills a ring of four stages; two consumer groups multiply, and store the result in panels.
const WARP_SPECIALIZED_MATMUL: Expect = expect![[r#"
    // setup
    once {
      prefetch.maps
      init.mbarriers 229376 count 4 arrivals 1
      init.mbarriers 229408 count 4 arrivals 2
      fence.mbarriers
    }
    barrier
    wait.grid
    launch.dependents

    // the producer
    give.registers 24
    exec 0                                  // program_id
    exec 1                                  // num_programs
    exec 2                                  // const
    exec 3                                  // const
    for 4 {
      exec 5                                // mul
      for 6 {
        wait.empty 0
        arm 0
        exec 7                              // tma_load
        exec 8                              // tma_load
        advance 0
        yield 9                             // yield
      }
      yield 10                              // yield
    }
    return 11                               // return
    select 4 counts s64                     // for
    select 6 counts s64                     // for

    // consumers
    take.registers 240
    exec 0                                  // program_id
    exec 1                                  // num_programs
    exec 2                                  // const
    exec 3                                  // const
    exec 4                                  // const
    exec 5                                  // broadcast
    for 6 {
      pragma.nounroll
      exec 7                                // mul
      for 8 {
        pragma.nounroll
        exec 9                              // tma_load
        exec 10                             // tma_load
        wait.full 0
        mma 11 takes 0 into.next            // dot
        release.held 0
        hold.next 0
        yield 12                            // yield
      } left {
        finish.mma 11                       // dot
        release.held 0
      }
      rematerialize
      exec 13                               // cast
      wait.panels 1
      barrier.warpgroup
      store.panel 14.0 buffer 0             // tma_store
      fence.async
      barrier.warpgroup
      send.panel 14.0 buffer 0              // tma_store
      wait.panels 1
      barrier.warpgroup
      store.panel 14.1 buffer 1             // tma_store
      fence.async
      barrier.warpgroup
      send.panel 14.1 buffer 1              // tma_store
      wait.panels 1
      barrier.warpgroup
      store.panel 14.2 buffer 0             // tma_store
      fence.async
      barrier.warpgroup
      send.panel 14.2 buffer 0              // tma_store
      wait.panels 1
      barrier.warpgroup
      store.panel 14.3 buffer 1             // tma_store
      fence.async
      barrier.warpgroup
      send.panel 14.3 buffer 1              // tma_store
      yield 15                              // yield
    }
    wait.panels 0
    return 16                               // return
    select 6 counts s64                     // for
    select 8 counts s64                     // for
    select 13 cast pairs                    // cast
"#]];

#[test]
fn a_producer_feeds_consumers_through_a_pipeline() {
    use crate::layout::warp_specialization::tests::{MATMUL, compiled};
    let lir = compiled(MATMUL, Some(8), crate::passes::NVPTX);
    let gpu = GpuTarget::SM_90A;
    let memory = SharedMemory::of(&lir, &gpu).unwrap();
    let consumers = lower(&lir, &memory, &gpu, RunBy::Consumers).body;
    let printed = print(&consumers, &lir.func);
    assert_eq!(parse(&printed, &lir.func.walk()).unwrap(), consumers, "{printed}");
    WARP_SPECIALIZED_MATMUL.assert_eq(&text(&lir, &gpu));
}
