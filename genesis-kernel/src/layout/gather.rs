//! Gathers: the tile lies in shared memory in row-major order, and each thread reads what its index names. Where each warp
//! holds what it reads, there is a way without memory, [`WarpGather`].
//!
//! The row of an element is where its coordinates along the other axes put it, which the layout of the index says; only
//! the place in the row is known when the kernel runs:
//!
//! ```text
//! gather 1 %x, %i : f32[4x8], i64[4x2]     element (r, c) is at r * 8 + i
//!   lane 1 holds row 1 of the index        8 + i
//! ```

use super::linear::{LinearLayout, axis_shift, bits};
use super::scratch::{Offsets, SharedAccess};
use super::warp_gather::{WarpGather, row};

/// The way of a gather, through shared memory unless there is one within warps. Offsets are in elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GatherPlan {
    /// How the tile is written.
    pub(crate) store: SharedAccess,
    /// What each register, lane, warp and block adds to the offset of its row, as bases.
    pub(crate) reg: Vec<u32>,
    pub(crate) lane: Vec<u32>,
    pub(crate) warp: Vec<u32>,
    pub(crate) block: Vec<u32>,
    /// The logarithm of the distance of neighbours along the axis.
    pub(crate) step: u32,
    /// The extent of the axis.
    pub(crate) extent: u32,
    /// How each warp gathers by itself, where that is shorter.
    pub(crate) within_warp: Option<WarpGather>,
    /// Whether each block of a cluster holds all that it reads.
    pub(crate) stays_in_block: bool,
    elements: u32,
    bits: u32,
}

impl GatherPlan {
    /// That of a tile of elements of `bits` bits in one layout, for an index in another.
    pub(super) fn new(x: &LinearLayout, index: &LinearLayout, axis: usize, bits_each: u32) -> Self {
        let row_major = Offsets((0..bits(x.shape)).map(|i| 1 << i).collect());
        let of_row = |&basis: &u32| row(x, index, axis, basis);
        let rows = |bases: &[u32]| bases.iter().map(of_row).collect::<Vec<u32>>();
        // What a block has of the tile is at its rows, whatever the place in them.
        let is_near = |(&held, &read): (&u32, &u32)| held == 0 || held == of_row(&read);
        GatherPlan {
            store: SharedAccess::new(x, &row_major, bits_each, 0),
            reg: rows(&index.reg),
            lane: rows(&index.lane),
            warp: rows(&index.warp),
            block: rows(&index.block),
            step: axis_shift(x.shape, axis),
            extent: x.shape.extent(axis) as u32,
            within_warp: WarpGather::new(x, index, axis, bits_each),
            stays_in_block: x.block.iter().zip(&index.block).all(is_near),
            elements: x.shape.numel() as u32,
            bits: bits_each,
        }
    }

    /// The way through shared memory, whether there is another or not.
    pub(super) fn through_shared(self) -> GatherPlan {
        GatherPlan { within_warp: None, ..self }
    }

    /// Bytes of shared memory.
    pub(crate) fn bytes(&self) -> u32 {
        if self.within_warp.is_some() { 0 } else { self.elements * self.bits / 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Shape;
    use crate::layout::blocked::{Blocked, blocked};

    #[test]
    fn rows_of_the_index_are_rows_of_the_tile() {
        let x = blocked(Shape::new(&[4, 32]), &Blocked::rows(4, 8, 1));
        let index = blocked(Shape::new(&[4, 8]), &Blocked::rows(1, 8, 1));
        let plan = GatherPlan::new(&x, &index, 1, 32);
        // The one warp holds all rows.
        assert_eq!((plan.step, plan.extent, plan.bytes()), (0, 32, 0));
        assert_eq!((plan.lane, plan.reg), (vec![0, 0, 0, 32, 64], vec![]));
        let plan = GatherPlan::new(&index, &index, 0, 16);
        assert_eq!((plan.step, plan.extent, plan.bytes()), (3, 4, 0));
        assert_eq!(plan.lane, [1, 2, 4, 0, 0]);
        // Rows lie in other warps.
        let x = blocked(Shape::new(&[4, 32]), &Blocked::rows(1, 32, 4));
        let plan = GatherPlan::new(&x, &x, 0, 32);
        assert_eq!((plan.step, plan.extent, plan.bytes()), (5, 4, 512));
    }
}
