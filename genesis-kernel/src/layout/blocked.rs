//! Blocked layouts: a rectangle of elements per thread, of threads per warp, of warps per block.
//!
//! What is left of a tile larger than the block repeats in registers; where the block is larger than
//! the tile, threads hold copies.
//!
//! A 4x4 tile, `per_thread [1, 2]`, `lanes [4, 2]`, `order [1, 0]`; entries are `lane.register`:
//!
//! ```text
//!          col 0  col 1  col 2  col 3
//! row 0     0.0    0.1    1.0    1.1
//! row 1     2.0    2.1    3.0    3.1
//! row 2     4.0    4.1    5.0    5.1
//! row 3     6.0    6.1    7.0    7.1
//! ```

use super::linear::{HwBit, LANE_BITS, LinearLayout, axis_shift};
use crate::ir::Shape;

/// The parameters of a blocked layout; all counts are powers of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// Elements of a thread along each axis.
    pub per_thread: Vec<u32>,
    /// Lanes of a warp along each axis; the product is 32.
    pub lanes: Vec<u32>,
    /// Warps along each axis.
    pub warps: Vec<u32>,
    /// The axes, the fastest first.
    pub order: Vec<usize>,
}

impl Blocked {
    /// A matrix in rows: `vector` elements of a thread along the last axis and as many of its lanes.
    pub fn rows(vector: u32, lanes: u32, warps: u32) -> Blocked {
        Blocked {
            per_thread: vec![1, vector],
            lanes: vec![32 / lanes, lanes],
            warps: vec![warps, 1],
            order: vec![1, 0],
        }
    }

    /// The block that covers a tile best: `vector` elements a thread along `order[0]`, then lanes
    /// along it until they are spent or the axis is covered, then the next axis; then warps likewise.
    pub fn cover(shape: Shape, order: &[usize], vector: u32, num_warps: u32) -> Blocked {
        let mut left: Vec<u32> = shape.extents().iter().map(|&e| e as u32).collect();
        let take = |left: &mut Vec<u32>, mut count: u32| {
            let mut taken = vec![1; left.len()];
            for &axis in order {
                let n = count.min(left[axis]);
                taken[axis] = n;
                left[axis] /= n;
                count /= n;
            }
            taken
        };
        let mut per_thread = vec![1; left.len()];
        if let Some(&fastest) = order.first() {
            per_thread[fastest] = vector.min(left[fastest]);
            left[fastest] /= per_thread[fastest];
        }
        let lanes = take(&mut left, 1 << LANE_BITS);
        let warps = take(&mut left, num_warps);
        Blocked { per_thread, lanes, warps, order: order.to_vec() }
    }
}

/// The blocked layout of a tile.
///
/// The number of warps is that of [`Blocked::warps`]; use [`blocked_in`] where the tile is too small
/// for all warps of the block.
pub fn blocked(shape: Shape, parameters: &Blocked) -> LinearLayout {
    blocked_in(shape, parameters, parameters.warps.iter().product())
}

/// The blocked layout of a tile in a block of `num_warps` warps; spare lanes and warps hold copies.
pub fn blocked_in(shape: Shape, parameters: &Blocked, num_warps: u32) -> LinearLayout {
    let mut filler = Filler::new(shape);
    for &axis in &parameters.order {
        filler.regs(axis, parameters.per_thread[axis].ilog2());
    }
    for &axis in &parameters.order {
        filler.lanes(axis, parameters.lanes[axis].ilog2());
    }
    for &axis in &parameters.order {
        filler.warps(axis, parameters.warps[axis].ilog2());
    }
    filler.finish(&parameters.order, num_warps)
}

/// Fills the axes of a tile from their low bits upward with bits of hardware.
pub(super) struct Filler {
    layout: LinearLayout,
    used: Vec<u32>,
}

impl Filler {
    pub(super) fn new(shape: Shape) -> Filler {
        let layout = LinearLayout { shape, reg: vec![], lane: vec![], warp: vec![], block: vec![] };
        Filler { layout, used: vec![0; shape.rank()] }
    }

    /// The next basis along an axis; zero where the axis is used up.
    fn next(&mut self, axis: usize) -> u32 {
        let shape = self.layout.shape;
        if self.used[axis] == shape.extent(axis).ilog2() {
            return 0;
        }
        self.used[axis] += 1;
        1 << (axis_shift(shape, axis) + self.used[axis] - 1)
    }

    /// Bits of an axis that are given to nothing yet.
    pub(super) fn left(&self, axis: usize) -> u32 {
        self.layout.shape.extent(axis).ilog2() - self.used[axis]
    }

