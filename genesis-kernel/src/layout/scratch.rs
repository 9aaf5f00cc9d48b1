//! Shared memory between two layouts: where each element goes so that neither side meets a conflict.
//!
//! The scratch is a linear map from offset bits to tile bits, built from the low bits upward:
//! registers that both sides hold (one vector access), then a bank part in which the lanes of either
//! side differ, then a segment part above the 128 bytes of the banks. Where the lanes of the two
//! sides compete for the bank part, segment bases are sums of one lane basis of each side: the XOR
//! swizzle that is free of conflicts both ways.
//!
//! A 4x4 tile of 32 bits with four banks, written by rows and read by columns; entry = offset:
//!
//! ```text
//!          col 0  col 1  col 2  col 3
//! row 0      0      1      2      3
//! row 1      5      4      7      6
//! row 2     10     11      8      9
//! row 3     15     14     13     12
//! ```
//!
//! Each row and each column meets the four banks once.

use super::f2::{self, Echelon};
use super::linear::{HwIndex, LANE_BITS, LinearLayout, bits};

/// A tile's way through shared memory: every thread stores, a barrier, every thread loads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedPlan {
    /// Elements of the scratch.
    pub elements: u32,
    /// Bits of an element.
    pub bits: u32,
    /// How the source's threads write.
    pub store: SharedAccess,
    /// How the destination's threads read.
    pub load: SharedAccess,
}

/// One side of a [`SharedPlan`].
///
/// Register `regs[j]` of a group is at element `(offset ^ combine(lane, l) ^ combine(warp, w) ^
/// combine(block, b)) + j` of the block's own shared memory;
/// the number of registers of a group is a power of two and the offset a multiple of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedAccess {
    /// The instruction of one access.
    pub unit: SharedUnit,
    /// What each lane bit XORs to the offset.
    pub lane: [u32; LANE_BITS],
    /// What each warp bit XORs to the offset.
    pub warp: Vec<u32>,
    /// What each bit of the block's rank XORs to the offset: where a block holds a whole tile and reads
    /// back its part.
    pub block: Vec<u32>,
    /// Vectors of registers, the one of register 0 first.
    pub groups: Vec<SharedGroup>,
    /// Lane bits and warp bits that hold copies: only threads in which they are 0 need to store.
    pub copies: HwIndex,
    /// The worst number of passes of one access over what it would need without bank conflicts.
    pub ways: u32,
}

/// The instruction that moves a [`SharedGroup`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedUnit {
    /// Each thread moves its own registers, which lie next to each other.
    Vector,
    /// `ldmatrix`: lane `l` names row `l & 7` of matrix `l >> 3`, 16 bytes at the offset, and gets of
    /// every matrix 4 bytes, which are not at that offset. The group's registers are those of matrix 0,
    /// then 1, and so on; there are 1, 2 or 4.
    Matrix {
        /// A lane gets parts of one column instead of one row.
        transposed: bool,
    },
}

/// Registers that are next to each other in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedGroup {
    /// The offset of the first one in thread 0, in elements.
    pub offset: u32,
    /// The registers.
    pub regs: Vec<u32>,
}

/// Bits that a bank row holds: 32 banks of 4 bytes.
const BANK_ROW_BITS: u32 = 1024;
/// Bits of the widest access of one thread.
const VECTOR_BITS: u32 = 128;

impl SharedPlan {
    /// A plan for elements of `bits` bits, at least 8.
    pub fn new(from: &LinearLayout, to: &LinearLayout, bits: u32) -> SharedPlan {
        SharedPlan::staged(from, to, bits, 0)
    }

    /// A plan whose vectors do not go along the bits of the flat index in `avoid`, so that a part of
    /// the tile that is cut along those bits can be loaded by itself.
    pub fn staged(from: &LinearLayout, to: &LinearLayout, bits: u32, avoid: u32) -> SharedPlan {
        let bits = bits.max(8);
        // What the rank decides on both sides is not in a block's memory at all.
        let both = from.block.iter().zip(&to.block).filter(|(a, b)| a == b);
        let blocks = both.fold(0, |bits, (basis, _)| bits | basis);
        if blocks != 0 {
            let [from, to] = [from, to].map(|layout| layout.without_bits(blocks));
            let squeezed = (0..blocks.trailing_zeros()).fold(0, |low, i| low | avoid & 1 << i);
            debug_assert_eq!(squeezed, avoid, "a part of a tile is not cut where blocks cut it");
            return SharedPlan::staged(&from, &to, bits, avoid);
        }
        let offsets = Offsets::new(&scratch_bases(from, to, bits, avoid));
        SharedPlan {
            elements: from.shape.numel() as u32,
            bits,
            store: SharedAccess::new(from, &offsets, bits, 0),
            load: SharedAccess::new(to, &offsets, bits, registers_along(to, avoid)),
        }
    }

