//! Conversions between layouts: registers renamed, shuffled within warps, or through shared memory,
//! as `layout::convert` plans them.

use super::super::elementwise::from_memory;
use super::super::llvm::{IntPred, Val};
use super::lower::{Lowering, Registers};
use super::thread::{Shuffle, shuffle};
use crate::Error;
use crate::ir::{Op, Value};
use crate::layout::{Conversion, LayoutIr, SharedAccess, ShufflePlan};

/// Bytes of shared memory that a conversion needs.
pub(super) fn scratch_bytes(lir: &LayoutIr, op: Op) -> u32 {
    match lir.conversion(op) {
        Some(Conversion::Shared(plan)) => plan.bytes(),
        _ => 0,
    }
}

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
            Conversion::Shared(plan) => {
                let bytes = self.scratch(op)?;
                self.before_shared_write(&bytes);
                self.store_shared(&plan.store, operand, &from, bytes.start);
                let start = bytes.start;
                self.before_shared_read(bytes);
                self.load_shared(&plan.load, operand, start)
            }
        };
        self.result(op, registers)
    }

    fn convert_by_shuffles(&mut self, plan: &ShufflePlan, from: &Registers) -> Vec<Val> {
        let e = self.e;
        let lane = self.threads.map(e, &plan.lanes, &[]);
        let select = self.threads.map(e, &plan.selects, &[]);
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let mut registers = Vec::new();
        for (&lane_of, &reg_of) in plan.lane_of.iter().zip(&plan.reg_of) {
            let source = if lane_of == 0 { lane } else { e.xor(lane, int(lane_of)) };
            // Every lane sends a register for each choice and takes the one it wants.
            let mut taken: Option<Val> = None;
            for choice in plan.choices() {
                let sent = shuffle(e, Shuffle::Index(source), from[(reg_of ^ choice) as usize]);
                taken = Some(match taken {
                    None => sent,
                    Some(before) => {
                        let is_wanted = e.icmp(IntPred::Eq, select, int(choice));
                        e.select(is_wanted, sent, before)
                    }
                });
            }
            registers.extend(taken);
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
            let address = self.shared_group(access, thread, group.offset, size, start);
            self.write_shared(value, &parts, address, first);
        }
    }

    /// Reads a whole tile from shared memory.
    fn load_shared(&mut self, access: &SharedAccess, value: Value, start: u32) -> Vec<Val> {
        let n: usize = access.groups.iter().map(|group| group.regs.len()).sum();
        let mut registers = vec![None; n];
        for group in 0..access.groups.len() {
            self.load_shared_group(access, value, group, start, &mut registers);
        }
        registers.into_iter().flatten().collect()
    }

    /// Reads one group of registers.
    pub(super) fn load_shared_group(
        &mut self,
        access: &SharedAccess,
        value: Value,
        group: usize,
        start: u32,
        registers: &mut [Option<Val>],
    ) {
        let e = self.e;
        let group = &access.groups[group];
        let (dtype, size) = (self.dtype(value), self.shared_size(value));
        let is_ptr = self.is_ptr(value);
        let element = if is_ptr { self.register_ty(value) } else { e.memory_ty(dtype) };
        let thread = self.shared_thread(access, size);
        let address = self.shared_group(access, thread, group.offset, size, start);
        let n = group.regs.len() as u32;
        let vector = e.load_aligned(e.vec(element, n), address, size * n);
        for (i, &reg) in (0..n).zip(&group.regs) {
            let part = e.extract(vector, i);
            registers[reg as usize] = Some(if is_ptr { part } else { from_memory(e, dtype, part) });
        }
    }

    /// Bytes of an element in shared memory.
    fn shared_size(&self, value: Value) -> u32 {
        if self.is_ptr(value) { 8 } else { self.dtype(value).bytes() as u32 }
    }

    /// This thread's part of the offset, in bytes.
    fn shared_thread(&mut self, access: &SharedAccess, size: u32) -> Val {
        let scale = |bases: &[u32]| bases.iter().map(|b| b * size).collect::<Vec<u32>>();
        self.threads.map(self.e, &scale(&access.lane), &scale(&access.warp))
    }

    /// The address of a group: what shares bits with the thread's part is XORed, and the rest is a
    /// constant that the instruction adds.
    fn shared_group(
        &self,
        access: &SharedAccess,
        thread: Val,
        offset: u32,
        size: u32,
        start: u32,
    ) -> Val {
        let e = self.e;
        let offset = offset * size;
        let touched = access.lane.iter().chain(&access.warp).fold(0, |bits, b| bits | (b * size));
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let base = match offset & touched {
            0 => thread,
            mixed => e.xor(thread, int(mixed)),
        };
        self.shared_at(e.add(base, int((offset & !touched) + start)))
    }
}
