//! Coalescing: the layout that each memory access would like, with neighbouring lanes at neighbouring addresses and
//! accesses as wide as alignment and mask allow.
//!
//! All accesses to tiles of one shape that run along the same axis get one layout, so that an elementwise kernel, or one
//! that works on rows, needs no conversion at all.
//!
//! ```text
//! load f32[1024], step 1, divisor 16, 4 warps  ->  4 elements a thread, lanes, warps, then again
//!   reg [1, 2, 512]  lane [4, 8, 16, 32, 64]  warp [128, 256]
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::blocked::{Blocked, blocked_in};
use super::linear::{HwBit, LinearLayout};
use crate::analysis::AxisAnalysis;
use crate::ir::{Func, Op, OpKind, Predicate, Shape, Value};

/// What memory reads and writes at once.
const SECTOR_BYTES: u32 = 32;

/// What an access to memory would like.
#[derive(Clone, Debug)]
pub(super) struct CoalescedAccess {
    /// The shape of the tile.
    pub shape: Shape,
    /// The axes, from the one along which addresses are closest.
    pub order: Vec<usize>,
    /// The axis along which addresses are consecutive, if there is one.
    pub consecutive: Option<usize>,
    /// The most elements of one access.
    pub vector: u32,
    /// Bytes of an element.
    pub size: u32,
}

/// The operands of an access: address, then data and mask where there are some.
pub(super) struct MemoryOp {
    pub ptr: Value,
    pub mask: Option<Value>,
}

/// The address and mask of a load, store or atomic of tiles.
pub(super) fn memory_op(func: &Func, op: Op) -> Option<MemoryOp> {
    let data = func.op(op);
    if !data.kind.is_pointer_access() {
        return None;
    }
    let mask = data.kind.mask_operand().and_then(|number| data.operands.get(number));
    let ptr = data.operands[0];
    (!func.tile(ptr).shape.is_scalar()).then(|| MemoryOp { ptr, mask: mask.copied() })
}

impl CoalescedAccess {
    pub(super) fn of(func: &Func, analysis: &AxisAnalysis, memory: &MemoryOp) -> CoalescedAccess {
        let ty = func.tile(memory.ptr);
        let info = analysis.of_value(func, memory.ptr);
        let mut order: Vec<usize> = (0..ty.shape.rank()).rev().collect();
        // Consecutive first, then small steps, then unknown ones, then axes along which the address
        // stays; the last axis first among equals.
        order.sort_by_key(|&axis| {
            let run = info.runs[axis];
            match (run.step, run.length) {
                (_, 1) if ty.shape.extent(axis) == 1 => (3, 0),
                (_, 1) => (1, 1 << 20),
                (0, _) => (2, 0),
                (step, _) => (u64::from(step != 1), step.unsigned_abs()),
            }
        });
        let first = order[0];
        let consecutive = (info.runs[first].step == 1).then_some(first);
        let vector = analysis.vector(func, memory.ptr, memory.mask, first) as u32;
        let size = ty.dtype().bytes() as u32;
        CoalescedAccess { shape: ty.shape, order, consecutive, vector, size }
    }

    /// Whether an access in this layout makes full use of the memory's sectors of 32 bytes, or as
    /// good a use as the tile allows.
    pub(super) fn accepts(&self, layout: &LinearLayout) -> bool {
        let Some(axis) = self.consecutive else { return true };
        let bits = layout.axis_bits(axis);
        let in_warp =
            bits.iter().take_while(|bit| !matches!(bit, HwBit::Warp(_) | HwBit::Block(_))).count();
        let bytes = self.size << in_warp.min(16);
        let whole = self.size * self.shape.extent(axis) as u32;
        bytes >= SECTOR_BYTES.min(whole) || self.shape.numel() as u32 * self.size <= 512
    }
}

/// The blocked layouts of a function: one for each shape and fastest axis.
pub(super) struct BlockedLayouts {
    num_warps: u32,
    num_blocks: u32,
    /// By shape and fastest axis, the elements of a thread that lie together and those of a block.
    vectors: BTreeMap<(Shape, usize), [u32; 2]>,
    fastest: BTreeMap<Shape, usize>,
    /// Extents that are mostly the user's, with some padding above.
    padded: BTreeSet<usize>,
    /// Axes along which tiles of a shape are reduced: warps go along others first.
    reduced: BTreeMap<Shape, Vec<usize>>,
}