    /// Bytes of shared memory.
    pub fn bytes(&self) -> u32 {
        self.elements * self.bits / 8
    }
}

/// The register bits of a layout whose bases have one of these bits, as a mask.
pub(super) fn registers_along(layout: &LinearLayout, flat: u32) -> u32 {
    let bits = layout.reg.iter().enumerate().filter(|&(_, &basis)| basis & flat != 0);
    bits.fold(0, |mask, (i, _)| mask | 1 << i)
}

/// The offset of each element, in elements: the offset of each bit of the flat index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Offsets(pub(super) Vec<u32>);

impl Offsets {
    /// The inverse of a scratch's bases.
    fn new(bases: &[u32]) -> Offsets {
        let echelon = Echelon::new(bases);
        let offset =
            |bit: usize| echelon.solve(1 << bit).expect("the bases of a scratch span the tile");
        Offsets((0..bases.len()).map(offset).collect())
    }

    pub(super) fn of(&self, flat: u32) -> u32 {
        f2::combine(&self.0, flat)
    }
}

impl SharedAccess {
    /// Vectors do not go along the register bits in `avoid`.
    pub(super) fn new(
        layout: &LinearLayout,
        offsets: &Offsets,
        bits: u32,
        avoid: u32,
    ) -> SharedAccess {
        let reg: Vec<u32> = layout.reg.iter().map(|&b| offsets.of(b)).collect();
        let lane: Vec<u32> = layout.lane.iter().map(|&b| offsets.of(b)).collect();
        let warp: Vec<u32> = layout.warp.iter().map(|&b| offsets.of(b)).collect();
        let block: Vec<u32> = layout.block.iter().map(|&b| offsets.of(b)).collect();
        let limit = (VECTOR_BITS / bits).ilog2();
        let vector: Vec<u32> = vector_registers(&reg, &[&lane, &warp, &block], limit)
            .into_iter()
            .take_while(|bit| bit & avoid == 0)
            .collect();
        let groups = layout
            .groups(&vector)
            .into_iter()
            .map(|regs| SharedGroup { offset: f2::combine(&reg, regs[0]), regs })
            .collect();
        let bytes = (1 << vector.len()) * bits / 8;
        let ways = conflict_ways(&lane, bits / 8, bytes);
        let copies =
            HwIndex { lane: layout.free_lanes(), warp: layout.free_warps(), ..HwIndex::default() };
        let lane = lane.try_into().expect("a layout has five lane bits");
        SharedAccess { unit: SharedUnit::Vector, lane, warp, block, groups, copies, ways }
    }
}

/// The register bits at offsets 1, 2, 4, .. as far as no other basis touches those offset bits, as
/// masks of the register number.
fn vector_registers(reg: &[u32], threads: &[&[u32]], limit: u32) -> Vec<u32> {
    let threads_touch = |bit: u32| threads.iter().any(|bases| bases.iter().any(|o| o & bit != 0));
    let mut vector = Vec::new();
    for bit in (0..limit).map(|i| 1 << i) {
        let mut touching = (0..reg.len()).filter(|&i| reg[i] & bit != 0);
        match (touching.next(), touching.next()) {
            (Some(i), None) if reg[i] == bit && !threads_touch(bit) => vector.push(1 << i),
            _ => break,
        }
    }
    vector
}

/// Predicts the bank conflicts of one warp's access of `access` bytes a lane, lanes at these element
/// offsets: 1 where there are none.
///
/// Hardware serves 128 bytes at a time, so a phase is the first `128 / access` lanes. Lanes that
/// differ in bytes of one word, or in nothing, do not conflict; those that differ only above the 128
/// bytes do.
pub fn conflict_ways(lanes: &[u32], element: u32, access: u32) -> u32 {
    let phase = (128 / access.max(4)).ilog2().min(LANE_BITS as u32) as usize;
    let words = lanes[..phase].iter().map(|&offset| offset * element / 4);
    let all: Vec<u32> = words.clone().collect();
    let banks: Vec<u32> = words.map(|word| word & 31).collect();
    1 << (Echelon::new(&all).rank() - Echelon::new(&banks).rank())
}

/// Where element `j` of a group comes from in an access of [`SharedUnit::Matrix`]: the lane that names
/// its row, and its place in that row.
#[cfg(test)]
pub(super) fn matrix_element(access: &SharedAccess, bits: u32, lane: u32, j: u32) -> (u32, u32) {
    let packed = 32 / bits;
    let (matrix, inner) = (j / packed, j % packed);
    // Along a row four lanes have four bytes each; across, a pair of lanes' rows is a lane's pair.
    let (row, column) = match access.unit {
        SharedUnit::Matrix { transposed: true } => (2 * (lane & 3) + inner, lane >> 2),
        SharedUnit::Matrix { transposed: false } | SharedUnit::Vector => {
            (lane >> 2, packed * (lane & 3) + inner)
        }
    };
    (8 * matrix + row, column)
}

