//! Scans: one element after the other along the axis, in all lanes of another axis.

use super::super::llvm::Val;
use super::chunk::{Chunk, Coord};
use super::lowering::Lower;
use crate::Error;
use crate::ir::{Op, OpKind};

impl<'a> Lower<'a> {
    /// An inclusive scan, from either end.
    pub(super) fn scan(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let OpKind::Scan { axis, reverse, .. } = data.kind else {
            return Err(Error::bug("not a scan"));
        };
        let axis = axis as usize;
        for &operand in &data.operands {
            self.flush_reads(operand)?;
        }
        let mut places = Vec::new();
        for &result in &data.results {
            places.push(self.plan.kept[result.index()].then(|| self.new_place(result)));
        }
        let n = self.func.tile(data.operands[0]).shape.extent(axis) as i64;
        let space = self.space_without(op, axis);
        self.chunks(space, &mut |lower, chunk| {
            let inner = |lower: &Lower<'a>, i: Val| {
                let i = if reverse { lower.e.sub(lower.index(n - 1), i) } else { i };
                let mut at = chunk.at.clone();
                at.insert(axis, Coord::At(i));
                let mut inner = Chunk::new(chunk.lanes, at);
                inner.tail = chunk.tail;
                inner
            };
            let mut at = inner(lower, lower.index(0));
            let first = lower.scan_read(op, &mut at)?;
            lower.scan_write(op, &places, &at, &first);
            let range = (lower.index(1), lower.index(n));
            lower.count_loop(range, 1, &first, &mut |lower, i, accs| {
                let mut at = inner(lower, i);
                let x = lower.scan_read(op, &mut at)?;
                let next = lower.combine(op, accs, &x)?;
                lower.scan_write(op, &places, &at, &next);
                Ok(next)
            })?;
            Ok(())
        })?;
        for (&result, place) in data.results.iter().zip(places) {
            self.places[result.index()] = place;
        }
        Ok(())
    }

    fn scan_read(&mut self, op: Op, chunk: &mut Chunk) -> Result<Vec<Val>, Error> {
        let operands = self.func.op(op).operands.clone();
        operands.into_iter().map(|x| self.lanes_of(chunk, x)).collect()
    }

    fn scan_write(&mut self, op: Op, places: &[Option<Val>], chunk: &Chunk, values: &[Val]) {
        let results = self.func.op(op).results.clone();
        for ((result, place), &value) in results.into_iter().zip(places).zip(values) {
            if let Some(place) = place {
                self.store_place(chunk, result, *place, value);
            }
        }
    }
}
