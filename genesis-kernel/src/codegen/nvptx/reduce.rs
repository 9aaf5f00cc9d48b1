//! Reductions: over a thread's registers, then over lanes by shuffles, then over warps through shared
//! memory with one barrier. In a cluster each warp writes its part to every block's memory: see
//! [`super::dsmem_store`].
//!
//! It is an all-reduce: every thread ends with the result. A region's combiner is only known to be associative, so the axis
//! is reduced from its lowest bit to its highest, each step joining two adjacent runs in order. A built-in combiner is
//! commutative too, so registers go first.
//!
//! ```text
//! axis of 8 in reg [1] lane [2] warp [4], elements a..h
//! register  ab cd ef gh      lane  abcd efgh      warps  abcdefgh
//! ```

use super::super::elementwise::from_memory;
use super::super::llvm::{IntPred, Val};
use super::collective::{Partial, Parts, at, live, put};
use super::lowering::Lowering;
use super::thread::{Shuffle, shuffle};
use crate::Error;
use crate::ir::{Combine, DType, Op, OpKind, Value};
use crate::layout::{HwBit, LANE_BITS, LANES};
use crate::machine::Across;
use crate::machine::exchange::{self, Exchange, Step, slot_bytes};

/// By register of the result: the values of each warp, one for each operand.
type Exchanged = Vec<(usize, Vec<Vec<Val>>)>;

/// The bits that no place depends on: threads that differ in them write the same.
fn unused_bits(bases: &[u32]) -> u32 {
    bases.iter().enumerate().filter(|(_, basis)| **basis == 0).fold(0, |bits, (i, _)| bits | 1 << i)
}

