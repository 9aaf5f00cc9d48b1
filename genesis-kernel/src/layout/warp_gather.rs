//! Gathers within a warp: where a warp holds all that its threads read, they ask each other by shuffles.
//!
//! A thread of a warp finds an element in the lane and register to which the layout of the tile maps the bits of its
//! coordinates: those of the row are known from the layout of the index, those along the axis from the index itself.
//!
//! ```text
//! gather 1 %x, %i : f32[4x32], i32[4x32]     a lane for each column, a warp for each row
//!   axis    lanes 1 2 4 8 16                 shfl.idx %x, %i
//! gather 1 %x, %i : f32[4x64], ..            two neighbours a lane
//!   axis    register 1, lanes 1 2 4 8 16     shfl.idx of both registers by %i >> 1, one chosen by %i & 1
//! ```
//!
//! A register that only the running kernel knows is a shuffle and a selection for each that it may be. Up to
//! [`MOST_WORDS`] of them take the unit of shared memory about as long as one read whose 32 lanes name banks at random,
//! and neither of the two barriers; registers of the thread's own are selected from without a shuffle.

use super::f2;
use super::linear::{LinearLayout, axis_shift};

/// Words that are shuffled for one element.
const MOST_WORDS: u32 = 4;
/// Registers of its own that a thread selects one from.
const MOST_REGISTERS: u32 = 16;

/// The lane and the register of the tile that a bit adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Source {
    pub(crate) lane: u32,
    pub(crate) reg: u32,
}

/// Where a thread finds what its index names, in its own warp: the XOR of what the bits of its register, lane, warp and
/// block add, and those of the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WarpGather {
    pub(crate) reg: Vec<Source>,
    pub(crate) lane: Vec<Source>,
    pub(crate) warp: Vec<Source>,
    pub(crate) block: Vec<Source>,
    /// What the bits of the place along the axis add.
    pub(crate) axis: Vec<Source>,
}

impl WarpGather {
    /// That of a tile of elements of `bits` bits in one layout for an index in another; none where a warp reads what
    /// others hold, or shared memory is the shorter way.
    pub(super) fn new(
        x: &LinearLayout,
        index: &LinearLayout,
        axis: usize,
        bits: u32,
    ) -> Option<WarpGather> {
        let found = WarpGather::within(x, index, axis)?;
        let registers = 1 << found.chosen().count_ones();
        let fits = match found.moves() {
            true => registers * bits.div_ceil(32) <= MOST_WORDS,
            false => registers <= MOST_REGISTERS,
        };
        fits.then_some(found)
    }

    fn within(x: &LinearLayout, index: &LinearLayout, axis: usize) -> Option<WarpGather> {
        let rows = |bases: &[u32]| -> Vec<u32> {
            bases.iter().map(|&basis| row(x, index, axis, basis)).collect()
        };
        let sources = |bits: &[u32]| -> Option<Vec<Source>> {
            bits.iter().map(|&bit| source(x, bit)).collect()
        };
        // What a warp or block holds for itself, it need not look for.
        let others = |bases: &[u32], held: &[u32]| -> Option<Vec<Source>> {
            rows(bases).iter().zip(held).map(|(&bit, &held)| source(x, bit ^ held)).collect()
        };
        let lane = rows(&index.lane).into_iter().enumerate().map(|(i, bit)| {
            // Of copies its own.
            if x.lane[i] == bit { Some(Source { lane: 1 << i, reg: 0 }) } else { source(x, bit) }
        });
        let along = axis_shift(x.shape, axis);
        let places: Vec<u32> =
            (0..x.shape.extent(axis).ilog2()).map(|bit| 1 << (along + bit)).collect();
        Some(WarpGather {
            reg: sources(&rows(&index.reg))?,
            lane: lane.collect::<Option<Vec<Source>>>()?,
            warp: others(&index.warp, &x.warp)?,
            block: others(&index.block, &x.block)?,
            axis: sources(&places)?,
        })
    }

    /// The bits of a register's number that are not known before the kernel runs.
    pub(crate) fn chosen(&self) -> u32 {
        let all = [&self.lane, &self.warp, &self.block, &self.axis];
        all.into_iter().flatten().fold(0, |bits, source| bits | source.reg)
    }

    /// Whether any thread reads what another holds.
    pub(crate) fn moves(&self) -> bool {
        let own = |(i, source): (usize, &Source)| source.lane == 1 << i;
        let others = [&self.reg, &self.warp, &self.block, &self.axis];
        let is_elsewhere = others.into_iter().flatten().any(|source| source.lane != 0);
        is_elsewhere || !self.lane.iter().enumerate().all(own)
    }

