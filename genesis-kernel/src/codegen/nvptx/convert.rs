//! Conversions between layouts: registers renamed, shuffled within warps, or through shared memory,
//! as `layout::convert` plans them.

use super::super::elementwise::from_memory;
use super::super::llvm::{IntPred, Ty, Val};
use super::collective::Partial;
use super::lowering::Lowering;
use super::registers::SHARED;
use super::thread::{Shuffle, shuffle};
use crate::Error;
use crate::ir::{Op, Value};
use crate::layout::{
    Conversion, LANE_BITS, SharedAccess, SharedPlan, SharedUnit, ShufflePlan, exchange_steps,
};

impl Lowering<'_> {
    pub(super) fn convert_layout(&mut self, op: Op) -> Result<(), Error> {
        let operand = self.func.op(op).operands[0];
        let from = self.get(operand)?;
        let Some(conversion) = self.lir.conversion(op) else {
            return self.result(op, from.to_vec());
        };
        let registers = match conversion {
            Conversion::Registers(map) => map.iter().map(|&reg| from[reg as usize]).collect(),
            Conversion::Shuffle(plan) => self.convert_by_shuffles(&plan, &from),
            Conversion::Shared(_) => match self.partial.remove(&op) {
                Some(Partial::Registers(registers)) => registers,
                _ => return Err(Error::bug("a conversion was not loaded")),
            },
        };
        self.result(op, registers)
    }

    /// Writes the operand to scratch.
    pub(super) fn store_converted(&mut self, op: Op) -> Result<(), Error> {
        let operand = self.func.op(op).operands[0];
        let from = self.get(operand)?;
        let plan = self.shared_plan(op)?;
        self.store_shared(&plan.store, operand, &from, self.scratch(op)?.start);
        Ok(())
    }

    /// Reads it in the result's layout.
    pub(super) fn load_converted(&mut self, op: Op) -> Result<(), Error> {
        let operand = self.func.op(op).operands[0];
        let plan = self.shared_plan(op)?;
        let registers = self.load_shared(&plan.load, operand, self.scratch(op)?.start);
        self.partial.insert(op, Partial::Registers(registers));
        Ok(())
    }

    fn shared_plan(&self, op: Op) -> Result<SharedPlan, Error> {
        match self.lir.conversion(op) {
            Some(Conversion::Shared(plan)) => Ok(plan),
            _ => Err(Error::bug("a conversion needs no shared memory")),
        }
    }

    fn convert_by_shuffles(&mut self, plan: &ShufflePlan, from: &[Val]) -> Vec<Val> {
        let e = self.e;
        let lane = self.threads.map(e, &plan.lanes, &[]);
        let sending = self.exchange_registers(&plan.sends, from);
        let rounds = plan.lane_of.iter().zip(&plan.sent).map(|(&lane_of, &sent)| {
            let source = match lane_of {
                0 => lane,
                _ => e.xor(lane, e.int(e.i32(), i64::from(lane_of))),
            };
            shuffle(e, Shuffle::Index(source), sending[sent as usize])
        });
        let got: Vec<Val> = rounds.collect();
        self.exchange_registers(&plan.places, &got)
    }

    /// Each lane's registers, `r` and `r ^ combine(map, lane)` exchanged.
    fn exchange_registers(&mut self, map: &[u32; LANE_BITS], registers: &[Val]) -> Vec<Val> {
        let e = self.e;
        let mut registers = registers.to_vec();
        for (partner, lanes) in exchange_steps(map) {
            let parity: Vec<u32> = (0..LANE_BITS).map(|bit| lanes >> bit & 1).collect();
            let parity = self.threads.map(e, &parity, &[]);
            let is_odd = e.icmp(IntPred::Ne, parity, e.int(e.i32(), 0));
            registers = (0..registers.len())
                .map(|i| e.select(is_odd, registers[i ^ partner as usize], registers[i]))
                .collect();
        }
        registers
    }

    /// Writes a tile to shared memory, `start` bytes in; of threads that hold copies one writes.
    pub(super) fn store_shared(
        &mut self,
        access: &SharedAccess,
        value: Value,
        registers: &[Val],
        start: u32,
    ) {
        let size = self.shared_size(value);
        let thread = self.shared_thread(access, size);
        let first = self.threads.all_zero(self.e, access.copies.lane, access.copies.warp);
        for group in &access.groups {
            let parts: Vec<Val> = group.regs.iter().map(|&reg| registers[reg as usize]).collect();
            let address = self.shared_group(access, thread, group.offset, size, start, None);
            self.write_shared(value, &parts, address, first);
        }
    }

    /// Reads a whole tile from shared memory.
    pub(super) fn load_shared(
        &mut self,
        access: &SharedAccess,
        value: Value,
        start: u32,
    ) -> Vec<Val> {
        let n: usize = access.groups.iter().map(|group| group.regs.len()).sum();
        let mut registers = vec![None; n];
        for group in 0..access.groups.len() {
            self.load_shared_group(access, value, group, (start, None), &mut registers);
        }
        registers.into_iter().flatten().collect()
    }

    /// Reads one group of registers, `start` bytes in and where in a ring that `slot` says.
    pub(super) fn load_shared_group(
        &mut self,
        access: &SharedAccess,
        value: Value,
        group: usize,
        (start, slot): (u32, Option<Val>),
        registers: &mut [Option<Val>],
    ) {
        let e = self.e;
        let group = &access.groups[group];
        let (dtype, size) = (self.dtype(value), self.shared_size(value));
        let is_ptr = self.is_ptr(value);
        let element = if is_ptr { self.register_ty(value) } else { e.memory_ty(dtype) };
        let thread = self.shared_thread(access, size);
        let address = self.shared_group(access, thread, group.offset, size, start, slot);
        let n = group.regs.len() as u32;
        let parts: Vec<Val> = match access.unit {
            SharedUnit::Vector => {
                let vector = e.load_aligned(e.vec(element, n), address, size * n);
                (0..n).map(|i| e.extract(vector, i)).collect()
            }
            SharedUnit::Matrix { transposed } => {
                self.load_matrices(address, n * size / 4, transposed, element)
            }
        };
        for (part, &reg) in parts.into_iter().zip(&group.regs) {
            registers[reg as usize] = Some(if is_ptr { part } else { from_memory(e, dtype, part) });
        }
    }

    /// Reads 1, 2 or 4 matrices of 8 rows of 16 bytes; gives the elements of this thread's 4 bytes of
    /// each.
    fn load_matrices(&self, address: Val, count: u32, transposed: bool, element: Ty) -> Vec<Val> {
        let e = self.e;
        let way = if transposed { ".trans" } else { "" };
        let name = format!("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{way}.b16");
        let loaded = e.intrinsic(&name, &[e.ptr(SHARED)], &[address]);
        let words = (0..count).map(|i| match count {
            1 => loaded,
            _ => e.extract_value(loaded, i),
        });
        let elements = |word: Val| -> Vec<Val> {
            if element == e.f32() {
                return vec![e.bitcast(word, element)];
            }
            let packed = if element == e.i8() { 4 } else { 2 };
            let all = e.bitcast(word, e.vec(element, packed));
            (0..packed).map(|i| e.extract(all, i)).collect()
        };
        words.flat_map(elements).collect()
    }

    /// Bytes of an element in shared memory.
    pub(super) fn shared_size(&self, value: Value) -> u32 {
        if self.is_ptr(value) { 8 } else { self.dtype(value).bytes() as u32 }
    }

    /// This thread's part of the offset, in bytes.
    pub(super) fn shared_thread(&mut self, access: &SharedAccess, size: u32) -> Val {
        let scale = |bases: &[u32]| bases.iter().map(|b| b * size).collect::<Vec<u32>>();
        let [lane, warp, block] = [&access.lane[..], &access.warp, &access.block].map(scale);
        self.threads.offset(self.e, &lane, &warp, &block)
    }

    /// The address of a group: what shares bits with the thread's part is XORed, then the slot is
    /// added, and the rest is a constant of the instruction.
    pub(super) fn shared_group(
        &self,
        access: &SharedAccess,
        thread: Val,
        offset: u32,
        size: u32,
        start: u32,
        slot: Option<Val>,
    ) -> Val {
        let e = self.e;
        let offset = offset * size;
        let touched = access.lane.iter().chain(&access.warp).chain(&access.block);
        let touched = touched.fold(0, |bits, b| bits | (b * size));
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let mixed = match offset & touched {
            0 => thread,
            mixed => e.xor(thread, int(mixed)),
        };
        let base = slot.map_or(mixed, |slot| e.add(mixed, slot));
        e.gep(e.i8(), self.shared_at(base), int((offset & !touched) + start))
    }
}
