//! Inclusive scans, for any layout.
//!
//! A scan by recursive doubling over the bits of the axis, from the lowest. Before a bit, every element has the scan of its run and
//! each run its total; the bit joins two adjacent runs: the elements of the later one combine with the earlier one's total,
//! and the totals combine. A reverse scan swaps earlier and later.
//!
//! ```text
//! elements  a  b  c  d        runs of 1
//! bit 0     a ab  c cd        totals ab, cd
//! bit 1     a ab abc abcd     total abcd
//! ```

use super::super::llvm::Val;
use super::collective::{Partial, Parts, Scan, at, live, put};
use super::lowering::Lowering;
use crate::Error;
use crate::ir::{Op, OpKind};
use crate::machine::Across;
use crate::machine::exchange::{self, Exchange};

impl Lowering<'_> {
    /// What is left of a scan after its exchanges.
    pub(super) fn scan(&mut self, op: Op) -> Result<(), Error> {
        let (scan, next) = self.scanned(op)?;
        if next < exchange::steps_of(self.lir, op).len() {
            return Err(Error::bug("a scan lacks a step"));
        }
        for (&result, registers) in self.func.op(op).results.iter().zip(scan.elements) {
            self.set(result, registers.into_iter().flatten().collect::<Vec<Val>>());
        }
        Ok(())
    }

    /// A scan so far, and the number of its next step.
    fn scanned(&mut self, op: Op) -> Result<(Scan, usize), Error> {
        if let Some(Partial::Scan(scan, next)) = self.partial.remove(&op) {
            return Ok((scan, next));
        }
        let OpKind::Scan { reverse, combine, .. } = self.func.op(op).kind else {
            return Err(Error::bug("a scan that is none"));
        };
        let operands = self.operands(op)?;
        let elements: Parts =
            operands.iter().map(|o| o.iter().copied().map(Some).collect()).collect();
        let totals = elements.clone();
        Ok((Scan { op, combine, reverse, elements, totals, done: 0 }, 0))
    }

    /// A step within a warp.
    pub(super) fn scan_across(&mut self, op: Op, across: Across) -> Result<(), Error> {
        let (mut scan, next) = self.scanned(op)?;
        match across {
            Across::Registers(bit) => self.scan_registers(&mut scan, bit)?,
            Across::Lanes(bit) => self.scan_lanes(&mut scan, bit)?,
        }
        self.partial.insert(op, Partial::Scan(scan, next + 1));
        Ok(())
    }

    /// Writes each warp's totals to where the others read them.
    pub(super) fn store_totals(&mut self, op: Op, to_cluster: bool) -> Result<(), Error> {
        let (scan, next) = self.scanned(op)?;
        let exchange = self.exchange_at(op, next)?;
        self.write_parts(op, &exchange, &scan.totals, to_cluster)?;
        self.partial.insert(op, Partial::Scan(scan, next));
        Ok(())
    }

    /// Reads those of all warps, and takes those of earlier ones.
    pub(super) fn load_totals(&mut self, op: Op) -> Result<(), Error> {
        let (mut scan, next) = self.scanned(op)?;
        let exchange = self.exchange_at(op, next)?;
        self.scan_warps(&mut scan, &exchange)?;
        self.partial.insert(op, Partial::Scan(scan, next + 1));
        Ok(())
    }

    fn scan_registers(&mut self, scan: &mut Scan, bit: usize) -> Result<(), Error> {
        let flag = 1 << bit;
        for run in live(&scan.totals) {
            if run & flag != 0 {
                continue;
            }
            let (earlier, later) = if scan.reverse { (run | flag, run) } else { (run, run | flag) };
            let (Some(before), Some(after)) = (at(&scan.totals, earlier), at(&scan.totals, later))
            else {
                continue;
            };
            for reg in registers_of(scan, later) {
                let Some(own) = at(&scan.elements, reg) else { continue };
                let joined = self.combine(scan.op, scan.combine, &before, &own)?;
                put(&mut scan.elements, reg, &joined);
            }
            let total = self.combine(scan.op, scan.combine, &before, &after)?;
            scan.totals.iter_mut().for_each(|registers| registers[run | flag] = None);
            put(&mut scan.totals, run, &total);
        }
        scan.done |= flag;
        Ok(())
    }

    fn scan_lanes(&mut self, scan: &mut Scan, bit: usize) -> Result<(), Error> {
        let e = self.e;
        let lower = self.threads.all_zero(e, 1 << bit, 0).unwrap_or_else(|| e.bool(true));
        let is_earlier = if scan.reverse { e.not(lower) } else { lower };
        for run in live(&scan.totals) {
            let Some(mine) = at(&scan.totals, run) else { continue };
            let theirs = self.of_lane(bit, &mine);
            self.take_total(scan, run, &theirs, is_earlier)?;
            let (low, high) = self.in_order(bit, &mine, &theirs);
            let (left, right) = if scan.reverse { (high, low) } else { (low, high) };
            let total = self.combine(scan.op, scan.combine, &left, &right)?;
            put(&mut scan.totals, run, &total);
        }
        Ok(())
    }

    /// The elements of a run take an earlier total, unless `keep`.
    fn take_total(
        &mut self,
        scan: &mut Scan,
        run: usize,
        total: &[Val],
        keep: Val,
    ) -> Result<(), Error> {
        for reg in registers_of(scan, run) {
            let Some(own) = at(&scan.elements, reg) else { continue };
            let joined = self.combine(scan.op, scan.combine, total, &own)?;
            let taken = own.iter().zip(joined).map(|(&own, new)| self.e.select(keep, own, new));
            let taken: Vec<Val> = taken.collect();
            put(&mut scan.elements, reg, &taken);
        }
        Ok(())
    }

    fn scan_warps(&mut self, scan: &mut Scan, exchange: &Exchange) -> Result<(), Error> {
        let e = self.e;
        // The place of this warp among those exchanged, in the order of the scan.
        let bits: Vec<Val> = exchange
            .bits
            .iter()
            .map(|&bit| self.is_set(bit))
            .map(|is_set| if scan.reverse { e.not(is_set) } else { is_set })
            .collect();
        let is_at = |place: usize| {
            let tests = bits.iter().enumerate().map(|(i, &bit)| match place >> i & 1 {
                0 => e.not(bit),
                _ => bit,
            });
            tests.reduce(|a, b| e.and(a, b)).unwrap_or_else(|| e.bool(true))
        };
        for (run, mut all) in self.gather(scan.op, exchange, &scan.totals.clone())? {
            if scan.reverse {
                all.reverse();
            }
            let mut running = all[0].clone();
            let mut earlier = running.clone();
            for (place, total) in all.iter().enumerate().skip(1) {
                let is_here = is_at(place);
                let taken = earlier.iter().zip(&running);
                earlier = taken.map(|(&old, &new)| e.select(is_here, new, old)).collect();
                running = self.combine(scan.op, scan.combine, &running, total)?;
            }
            self.take_total(scan, run, &earlier, is_at(0))?;
            put(&mut scan.totals, run, &running);
        }
        Ok(())
    }
}

