//! Distributed layouts: which thread holds which element of a tile, as a linear map over F2.
//!
//! A hardware index is (register, lane, warp, block of the cluster); an element is its flat row-major index in the tile,
//! whose extents are powers of two. The element of a hardware index is the XOR of one basis for every
//! set bit of the index. So slicing, transposing, comparing and converting layouts are bit operations
//! on a handful of words, exact and testable, and no kind of layout is a special case.
//!
//! A 4x4 tile with `reg = [1, 8]`, `lane = [2, 4]`: two columns, then two rows of a lane's own.
//! Entries are `lane.register`:
//!
//! ```text
//!          col 0  col 1  col 2  col 3
//! row 0     0.0    0.1    1.0    1.1
//! row 1     2.0    2.1    3.0    3.1
//! row 2     0.2    0.3    1.2    1.3
//! row 3     2.2    2.3    3.2    3.3
//! ```
//!
//! Element (3, 2) has the flat index 14 = 8 ^ 4 ^ 2: register bit 1, lane bits 1 and 0.
//!
//! Every basis is a single bit or zero and no bit occurs twice ([`LinearLayout::check`]): each bit of
//! the tile belongs to one bit of the hardware. A zero lane, warp or block basis *replicates*: both
//! values of that hardware bit hold the same element. Registers are never replicated.
//!
//! Where a program is a cluster of blocks, `block` has one basis for each bit of a block's rank in its
//! cluster, else none. Bit `i` of the rank adds `block[i]` to the element, as warp bits do: blocks whose
//! rank differs in a bit with a basis of its own hold different parts of the tile, and those whose rank
//! differs in a bit with basis 0 hold copies. Shared memory and barriers are a block's own; only what
//! reduces along an axis that has block bits goes from block to block.

use std::fmt;

use super::f2;
use crate::ir::Shape;

/// Lanes of a warp, as bits.
pub const LANE_BITS: usize = 5;
/// Lanes of a warp.
pub const LANES: u32 = 1 << LANE_BITS;

/// Where an element is: a register of a lane of a warp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HwIndex {
    /// The register.
    pub reg: u32,
    /// The lane of the warp, below 32.
    pub lane: u32,
    /// The warp of the block.
    pub warp: u32,
    /// The block's rank in its cluster.
    pub block: u32,
}

/// Which element of a tile each register of each thread holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinearLayout {
    /// The tile's extents, powers of two.
    pub shape: Shape,
    /// One basis per bit of the register number; none is zero.
    pub reg: Vec<u32>,
    /// One basis per bit of the lane, always [`LANE_BITS`] of them.
    pub lane: Vec<u32>,
    /// One basis per bit of the warp.
    pub warp: Vec<u32>,
    /// One basis per bit of the block's rank in its cluster.
    pub block: Vec<u32>,
}

impl LinearLayout {
    /// The layout in which every thread holds the whole tile.
    pub fn replicated(shape: Shape, num_warps: u32) -> LinearLayout {
        LinearLayout {
            shape,
            reg: (0..bits(shape)).map(|i| 1 << i).collect(),
            lane: vec![0; LANE_BITS],
            warp: vec![0; num_warps.ilog2() as usize],
            block: vec![],
        }
    }

    /// The same in each of `blocks` blocks of a cluster, which all hold copies.
    pub fn in_cluster(mut self, blocks: u32) -> LinearLayout {
        self.block.resize(blocks.ilog2() as usize, 0);
        self
    }

    /// The layout of a larger tile of which each block of a cluster holds a contiguous part like this
    /// tile: `split[axis]` parts along each axis. Ranks go along the last axis first; what the split
    /// leaves of `blocks` are copies.
    ///
    /// ```text
    /// [4, 8] over 4 blocks, split [1, 4]   ->   [4, 32], block [8, 16]
    /// ```
    pub fn over_blocks(&self, split: &[u32], blocks: u32) -> LinearLayout {
        self.over_blocks_by(split, blocks, self.shape)
    }

    /// [`LinearLayout::over_blocks`] of a tile larger than `unit`, which each block gets in turns of
    /// that shape: the parts of a block are contiguous only in it.
    ///
    /// ```text
    /// [1, 8] over 2 blocks by [1, 4]   ->   [1, 16], blocks 0000 1111 0000 1111
    /// ```
    pub fn over_blocks_by(&self, split: &[u32], blocks: u32, unit: Shape) -> LinearLayout {
        let low = |axis: usize| unit.extent(axis).min(self.shape.extent(axis)).ilog2();
        let axes = || 0..self.shape.rank();
        let extents: Vec<usize> =
            axes().map(|axis| self.shape.extent(axis) * split[axis] as usize).collect();
        let shape = Shape::new(&extents);
        let mut layout = self.map(shape, |basis| {
            let moved = |axis: usize| {
                let at = self.coord(basis, axis);
                let above = if at >> low(axis) == 0 { 0 } else { split[axis].ilog2() };
                at << above << axis_shift(shape, axis)
            };
            axes().map(moved).sum()
        });
        for axis in axes().rev() {
            let first = axis_shift(shape, axis) + low(axis);
            layout.block.extend((0..split[axis].ilog2()).map(|i| 1 << (first + i)));
        }
        layout.in_cluster(blocks)
    }

