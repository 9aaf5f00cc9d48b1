//! Gathers: a tile goes to shared memory as a whole, and each thread reads the elements that its index names. Where
//! warps hold what they read, their threads get it from one another by shuffles.

use super::super::elementwise::from_memory;
use super::super::llvm::{IntPred, Val};
use super::collective::Partial;
use super::lowering::Lowering;
use super::thread::{Shuffle, shuffle};
use crate::Error;
use crate::ir::{DType, Op};
use crate::layout::{GatherPlan, Source, WarpGather, f2};

impl Lowering<'_> {
    pub(super) fn finish_gather(&mut self, op: Op) -> Result<(), Error> {
        match self.partial.remove(&op) {
            Some(Partial::Registers(registers)) => self.result(op, registers),
            _ => self.gather_in_warp(op),
        }
    }

    /// Gets from lanes of the warp, or from the thread's own registers, what the index names; zero where it names nothing.
    fn gather_in_warp(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let data = self.func.op(op);
        let (x, index) = (self.get(data.operands[0])?, self.get(data.operands[1])?);
        let (dtype, place) = (self.dtype(data.operands[0]), self.dtype(data.operands[1]));
        let plan = self.gather_plan(op)?;
        let Some(warp) = &plan.within_warp else {
            return Err(Error::bug("a gather was not loaded"));
        };
        let choices = Choices(warp.chosen());
        let [of_lane, of_choice]: [&dyn Fn(&Source) -> u32; 2] =
            [&|source| source.lane, &|source| choices.number(source.reg)];
        let (lane, choice) = (self.thread_part(warp, of_lane), self.thread_part(warp, of_choice));
        let axis = |part: &dyn Fn(&Source) -> u32| warp.axis.iter().map(part).collect::<Vec<u32>>();
        let (axis_lane, axis_choice) = (axis(of_lane), axis(of_choice));
        let zero = e.zero(e.register_ty(dtype));
        let mut registers = Vec::new();
        for (reg, &at) in (0..).zip(index.iter()) {
            let fixed = WarpGather::sum(&warp.reg, reg);
            let (is_there, at) = self.place_in_row(at, place, plan.extent);
            let lane = e.xor(lane, e.int(e.i32(), i64::from(fixed.lane)));
            let lane = e.xor(lane, self.spread(at, &axis_lane));
            let choice = e.xor(choice, self.spread(at, &axis_choice));
            let candidates = (0..choices.count()).map(|n| {
                let mine = x[(fixed.reg ^ choices.register(n)) as usize];
                if warp.moves() { shuffle(e, Shuffle::Index(lane), mine) } else { mine }
            });
            let found = self.choose(choice, candidates.collect());
            registers.push(e.select(is_there, found, zero));
        }
        self.result(op, registers)
    }

    /// What the thread's lane, warp and block add.
    fn thread_part(&mut self, plan: &WarpGather, part: &dyn Fn(&Source) -> u32) -> Val {
        let [lane, warp, block] =
            [&plan.lane, &plan.warp, &plan.block].map(|s| s.iter().map(part).collect::<Vec<u32>>());
        self.threads.offset(self.e, &lane, &warp, &block)
    }

    /// The XOR of the bases whose bit is set in an `i32`, each a bit or zero: a shift for each run of them.
    fn spread(&self, number: Val, bases: &[u32]) -> Val {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let mut sum = int(0);
        let mut first = 0;
        while first < bases.len() {
            let is_run = |&n: &usize| bases[first + n] == bases[first] << n;
            let n = (0..bases.len() - first).take_while(is_run).count();
            if bases[first] != 0 {
                let low = e.and(e.lshr(number, int(first as u32)), int((1 << n) - 1));
                sum = e.or(sum, e.shl(low, int(bases[first].ilog2())));
            }
            first += n;
        }
        sum
    }

    /// The candidate whose number an `i32` is.
    fn choose(&self, number: Val, mut candidates: Vec<Val>) -> Val {
        let e = self.e;
        let mut bit = 1;
        while candidates.len() > 1 {
            let is_odd = e.icmp(IntPred::Ne, e.and(number, e.int(e.i32(), bit)), e.int(e.i32(), 0));
            candidates =
                candidates.chunks(2).map(|pair| e.select(is_odd, pair[1], pair[0])).collect();
            bit <<= 1;
        }
        candidates[0]
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
        let dtype = self.dtype(x);
        let plan = self.gather_plan(op)?;
        let rows = self.rows_in_shared(op, plan)?;
        let zero = e.zero(e.register_ty(dtype));
        let mut registers = Vec::new();
        for (reg, &at) in (0..).zip(index.iter()) {
            let (is_there, address) = self.address_in_row(&rows, reg, at);
            let found = e.load_aligned(e.memory_ty(dtype), address, rows.size);
            registers.push(e.select(is_there, from_memory(e, dtype, found), zero));
        }
        self.partial.insert(op, Partial::Registers(registers));
        Ok(())
    }

    fn gather_plan(&self, op: Op) -> Result<GatherPlan, Error> {
        self.lir.gather(op).ok_or_else(|| Error::bug("a gather without layouts"))
    }

    /// Where this thread's rows lie, of a gather or a scatter.
    pub(super) fn rows_in_shared(
        &mut self,
        op: Op,
        plan: GatherPlan,
    ) -> Result<RowsInShared, Error> {
        let e = self.e;
        let data = self.func.op(op);
        let (size, place) = (self.shared_size(data.operands[0]), self.dtype(data.operands[1]));
        let scale = |bases: &[u32]| bases.iter().map(|b| b * size).collect::<Vec<u32>>();
        let [lane, warp, block] = [&plan.lane[..], &plan.warp, &plan.block].map(scale);
        let thread = self.threads.offset(e, &lane, &warp, &block);
        let start = self.scratch(op)?.start;
        Ok(RowsInShared { plan, place, thread, start, size })
    }

    /// Whether the index of a register names a place, and the address of that.
    pub(super) fn address_in_row(&mut self, rows: &RowsInShared, reg: u32, at: Val) -> (Val, Val) {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let row = e.xor(rows.thread, int(f2::combine(&rows.plan.reg, reg) * rows.size));
        let (is_there, at) = self.place_in_row(at, rows.place, rows.plan.extent);
        let step = int(rows.size << rows.plan.step);
        let offset = e.add(e.add(row, e.mul(at, step)), int(rows.start));
        (is_there, self.shared_at(offset))
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

/// Rows of a tile in shared memory, at places of which an index names.
pub(super) struct RowsInShared {
    plan: GatherPlan,
    /// The index's dtype.
    place: DType,
    /// What the thread adds to the offset of a row, in bytes.
    thread: Val,
    /// Where the tile begins, and bytes of an element.
    start: u32,
    size: u32,
}

/// The registers that a choice is between: those whose numbers differ in these bits.
struct Choices(u32);

impl Choices {
    fn count(&self) -> u32 {
        1 << self.0.count_ones()
    }

    /// The bits of a register's number, next to one another.
    fn number(&self, register: u32) -> u32 {
        let bits = (0..u32::BITS).filter(|bit| self.0 >> bit & 1 == 1);
        bits.enumerate().fold(0, |number, (i, bit)| number | (register >> bit & 1) << i)
    }

    /// The bits of a register's number that a choice has.
    fn register(&self, number: u32) -> u32 {
        let bits = (0..u32::BITS).filter(|bit| self.0 >> bit & 1 == 1);
        bits.enumerate().fold(0, |register, (i, bit)| register | (number >> i & 1) << bit)
    }
}