impl BlockedLayouts {
    pub(super) fn new(
        func: &Func,
        coalesced: &[CoalescedAccess],
        [num_warps, num_blocks]: [u32; 2],
    ) -> BlockedLayouts {
        let mut vectors = BTreeMap::new();
        let mut weights: BTreeMap<(Shape, usize), u64> = BTreeMap::new();
        for coalesced in coalesced {
            let key = (coalesced.shape, coalesced.order[0]);
            let [vector, run] = vectors.entry(key).or_insert([1; 2]);
            *vector = coalesced.vector.max(*vector);
            *run = (SECTOR_BYTES / coalesced.size).max(*vector).max(*run);
            *weights.entry(key).or_insert(0) += u64::from(coalesced.size);
        }
        let mut fastest: BTreeMap<Shape, usize> = BTreeMap::new();
        for (&(shape, axis), &weight) in &weights {
            let best = fastest.entry(shape).or_insert(axis);
            if weight > weights[&(shape, *best)] {
                *best = axis;
            }
        }
        let mut reduced: BTreeMap<Shape, Vec<usize>> = BTreeMap::new();
        for op in func.walk() {
            if let OpKind::Reduce { axis, .. } = func.op(op).kind {
                let shape = func.tile(func.op(op).operands[0]).shape;
                reduced.entry(shape).or_default().push(axis as usize);
            }
        }
        let padded = padded_extents(func);
        BlockedLayouts { num_warps, num_blocks, vectors, fastest, padded, reduced }
    }

    /// The layout of a shape's tiles where nothing else decides.
    pub(super) fn default(&self, shape: Shape) -> Arc<LinearLayout> {
        let wide = (0..shape.rank()).rev().find(|&axis| shape.extent(axis) != 1);
        let fastest = self.fastest.get(&shape).copied().or(wide).unwrap_or(0);
        self.along(shape, fastest)
    }

    /// The layout of a shape's tiles whose fastest axis is this one.
    pub(super) fn along(&self, shape: Shape, fastest: usize) -> Arc<LinearLayout> {
        let [vector, run] = self.vectors.get(&(shape, fastest)).copied().unwrap_or([1; 2]);
        let mut order = vec![fastest];
        order.extend((0..shape.rank()).rev().filter(|&axis| axis != fastest));
        let split = self.split(shape, &order, run);
        let part: Vec<usize> =
            shape.extents().iter().zip(&split).map(|(&e, &n)| e / n as usize).collect();
        let part = Shape::new(&part);
        // Every thread has work before any has a longer vector.
        let share = (part.numel() as u32 / (32 * self.num_warps)).max(1);
        let mut parameters = Blocked::cover(part, &order, vector.min(share), self.num_warps);
        parameters.warps = self.warps(shape, part, &order, &parameters);
        let layout = blocked_in(part, &parameters, self.num_warps);
        // Where the last block would have nothing but padding all blocks get their share of it, by
        // turns of what their threads take at once: then it is in whole registers of all threads.
        let turn = |axis: usize| match self.padded.contains(&shape.extent(axis)) {
            true => {
                let Blocked { per_thread, lanes, warps, .. } = &parameters;
                (per_thread[axis] * lanes[axis] * warps[axis]) as usize
            }
            false => part.extent(axis),
        };
        let turns: Vec<usize> = (0..shape.rank()).map(turn).collect();
        Arc::new(layout.over_blocks_by(&split, self.num_blocks, Shape::new(&turns)))
    }

    /// The parts along each axis that the blocks of a cluster take, none shorter than `run`: along
    /// the slower axes first and along reduced ones last, as warps, since what is reduced over blocks
    /// goes from one to the other.
    fn split(&self, shape: Shape, order: &[usize], run: u32) -> Vec<u32> {
        let mut left = self.num_blocks;
        let mut split = vec![1; shape.rank()];
        for axis in self.slowest_first(shape, order) {
            let least = if axis == order[0] { run } else { 1 };
            let count = left.min((shape.extent(axis) as u32 / least).max(1));
            split[axis] = count;
            left /= count;
        }
        split
    }

    /// Warps go along the slower axes first, and along reduced axes last: a reduction inside a warp
    /// needs no shared memory. `part` is what a block has of the tile.
    fn warps(&self, shape: Shape, part: Shape, order: &[usize], parameters: &Blocked) -> Vec<u32> {
        let mut left = self.num_warps;
        let mut warps = vec![1; shape.rank()];
        for axis in self.slowest_first(shape, order) {
            let taken = parameters.per_thread[axis] * parameters.lanes[axis];
            let count = left.min(part.extent(axis) as u32 / taken);
            warps[axis] = count;
            left /= count;
        }
        warps
    }