/// The tile bits, or sums of them, behind each bit of the offset.
fn scratch_bases(
    from: &LinearLayout,
    to: &LinearLayout,
    element_bits: u32,
    avoid: u32,
) -> Vec<u32> {
    let dim = bits(from.shape);
    let vector = vector_bases(from, to, element_bits, avoid);
    let vector_bits = element_bits << vector.len();
    // Lanes that one phase of an access serves, less those that vary within a vector.
    let phase = LANE_BITS - (vector_bits / 32).max(1).ilog2().min(LANE_BITS as u32) as usize;
    let served = |lanes: &[u32]| -> Vec<u32> {
        let in_phase = lanes[..phase].iter().copied();
        in_phase.filter(|b| *b != 0 && !vector.contains(b)).collect()
    };
    let (a, b) = (served(&from.lane), served(&to.lane));
    let banks = ((BANK_ROW_BITS / vector_bits).ilog2() as usize).min(dim - vector.len());
    let wanted = dim - vector.len() - banks;
    let segment = segment_bases(dim, wanted, [&vector, &a, &b]);
    let both: Vec<u32> = vector.iter().chain(&segment).copied().collect();
    let bank = Echelon::new(&both).complement(dim);
    vector.iter().chain(&bank).chain(&segment).copied().collect()
}

/// Registers of both sides, up to 128 bits; where those are less than a word, bases that fill it.
fn vector_bases(from: &LinearLayout, to: &LinearLayout, element_bits: u32, avoid: u32) -> Vec<u32> {
    let common = |a: &[u32], b: &[u32]| -> Vec<u32> {
        let usable = |basis: &&u32| **basis & !avoid != 0 && b.contains(basis);
        a.iter().filter(usable).copied().collect()
    };
    let limit = (VECTOR_BITS / element_bits).ilog2() as usize;
    let mut vector = common(&from.reg, &to.reg);
    vector.truncate(limit);
    let word = (32 / element_bits).max(1).ilog2() as usize;
    let fill = [
        common(&from.reg, &to.warp),
        common(&to.reg, &from.warp),
        from.warp.clone(),
        to.warp.clone(),
    ];
    for basis in fill.into_iter().flatten() {
        if vector.len() < word && basis != 0 && !vector.contains(&basis) {
            vector.push(basis);
        }
    }
    vector
}

/// `wanted` bases above the banks: tile bits that no lane of a phase needs, then sums of a lane basis
/// of each side, then lane bases themselves, which are the conflicts that can't be avoided.
fn segment_bases(dim: usize, wanted: usize, [vector, a, b]: [&Vec<u32>; 3]) -> Vec<u32> {
    let used = |basis: &u32| vector.contains(basis) || a.contains(basis) || b.contains(basis);
    let free = (0..dim).map(|i| 1 << i).filter(|basis| !used(basis));
    let mut segment: Vec<u32> = free.take(wanted).collect();
    let missing = wanted - segment.len();
    let mut only_a: Vec<u32> = a.iter().copied().filter(|basis| !b.contains(basis)).collect();
    let mut only_b: Vec<u32> = b.iter().copied().filter(|basis| !a.contains(basis)).collect();
    if only_a.len() > only_b.len() {
        std::mem::swap(&mut only_a, &mut only_b);
    }
    let plain = missing.saturating_sub(only_a.len()).min(only_a.len());
    let pairs = (plain..only_a.len()).map(|i| only_a[i] ^ only_b[i]);
    let rest = only_a[..plain].iter().chain(&only_b[..plain]).chain(a.iter()).copied();
    for basis in pairs.chain(rest) {
        let mut all: Vec<u32> = vector.iter().chain(&segment).copied().collect();
        all.push(basis);
        if segment.len() < wanted && Echelon::new(&all).rank() == all.len() {
            segment.push(basis);
        }
    }
    segment
}

