//! Products of tiles: tensor cores (`mma.sync`) or multiply-adds of each thread's own elements.
//!
//! An operand in another layout goes through shared memory once, and each step along K reads the
//! registers that it wants, in vectors. Which register is which element is read off the layouts at
//! thread 0: the other threads' elements differ from it by the same XOR in accumulator and operands.
//!
//! ```text
//! m16n8k16: a = {(r, k..k+1), (r+8, k..), (r, k+8..), (r+8, k+8..)}, b = {(k..k+1, n), (k+8.., n)}
//! ```

use std::collections::BTreeMap;

use super::super::elementwise::{self, Target as Machine, cast};
use super::super::llvm::Val;
use super::lower::Lowering;
use crate::Error;
use crate::ir::{DType, Op, OpKind, Value};
use crate::layout::{
    DotOperand, DotPlan, DotUnit, HwIndex, LayoutIr, LinearLayout, RegisterOperand,
};

/// Bytes of shared memory that a dot needs: both operands side by side.
pub(super) fn scratch_bytes(lir: &LayoutIr, op: Op) -> u32 {
    lir.dots.get(&op).map_or(0, |plan| staged_bytes(&plan.a) + staged_bytes(&plan.b))
}

fn staged_bytes(operand: &DotOperand) -> u32 {
    let staging = operand.registers().and_then(|operand| operand.staging.as_ref());
    staging.map_or(0, |plan| plan.bytes().next_multiple_of(16))
}

/// An operand as the unit wants it; registers are read when they are first asked for.
pub(super) struct Fragment<'a> {
    operand: &'a RegisterOperand,
    value: Value,
    /// The register that holds each element, by its coordinates, in thread 0.
    at: BTreeMap<[u32; 2], u32>,
    registers: Vec<Option<Val>>,
    /// For each register, the group of the staging that brings it.
    group_of: Vec<usize>,
    /// Where the staging starts in shared memory.
    start: u32,
}

/// The register of each element of thread 0, by coordinates.
fn registers_by_element(layout: &LinearLayout) -> BTreeMap<[u32; 2], u32> {
    let element = |reg| {
        let flat = layout.apply(HwIndex { reg, lane: 0, warp: 0 });
        [layout.coord(flat, 0), layout.coord(flat, 1)]
    };
    (0..layout.num_regs()).map(|reg| (element(reg), reg)).collect()
}

impl<'a> Fragment<'a> {
    fn new(
        operand: &'a RegisterOperand,
        value: Value,
        registers: &[Val],
        start: u32,
    ) -> Fragment<'a> {
        let n = operand.fragment.num_regs() as usize;
        let mut group_of = vec![0; n];
        let held = match &operand.staging {
            None => registers.iter().copied().map(Some).collect(),
            Some(plan) => {
                for (i, group) in plan.load.groups.iter().enumerate() {
                    group.regs.iter().for_each(|&reg| group_of[reg as usize] = i);
                }
                vec![None; n]
            }
        };
        let at = registers_by_element(&operand.fragment);
        Fragment { operand, value, at, registers: held, group_of, start }
    }

    /// The element at these coordinates, as thread 0 counts.
    fn get(&mut self, lowering: &mut Lowering<'_>, row: u32, column: u32) -> Result<Val, Error> {
        let missing = || Error::bug(format!("a dot's operand lacks element ({row}, {column})"));
        let reg = *self.at.get(&[row, column]).ok_or_else(missing)? as usize;
        if let (None, Some(plan)) = (self.registers[reg], &self.operand.staging) {
            let group = self.group_of[reg];
            let (value, start) = (self.value, self.start);
            lowering.load_shared_group(&plan.load, value, group, start, &mut self.registers);
        }
        self.registers[reg].ok_or_else(missing)
    }
}

