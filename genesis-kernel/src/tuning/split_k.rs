//! Split-K of the last tiles of a product, where tiles do not come out even.
//!
//! Tiles run in waves of one a multiprocessor, and the last wave takes as long as a whole one: 266 tiles on 132
//! multiprocessors take three where 2.02 would do. Tiles of the last wave, or of the last two, are cut along K in parts that
//! fill the multiprocessors better: 264 whole tiles and 2 in 16 parts take 2.06. What that costs are the sums of parts,
//! which are stored and loaded again, and a launch that adds them up.

use super::products::{Product, Tile};

/// How the last tiles of a product are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitK {
    /// Tiles that are cut, the last ones.
    pub split: usize,
    /// Parts of each.
    pub parts: usize,
    /// Steps of K of a part; the last may be shorter.
    pub each: usize,
}

/// Operations from which on a product is asked whether it is cut: about six microseconds of an H200, which is what the launch
/// that adds up parts takes.
pub const LEAST_FLOPS: usize = 4 << 30;
/// Rows of a tile that one program of that launch adds up.
pub const SUM_ROWS: usize = 16;
/// The most parts.
const MOST_PARTS: usize = 16;
/// Steps of the shortest part: with fewer the first loads of a part take longer than the part.
const LEAST_STEPS: usize = 4;
/// The most bytes of sums of parts.
const MOST_SUMS: usize = 48 << 20;
/// The launch that adds up parts, in microseconds: 7 us with the bytes of 32 parts of 128 by 128 on an H200, 9 with 27 MB.
const SUM_US: f64 = 5.0;
/// How much less time it must be to be worth the memory.
const WORTHWHILE: f64 = 0.97;

impl SplitK {
    /// The last `split` tiles of so many steps in `parts` or, where steps do not come out even, fewer.
    pub fn of(split: usize, steps: usize, parts: usize) -> SplitK {
        let each = steps.div_ceil(parts.max(1)).max(1);
        SplitK { split, parts: steps.div_ceil(each).max(1), each }
    }

    /// Units of work: parts of tiles, each with a slot for its sums.
    pub fn units(&self) -> usize {
        self.split * self.parts
    }
}

impl Product<'_> {
    /// The tile and the cut that the product is expected to be fastest with; none where whole tiles are as fast.
    pub fn split_k(&self) -> Option<(Tile, SplitK)> {
        if !self.is_fed_by_tma || self.dtype.bytes() != 2 {
            return None;
        }
        let whole =
            self.tile().map(|tile| self.work_fed_by_tma(&tile).estimate_us(self.machine))?;
        let cuts = self.tiles_fed_by_tma().into_iter().flat_map(|tile| {
            let cuts = self.cuts(&tile).into_iter();
            cuts.map(move |cut| (self.cut_us(&tile, &cut), tile, cut))
        });
        let (us, tile, cut) = cuts.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (us < WORTHWHILE * whole).then_some((tile, cut))
    }

    /// Of the tiles of the last wave and of the last two, all cuts.
    fn cuts(&self, tile: &Tile) -> Vec<SplitK> {
        let [batch, m, n, k] = [0, 1, 2, 3].map(|axis| self.extent(axis));
        let tiles = batch * m.div_ceil(tile.m) * n.div_ceil(tile.n);
        let (steps, blocks) = (k.div_ceil(tile.k), self.machine.multiprocessors.max(1) as usize);
        let rest = tiles % blocks;
        let last: Vec<usize> = [rest, rest + blocks]
            .into_iter()
            .filter(|&split| (1..=tiles).contains(&split))
            .collect();
        let most = MOST_PARTS.min(steps / LEAST_STEPS);
        let fits = |cut: &SplitK| cut.parts > 1 && cut.units() * tile.m * tile.n * 4 <= MOST_SUMS;
        let all = last
            .into_iter()
            .flat_map(|split| (2..=most).map(move |parts| SplitK::of(split, steps, parts)));
        all.filter(fits).collect()
    }

    /// How long the product takes so cut, in microseconds.
    fn cut_us(&self, tile: &Tile, cut: &SplitK) -> f64 {
        let work = self.work_fed_by_tma(tile);
        let blocks = f64::from(self.machine.multiprocessors.max(1));
        let whole = (work.programs - cut.split as f64) / blocks;
        let rounds = (cut.units() as f64 / blocks).ceil();
        let steps = self.extent(3).div_ceil(tile.k) as f64;
        // An epilogue of a part takes as long as one of a tile.
        let part = self.idle_flops(tile);
        let part = (part + (work.flops - part) * cut.each as f64 / steps) / work.flops;
        let moved = 2 * cut.units() * tile.m * tile.n * 4;
        let sums = SUM_US + moved as f64 / self.machine.bytes_per_us;
        work.us_of_waves(self.machine, whole + rounds * part) + sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{DType, DotPrecision};
    use crate::target::Target;
    use crate::tuning::Machine;

    fn cut([m, n, k]: [i64; 3]) -> Option<(Tile, SplitK)> {
        let machine = Machine::of_target(&Target::sm_90a());
        let product = Product {
            machine: &machine,
            dtype: DType::BF16,
            precision: DotPrecision::Ieee,
            sizes: [1, m, n, k],
            is_fed_by_tma: true,
            is_off_lines: [false; 2],
        };
        product.split_k()
    }

    #[test]
    fn no_part_is_empty() {
        for (split, steps, parts) in
            [(5, 4, 4), (52, 76, 2), (2, 128, 16), (28, 2374, 14), (3, 9, 4)]
        {
            let cut = SplitK::of(split, steps, parts);
            assert!(cut.parts <= parts && cut.parts * cut.each >= steps, "{cut:?}");
            assert!((cut.parts - 1) * cut.each < steps, "{cut:?}");
        }
    }

    #[test]
    fn tiles_that_do_not_come_out_even_are_cut() {
        for uneven in [[4864, 896, 8192], [3072, 768, 8192], [512, 896, 151936]] {
            assert!(cut(uneven).is_some(), "{uneven:?}");
        }
        for even in [[8192, 4864, 896], [4096, 4096, 4096], [8192, 8192, 8192], [512, 151936, 896]]
        {
            assert_eq!(cut(even), None, "{even:?}");
        }
    }
}