/// The registers of a run.
fn registers_of(scan: &Scan, run: usize) -> Vec<usize> {
    let n = scan.elements.first().map_or(0, Vec::len);
    (0..n).filter(|reg| reg & !scan.done == run).collect()
}

#[cfg(test)]
mod tests {
    use super::super::reduce::tests::{exchanged, layouts, letters};
    use super::*;
    use crate::layout::{HwBit, LinearLayout};
    use crate::machine::exchange::Step;

    /// By register, lane and warp.
    type Texts = Vec<Vec<Vec<String>>>;

    /// What a step does for a run of registers in one lane and warp: the registers that get something in
    /// front, what that is, and the run's total after it.
    struct Part {
        targets: usize,
        before: String,
        total: String,
    }

    /// Within a thread or a warp.
    fn near(step: &Step, old: &Texts, at: [usize; 3], reverse: bool) -> Part {
        let [run, lane, warp] = at;
        match step {
            Step::Reg(bit) => {
                let (low, high) = (run, run | 1 << bit);
                let (first, then) = if reverse { (high, low) } else { (low, high) };
                let before = old[first][lane][warp].clone();
                let total = before.clone() + &old[then][lane][warp];
                Part { targets: then, before, total }
            }
            Step::Lane(bit) => {
                let own = (lane >> bit & 1 == 1) == reverse;
                let other = &old[run][lane ^ 1 << bit][warp];
                let mine = &old[run][lane][warp];
                let (before, total) = match own {
                    true => (String::new(), mine.clone() + other),
                    false => (other.clone(), other.clone() + mine),
                };
                Part { targets: run, before, total }
            }
            Step::Warps(_) => unreachable!("between warps"),
        }
    }