    /// Gives the next `count` bits of an axis to registers.
    pub(super) fn regs(&mut self, axis: usize, count: u32) {
        for _ in 0..count {
            let basis = self.next(axis);
            if basis != 0 {
                self.layout.reg.push(basis);
            }
        }
    }

    /// Gives the next `count` bits of an axis to lanes; copies where it is used up.
    pub(super) fn lanes(&mut self, axis: usize, count: u32) {
        for _ in 0..count {
            let basis = self.next(axis);
            self.layout.lane.push(basis);
        }
    }

    /// Gives the next `count` bits of an axis to warps; copies where it is used up.
    pub(super) fn warps(&mut self, axis: usize, count: u32) {
        for _ in 0..count {
            let basis = self.next(axis);
            self.layout.warp.push(basis);
        }
    }

    /// Makes the next `count` bits of the warp hold copies.
    pub(super) fn copy_warps(&mut self, count: u32) {
        self.layout.warp.extend((0..count).map(|_| 0));
    }

    /// Gives what is left to registers, the fastest axis first, and fills up lanes and warps with
    /// copies.
    pub(super) fn finish(mut self, order: &[usize], num_warps: u32) -> LinearLayout {
        for &axis in order {
            self.regs(axis, self.layout.shape.extent(axis).ilog2());
        }
        self.layout.lane.resize(LANE_BITS, 0);
        self.layout.warp.resize(num_warps.ilog2() as usize, 0);
        self.layout
    }
}

/// The axes of a layout from the one that neighbouring registers and lanes run along to the one of
/// the highest bits.
pub fn order_of(layout: &LinearLayout) -> Vec<usize> {
    let mut axes: Vec<usize> = (0..layout.shape.rank()).collect();
    let rank = |axis: usize| match layout.axis_bits(axis).first() {
        Some(HwBit::Reg(i)) => *i,
        Some(HwBit::Lane(i)) => 100 + i,
        Some(HwBit::Warp(i)) => 200 + i,
        Some(HwBit::Block(i)) => 300 + i,
        None => 400,
    };
    axes.sort_by_key(|&axis| (rank(axis), usize::MAX - axis));
    axes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::linear::HwIndex;

    #[test]
    fn the_table_of_the_header() {
        let parameters = Blocked::cover(Shape::new(&[4, 4]), &[1, 0], 2, 1);
        assert_eq!(parameters.lanes, [4, 2]);
        let layout = blocked(Shape::new(&[4, 4]), &parameters);
        layout.check().unwrap();
        assert_eq!(
            layout.coords(layout.apply(HwIndex { reg: 1, lane: 5, ..HwIndex::default() })),
            [2, 3]
        );
        assert_eq!(layout.free_lanes(), 0b11000);
    }

    /// The example of the design notes: col = (v&7) | (l&7)<<3, row = (l>>3) | w<<2 | (v>>3)<<4.
    #[test]
    fn matches_the_formula() {
        let layout = blocked(Shape::new(&[64, 64]), &Blocked::rows(8, 8, 4));
        layout.check().unwrap();
        for reg in 0..layout.num_regs() {
            for lane in 0..32 {
                for warp in 0..4 {
                    let (col, row) =
                        (reg & 7 | (lane & 7) << 3, lane >> 3 | warp << 2 | reg >> 3 << 4);
                    let at = HwIndex { reg, lane, warp, block: 0 };
                    assert_eq!(layout.coords(layout.apply(at)), [row, col]);
                    assert_eq!(layout.solve(layout.apply(at)), Some(at));
                }
            }
        }
    }

    #[test]
    fn covers_any_shape() {
        for (shape, order) in [
            (vec![1], vec![0]),
            (vec![2], vec![0]),
            (vec![4096], vec![0]),
            (vec![1, 1024], vec![1, 0]),
            (vec![128, 2], vec![0, 1]),
            (vec![2, 8, 16], vec![2, 0, 1]),
            (vec![1, 1, 1, 1, 1], vec![4, 3, 2, 1, 0]),
        ] {
            for warps in [1, 4, 8] {
                for vector in [1, 4, 16] {
                    let shape = Shape::new(&shape);
                    let parameters = Blocked::cover(shape, &order, vector, warps);
                    let layout = blocked_in(shape, &parameters, warps);
                    layout.check().unwrap();
                    assert_eq!(layout.num_warps(), warps);
                }
            }
        }
    }

    #[test]
    fn finds_the_order_again() {
        let shape = Shape::new(&[16, 64, 8]);
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let layout = blocked_in(shape, &Blocked::cover(shape, &order, 4, 4), 4);
            assert_eq!(order_of(&layout)[0], order[0]);
        }
    }
}