impl<'a> Lowering<'a> {
    pub(super) fn dot(&mut self, op: Op) -> Result<(), Error> {
        let lir = self.lir;
        let plan = lir.dots.get(&op).ok_or_else(|| Error::bug("a dot has no plan"))?;
        self.stage_operands(op, plan)?;
        let sum = self.get(self.func.op(op).operands[2])?;
        if let DotUnit::Wgmma(kind) = plan.unit {
            let sum = self.dot_wgmma(op, plan, kind, &sum)?;
            return self.result(op, sum);
        }
        let in_shared = || Error::bug("a dot in registers has an operand in shared memory");
        let [left, right] =
            [plan.a.registers(), plan.b.registers()].map(|o| o.ok_or_else(in_shared));
        let mut a = self.fragment(op, 0, left?)?;
        let mut b = self.fragment(op, 1, right?)?;
        let sum = match plan.unit {
            DotUnit::Fma => self.dot_fma(op, &mut a, &mut b, sum.to_vec())?,
            unit => self.dot_mma(op, unit, &mut a, &mut b, sum.to_vec())?,
        };
        self.result(op, sum)
    }

    /// Where an operand's way through shared memory starts.
    fn stage(&self, op: Op, number: usize) -> u32 {
        let start = self.places.of(op).map_or(0, |bytes| bytes.start);
        let first = self.lir.dots.get(&op).map_or(0, |plan| staged_bytes(&plan.a));
        start + if number == 0 { 0 } else { first }
    }

    /// Writes the operands that go through shared memory there.
    fn stage_operands(&mut self, op: Op, plan: &DotPlan) -> Result<(), Error> {
        let Some(bytes) = self.places.of(op) else { return Ok(()) };
        self.before_shared_write(&bytes);
        for (i, operand) in [&plan.a, &plan.b].into_iter().enumerate() {
            let staging = operand.registers().and_then(|operand| operand.staging.as_ref());
            let Some(staging) = staging else { continue };
            let value = self.func.op(op).operands[i];
            let registers = self.get(value)?;
            self.store_shared(&staging.store, value, &registers, self.stage(op, i));
        }
        self.before_shared_read(bytes);
        Ok(())
    }