    /// The layout of one block's part, where the flat index loses the bits in `blocks`, each of which
    /// the rank decides: a row of what is left.
    pub(super) fn without_bits(&self, blocks: u32) -> LinearLayout {
        let squeeze = |basis: u32| {
            let bits = (0..u32::BITS).filter(|i| blocks >> i & 1 == 0);
            bits.enumerate().fold(0, |flat, (to, from)| flat | (basis >> from & 1) << to)
        };
        let left = self.shape.numel() >> blocks.count_ones();
        self.map(Shape::new(&[left]), squeeze)
    }

    /// The flat index of the element at a hardware index.
    pub fn apply(&self, at: HwIndex) -> u32 {
        f2::combine(&self.reg, at.reg)
            ^ f2::combine(&self.lane, at.lane)
            ^ f2::combine(&self.warp, at.warp)
            ^ f2::combine(&self.block, at.block)
    }

    /// The coordinates of a flat index, outermost first.
    pub fn coords(&self, flat: u32) -> Vec<u32> {
        (0..self.shape.rank())
            .map(|axis| flat >> self.shift(axis) & (self.shape.extent(axis) as u32 - 1))
            .collect()
    }

    /// The part of a flat index, or of a basis, along one axis.
    pub fn coord(&self, flat: u32, axis: usize) -> u32 {
        flat >> self.shift(axis) & (self.shape.extent(axis) as u32 - 1)
    }

    /// The position of the lowest bit of `axis` in a flat index.
    pub fn shift(&self, axis: usize) -> u32 {
        axis_shift(self.shape, axis)
    }

    /// Registers per thread.
    pub fn num_regs(&self) -> u32 {
        1 << self.reg.len()
    }

    /// Warps of the block.
    pub fn num_warps(&self) -> u32 {
        1 << self.warp.len()
    }

    /// Blocks of the cluster.
    pub fn num_blocks(&self) -> u32 {
        1 << self.block.len()
    }

    /// Lane bits that replicate, as a mask.
    pub fn free_lanes(&self) -> u32 {
        zero_bits(&self.lane)
    }

    /// Warp bits that replicate, as a mask.
    pub fn free_warps(&self) -> u32 {
        zero_bits(&self.warp)
    }

    /// Bits of the block's rank that replicate, as a mask.
    pub fn free_blocks(&self) -> u32 {
        zero_bits(&self.block)
    }

    /// The bits of the flat index that the block's rank decides.
    pub fn block_bits(&self) -> u32 {
        self.block.iter().fold(0, |bits, basis| bits | basis)
    }

    /// Where an element is; replicated bits are 0. None past the tile.
    pub fn solve(&self, flat: u32) -> Option<HwIndex> {
        let all: Vec<u32> = self.bases().collect();
        let mut mask = f2::Echelon::new(&all).solve(flat)?;
        let mut take = |bases: &[u32]| {
            let part = mask & ((1 << bases.len()) - 1);
            mask >>= bases.len();
            part
        };
        Some(HwIndex {
            reg: take(&self.reg),
            lane: take(&self.lane),
            warp: take(&self.warp),
            block: take(&self.block),
        })
    }

    /// The bits of hardware that hold `axis`, lowest bit of the axis first.
    pub fn axis_bits(&self, axis: usize) -> Vec<HwBit> {
        let shift = self.shift(axis);
        (0..self.shape.extent(axis).ilog2()).filter_map(|i| self.holder(1 << (shift + i))).collect()
    }

    /// The bit of hardware whose basis this is.
    pub fn holder(&self, basis: u32) -> Option<HwBit> {
        let find = |bases: &[u32]| bases.iter().position(|&b| b == basis);
        find(&self.reg)
            .map(HwBit::Reg)
            .or_else(|| find(&self.lane).map(HwBit::Lane))
            .or_else(|| find(&self.warp).map(HwBit::Warp))
            .or_else(|| find(&self.block).map(HwBit::Block))
    }

