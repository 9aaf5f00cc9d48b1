//! Scatters: one element after the other goes to where its index says, in scratch.

use super::super::elementwise::to_memory;
use super::super::llvm::IntPred;
use super::chunk::{Chunk, Coord};
use super::lowering::Lower;
use crate::Error;
use crate::ir::Op;

impl Lower<'_> {
    /// A scatter along an axis over all elements.
    pub(super) fn scatter_tile(&mut self, op: Op, axis: usize) -> Result<(), Error> {
        let data = self.func.op(op);
        let (x, index, result) = (data.operands[0], data.operands[1], data.results[0]);
        if !self.plan.kept[result.index()] {
            return Ok(());
        }
        self.flush_reads(x)?;
        self.flush_reads(index)?;
        let place = self.new_place(result);
        let shape = self.func.tile(result).shape;
        let (first, end) = (self.index(0), self.index(shape.numel() as i64));
        self.count_loop((first, end), 1, &[], &mut |lower, i, _| {
            let e = lower.e;
            let mut inner = 1;
            let mut at = Vec::new();
            for &extent in shape.extents().iter().rev() {
                let number = e.udiv(i, lower.index(inner));
                at.push(Coord::At(e.urem(number, lower.index(extent as i64))));
                inner *= extent as i64;
            }
            at.reverse();
            let mut chunk = Chunk::new(1, at.clone());
            let element = lower.lanes_of(&mut chunk, x)?;
            let to = lower.lanes_of(&mut chunk, index)?;
            let dtype = lower.dtype(index);
            let to = match dtype.bits() {
                64 => to,
                _ if dtype.is_signed_int() => e.sext(to, e.i64()),
                _ => e.zext(to, e.i64()),
            };
            // What names no place is of nobody: it stays where it is.
            let extent = lower.index(shape.extent(axis) as i64);
            let Coord::At(own) = at[axis] else { return Ok(Vec::new()) };
            at[axis] = Coord::At(e.select(e.icmp(IntPred::Ult, to, extent), to, own));
            let (position, _) = lower.flat(shape, &at);
            let tile = lower.func.tile(result);
            let (ty, align) = (lower.kept_ty(tile), lower.element_bytes(tile) as u32);
            let value = to_memory(e, tile.dtype(), element);
            e.store_aligned(value, e.gep(ty, place, position), align);
            Ok(Vec::new())
        })?;
        self.places[result.index()] = Some(place);
        Ok(())
    }
}
