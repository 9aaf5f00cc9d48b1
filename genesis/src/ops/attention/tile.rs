//! How large the tiles of attention's kernels are.

use genesis_kernel::runtime::Device;

use crate::launch::config;
use crate::tensor::Tensor;

/// The kernels of attention.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Forward,
    Keys,
    Queries,
}

/// Queries and keys of a tile, and the warps that share it.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) queries: i64,
    pub(super) keys: i64,
    pub(super) warps: u32,
}

impl Tile {
    /// The tile of a kernel with features: a bias, a cap, dropped weights, packed sequences. It is as large
    /// as shared memory and registers allow without spills, which a test looks at.
    pub(super) fn of(part: Part, q: &Tensor, features: [bool; 4]) -> Tile {
        let of = |(queries, keys, warps)| Tile { queries, keys, warps };
        if q.device() == Device::Cpu {
            return of((32, 32, 4));
        }
        let head = q.shape()[3];
        of(match q.dtype().bytes() {
            2 if reads_shared(q.device()) => half(part, q.shape()[2], head, features),
            2 => half_in_registers(part, head, features),
            8 => (16, 32, 8),
            _ if head <= 64 => (64, 64, 8),
            _ if head <= 128 => (32, 64, 8),
            _ => (32, 32, 8),
        })
    }

    /// The tile where a block holds all keys of heads so long: the sum of weighted products takes registers.
    pub(super) fn alone(self, part: Part, q: &Tensor) -> Tile {
        let most = if reads_shared(q.device()) { 64 } else { 32 };
        match part {
            Part::Keys if q.shape()[3] > most => Tile { queries: self.queries.min(32), ..self },
            _ => self,
        }
    }

    /// Rows of queries or keys of which a program has a block.
    pub(super) fn rows(self, part: Part) -> i64 {
        if matches!(part, Part::Keys) { self.keys } else { self.queries }
    }
}

/// Whether tensor cores read the operands where the copy engine puts them.
fn reads_shared(device: Device) -> bool {
    config::features(device).is_none_or(|features| features.tma_feeds_mma())
}

/// Tiles of floats of 16 bits for tensor cores that read them in registers, which operands share with accumulators:
/// where those that read shared memory take 128 by 128, 32 to 64 keys are left. None spills on sm_100a and sm_120a,
/// which a test looks at.
fn half_in_registers(
    part: Part,
    head: usize,
    [bias, cap, drop, packed]: [bool; 4],
) -> (i64, i64, u32) {
    let is_rich = bias || drop;
    let is_plain = !is_rich && !cap && !packed;
    match (part, head) {
        (Part::Forward, ..=32) => (64, 64, 4),
        (Part::Forward, ..=64) if drop => (128, 32, 8),
        (Part::Forward, ..=128) if drop => (64, 64, 8),
        (Part::Forward, ..=64) if bias => (128, 64, 8),
        (Part::Forward, 65..=128) if !is_plain => (128, 64, 8),
        (Part::Forward, ..=128) => (128, 128, 8),
        (Part::Forward, _) if is_rich => (64, 32, 8),
        (Part::Forward, _) => (64, 64, 8),
        (Part::Keys, ..=64) if bias && drop => (64, 64, 8),
        (Part::Keys, ..=64) if is_rich => (32, 128, 8),
        (Part::Keys, 33..=64) if cap || packed => (32, 128, 8),
        (Part::Keys, ..=64) => (64, 128, 8),
        (Part::Keys, ..=128) if !is_plain => (32, 64, 8),
        (Part::Keys, ..=128) => (64, 64, 8),
        (Part::Keys, _) => (32, 32, 8),
        (Part::Queries, ..=32) if is_plain => (128, 128, 8),
        (Part::Queries, ..=32) if drop => (64, 64, 8),
        (Part::Queries, ..=64) if drop => (128, 32, 8),
        (Part::Queries, ..=64) => (128, 64, 8),
        (Part::Queries, ..=128) if bias && drop => (64, 64, 8),
        (Part::Queries, ..=128) => (128, 32, 8),
        (Part::Queries, _) => (64, 32, 8),
    }
}

/// The same for tensor cores that read shared memory. A bias takes shared memory and registers, and draws take registers.
fn half(
    part: Part,
    m: usize,
    head: usize,
    [bias, cap, drop, packed]: [bool; 4],
) -> (i64, i64, u32) {
    let is_rich = bias || drop;
    let is_plain = !is_rich && !cap && !packed;
    match (part, head) {
        (Part::Forward, ..=32) => (64, 64, 4),
        (Part::Forward, ..=64) if drop && !bias => (128, 32, 8),
        (Part::Forward, ..=64) if is_rich => (128, 64, 8),
        // Four warpgroups read each block of keys once: 10 % faster than two, where there are as many rows.
        (Part::Forward, ..=64) if is_plain && m >= 256 => (256, 64, 16),
        (Part::Forward, ..=128) if drop => (64, 64, 8),
        (Part::Forward, ..=128) if bias => (128, 64, 8),
        (Part::Forward, ..=128) => (128, 128, 8),
        (Part::Forward, _) if is_rich => (64, 32, 8),
        (Part::Forward, _) => (64, 64, 8),
        (Part::Keys, ..=64) if bias && drop => (64, 64, 8),
        (Part::Keys, ..=64) if is_rich => (32, 128, 8),
        (Part::Keys, ..=64) => (64, 128, 8),
        (Part::Keys, ..=128) if is_rich => (32, 64, 8),
        (Part::Keys, ..=128) if cap => (32, 128, 8),
        (Part::Keys, ..=128) => (64, 128, 8),
        (Part::Keys, _) => (32, 32, 8),
        (Part::Queries, ..=64) if is_rich => (128, 64, 8),
        (Part::Queries, ..=64) => (128, 128, 8),
        (Part::Queries, ..=128) if is_rich => (128, 32, 8),
        (Part::Queries, ..=128) => (128, 64, 8),
        (Part::Queries, _) => (64, 32, 8),
    }
}

#[cfg(test)]
mod tests {
    use genesis_kernel::inspect::{assemble, find_tool};
    use genesis_kernel::ir::DType;
    use genesis_kernel::kernel::{Hints, KernelDef};
    use genesis_kernel::target::{GpuTarget, Target};
    use kernels::attention as device;

    use super::*;

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
        for (head, features) in
            [32, 64, 128, 256].into_iter().flat_map(|h| FEATURES.map(|f| (h, f)))
        {
            let (queries, keys, warps) = half_in_registers(part, head, features);
            let mut consts = vec![queries, keys, head as i64];
            if !matches!(part, Part::Forward) {
                consts.push(0);
            }
            consts.extend(features.map(i64::from));
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
        check(Part::Forward, &device::attention::KERNEL);
    }

    #[test]
    fn tiles_of_keys_in_registers_do_not_spill() {
        check(Part::Keys, &device::attention_keys::KERNEL);
    }

    #[test]
    fn tiles_of_queries_in_registers_do_not_spill() {
        check(Part::Queries, &device::attention_queries::KERNEL);
    }
}
