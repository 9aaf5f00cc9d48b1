//! The layouts that tensor-core instructions prescribe.
//!
//! `mma.sync` multiplies an m16 x k tile by a k x n8 tile. Operands of 8 and 16 bits share a register of 32
//! bits (their number is the width); one of f64 fills two:
//!
//! | operands | width | k | accumulator |
//! |---|---|---|---|
//! | i8, u8 | 4 | 32 | i32 |
//! | f16, bf16 | 2 | 16 | f32 |
//! | tf32 | 1 | 8 | f32 |
//! | f64 | 1 | 8 | f64 |
//!
//! The layouts repeat these tiles over warps, then over registers, the columns first. `m8n8k4` of f64, the one
//! that sm_80 has, is a quarter of such a tile: rows 0 to 7 or 8 to 15, half of k.
//!
//! The first 4x4 corner of an accumulator, entries `lane.register`:
//!
//! ```text
//!          col 0  col 1  col 2  col 3
//! row 0     0.0    0.1    1.0    1.1
//! row 1     4.0    4.1    5.0    5.1
//! row 2     8.0    8.1    9.0    9.1
//! row 3    12.0   12.1   13.0   13.1
//! ```
//!
//! Row 8 is register 2 of the lanes of row 0.

use super::blocked::Filler;
use super::linear::LinearLayout;
use crate::ir::Shape;

/// The accumulator of `mma.sync`, `warps = [along M, along N]`, the warps along M numbered first.
///
/// Registers of a thread: column pairs, row + 8, then n8 tiles beyond the warps, then m16 tiles.
pub fn accumulator(shape: Shape, warps: [u32; 2], num_warps: u32) -> LinearLayout {
    let mut filler = Filler::new(shape);
    filler.regs(1, 1);
    filler.lanes(1, 2);
    filler.lanes(0, 3);
    filler.regs(0, 1);
    filler.warps(0, warps[0].ilog2());
    filler.warps(1, warps[1].ilog2());
    filler.finish(&[1, 0], num_warps)
}

/// Operand A, `[M, K]`, with `width` elements in a 32-bit register; warps along N hold copies.
///
/// Registers: the packed elements, row + 8, the upper half of k, then k tiles, then m16 tiles.
pub fn operand_a(shape: Shape, warps: [u32; 2], width: u32, num_warps: u32) -> LinearLayout {
    let mut filler = Filler::new(shape);
    filler.regs(1, width.ilog2());
    filler.lanes(1, 2);
    filler.lanes(0, 3);
    filler.regs(0, 1);
    filler.regs(1, 1);
    filler.warps(0, warps[0].ilog2());
    filler.copy_warps(warps[1].ilog2());
    filler.finish(&[1, 0], num_warps)
}

/// Operand B, `[K, N]`, with `width` elements in a 32-bit register; warps along M hold copies.
///
/// Registers: the packed elements, the upper half of k, then k tiles, then n8 tiles.
pub fn operand_b(shape: Shape, warps: [u32; 2], width: u32, num_warps: u32) -> LinearLayout {
    let mut filler = Filler::new(shape);
    filler.regs(0, width.ilog2());
    filler.lanes(0, 2);
    filler.lanes(1, 3);
    filler.regs(0, 1);
    filler.copy_warps(warps[0].ilog2());
    filler.warps(1, warps[1].ilog2());
    filler.finish(&[0, 1], num_warps)
}

/// The accumulator of `wgmma` with `n` columns an instruction: four warps stacked along M, and on them
/// the blocks of a cluster where each has rows enough for its warps.
pub fn wgmma_accumulator(shape: Shape, n: u32, [num_warps, blocks]: [u32; 2]) -> LinearLayout {
    let rows = shape.extent(0) / blocks as usize;
    if blocks > 1 && rows >= WGMMA_ROWS {
        let part = wgmma_accumulator(Shape::new(&[rows, shape.extent(1)]), n, [num_warps, 1]);
        return part.over_blocks(&[blocks, 1], blocks);
    }
    let mut filler = Filler::new(shape);
    filler.regs(1, 1);
    filler.lanes(1, 2);
    filler.lanes(0, 3);
    filler.regs(0, 1);
    filler.regs(1, (n / 8).ilog2());
    filler.warps(0, num_warps.ilog2());
    filler.finish(&[1, 0], num_warps).in_cluster(blocks)
}