    /// Between warps and blocks, of which `all` are the totals.
    fn far(
        exchange: &Exchange,
        all: &[String],
        n_warps: usize,
        at: [usize; 3],
        reverse: bool,
    ) -> Part {
        let [run, _, warp] = at;
        let mut all = all.to_vec();
        let bits = exchange.bits.iter().enumerate();
        let mut place: usize = bits
            .map(|(i, bit)| match *bit {
                HwBit::Warp(bit) => (warp >> bit & 1) << i,
                HwBit::Block(bit) => (warp >> (n_warps + bit) & 1) << i,
                HwBit::Reg(_) | HwBit::Lane(_) => 0,
            })
            .sum();
        if reverse {
            all.reverse();
            place = all.len() - 1 - place;
        }
        Part { targets: run, before: all[..place].concat(), total: all.concat() }
    }

    /// The scan on text, by the same rules as the code.
    fn scanned(layout: &LinearLayout, axis: usize, reverse: bool) -> Texts {
        let mut elements = letters(layout, axis);
        let mut totals = elements.clone();
        let (n, warps) = (elements.len(), elements[0][0].len());
        let mut runs: Vec<usize> = (0..n).collect();
        let mut done = 0;
        for step in exchange::steps(layout, axis, true) {
            let old = totals.clone();
            if let Step::Reg(bit) = step {
                runs.retain(|reg| reg >> bit & 1 == 0);
            }
            let parts = match &step {
                Step::Warps(exchange) => exchanged(exchange, &old, &runs),
                Step::Reg(_) | Step::Lane(_) => Vec::new(),
            };
            let threads = (0..32_usize).flat_map(|lane| (0..warps).map(move |warp| (lane, warp)));
            for (run, (lane, warp)) in
                runs.iter().flat_map(|&run| threads.clone().map(move |t| (run, t)))
            {
                let at = [run, lane, warp];
                let part = match &step {
                    Step::Warps(exchange) => {
                        let (_, all) = parts.iter().find(|(reg, _)| *reg == run).unwrap();
                        far(exchange, &all[lane][warp], layout.warp.len(), at, reverse)
                    }
                    step => near(step, &old, at, reverse),
                };
                for reg in (0..n).filter(|reg| reg & !done == part.targets) {
                    let own = &mut elements[reg][lane][warp];
                    *own = part.before.clone() + own;
                }
                totals[run][lane][warp] = part.total;
            }
            if let Step::Reg(bit) = step {
                done |= 1 << bit;
            }
        }
        elements
    }

    fn run(layout: &LinearLayout, axis: usize, reverse: bool) {
        let last = layout.shape.extent(axis) - 1;
        for (scanned, own) in scanned(layout, axis, reverse).iter().zip(letters(layout, axis)) {
            for (scanned, own) in scanned.iter().flatten().zip(own.iter().flatten()) {
                let at: usize = own.trim_end_matches(',').parse().unwrap();
                let wanted: String = match reverse {
                    false => (0..=at).map(|i| format!("{i},")).collect(),
                    true => (at..=last).rev().map(|i| format!("{i},")).collect(),
                };
                assert_eq!(*scanned, wanted);
            }
        }
    }

    #[test]
    fn every_element_gets_those_before_it_in_order() {
        for layout in layouts() {
            for axis in 0..layout.shape.rank() {
                run(&layout, axis, false);
                run(&layout, axis, true);
            }
        }
    }
}
