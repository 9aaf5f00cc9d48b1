//! Histograms: one element after the other, with the counts in scratch.

use super::super::llvm::{IntPred, Val};
use super::chunk::{Chunk, Coord};
use super::lowering::Lower;
use crate::Error;
use crate::ir::Op;

impl Lower<'_> {
    /// Counts elements, and notes how many equal ones came before each.
    pub(super) fn histogram(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let (x, [ranks, counts]) = (data.operands[0], [data.results[0], data.results[1]]);
        self.flush_reads(x)?;
        let places = [ranks, counts].map(|value| self.new_place(value));
        let bins = self.func.tile(counts).shape.numel() as i64;
        let zero = self.e.int(self.e.i32(), 0);
        let all = |n: i64, lower: &Self| (lower.index(0), lower.index(n));
        self.count_loop(all(bins, self), 1, &[], &mut |lower, bin, _| {
            lower.e.store_aligned(zero, lower.count_at(places[1], bin), 4);
            Ok(Vec::new())
        })?;
        let n = self.func.tile(x).shape.numel() as i64;
        self.count_loop(all(n, self), 1, &[], &mut |lower, i, _| {
            let mut chunk = Chunk::new(1, vec![Coord::At(i)]);
            let value = lower.lanes_of(&mut chunk, x)?;
            let rank = lower.counted(value, places[1], bins);
            lower.e.store_aligned(rank, lower.count_at(places[0], i), 4);
            Ok(Vec::new())
        })?;
        for (value, place) in [ranks, counts].into_iter().zip(places) {
            self.places[value.index()] = Some(place);
        }
        Ok(())
    }

    /// Counts one element; gives how many there were before.
    fn counted(&self, value: Val, counts: Val, bins: i64) -> Val {
        let e = self.e;
        let wide = e.zext(value, e.i64());
        let has_bin = e.icmp(IntPred::Ult, wide, self.index(bins));
        let one = e.zext(has_bin, e.i32());
        // Without a bin nothing is added to the first.
        let at = self.count_at(counts, e.select(has_bin, wide, self.index(0)));
        let before = e.load_aligned(e.i32(), at, 4);
        e.store_aligned(e.add(before, one), at, 4);
        e.select(has_bin, before, e.int(e.i32(), 0))
    }

    fn count_at(&self, counts: Val, bin: Val) -> Val {
        self.e.gep(self.e.i32(), counts, bin)
    }
}