    /// The axes from the slowest, those that a tile of this shape is reduced along behind the others.
    fn slowest_first(&self, shape: Shape, order: &[usize]) -> Vec<usize> {
        let reduced = self.reduced.get(&shape).map_or(&[][..], Vec::as_slice);
        let mut axes: Vec<usize> = order.iter().rev().copied().collect();
        axes.sort_by_key(|axis| reduced.contains(axis));
        axes
    }
}

/// Extents of which an index is compared with a smaller constant, as padding does.
fn padded_extents(func: &Func) -> BTreeSet<usize> {
    let compared = func.walk().into_iter().filter_map(|op| {
        let data = func.op(op);
        let OpKind::Compare(Predicate::Lt) = data.kind else { return None };
        let extent = func.tile(data.operands[0]).shape.numel();
        let is_iota = func.op(func.def_op(data.operands[0])?).kind == OpKind::Iota;
        let full = func.op(func.def_op(data.operands[1])?);
        let scalar = func.op(func.def_op(*full.operands.first()?)?);
        let OpKind::Const(limit) = scalar.kind else { return None };
        (is_iota && limit.to_i64() < extent as i64).then_some(extent)
    });
    compared.collect()
}

/// The layout in which a scan along `axis` keeps a contiguous piece in each thread, for a tile that has
/// this layout. Each block of a cluster keeps the part that it has.
pub(super) fn scan_layout(layout: &LinearLayout, axis: usize) -> LinearLayout {
    let along = |axis| layout.block.iter().filter(|&&b| layout.coord(b, axis) != 0).count();
    let split: Vec<u32> = (0..layout.shape.rank()).map(|axis| 1 << along(axis)).collect();
    let part: Vec<usize> =
        layout.shape.extents().iter().zip(&split).map(|(&e, &n)| e / n as usize).collect();
    let part = scan_in_block(Shape::new(&part), axis, layout.num_warps());
    part.over_blocks(&split, layout.num_blocks())
}

fn scan_in_block(shape: Shape, axis: usize, num_warps: u32) -> LinearLayout {
    let mut order = vec![axis];
    order.extend((0..shape.rank()).rev().filter(|&other| other != axis));
    let extent = shape.extent(axis) as u32;
    let lanes = extent.min(32);
    let warps = (extent / lanes).min(num_warps);
    let mut parameters = Blocked::cover(shape, &order, extent / lanes / warps, num_warps);
    parameters.warps = vec![1; shape.rank()];
    parameters.warps[axis] = warps;
    let mut left = num_warps / warps;
    for &other in &order[1..] {
        let count = left.min(shape.extent(other) as u32 / parameters.lanes[other]);
        parameters.warps[other] = count;
        left /= count;
    }
    blocked_in(shape, &parameters, num_warps)
}

/// Whether the axis runs over registers, then lanes, warps and blocks, each in order.
pub(super) fn is_scannable(layout: &LinearLayout, axis: usize) -> bool {
    layout.axis_bits(axis).windows(2).all(|pair| pair[0] < pair[1])
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ir::parse;
    use crate::layout::assign::tests::{ADD, NORM};

    /// What each access of a kernel would like.
    fn wanted(text: &str) -> String {
        let func = parse(text).unwrap();
        let analysis = AxisAnalysis::of(&func);
        let one = |op| {
            let access = CoalescedAccess::of(&func, &analysis, &memory_op(&func, op)?);
            let CoalescedAccess { shape, order, vector, size, .. } = access;
            let first = order[0];
            Some(format!("{shape}: {vector} x {size} bytes along axis {first}\n"))
        };
        func.walk().into_iter().filter_map(one).collect()
    }

    #[test]
    fn accesses_are_as_wide_as_alignment_allows() {
        expect![[r#"
            [1024]: 4 x 4 bytes along axis 0
            [1024]: 4 x 4 bytes along axis 0
            [1024]: 4 x 4 bytes along axis 0
            [4, 256]: 8 x 2 bytes along axis 1
            [256]: 4 x 4 bytes along axis 0
            [4, 256]: 8 x 2 bytes along axis 1
            [4]: 1 x 4 bytes along axis 0
        "#]]
        .assert_eq(&(wanted(ADD) + &wanted(NORM)));
    }
}
