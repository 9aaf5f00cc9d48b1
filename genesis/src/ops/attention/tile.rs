//! How large the tiles of attention's kernels are.

use genesis_kernel::runtime::Device;

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
            2 => half(part, q.shape()[2], head, features),
            8 => (16, 32, 8),
            _ if head <= 64 => (64, 64, 8),
            _ if head <= 128 => (32, 64, 8),
            _ => (32, 32, 8),
        })
    }

    /// The tile where a block holds all keys of heads so long: the sum of weighted products takes registers.
    pub(super) fn alone(self, part: Part, head: usize) -> Tile {
        match part {
            Part::Keys if head > 64 => Tile { queries: self.queries.min(32), ..self },
            _ => self,
        }
    }

    /// Rows of queries or keys of which a program has a block.
    pub(super) fn rows(self, part: Part) -> i64 {
        if matches!(part, Part::Keys) { self.keys } else { self.queries }
    }
}

/// Tiles of floats of 16 bits. A bias takes shared memory and registers, and draws take registers.
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