/// Rows of one `wgmma`.
const WGMMA_ROWS: usize = 64;

/// The accumulator of multiply-adds: 4x4 elements of a thread together, then lanes, warps, and blocks of
/// as many elements again.
///
/// Lanes go along N and M by turns. A read of one operand then is the same for lanes that differ in bit
/// 0 or in bit 1, which lets the hardware serve half a warp at once.
pub fn fma_accumulator(shape: Shape, num_warps: u32) -> LinearLayout {
    let bits = |axis: usize| shape.extent(axis).ilog2();
    // Elements of a thread, as bits, where every thread has some of its own.
    let share = (bits(0) + bits(1)).saturating_sub(5 + num_warps.ilog2());
    let columns = bits(1).min(2).min(share);
    let rows = bits(0).min(2).min(share - columns);
    let mut filler = Filler::new(shape);
    filler.regs(1, columns);
    filler.regs(0, rows);
    for axis in [1, 0, 1, 1, 0] {
        let other = 1 - axis;
        // An axis that is used up leaves its lanes to the other.
        filler.lanes(if filler.left(axis) > 0 { axis } else { other }, 1);
    }
    for _ in 0..num_warps.ilog2() {
        // The longer way first, so that warps cover what is close to a square.
        filler.warps(usize::from(filler.left(1) > filler.left(0)), 1);
    }
    filler.finish(&[1, 0], num_warps)
}

/// Warps that share a product of this many rows by `wgmma` where nobody asks for a number: four for
/// each 64 rows, up to eight.
pub fn wgmma_warps(rows: u32) -> u32 {
    (rows / 16).clamp(4, 8)
}

