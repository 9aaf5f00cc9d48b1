//! Gathers: a tile goes to shared memory as a whole, and each thread reads the elements that its index names.

use super::super::elementwise::from_memory;
use super::super::llvm::{IntPred, Val};
use super::collective::Partial;
use super::lowering::Lowering;
use crate::Error;
use crate::ir::{DType, Op};
use crate::layout::{GatherPlan, f2};

impl Lowering<'_> {
    pub(super) fn finish_gather(&mut self, op: Op) -> Result<(), Error> {
        match self.partial.remove(&op) {
            Some(Partial::Registers(registers)) => self.result(op, registers),
            _ => Err(Error::bug("a gather was not loaded")),
        }
    }

    /// Writes the tile to scratch.
    pub(super) fn store_gathered(&mut self, op: Op) -> Result<(), Error> {
        let x = self.func.op(op).operands[0];
        let registers = self.get(x)?;
        let plan = self.gather_plan(op)?;
        self.store_shared(&plan.store, x, &registers, self.scratch(op)?.start);
        Ok(())
    }

    /// Reads what the index names; zero where it names nothing.
    pub(super) fn load_gathered(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let (x, index) = (data.operands[0], self.get(data.operands[1])?);
        let (dtype, place) = (self.dtype(x), self.dtype(data.operands[1]));
        let plan = self.gather_plan(op)?;
        let start = self.scratch(op)?.start;
        let size = self.shared_size(x);
        let scale = |bases: &[u32]| bases.iter().map(|b| b * size).collect::<Vec<u32>>();
        let [lane, warp, block] = [&plan.lane[..], &plan.warp, &plan.block].map(scale);
        let thread = self.threads.offset(e, &lane, &warp, &block);
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let step = int(size << plan.step);
        let zero = e.zero(e.register_ty(dtype));
        let mut registers = Vec::new();
        for (reg, &at) in (0..).zip(index.iter()) {
            let row = e.xor(thread, int(f2::combine(&plan.reg, reg) * size));
            let (is_there, at) = self.place_in_row(at, place, plan.extent);
            let offset = e.add(e.add(row, e.mul(at, step)), int(start));
            let found = e.load_aligned(e.memory_ty(dtype), self.shared_at(offset), size);
            registers.push(e.select(is_there, from_memory(e, dtype, found), zero));
        }
        self.partial.insert(op, Partial::Registers(registers));
        Ok(())
    }

    fn gather_plan(&self, op: Op) -> Result<GatherPlan, Error> {
        self.lir.gather(op).ok_or_else(|| Error::bug("a gather without layouts"))
    }

    /// Whether an index is one of the axis, and the index, else 0, as an `i32`.
    fn place_in_row(&self, index: Val, dtype: DType, extent: u32) -> (Val, Val) {
        let e = self.e;
        let narrow = dtype.bits() < 32;
        let wide = match narrow {
            true if dtype.is_signed_int() => e.sext(index, e.i32()),
            true => e.zext(index, e.i32()),
            false => index,
        };
        let ty = e.type_of(wide);
        // Below 0 is far above it, without a sign.
        let is_there = e.icmp(IntPred::Ult, wide, e.int(ty, i64::from(extent)));
        let place = e.select(is_there, wide, e.zero(ty));
        (is_there, if dtype.bits() > 32 { e.trunc(place, e.i32()) } else { place })
    }
}
