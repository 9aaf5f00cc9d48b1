//! Scatters: each thread writes its elements to shared memory where its index says, and the tile is read from there as a
//! whole.

use super::super::llvm::Val;
use super::collective::Partial;
use super::lowering::Lowering;
use crate::Error;
use crate::ir::Op;
use crate::layout::GatherPlan;

impl Lowering<'_> {
    pub(super) fn finish_scatter(&mut self, op: Op) -> Result<(), Error> {
        match self.partial.remove(&op) {
            Some(Partial::Registers(registers)) => self.result(op, registers),
            _ => Err(Error::bug("a scatter was not loaded")),
        }
    }

    /// Writes elements to where the index says. What names no place is written nowhere: of the user's elements there is
    /// none, of those that pad other axes there may be.
    pub(super) fn store_scattered(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let (x, index) = (data.operands[0], self.get(data.operands[1])?);
        let registers = self.get(x)?;
        let plan = self.scatter_plan(op)?;
        let rows = self.rows_in_shared(op, plan)?;
        let copies = self.lir.layout(x).map_or((0, 0), |l| (l.free_lanes(), l.free_warps()));
        let first = self.threads.all_zero(e, copies.0, copies.1);
        for (reg, (&part, &at)) in (0..).zip(registers.iter().zip(index.iter())) {
            let (is_there, address) = self.address_in_row(&rows, reg, at);
            let is_written = first.map_or(is_there, |first| e.and(first, is_there));
            self.write_shared(x, &[part], address, Some(is_written));
        }
        Ok(())
    }

    /// Reads the tile.
    pub(super) fn load_scattered(&mut self, op: Op) -> Result<(), Error> {
        let result = self.func.op(op).results[0];
        let plan = self.scatter_plan(op)?;
        let start = self.scratch(op)?.start;
        let registers: Vec<Val> = self.load_shared(&plan.store, result, start);
        self.partial.insert(op, Partial::Registers(registers));
        Ok(())
    }

    fn scatter_plan(&self, op: Op) -> Result<GatherPlan, Error> {
        self.lir.scatter(op).ok_or_else(|| Error::bug("a scatter without layouts"))
    }
}