impl Lowering<'_> {
    /// What is left of a reduction after its exchanges.
    pub(super) fn reduce(&mut self, op: Op) -> Result<(), Error> {
        let (parts, next) = self.reduction(op)?;
        let data = self.func.op(op);
        if next < exchange::steps_of(self.lir, op).len() {
            return Err(Error::bug("a reduction lacks a step"));
        }
        for (&result, registers) in data.results.iter().zip(parts) {
            let registers: Vec<Val> = registers.into_iter().flatten().collect();
            if registers.len() != self.lir.num_regs(result) as usize {
                return Err(Error::bug("a reduction gives another layout than its result has"));
            }
            self.set(result, registers);
        }
        Ok(())
    }

    /// The parts of a reduction so far, and the number of its next step.
    fn reduction(&mut self, op: Op) -> Result<(Parts, usize), Error> {
        match self.partial.remove(&op) {
            Some(Partial::Reduce(parts, next)) => Ok((parts, next)),
            _ => {
                let operands = self.operands(op)?;
                let all = operands.iter().map(|o| o.iter().copied().map(Some).collect());
                Ok((all.collect(), 0))
            }
        }
    }

    /// A step within a warp.
    pub(super) fn combine_across(&mut self, op: Op, across: Across) -> Result<(), Error> {
        if matches!(self.func.op(op).kind, OpKind::Scan { .. }) {
            return self.scan_across(op, across);
        }
        let (mut parts, next) = self.reduction(op)?;
        let combine = self.combine_of(op)?;
        match across {
            Across::Registers(bit) => self.reduce_registers(op, combine, bit, &mut parts)?,
            Across::Lanes(bit) => self.reduce_lanes(op, combine, bit, &mut parts)?,
        }
        self.partial.insert(op, Partial::Reduce(parts, next + 1));
        Ok(())
    }

    fn combine_of(&self, op: Op) -> Result<Combine, Error> {
        match self.func.op(op).kind {
            OpKind::Reduce { combine, .. } | OpKind::Scan { combine, .. } => Ok(combine),
            _ => Err(Error::bug("an op that combines nothing")),
        }
    }

    /// The exchange that a reduction or scan comes to with a step.
    pub(super) fn exchange_at(&self, op: Op, step: usize) -> Result<Exchange, Error> {
        match exchange::steps_of(self.lir, op).into_iter().nth(step) {
            Some(Step::Warps(exchange)) => Ok(exchange),
            _ => Err(Error::bug("an exchange that is none")),
        }
    }

    /// Writes each warp's partial results to where the others read them.
    pub(super) fn store_partial_results(&mut self, op: Op, to_cluster: bool) -> Result<(), Error> {
        let (parts, next) = self.reduction(op)?;
        let exchange = self.exchange_at(op, next)?;
        self.write_parts(op, &exchange, &parts, to_cluster)?;
        self.partial.insert(op, Partial::Reduce(parts, next));
        Ok(())
    }

    /// Reads those of all warps and combines them.
    pub(super) fn load_partial_results(&mut self, op: Op) -> Result<(), Error> {
        let (mut parts, next) = self.reduction(op)?;
        let exchange = self.exchange_at(op, next)?;
        self.reduce_warps(op, (&exchange, next), &mut parts)?;
        self.partial.insert(op, Partial::Reduce(parts, next + 1));
        Ok(())
    }

    fn reduce_registers(
        &mut self,
        op: Op,
        combine: Combine,
        bit: usize,
        parts: &mut Parts,
    ) -> Result<(), Error> {
        for reg in live(parts) {
            let upper = reg | 1 << bit;
            if reg == upper {
                continue;
            }
            let (Some(left), Some(right)) = (at(parts, reg), at(parts, upper)) else { continue };
            let sum = self.combine(op, combine, &left, &right)?;
            put(parts, reg, &sum);
            parts.iter_mut().for_each(|registers| registers[upper] = None);
        }
        Ok(())
    }

    fn reduce_lanes(
        &mut self,
        op: Op,
        combine: Combine,
        bit: usize,
        parts: &mut Parts,
    ) -> Result<(), Error> {
        for reg in live(parts) {
            let Some(mine) = at(parts, reg) else { continue };
            let sum = self.combine_lanes(op, combine, bit, mine)?;
            put(parts, reg, &sum);
        }
        Ok(())
    }

    /// What lanes that differ in a bit have together.
    fn combine_lanes(
        &mut self,
        op: Op,
        combine: Combine,
        bit: usize,
        mine: Vec<Val>,
    ) -> Result<Vec<Val>, Error> {
        let theirs = self.of_lane(bit, &mine);
        let (left, right) = match combine {
            Combine::Op(_) => (mine, theirs),
            Combine::Region => self.in_order(bit, &mine, &theirs),
        };
        self.combine(op, combine, &left, &right)
    }

    /// The values of the lane that differs in a bit.
    pub(super) fn of_lane(&self, bit: usize, mine: &[Val]) -> Vec<Val> {
        mine.iter().map(|&value| shuffle(self.e, Shuffle::Xor(1 << bit), value)).collect()
    }

    /// The values of this lane and its neighbor, those of the lane without the bit first.
    pub(super) fn in_order(
        &mut self,
        bit: usize,
        mine: &[Val],
        theirs: &[Val],
    ) -> (Vec<Val>, Vec<Val>) {
        let e = self.e;
        let is_lower = self.threads.all_zero(e, 1 << bit, 0).unwrap_or_else(|| e.bool(true));
        let pairs = mine.iter().zip(theirs);
        pairs.map(|(&a, &b)| (e.select(is_lower, a, b), e.select(is_lower, b, a))).unzip()
    }

    fn reduce_warps(
        &mut self,
        op: Op,
        (exchange, step): (&Exchange, usize),
        parts: &mut Parts,
    ) -> Result<(), Error> {
        let combine = self.combine_of(op)?;
        let shared = self.facts.code.selection.shared_reads.get(&op);
        if !shared.is_some_and(|steps| steps.contains(&step)) {
            for (reg, all) in self.gather(op, exchange, parts)? {
                let sum = self.combine_tree(op, combine, all)?;
                put(parts, reg, &sum);
            }
            return Ok(());
        }
        let begin = self.scratch(op)?.start;
        for reg in live(parts) {
            let each = (exchange.parts() / LANES).max(1);
            let own = self.parts_of_lane(op, exchange, reg, begin, each);
            let mut sum = self.combine_tree(op, combine, own)?;
            for bit in 0..(exchange.parts() / each).ilog2() as usize {
                sum = self.combine_lanes(op, combine, bit, sum)?;
            }
            put(parts, reg, &sum);
        }
        Ok(())
    }

    /// This lane's share of the parts: `each` neighbors, those of lane 0 first. Where there are fewer
    /// than lanes, several lanes have the same.
    fn parts_of_lane(
        &mut self,
        op: Op,
        exchange: &Exchange,
        reg: usize,
        mut start: u32,
        each: u32,
    ) -> Vec<Vec<Val>> {
        let mut own = vec![Vec::new(); each as usize];
        for &value in &self.func.op(op).operands {
            let dtype = self.dtype(value);
            let bytes = each * dtype.bytes() as u32;
            let lanes = exchange.parts() / each;
            let lane = [1, 2, 4, 8, 16].map(|bit| if bit < lanes { bit * bytes } else { 0 });
            let first = self.threads.map(self.e, &lane, &[]);
            let all = self.exchange_address(exchange, dtype, reg, start, false);
            let address = self.e.gep(self.e.i8(), all, first);
            for (slot, part) in own.iter_mut().zip(self.read_vector(dtype, address, each)) {
                slot.push(part);
            }
            start += slot_bytes(exchange, dtype);
        }
        own
    }

    /// Neighbors, then pairs of them, and so on.
    fn combine_tree(
        &mut self,
        op: Op,
        combine: Combine,
        mut all: Vec<Vec<Val>>,
    ) -> Result<Vec<Val>, Error> {
        while all.len() > 1 {
            let pairs = all.chunks(2).map(|pair| self.combine(op, combine, &pair[0], &pair[1]));
            all = pairs.collect::<Result<_, Error>>()?;
        }
        all.pop().ok_or_else(|| Error::bug("nothing to combine"))
    }

    /// Every warp's parts in every warp: for each live register its parts in the axis' order, each one
    /// value an operand.
    pub(super) fn gather(
        &mut self,
        op: Op,
        exchange: &Exchange,
        parts: &Parts,
    ) -> Result<Exchanged, Error> {
        let begin = self.scratch(op)?.start;
        let mut gathered = Vec::new();
        for reg in live(parts) {
            let mut all = vec![Vec::new(); exchange.parts() as usize];
            let mut start = begin;
            for &value in &self.func.op(op).operands {
                let dtype = self.dtype(value);
                for (slot, part) in all.iter_mut().zip(self.read_parts(exchange, dtype, reg, start))
                {
                    slot.push(part);
                }
                start += slot_bytes(exchange, dtype);
            }
            gathered.push((reg, all));
        }
        Ok(gathered)
    }

    /// Writes every warp's parts to where all warps can read them, in the blocks that need them.
    pub(super) fn write_parts(
        &mut self,
        op: Op,
        exchange: &Exchange,
        parts: &Parts,
        to_cluster: bool,
    ) -> Result<(), Error> {
        let values: Vec<Value> = self.func.op(op).operands.clone();
        let blocks = exchange.blocks();
        let barrier = self.dsmem_barrier(op).filter(|_| to_cluster);
        let registers = live(parts);
        let peers = self.peers(exchange, &blocks);
        let mut start = self.scratch(op)?.start;
        for (&value, operand) in values.iter().zip(parts) {
            let dtype = self.dtype(value);
            for &reg in &registers {
                let Some(part) = operand[reg] else { continue };
                let address = self.exchange_address(exchange, dtype, reg, start, true);
                for &(rank, on) in &peers {
                    if let Some(barrier) = barrier {
                        let rank = rank.unwrap_or_else(|| self.threads.rank(self.e));
                        self.store_async((value, part), (address, rank), barrier, on);
                        continue;
                    }
                    match rank {
                        None => self.write_shared(value, &[part], address, on),
                        Some(rank) => self.store_dsmem(value, part, (address, rank), on),
                    }
                }
            }
            start += slot_bytes(exchange, dtype);
        }
        Ok(())
    }

    /// The ranks of the blocks that each thread writes its parts to, none for its own memory, and
    /// whether this thread is the one to do it.
    ///
    /// Where all lanes of a warp hold the same part, each of them writes to one block.
    fn peers(&mut self, exchange: &Exchange, blocks: &[u32]) -> Vec<(Option<Val>, Option<Val>)> {
        let e = self.e;
        let (lanes, warps) = (unused_bits(&exchange.lane), unused_bits(&exchange.warp));
        if blocks.is_empty() {
            return vec![(None, self.threads.all_zero(e, lanes, warps))];
        }
        let rank = self.threads.rank(e);
        if exchange.lane.iter().all(|&basis| basis == 0) {
            let mut lane = [0; LANE_BITS];
            lane[..blocks.len()].copy_from_slice(blocks);
            let other = self.threads.map(e, &lane, &[]);
            let spare = lanes & !((1 << blocks.len()) - 1);
            return vec![(Some(e.xor(rank, other)), self.threads.all_zero(e, spare, warps))];
        }
        let on = self.threads.all_zero(e, lanes, warps);
        let differ = (0..1 << blocks.len()).map(|i| crate::layout::f2::combine(blocks, i));
        let rank_of = |bits: u32| match bits {
            0 => None,
            bits => Some(e.xor(rank, e.int(e.i32(), i64::from(bits)))),
        };
        differ.map(|bits| (rank_of(bits), on)).collect()
    }

    fn read_parts(
        &mut self,
        exchange: &Exchange,
        dtype: DType,
        reg: usize,
        start: u32,
    ) -> Vec<Val> {
        let address = self.exchange_address(exchange, dtype, reg, start, false);
        self.read_vector(dtype, address, exchange.parts())
    }

    /// Elements side by side in shared memory, in as few accesses as it takes.
    fn read_vector(&mut self, dtype: DType, address: Val, count: u32) -> Vec<Val> {
        let e = self.e;
        let size = dtype.bytes() as u32;
        let at_once = (16 / size).min(count);
        let mut parts = Vec::new();
        for first in (0..count).step_by(at_once as usize) {
            let address = e.gep(e.i8(), address, e.int(e.i32(), i64::from(first * size)));
            let vector =
                e.load_aligned(e.vec(e.memory_ty(dtype), at_once), address, size * at_once);
            parts.extend((0..at_once).map(|i| from_memory(e, dtype, e.extract(vector, i))));
        }
        parts
    }

    /// Where a register's part is: this warp's own, or the first of all of them.
    fn exchange_address(
        &mut self,
        exchange: &Exchange,
        dtype: DType,
        reg: usize,
        start: u32,
        own: bool,
    ) -> Val {
        let e = self.e;
        let size = dtype.bytes() as u32;
        let scale = |bases: &[u32]| bases.iter().map(|b| b * size).collect::<Vec<u32>>();
        let (mut warp, mut block) = (scale(&exchange.warp), scale(&exchange.block));
        if !own {
            for &bit in &exchange.bits {
                match bit {
                    HwBit::Warp(i) => warp[i] = 0,
                    HwBit::Block(i) => block[i] = 0,
                    HwBit::Reg(_) | HwBit::Lane(_) => {}
                }
            }
        }
        let thread = self.threads.offset(e, &scale(&exchange.lane), &warp, &block);
        let offset = crate::layout::f2::combine(&exchange.reg, reg as u32) * size + start;
        self.shared_at(e.add(thread, e.int(e.i32(), i64::from(offset))))
    }

    /// Whether this bit of the warp or of the block's rank is set; the constant false for none.
    pub(super) fn is_set(&mut self, bit: HwBit) -> Val {
        let e = self.e;
        let is_zero = match bit {
            HwBit::Warp(i) => self.threads.is_first(e, 0, 1 << i, 0),
            HwBit::Block(i) => self.threads.is_first(e, 0, 0, 1 << i),
            HwBit::Reg(_) | HwBit::Lane(_) => None,
        };
        match is_zero {
            Some(is_zero) => e.icmp(IntPred::Eq, is_zero, e.bool(false)),
            None => e.bool(false),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ir::Shape;
    use crate::layout::{Blocked, HwIndex, LinearLayout, blocked_in};
    use crate::machine::exchange::steps;

    /// What each register of each thread holds, as text; by register, lane and warp.
    pub(in super::super) type Held = Vec<Vec<Vec<String>>>;

    pub(in super::super) fn layouts() -> Vec<LinearLayout> {
        let odd = LinearLayout {
            shape: Shape::new(&[8, 32]),
            reg: vec![8, 128],
            lane: vec![1, 64, 0, 4, 2],
            warp: vec![16, 32],
            block: vec![],
        };
        let gaps = LinearLayout {
            shape: Shape::new(&[4, 64]),
            reg: vec![2, 16],
            lane: vec![4, 8, 0, 64, 128],
            warp: vec![1, 32, 0],
            block: vec![],
        };
        let cluster = LinearLayout {
            shape: Shape::new(&[8, 64]),
            reg: vec![2, 64],
            lane: vec![4, 8, 0, 16, 0],
            warp: vec![1, 0],
            block: vec![32, 0, 128, 256],
        };
        let row = Shape::new(&[512]);
        let rows = blocked_in(row, &Blocked::cover(row, &[0], 4, 4), 4);
        let split = rows.over_blocks(&[4], 4);
        let all = vec![odd, gaps, rows, cluster, split];
        all.iter().for_each(|layout| layout.check().unwrap());
        all
    }

    /// Every element's position along the axis, as a letter. The warps of all blocks are numbered
    /// through, those of block 0 first.
    pub(in super::super) fn letters(layout: &LinearLayout, axis: usize) -> Held {
        let n_warps = layout.num_warps();
        let held = |reg, lane, warp| {
            let at = HwIndex { reg, lane, warp: warp % n_warps, block: warp / n_warps };
            format!("{},", layout.coord(layout.apply(at), axis))
        };
        (0..layout.num_regs())
            .map(|reg| {
                (0..LANES)
                    .map(|lane| {
                        (0..n_warps * layout.num_blocks()).map(|w| held(reg, lane, w)).collect()
                    })
                    .collect()
            })
            .collect()
    }

    /// Each thread's parts after an exchange, as the code reads them.
    pub(in super::super) fn exchanged(
        exchange: &Exchange,
        held: &Held,
        live: &[usize],
    ) -> Vec<(usize, Vec<Vec<Vec<String>>>)> {
        use crate::layout::f2::combine;
        let n_warps = 1 << exchange.warp.len();
        let place = |reg: usize, lane: usize, warp: usize| {
            (combine(&exchange.reg, reg as u32)
                ^ combine(&exchange.lane, lane as u32)
                ^ combine(&exchange.warp, (warp % n_warps) as u32)
                ^ combine(&exchange.block, (warp / n_warps) as u32)) as usize
        };
        let warps = held[0][0].len();
        // The scratch of each block.
        let empty = vec![String::new(); exchange.elements as usize];
        let mut scratch = vec![empty; warps / n_warps];
        let blocks = exchange.blocks();
        for &reg in live {
            for lane in 0..32 {
                for warp in 0..warps {
                    for peer in (0..1 << blocks.len()).map(|i| combine(&blocks, i) as usize) {
                        let block = (warp / n_warps) ^ peer;
                        let slot = &mut scratch[block][place(reg, lane, warp)];
                        let mine = &held[reg][lane][warp];
                        assert!(slot.is_empty() || slot == mine, "two threads differ");
                        slot.clone_from(mine);
                    }
                }
            }
        }
        let read = |reg: usize, lane: usize, warp: usize| {
            let first = place(reg, lane, warp) & !(exchange.parts() as usize - 1);
            scratch[warp / n_warps][first..first + exchange.parts() as usize].to_vec()
        };
        let all =
            |reg: usize| (0..32).map(|l| (0..warps).map(|w| read(reg, l, w)).collect()).collect();
        live.iter().map(|&reg| (reg, all(reg))).collect()
    }

    fn run(layout: &LinearLayout, axis: usize, ordered: bool) -> Held {
        let mut held = letters(layout, axis);
        let mut live: Vec<usize> = (0..held.len()).collect();
        for step in steps(layout, axis, ordered) {
            match step {
                Step::Reg(bit) => {
                    live.retain(|reg| reg >> bit & 1 == 0);
                    for &reg in &live {
                        for lane in 0..32 {
                            for warp in 0..held[0][0].len() {
                                let upper = held[reg | 1 << bit][lane][warp].clone();
                                held[reg][lane][warp] += &upper;
                            }
                        }
                    }
                }
                Step::Lane(bit) => {
                    let before = held.clone();
                    for &reg in &live {
                        for lane in 0..32_usize {
                            for warp in 0..held[0][0].len() {
                                let at = |lane: usize| before[reg][lane][warp].clone();
                                let (low, high) = (lane & !(1 << bit), lane | 1 << bit);
                                held[reg][lane][warp] = at(low) + &at(high);
                            }
                        }
                    }
                }
                Step::Warps(exchange) => {
                    for (reg, parts) in exchanged(&exchange, &held.clone(), &live) {
                        for lane in 0..32 {
                            for warp in 0..held[0][0].len() {
                                held[reg][lane][warp] = parts[lane][warp].concat();
                            }
                        }
                    }
                }
            }
        }
        live.into_iter().map(|reg| held[reg].clone()).collect()
    }

    #[test]
    fn every_thread_ends_with_the_whole_axis_in_order() {
        for layout in layouts() {
            for axis in 0..layout.shape.rank() {
                let extent = layout.shape.extent(axis);
                let all: String = (0..extent).map(|i| format!("{i},")).collect();
                for part in run(&layout, axis, true).concat().concat() {
                    assert_eq!(part, all);
                }
                for part in run(&layout, axis, false).concat().concat() {
                    let mut numbers: Vec<usize> =
                        part.trim_end_matches(',').split(',').map(|n| n.parse().unwrap()).collect();
                    numbers.sort_unstable();
                    assert_eq!(numbers, (0..extent).collect::<Vec<usize>>());
                }
            }
        }
    }

    #[test]
    fn an_op_crosses_warps_once() {
        for layout in layouts() {
            let steps = steps(&layout, layout.shape.rank() - 1, false);
            let crossings = steps.iter().filter(|step| matches!(step, Step::Warps(_))).count();
            assert_eq!(crossings, 1, "{steps:?}");
        }
    }
}