    /// Every basis: of registers, lanes, warps, then blocks.
    fn bases(&self) -> impl Iterator<Item = u32> {
        self.reg.iter().chain(&self.lane).chain(&self.warp).chain(&self.block).copied()
    }

    /// Checks the invariants: bases are single bits or zero, no bit twice, registers not zero, and
    /// every element held.
    ///
    /// # Errors
    /// What is wrong, for a developer.
    pub fn check(&self) -> Result<(), String> {
        if !self.shape.extents().iter().all(|e| e.is_power_of_two()) {
            return Err(format!("extents of {} are not powers of two", self.shape));
        }
        if self.lane.len() != LANE_BITS {
            return Err(format!("{} lane bits", self.lane.len()));
        }
        if self.reg.contains(&0) {
            return Err("a register basis is zero".to_owned());
        }
        let mut seen = 0_u32;
        for basis in self.bases() {
            if basis & seen != 0 || basis.count_ones() > 1 {
                return Err(format!("basis {basis} is not a bit of its own"));
            }
            seen |= basis;
        }
        if seen != (1_u32 << bits(self.shape)) - 1 {
            return Err(format!("elements of {} are not all held: {seen:#b}", self.shape));
        }
        Ok(())
    }

    fn map(&self, shape: Shape, f: impl Fn(u32) -> u32) -> LinearLayout {
        LinearLayout {
            shape,
            reg: self.reg.iter().map(|&b| f(b)).filter(|&b| b != 0).collect(),
            lane: self.lane.iter().map(|&b| f(b)).collect(),
            warp: self.warp.iter().map(|&b| f(b)).collect(),
            block: self.block.iter().map(|&b| f(b)).collect(),
        }
    }

    /// The layout without `axis`: threads that differ only along it hold copies.
    pub fn slice(&self, axis: usize) -> LinearLayout {
        let (shift, extent) = (self.shift(axis), self.shape.extent(axis).ilog2());
        self.map(self.shape.without(axis), |basis| {
            let low = basis & ((1 << shift) - 1);
            low | basis >> (shift + extent) << shift
        })
    }

    /// The layout with an axis of extent 1 before `axis`.
    pub fn expand_dims(&self, axis: usize) -> LinearLayout {
        self.map(self.shape.with(axis, 1), |basis| basis)
    }

    /// The layout of an operand that broadcasts to this layout: axes of extent 1 lose their bases.
    pub fn project(&self, operand: Shape) -> LinearLayout {
        self.map(operand, |basis| self.project_flat(operand, basis))
    }

    /// The flat index, in an operand that broadcasts to this layout's shape, of a flat index in it.
    pub fn project_flat(&self, operand: Shape, flat: u32) -> u32 {
        let kept = (0..operand.rank()).filter(|&axis| operand.extent(axis) != 1);
        kept.map(|axis| self.coord(flat, axis) << axis_shift(operand, axis)).sum()
    }

    /// The layout of the transposed tile: its axis `i` is this one's axis `perm[i]`.
    pub fn transpose(&self, perm: &[u8]) -> LinearLayout {
        let extents: Vec<usize> = perm.iter().map(|&p| self.shape.extent(p as usize)).collect();
        let shape = Shape::new(&extents);
        self.map(shape, |basis| {
            let axes = perm.iter().enumerate();
            axes.map(|(i, &p)| self.coord(basis, p as usize) << axis_shift(shape, i)).sum()
        })
    }

    /// The layout of the tile whose transpose by `perm` has this layout.
    pub fn untranspose(&self, perm: &[u8]) -> LinearLayout {
        self.transpose(&inverse(perm))
    }

    /// The same elements under another shape, in row-major order.
    pub fn reshape(&self, shape: Shape) -> LinearLayout {
        self.map(shape, |basis| basis)
    }

    /// The layout of two joined tiles: the new last axis is the lowest register bit.
    pub fn join(&self) -> LinearLayout {
        let shape = self.shape.with(self.shape.rank(), 2);
        let mut joined = self.map(shape, |basis| basis << 1);
        joined.reg.insert(0, 1);
        joined
    }

    /// The layout of the halves of a tile, if both halves are in the same threads.
    pub fn split(&self) -> Option<LinearLayout> {
        matches!(self.holder(1), Some(HwBit::Reg(_)))
            .then(|| self.map(self.shape.without(self.shape.rank() - 1), |basis| basis >> 1))
    }

    /// How a reduction along `axis` goes over registers, lanes and warps.
    pub fn reduction(&self, axis: usize) -> Reduction {
        let along = |bases: &[u32]| {
            let bits = bases.iter().enumerate().filter(|&(_, &b)| self.coord(b, axis) != 0);
            bits.fold(0, |mask, (i, _)| mask | 1 << i)
        };
        Reduction {
            result: self.slice(axis),
            regs: along(&self.reg),
            lanes: along(&self.lane),
            warps: along(&self.warp),
            blocks: along(&self.block),
        }
    }