#[cfg(test)]
impl SharedPlan {
    /// Stores every element's own index and loads the one at `want`'s place; for tests.
    pub(super) fn check_element(&self, from: &LinearLayout, to: &LinearLayout, want: u32) -> u32 {
        let offset = |access: &SharedAccess, layout: &LinearLayout| {
            let at = layout.solve(want).unwrap();
            let group = access.groups.iter().find(|g| g.regs.contains(&at.reg)).unwrap();
            let j = group.regs.iter().position(|&r| r == at.reg).unwrap() as u32;
            let base = group.offset
                ^ f2::combine(&access.lane, at.lane)
                ^ f2::combine(&access.warp, at.warp);
            assert_eq!(base % group.regs.len() as u32, 0);
            base + j
        };
        let (stored, loaded) = (offset(&self.store, from), offset(&self.load, to));
        assert!(stored < self.elements);
        if stored == loaded { want } else { u32::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Shape;
    use crate::layout::blocked::{Blocked, blocked};
    use crate::layout::linear::LANES;
    use crate::layout::mma;

    /// Counts the words of each bank that one phase touches: the definition.
    fn brute_ways(access: &SharedAccess, element: u32) -> u32 {
        let vector = access.groups[0].regs.len() as u32 * element;
        let phase = (128 / vector.max(4)).min(LANES);
        let mut worst = 1;
        for group in &access.groups {
            for first in (0..LANES).step_by(phase as usize) {
                let mut words = std::collections::BTreeSet::new();
                for lane in first..first + phase {
                    let start = (group.offset ^ f2::combine(&access.lane, lane)) * element;
                    words.extend((start..start + vector).map(|byte| byte / 4));
                }
                let in_bank = |bank| words.iter().filter(|w| *w % 32 == bank).count() as u32;
                worst = worst.max((0..32).map(in_bank).max().unwrap());
            }
        }
        worst
    }

    fn check(from: &LinearLayout, to: &LinearLayout, bits: u32) -> SharedPlan {
        let plan = SharedPlan::new(from, to, bits);
        let mut seen = vec![false; plan.elements as usize];
        for flat in 0..plan.elements {
            assert_eq!(plan.check_element(from, to, flat), flat);
            let at = from.solve(flat).unwrap();
            let group = plan.store.groups.iter().find(|g| g.regs.contains(&at.reg)).unwrap();
            let j = group.regs.iter().position(|&r| r == at.reg).unwrap() as u32;
            let offset = (group.offset
                ^ f2::combine(&plan.store.lane, at.lane)
                ^ f2::combine(&plan.store.warp, at.warp))
                + j;
            assert!(!std::mem::replace(&mut seen[offset as usize], true), "two at {offset}");
        }
        assert_eq!(plan.store.ways, brute_ways(&plan.store, bits / 8), "store {from:?} {to:?}");
        assert_eq!(plan.load.ways, brute_ways(&plan.load, bits / 8), "load {from:?} {to:?}");
        plan
    }

    fn columns(vector: u32) -> Blocked {
        Blocked {
            per_thread: vec![vector, 1],
            lanes: vec![128 / vector, vector / 4],
            warps: vec![1, 4],
            order: vec![0, 1],
        }
    }

    #[test]
    fn usual_conversions_have_no_conflicts() {
        let shape = Shape::new(&[128, 128]);
        let rows = |vector, lanes| blocked(shape, &Blocked::rows(vector, lanes, 4));
        let by_columns = blocked(shape, &columns(8));
        let mma = mma::accumulator(shape, [2, 2], 4);
        let wgmma = mma::wgmma_accumulator(shape, 128, [4, 1]);
        let a22 = mma::operand_a(shape, [2, 2], 2, 4);
        let cases = [
            ("rows to columns", rows(8, 16), by_columns.clone(), 16),
            ("columns to rows", by_columns, rows(4, 32), 32),
            ("rows to mma", rows(8, 16), mma.clone(), 16),
            ("mma to rows", mma.clone(), rows(8, 16), 16),
            ("wgmma to rows, 16 bits", wgmma.clone(), rows(8, 16), 16),
            ("wgmma to rows, 32 bits", wgmma, rows(4, 32), 32),
            ("mma to operand", mma, a22, 16),
        ];
        for (name, from, to, bits) in cases {
            let plan = check(&from, &to, bits);
            assert_eq!((plan.store.ways, plan.load.ways), (1, 1), "{name}");
        }
    }

    #[test]
    fn any_pair_is_right_whatever_its_conflicts() {
        for shape in [vec![8, 8], vec![64, 32], vec![256, 4], vec![1, 512], vec![16, 256]] {
            let shape = Shape::new(&shape);
            let layouts: Vec<LinearLayout> = [[0, 1], [1, 0]]
                .iter()
                .flat_map(|order| [1, 2, 8].map(|vector| (order, vector)))
                .map(|(order, vector)| Blocked::cover(shape, order, vector, 4))
                .map(|parameters| crate::layout::blocked_in(shape, &parameters, 4))
                .collect();
            for (from, to) in layouts.iter().flat_map(|a| layouts.iter().map(move |b| (a, b))) {
                for bits in [8, 16, 32, 64] {
                    check(from, to, bits);
                }
            }
        }
    }
}
