//! Gathers: the tile is in scratch, and the elements of a chunk are read at the places that its index names.

use super::super::elementwise::from_memory;
use super::super::llvm::{IntPred, Val};
use super::chunk::{Chunk, Coord};
use super::lowering::Lower;
use super::nest::Space;
use crate::Error;
use crate::ir::{Op, OpKind};

impl Lower<'_> {
    /// A gather over all elements of its index.
    pub(super) fn gather(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let (x, index, result) = (data.operands[0], data.operands[1], data.results[0]);
        if !self.plan.kept[result.index()] {
            return Ok(());
        }
        self.flush_reads(x)?;
        let source = self.places[x.index()]
            .ok_or_else(|| Error::bug("a tile that is gathered from is not in scratch"))?;
        let place = self.new_place(result);
        let space = Space::new(self.func.tile(result).shape);
        self.nest(space, &[index], None, &mut |lower, chunk| {
            let at = lower.lanes_of(chunk, index)?;
            let found = lower.gathered(op, chunk, source, at);
            lower.store_place(chunk, result, place, found);
            Ok(())
        })?;
        self.places[result.index()] = Some(place);
        Ok(())
    }

    /// The elements of a chunk; zero where the index names none.
    fn gathered(&self, op: Op, chunk: &Chunk, source: Val, index: Val) -> Val {
        let e = self.e;
        let data = self.func.op(op);
        let axis = match data.kind {
            OpKind::Gather { axis } => axis as usize,
            _ => 0,
        };
        let (tile, from) = (self.func.tile(data.operands[0]), self.dtype(data.operands[1]));
        let mut row = chunk.at.clone();
        row[axis] = Coord::At(self.index(0));
        let (start, step) = self.flat(tile.shape, &row);
        let lanes = e.vec(e.i64(), chunk.lanes);
        let all = |n: i64| e.int(lanes, n);
        let wide = match from.bits() {
            64 => index,
            _ if from.is_signed_int() => e.sext(index, lanes),
            _ => e.zext(index, lanes),
        };
        // Below 0 is far above it, without a sign.
        let is_there = e.icmp(IntPred::Ult, wide, all(tile.shape.extent(axis) as i64));
        let place = e.select(is_there, wide, all(0));
        let inner: usize = tile.shape.extents()[axis + 1..].iter().product();
        let rows = match step {
            0 => e.splat(start, chunk.lanes),
            _ => e.add(e.splat(start, chunk.lanes), e.const_steps(e.i64(), 0, step, chunk.lanes)),
        };
        let offset = e.add(rows, e.mul(place, all(inner as i64)));
        let (dtype, ty) = (tile.dtype(), self.kept_ty(tile));
        let ptrs = e.gep(ty, source, offset);
        let align = dtype.bytes() as u32;
        if chunk.lanes == 1 {
            let found = from_memory(e, dtype, e.load_aligned(ty, ptrs, align));
            return e.select(is_there, found, e.zero(e.register_ty(dtype)));
        }
        let mask = chunk.tail.map_or(is_there, |tail| e.and(is_there, tail));
        let zero = e.zero(e.vec(ty, chunk.lanes));
        from_memory(e, dtype, self.gather_lanes(ptrs, align, Some(mask), zero))
    }
}