    /// The registers of each vector of `1 << k` elements that lie next to each other along `axis`,
    /// for the largest such vector of at most `limit` elements.
    ///
    /// Groups and the registers in them go by rising index, so that group 0 begins with register 0.
    pub fn vectors(&self, axis: usize, limit: u32) -> Vec<Vec<u32>> {
        let run = self.axis_bits(axis).into_iter().map_while(HwBit::reg);
        let vector: Vec<u32> = run.take(limit.max(1).ilog2() as usize).map(|i| 1 << i).collect();
        self.groups(&vector)
    }

    /// The registers in groups: within a group the set bits of `vector` vary, first one fastest.
    pub(super) fn groups(&self, vector: &[u32]) -> Vec<Vec<u32>> {
        let mask: u32 = vector.iter().sum();
        (0..self.num_regs())
            .filter(|reg| reg & mask == 0)
            .map(|reg| (0..1 << vector.len()).map(|i| reg | f2::combine(vector, i)).collect())
            .collect()
    }
}

/// One bit of the hardware index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HwBit {
    /// A bit of the register number.
    Reg(usize),
    /// A bit of the lane.
    Lane(usize),
    /// A bit of the warp.
    Warp(usize),
    /// A bit of the block's rank in its cluster.
    Block(usize),
}

impl HwBit {
    /// The bit of the register number, if it is one.
    pub fn reg(self) -> Option<usize> {
        match self {
            HwBit::Reg(i) => Some(i),
            HwBit::Lane(_) | HwBit::Warp(_) | HwBit::Block(_) => None,
        }
    }
}

/// What a reduction along an axis goes over: combine registers, then lanes, then warps and blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// The layout of the result, replicated where lanes, warps and blocks were reduced.
    pub result: LinearLayout,
    /// Register bits along the axis, as a mask of the operand's register number.
    pub regs: u32,
    /// Lane bits along the axis: combine with the lane XOR each bit.
    pub lanes: u32,
    /// Warp bits along the axis: combine through shared memory.
    pub warps: u32,
    /// Bits of the block's rank along the axis: combine through the blocks' shared memory.
    pub blocks: u32,
}

/// The number of bits of a flat index into the shape.
pub fn bits(shape: Shape) -> usize {
    shape.numel().ilog2() as usize
}

/// The position of the lowest bit of `axis` in a flat index into the shape.
pub fn axis_shift(shape: Shape, axis: usize) -> u32 {
    (axis + 1..shape.rank()).map(|inner| shape.extent(inner).ilog2()).sum()
}

/// The inverse of a permutation.
pub fn inverse(perm: &[u8]) -> Vec<u8> {
    let mut inverse = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        inverse[p as usize] = i as u8;
    }
    inverse
}

fn zero_bits(bases: &[u32]) -> u32 {
    bases.iter().enumerate().filter(|&(_, &b)| b == 0).fold(0, |mask, (i, _)| mask | 1 << i)
}

impl fmt::Display for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reg {:?} lane {:?} warp {:?}", self.reg, self.lane, self.warp)?;
        match self.block.is_empty() {
            true => Ok(()),
            false => write!(f, " block {:?}", self.block),
        }
    }
}