    /// An operand as instructions take it from registers.
    pub(super) fn fragment(
        &self,
        op: Op,
        number: usize,
        operand: &'a RegisterOperand,
    ) -> Result<Fragment<'a>, Error> {
        let value = self.func.op(op).operands[number];
        let registers = self.get(value)?;
        Ok(Fragment::new(operand, value, &registers, self.stage(op, number)))
    }

    fn dot_fma(
        &mut self,
        op: Op,
        a: &mut Fragment<'_>,
        b: &mut Fragment<'_>,
        mut sum: Vec<Val>,
    ) -> Result<Vec<Val>, Error> {
        let e = self.e;
        let data = self.func.op(op);
        let [from_a, from_b, to] = [0, 1, 2].map(|i| self.dtype(data.operands[i]));
        let layout = self.layout(data.results[0])?;
        let elements = registers_by_element(layout);
        let depth = self.func.tile(data.operands[0]).shape.extent(1) as u32;
        for k in 0..depth {
            for (&[row, column], &reg) in &elements {
                let left = cast(e, Machine::Nvptx, a.get(self, row, k)?, from_a, to);
                let right = cast(e, Machine::Nvptx, b.get(self, k, column)?, from_b, to);
                let reg = reg as usize;
                sum[reg] = elementwise::fma(e, Machine::Nvptx, to, &[left, right, sum[reg]])?;
            }
        }
        Ok(sum)
    }

    fn dot_mma(
        &mut self,
        op: Op,
        unit: DotUnit,
        a: &mut Fragment<'_>,
        b: &mut Fragment<'_>,
        mut sum: Vec<Val>,
    ) -> Result<Vec<Val>, Error> {
        let data = self.func.op(op);
        let OpKind::Dot { .. } = data.kind else {
            return Err(Error::bug("a dot that is none"));
        };
        let dtype = self.dtype(data.operands[0]);
        let elements = registers_by_element(self.layout(data.results[0])?);
        // Tiles start where the bits that a thread's registers have within a tile are 0.
        let tiles: Vec<[u32; 2]> = elements
            .keys()
            .copied()
            .filter(|[row, column]| row & 8 == 0 && column & 1 == 0)
            .collect();
        let depth = self.func.tile(data.operands[0]).shape.extent(1) as u32;
        for k in (0..depth).step_by(unit.step() as usize) {
            let mut lefts: BTreeMap<u32, Vec<Val>> = BTreeMap::new();
            let mut rights: BTreeMap<u32, Vec<Val>> = BTreeMap::new();
            for &[row, column] in &tiles {
                if let std::collections::btree_map::Entry::Vacant(e) = lefts.entry(row) {
                    e.insert(self.mma_words(unit, a, |i, j| [row + i, k + j], [2, 2])?);
                }
                if let std::collections::btree_map::Entry::Vacant(e) = rights.entry(column) {
                    e.insert(self.mma_words(unit, b, |i, j| [k + j, column + i], [1, 2])?);
                }
                let places: Option<Vec<usize>> = [(0, 0), (0, 1), (8, 0), (8, 1)]
                    .into_iter()
                    .map(|(i, j)| elements.get(&[row + i, column + j]).map(|&reg| reg as usize))
                    .collect();
                let places = places.ok_or_else(|| Error::bug("a tile of a dot is torn"))?;
                let old: Vec<Val> = places.iter().map(|&reg| sum[reg]).collect();
                let new = self.mma(unit, dtype, &lefts[&row], &rights[&column], &old);
                places.iter().zip(new).for_each(|(&reg, value)| sum[reg] = value);
            }
        }
        Ok(sum)
    }

    /// The words of one operand of one instruction: rows (or columns) 0 and 8, then the halves of K.
    /// `at` gives the coordinates from those outside and those along K.
    pub(super) fn mma_words(
        &mut self,
        unit: DotUnit,
        fragment: &mut Fragment<'_>,
        at: impl Fn(u32, u32) -> [u32; 2],
        counts: [u32; 2],
    ) -> Result<Vec<Val>, Error> {
        let e = self.e;
        let half = unit.step() / 2;
        let mut words = Vec::new();
        for high in 0..counts[1] {
            for outer in 0..counts[0] {
                let mut element = |j| {
                    let [row, column] = at(8 * outer, half * high + j);
                    fragment.get(self, row, column)
                };
                let word = match unit {
                    DotUnit::MmaTf32 => {
                        let value = element(0)?;
                        e.inline_asm(e.i32(), "cvt.rna.tf32.f32 $0, $1;", "=r,f", &[value], false)
                    }
                    DotUnit::Mma16 | DotUnit::Fma | DotUnit::Wgmma(_) => {
                        let pair = [element(0)?, element(1)?];
                        e.bitcast(e.build_vec(&pair), e.i32())
                    }
                };
                words.push(word);
            }
        }
        Ok(words)
    }

    fn mma(&self, unit: DotUnit, dtype: DType, a: &[Val], b: &[Val], sum: &[Val]) -> Vec<Val> {
        let e = self.e;
        let shape = match (unit, dtype) {
            (DotUnit::MmaTf32, _) => "m16n8k8.row.col.f32.tf32.tf32.f32",
            (_, DType::F16) => "m16n8k16.row.col.f32.f16.f16.f32",
            _ => "m16n8k16.row.col.f32.bf16.bf16.f32",
        };
        let text = format!(
            "mma.sync.aligned.{shape} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, \
             {{$10, $11, $12, $13}};"
        );
        let args: Vec<Val> = a.iter().chain(b).chain(sum).copied().collect();
        let constraints = "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f";
        let result = e.structure(&[e.f32(); 4]);
        let call = e.inline_asm(result, &text, constraints, &args, false);
        e.set_convergent(call);
        (0..4).map(|i| e.extract_value(call, i)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Shape;
    use crate::layout::mma;

    #[test]
    fn thread_zero_holds_corners_of_tiles() {
        let layout = mma::accumulator(Shape::new(&[32, 16]), [1, 1], 1);
        let elements = registers_by_element(&layout);
        assert_eq!(elements.len(), 16);
        for corner in [[0, 0], [0, 8], [16, 0], [16, 8]] {
            for inner in [[0, 0], [0, 1], [8, 0], [8, 1]] {
                assert!(elements.contains_key(&[corner[0] + inner[0], corner[1] + inner[1]]));
            }
        }
        let a = registers_by_element(&mma::operand_a(Shape::new(&[32, 16]), [1, 1], 2, 1));
        assert_eq!((a[&[0, 1]], a[&[8, 0]], a[&[0, 8]], a[&[16, 0]]), (1, 2, 4, 8));
        let b = registers_by_element(&mma::operand_b(Shape::new(&[16, 16]), [1, 1], 2, 1));
        assert_eq!((b[&[1, 0]], b[&[8, 0]], b[&[0, 8]]), (1, 2, 4));
    }
}