    /// What the set bits of a number add.
    pub(crate) fn sum(sources: &[Source], number: u32) -> Source {
        let [lane, reg] = [|s: &Source| s.lane, |s: &Source| s.reg]
            .map(|part| f2::combine(&sources.iter().map(part).collect::<Vec<u32>>(), number));
        Source { lane, reg }
    }
}

/// The offset in `x` of a flat index into `index`, without the place along the axis.
pub(super) fn row(x: &LinearLayout, index: &LinearLayout, axis: usize, flat: u32) -> u32 {
    let others = (0..x.shape.rank()).filter(|&other| other != axis);
    others.fold(0, |offset, other| offset | index.coord(flat, other) << x.shift(other))
}

/// Which lane or register of a tile has a bit of the flat index.
fn source(x: &LinearLayout, bit: u32) -> Option<Source> {
    if bit == 0 {
        return Some(Source::default());
    }
    let place = |bases: &[u32]| bases.iter().position(|&basis| basis == bit);
    let lane = place(&x.lane).map(|i| Source { lane: 1 << i, reg: 0 });
    lane.or_else(|| place(&x.reg).map(|i| Source { lane: 0, reg: 1 << i }))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::ir::Shape;
    use crate::layout::blocked::{Blocked, blocked};

    fn check(x: &LinearLayout, index: &LinearLayout, axis: usize, bits: u32, found: Expect) {
        let text = WarpGather::new(x, index, axis, bits).map_or("shared\n".to_owned(), |plan| {
            let line = |name: &str, sources: &[Source]| {
                let one = |s: &Source| match (s.lane, s.reg) {
                    (0, 0) => " -".to_owned(),
                    (lane, 0) => format!(" l{lane}"),
                    (lane, reg) => format!(" l{lane}r{reg}"),
                };
                format!("{name}{}\n", sources.iter().map(one).collect::<String>())
            };
            [
                line("reg", &plan.reg),
                line("lane", &plan.lane),
                line("warp", &plan.warp),
                line("axis", &plan.axis),
                format!("moves {}, chosen {:b}\n", plan.moves(), plan.chosen()),
            ]
            .concat()
        });
        found.assert_eq(&text);
    }

    fn rows(extents: &[usize], warps: u32, lanes: u32, regs: u32) -> LinearLayout {
        blocked(Shape::new(extents), &Blocked::rows(regs, lanes, warps))
    }

    #[test]
    fn a_row_of_a_warp_is_shuffled() {
        let x = rows(&[4, 32], 4, 32, 1);
        check(
            &x,
            &x,
            1,
            32,
            expect![[r#"
            reg
            lane - - - - -
            warp - -
            axis l1 l2 l4 l8 l16
            moves true, chosen 0
        "#]],
        );
    }

    #[test]
    fn registers_are_chosen_from_after_shuffles_of_each() {
        let x = rows(&[4, 64], 4, 32, 2);
        check(
            &x,
            &x,
            1,
            32,
            expect![[r#"
            reg -
            lane - - - - -
            warp - -
            axis l0r1 l1 l2 l4 l8 l16
            moves true, chosen 1
        "#]],
        );
        check(
            &x,
            &x,
            1,
            64,
            expect![[r#"
            reg -
            lane - - - - -
            warp - -
            axis l0r1 l1 l2 l4 l8 l16
            moves true, chosen 1
        "#]],
        );
        // Four registers of two words.
        let x = rows(&[4, 128], 4, 32, 4);
        check(
            &x,
            &x,
            1,
            64,
            expect![[r#"
            shared
        "#]],
        );
    }

    #[test]
    fn registers_of_a_threads_own_need_no_shuffle() {
        let x = rows(&[32, 4], 1, 1, 4);
        check(
            &x,
            &x,
            1,
            32,
            expect![[r#"
            reg - -
            lane l1 l2 l4 l8 l16
            warp
            axis l0r1 l0r2
            moves false, chosen 11
        "#]],
        );
    }

    #[test]
    fn what_other_warps_hold_goes_through_shared_memory() {
        let x = rows(&[4, 32], 4, 32, 1);
        check(
            &x,
            &x,
            0,
            32,
            expect![[r#"
            shared
        "#]],
        );
        // The index has its rows in other warps.
        let index = rows(&[4, 8], 1, 8, 1);
        check(
            &x,
            &index,
            1,
            32,
            expect![[r#"
            shared
        "#]],
        );
    }
}