/// The split of warps over a `[M, N]` result that keeps a warp's tile closest to square, rows first.
pub fn split_warps(shape: Shape, num_warps: u32) -> [u32; 2] {
    let (mut m, mut n) = (1, 1);
    while m * n < num_warps {
        let rows = shape.extent(0) as u32 / 16 / m;
        let columns = shape.extent(1) as u32 / 8 / n;
        if rows > 1 && rows * 16 >= columns * 8 || columns <= 1 {
            m *= 2;
        } else {
            n *= 2;
        }
    }
    [m, n]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::convert::{Conversion, plan};
    use crate::layout::linear::HwIndex;

    fn each(layout: &LinearLayout, expected: impl Fn(u32, u32, u32) -> [u32; 2]) {
        layout.check().unwrap();
        for reg in 0..layout.num_regs() {
            for lane in 0..32 {
                for warp in 0..layout.num_warps() {
                    let at = HwIndex { reg, lane, warp, block: 0 };
                    let got = layout.coords(layout.apply(at));
                    assert_eq!(got, expected(reg, lane, warp), "{reg} {lane} {warp}");
                }
            }
        }
    }

    #[test]
    fn accumulator_matches_the_table() {
        let layout = accumulator(Shape::new(&[16, 8]), [1, 1], 1);
        each(&layout, |v, l, _| [(l >> 2) + 8 * (v >> 1), 2 * (l & 3) + (v & 1)]);
    }

    #[test]
    fn accumulators_repeat_over_warps_then_columns_then_rows() {
        let layout = accumulator(Shape::new(&[64, 32]), [2, 2], 4);
        each(&layout, |v, l, w| {
            let row = (l >> 2) + 8 * (v >> 1 & 1) + 16 * (w & 1) + 32 * (v >> 3);
            [row, 2 * (l & 3) + (v & 1) + 8 * (w >> 1) + 16 * (v >> 2 & 1)]
        });
    }

    #[test]
    fn operands_of_16_bits_match_the_table() {
        let a = operand_a(Shape::new(&[16, 16]), [1, 1], 2, 1);
        each(&a, |v, l, _| [(l >> 2) + 8 * (v >> 1 & 1), 2 * (l & 3) + (v & 1) + 8 * (v >> 2)]);
        let b = operand_b(Shape::new(&[16, 8]), [1, 1], 2, 1);
        each(&b, |v, l, _| [2 * (l & 3) + (v & 1) + 8 * (v >> 1), l >> 2]);
    }

    #[test]
    fn operands_of_tf32_match_the_table() {
        let a = operand_a(Shape::new(&[16, 8]), [1, 1], 1, 1);
        each(&a, |v, l, _| [(l >> 2) + 8 * (v & 1), (l & 3) + 4 * (v >> 1)]);
        let b = operand_b(Shape::new(&[8, 8]), [1, 1], 1, 1);
        each(&b, |v, l, _| [(l & 3) + 4 * v, l >> 2]);
    }

    #[test]
    fn operands_of_8_bits_match_the_table() {
        let a = operand_a(Shape::new(&[16, 32]), [1, 1], 4, 1);
        each(&a, |v, l, _| [(l >> 2) + 8 * (v >> 2 & 1), 4 * (l & 3) + (v & 3) + 16 * (v >> 3)]);
        let b = operand_b(Shape::new(&[32, 8]), [1, 1], 4, 1);
        each(&b, |v, l, _| [4 * (l & 3) + (v & 3) + 16 * (v >> 2), l >> 2]);
    }

    #[test]
    fn wgmma_accumulator_matches_the_table() {
        let layout = wgmma_accumulator(Shape::new(&[128, 256]), 256, [4, 1]);
        each(&layout, |v, l, w| {
            let row = 16 * w + (l >> 2) + 8 * (v >> 1 & 1) + 64 * (v >> 7);
            [row, 2 * (l & 3) + (v & 1) + 8 * (v >> 2 & 31)]
        });
    }

    #[test]
    fn blocks_of_a_cluster_are_stacked_on_warps() {
        let layout = wgmma_accumulator(Shape::new(&[256, 16]), 16, [4, 2]);
        layout.check().unwrap();
        for block in 0..2 {
            for warp in 0..4 {
                let row =
                    |reg| layout.coords(layout.apply(HwIndex { reg, lane: 0, warp, block }))[0];
                // Two columns, eight rows, eight more columns; then the next 64 rows of the block.
                assert_eq!([0, 2, 8].map(row), [0, 8, 64].map(|n| n + 128 * block + 16 * warp));
            }
        }
    }

    #[test]
    fn an_accumulator_is_the_next_operand_without_moving() {
        let shape = Shape::new(&[64, 64]);
        let from = accumulator(shape, [4, 1], 4);
        let to = operand_a(shape, [4, 1], 2, 4);
        assert!(matches!(plan(&from, &to, 16), Conversion::Registers(_)));
        let split = accumulator(shape, [2, 2], 4);
        let wanted = operand_a(shape, [2, 2], 2, 4);
        assert!(matches!(plan(&split, &wanted, 16), Conversion::Shared(_)));
    }

    #[test]
    fn multiply_adds_hold_squares() {
        let layout = fma_accumulator(Shape::new(&[128, 128]), 8);
        each(&layout, |v, l, w| {
            let (row, column) = (v >> 2 & 3, v & 3);
            let row = row | (l >> 1 & 1) << 2 | (l >> 4) << 3 | (w & 3) << 4;
            let column = column | (l & 1) << 2 | (l >> 2 & 3) << 3 | (w >> 2) << 5;
            [row | (v >> 5) << 6, column | (v >> 4 & 1) << 6]
        });
        for (m, n, warps) in [(1, 1, 4), (4, 2, 1), (1, 256, 4), (256, 1, 8), (16, 16, 4)] {
            let layout = fma_accumulator(Shape::new(&[m, n]), warps);
            layout.check().unwrap();
            assert_eq!(layout.num_regs() as usize, (m * n / (32 * warps as usize)).max(1));
        }
    }

    #[test]
    fn warps_split_a_square_evenly() {
        assert_eq!(split_warps(Shape::new(&[128, 128]), 4), [2, 2]);
        assert_eq!(split_warps(Shape::new(&[16, 256]), 4), [1, 4]);
        assert_eq!(split_warps(Shape::new(&[256, 32]), 8), [8, 1]);
    }
}
