//! The tiles of attention through the assembler.

use genesis_kernel::inspect::{assemble, find_tool};
use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Hints, KernelDef};
use genesis_kernel::target::{GpuTarget, Target};
use genesis_kernel::tuning::Chip;
use genesis_kernel::tuning::attention::{Features, Heads, Part, Tile};

use super::{attention, attention_keys, attention_queries};

/// A bias, a cap, dropped weights, packed sequences: none, each, and those that take most registers together.
const FEATURES: [[bool; 4]; 8] = [
    [false, false, false, false],
    [true, false, false, false],
    [false, true, false, false],
    [false, false, true, false],
    [false, false, false, true],
    [true, false, true, false],
    [false, true, false, true],
    [true, true, true, true],
];

/// Assembles a kernel in the tiles of every head for GPUs without a way from shared memory to tensor cores.
fn check(part: Part, kernel: &'static KernelDef) {
    if find_tool("ptxas").is_none() {
        return println!("skipped: no ptxas");
    }
    let gpus = [GpuTarget::SM_100A, GpuTarget::SM_120A];
    for (head, features) in [32, 64, 128, 256].into_iter().flat_map(|h| FEATURES.map(|f| (h, f))) {
        let [bias, cap, drop, packed] = features;
        let features = Features { bias, cap, drop, packed };
        let heads = Heads { queries: 1024, width: head, bytes: 2 };
        let chip = Chip::of_target(&Target::sm_100a());
        let Tile { queries, keys, warps } = Tile::of(&chip, part, heads, features);
        let mut consts = vec![queries, keys, head as i64];
        if !matches!(part, Part::Forward) {
            consts.push(0);
        }
        consts.extend(features.consts());
        let hints = Hints { num_warps: Some(warps), ..Hints::contiguous(kernel.ast) };
        let special = kernel.specialize(&[DType::BF16, DType::F32], &consts, &hints);
        let special = special.expect("the launch has these constants");
        for gpu in gpus {
            assert!(!gpu.features.tma_feeds_mma());
            let compiled = special.compile(&Target::Gpu(gpu)).expect("it fits shared memory");
            let ptx = compiled.ptx().expect("it is for a GPU");
            let found = assemble(ptx, gpu.name()).expect("it assembles");
            let spills = (found.spill_stores, found.spill_loads, found.stack_bytes);
            assert_eq!(spills, (0, 0, 0), "{} {consts:?} {gpu}", kernel.name());
        }
    }
}

#[test]
fn tiles_in_registers_do_not_spill() {
    check(Part::Forward, &attention::KERNEL);
}

#[test]
fn tiles_of_keys_in_registers_do_not_spill() {
    check(Part::Keys, &attention_keys::KERNEL);
}

#[test]
fn tiles_of_queries_in_registers_do_not_spill() {
    check(Part::Queries, &attention_queries::KERNEL);
}
