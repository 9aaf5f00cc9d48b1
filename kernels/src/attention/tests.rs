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

/// Bytes that a thread with a role may keep in local memory: a few numbers that stay as they are in the loop, beside
/// accumulators of heads of 256, which leave no more registers.
const SPILLED_WITH_ROLES: u32 = 32;

/// Bytes that a thread may keep there where operands are in registers: six numbers of a gradient of keys with a bias, a cap,
/// dropped weights and packed sequences all at once.
const SPILLED_IN_REGISTERS: u32 = 24;

/// Assembles a kernel in the tiles of every head for GPUs whose MMAs read 16 bits as `chip`'s do.
fn check(part: Part, chip: &Chip, gpus: &[GpuTarget], most: u32) {
    if find_tool("ptxas").is_none() {
        return println!("skipped: no ptxas");
    }
    let kernel: &'static KernelDef = match part {
        Part::Forward => &attention::KERNEL,
        Part::Queries => &attention_queries::KERNEL,
        Part::Keys | Part::OnlyKeys | Part::OnlyValues => &attention_keys::KERNEL,
    };
    for (head, features) in [32, 64, 128, 256].into_iter().flat_map(|h| FEATURES.map(|f| (h, f))) {
        // Small heads leave registers: the least and the most of features are enough.
        if head < 128 && features.iter().any(|&is_on| is_on != features[0]) {
            continue;
        }
        let [bias, cap, drop, packed] = features;
        let features = Features { bias, cap, drop, packed };
        let heads = Heads { queries: 1024, width: head, bytes: 2 };
        if part.has_keys() && !Part::of_keys(chip, heads, features).contains(&part) {
            continue;
        }
        let Tile { queries, keys, warps } = Tile::of(chip, part, heads, features);
        let mut consts = vec![queries, keys, head as i64];
        if part != Part::Forward {
            consts.push(0);
        }
        consts.extend(part.only());
        consts.extend(features.consts());
        let hints = Hints { num_warps: Some(warps), ..Hints::contiguous(kernel.ast) };
        let special = kernel.specialize(&[DType::BF16, DType::F32], &consts, &hints);
        let special = special.expect("the launch has these constants");
        for &gpu in gpus {
            let compiled = special.compile(&Target::Gpu(gpu)).expect("it fits shared memory");
            let ptx = compiled.ptx().expect("it is for a GPU");
            let found = assemble(ptx, gpu.name()).expect("it assembles");
            let spilled = found.spill_stores.max(found.spill_loads).max(found.stack_bytes);
            assert!(spilled <= most, "{} {consts:?} {gpu}: {spilled} bytes", kernel.name());
        }
    }
}

fn check_in_registers(part: Part, most: u32) {
    let gpus = [GpuTarget::SM_100A, GpuTarget::SM_120A];
    assert!(gpus.iter().all(|gpu| !gpu.features.tma_feeds_mma()));
    check(part, &Chip::of_target(&Target::sm_100a()), &gpus, most);
}

fn check_in_shared(part: Part) {
    check(part, &Chip::of_target(&Target::sm_90a()), &[GpuTarget::SM_90A], SPILLED_WITH_ROLES);
}

#[test]
fn tiles_in_registers_do_not_spill() {
    check_in_registers(Part::Forward, 0);
}

#[test]
fn tiles_of_keys_in_registers_do_not_spill() {
    check_in_registers(Part::Keys, SPILLED_IN_REGISTERS);
}

#[test]
fn tiles_of_queries_in_registers_do_not_spill() {
    check_in_registers(Part::Queries, 0);
}

#[test]
fn tiles_in_shared_memory_do_not_spill() {
    check_in_shared(Part::Forward);
}

#[test]
fn tiles_of_keys_in_shared_memory_do_not_spill() {
    [Part::Keys, Part::OnlyKeys, Part::OnlyValues].into_iter().for_each(check_in_shared);
}

#[test]
fn tiles_of_queries_in_shared_memory_do_not_spill() {
    check_in_shared(Part::Queries);
}
