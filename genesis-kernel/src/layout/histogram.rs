//! Histograms: each warp has counters of its own in shared memory, and takes its elements in their order.
//!
//! A warp has elements that follow each other, 32 in each register, so that all lanes that are equal meet in one step. A
//! sum over the warps' counters then says where those of each warp begin:
//!
//! ```text
//! warp 0 has 1 0 1 3, warp 1 has 1 1 0 3      bin           0 1 2 3
//! ranks in each warp  0 0 1 0, 0 1 0 0        warp 0 has    1 2 0 1
//!                                             warp 1 has    1 2 0 1
//! ranks               0 0 1 0, 2 3 1 1        before warp 1 1 2 0 1
//! ```

use super::LANE_BITS;
use super::linear::{LinearLayout, bits};
use crate::ir::Shape;

/// Elements in their order over lanes, registers, then warps; where there are fewer than threads, some have copies.
pub(super) fn layout(shape: Shape, num_warps: u32) -> LinearLayout {
    let all = bits(shape);
    let lanes = all.min(LANE_BITS);
    let warps = (num_warps.trailing_zeros() as usize).min(all - lanes);
    let mut layout = LinearLayout::replicated(shape, num_warps);
    let basis = |bit: usize| 1 << bit;
    layout.lane.iter_mut().take(lanes).enumerate().for_each(|(i, lane)| *lane = basis(i));
    layout.reg = (lanes..all - warps).map(basis).collect();
    let of_warps = layout.warp.iter_mut().take(warps).zip(all - warps..);
    of_warps.for_each(|(warp, bit)| *warp = basis(bit));
    layout
}

/// Where the counters are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HistogramPlan {
    /// Bins, which the threads share out.
    pub(crate) bins: u32,
    /// Warps with elements of their own, which come first; the others have copies of them.
    pub(crate) distinct_warps: u32,
    /// Lanes with elements of their own, which come first.
    pub(crate) distinct_lanes: u32,
    num_warps: u32,
}

impl HistogramPlan {
    /// Those of so many elements.
    pub(super) fn new(elements: u32, bins: u32, num_warps: u32) -> HistogramPlan {
        let distinct_lanes = elements.min(1 << LANE_BITS);
        let distinct_warps = num_warps.min(elements / distinct_lanes);
        HistogramPlan { bins, distinct_warps, distinct_lanes, num_warps }
    }

    /// Bytes of a warp's counters.
    pub(crate) fn warp_bytes(&self) -> u32 {
        4 * self.bins
    }

    /// Where the sums over all warps are, behind the counters of the last one.
    pub(crate) fn sums(&self) -> u32 {
        self.num_warps * self.warp_bytes()
    }

    /// Bytes of shared memory.
    pub(crate) fn bytes(&self) -> u32 {
        self.sums() + self.warp_bytes()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn elements_lie_in_their_order() {
        let layout_of = |n: usize, warps| layout(Shape::new(&[n]), warps);
        let text = |n, warps| layout_of(n, warps).to_string();
        expect!["reg [32, 64] lane [1, 2, 4, 8, 16] warp [128, 256]"].assert_eq(&text(512, 4));
        expect!["reg [] lane [1, 2, 4, 8, 16] warp [32, 0]"].assert_eq(&text(64, 4));
        expect!["reg [] lane [1, 2, 4, 0, 0] warp [0]"].assert_eq(&text(8, 2));
        assert_eq!(layout_of(8, 2).check(), Ok(()));
    }

    #[test]
    fn warps_with_copies_have_counters_too() {
        let plan = HistogramPlan::new(64, 256, 4);
        assert_eq!((plan.distinct_warps, plan.distinct_lanes, plan.bytes()), (2, 32, 5 * 1024));
        let plan = HistogramPlan::new(8, 4, 2);
        assert_eq!((plan.distinct_warps, plan.distinct_lanes, plan.bytes()), (1, 8, 48));
    }
}