impl fmt::Debug for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.shape)?;
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> LinearLayout {
        let mut layout = LinearLayout::replicated(Shape::new(&[4, 4]), 1);
        layout.reg = vec![1, 8];
        layout.lane = vec![2, 4, 0, 0, 0];
        layout
    }

    fn all(layout: &LinearLayout) -> impl Iterator<Item = HwIndex> + use<> {
        let (regs, warps) = (layout.num_regs(), layout.num_warps());
        (0..regs).flat_map(move |reg| {
            (0..LANES).flat_map(move |lane| {
                (0..warps).map(move |warp| HwIndex { reg, lane, warp, block: 0 })
            })
        })
    }

    #[test]
    fn the_table_of_the_header() {
        let layout = small();
        layout.check().unwrap();
        let at =
            |reg, lane| layout.coords(layout.apply(HwIndex { reg, lane, ..HwIndex::default() }));
        assert_eq!(at(2, 3), [3, 2]);
        assert_eq!(at(1, 0), [0, 1]);
        assert_eq!(at(0, 2), [1, 0]);
        assert_eq!(at(0, 2 + 16), [1, 0]);
        assert_eq!(layout.solve(14), Some(HwIndex { reg: 2, lane: 3, ..HwIndex::default() }));
        assert_eq!(layout.solve(16), None);
    }

    #[test]
    fn slices_hold_the_remaining_coordinate() {
        let layout = small();
        for axis in 0..2 {
            let slice = layout.slice(axis);
            slice.check().unwrap();
            let reduction = layout.reduction(axis);
            for at in all(&layout) {
                // Registers of the slice are the operand's without the reduced bits.
                let mut reg = 0;
                let mut next = 0;
                for bit in 0..layout.reg.len() {
                    if reduction.regs >> bit & 1 == 0 {
                        reg |= (at.reg >> bit & 1) << next;
                        next += 1;
                    }
                }
                let kept = layout.coords(layout.apply(at))[1 - axis];
                assert_eq!(slice.coords(slice.apply(HwIndex { reg, ..at })), [kept]);
            }
        }
    }

    #[test]
    fn transposes_swap_coordinates() {
        let layout = LinearLayout {
            shape: Shape::new(&[2, 8, 4]),
            reg: vec![1, 16],
            lane: vec![8, 4, 2, 32, 0],
            warp: vec![0],
            block: vec![],
        };
        layout.check().unwrap();
        let perm = [2, 0, 1];
        let transposed = layout.transpose(&perm);
        transposed.check().unwrap();
        for at in all(&layout) {
            let (a, b) = (layout.coords(layout.apply(at)), transposed.coords(transposed.apply(at)));
            assert_eq!(b, [a[2], a[0], a[1]]);
        }
        assert_eq!(transposed.untranspose(&perm), layout);
    }

    #[test]
    fn projections_drop_the_broadcast_axis() {
        let projected = small().project(Shape::new(&[4, 1]));
        projected.check().unwrap();
        assert_eq!(projected.reg, [2]);
        assert_eq!(projected.lane, [0, 1, 0, 0, 0]);
    }

    #[test]
    fn joins_and_splits_are_inverse() {
        let joined = small().join();
        joined.check().unwrap();
        assert_eq!(joined.shape, Shape::new(&[4, 4, 2]));
        assert_eq!(joined.split(), Some(small()));
        let mut lanes = joined.clone();
        std::mem::swap(&mut lanes.reg[0], &mut lanes.lane[0]);
        assert_eq!(lanes.split(), None);
    }

    #[test]
    fn vectors_follow_the_contiguous_axis() {
        let layout = LinearLayout {
            shape: Shape::new(&[4, 64]),
            reg: vec![64, 1, 2, 128],
            lane: vec![4, 8, 16, 32, 0],
            warp: vec![],
            block: vec![],
        };
        layout.check().unwrap();
        assert_eq!(layout.vectors(1, 8)[..2], [vec![0, 2, 4, 6], vec![1, 3, 5, 7]]);
        assert_eq!(layout.vectors(1, 2)[0], [0, 2]);
        assert_eq!(layout.vectors(0, 4)[0], [0, 1, 8, 9]);
        assert_eq!(layout.vectors(1, 1).len(), 16);
    }

    #[test]
    fn a_cluster_splits_a_tile_into_contiguous_parts() {
        let layout = small().over_blocks(&[2, 2], 8);
        layout.check().unwrap();
        assert_eq!((layout.shape, &layout.block[..]), (Shape::new(&[8, 8]), &[4, 32, 0][..]));
        for at in all(&small()) {
            let inside = small().coords(small().apply(at));
            for block in 0..8 {
                let place = layout.coords(layout.apply(HwIndex { block, ..at }));
                assert_eq!(place, [inside[0] + (block >> 1 & 1) * 4, inside[1] + (block & 1) * 4]);
            }
        }
        let row = LinearLayout::replicated(Shape::new(&[64]), 1);
        let turns = row.over_blocks_by(&[2], 2, Shape::new(&[16]));
        turns.check().unwrap();
        assert_eq!((turns.reg, turns.block), (vec![1, 2, 4, 8, 32, 64], vec![16]));
        let reduction = layout.reduction(1);
        assert_eq!((reduction.blocks, layout.free_blocks()), (1, 4));
        assert_eq!(reduction.result.block, [0, 4, 0]);
        let part = layout.without_bits(layout.block_bits());
        assert_eq!((part.reg, part.lane), (small().reg, small().lane));
    }

    #[test]
    fn broken_layouts_are_named() {
        let mut layout = small();
        layout.lane[0] = 1;
        assert!(layout.check().unwrap_err().contains("not a bit of its own"));
        let mut layout = small();
        layout.lane[0] = 0;
        assert!(layout.check().unwrap_err().contains("not all held"));
    }
}
