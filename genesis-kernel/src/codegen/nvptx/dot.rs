//! Dots: `mma.sync` on tensor cores, or FMAs of each thread's own elements.
//!
//! An operand in another layout is staged in shared memory once, or was copied there by `cp.async` (see [`MultistageBuffer`](crate::layout::MultistageBuffer)), and each step along K reads the registers
//! that it wants, in vectors or by `ldmatrix`, while the step before it multiplies. Which register is
//! which element is read off the layouts at thread 0: the other threads' elements differ from it by
//! the same XOR in accumulator and operands.
//!
//! ```text
//! m16n8k16: a = {(r, k..k+1), (r+8, k..), (r, k+8..), (r+8, k+8..)}, b = {(k..k+1, n), (k+8.., n)}
//! m16n8k32: the same of four neighbors along K and halves of 16;  m16n8k8: of one, and halves of 4
//! m8n8k4:   a = {(r, k)}, b = {(k, n)}: a quarter of an m16n8k8 of f64
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::super::elementwise::{self, Target as Machine, cast};
use super::super::llvm::{Ty, Val};
use super::lowering::Lowering;
use crate::Error;
use crate::ir::{DType, Op, Value};
use crate::layout::{DotUnit, HwIndex, LinearLayout, RegisterOperand};
use crate::machine::scratch::{own_staging, staged_bytes};
use crate::target::F64Mma;

/// An operand as the unit wants it; registers are read when they are first asked for.
pub(super) struct Fragment<'a> {
    operand: &'a RegisterOperand,
    value: Value,
    /// The register that holds each element, by its coordinates, in thread 0.
    at: BTreeMap<[u32; 2], u32>,
    registers: Vec<Option<Val>>,
    /// For each register, the group of the staging that brings it.
    group_of: Vec<usize>,
    /// Where the staging starts in shared memory, in bytes, and the slot of a ring to add.
    start: (u32, Option<Val>),
}

/// The register of each element of thread 0, by coordinates.
fn registers_by_element(layout: &LinearLayout) -> BTreeMap<[u32; 2], u32> {
    let element = |reg| {
        let flat = layout.apply(HwIndex { reg, ..HwIndex::default() });
        [layout.coord(flat, 0), layout.coord(flat, 1)]
    };
    (0..layout.num_regs()).map(|reg| (element(reg), reg)).collect()
}

impl<'a> Fragment<'a> {
    fn new(
        operand: &'a RegisterOperand,
        value: Value,
        registers: &[Val],
        start: (u32, Option<Val>),
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
        if let DotUnit::Wgmma(_) = plan.unit {
            return self.promote(op);
        }
        let sum = self.get(self.func.op(op).operands[2])?;
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
        let start = self.facts.memory.scratch(op).map_or(0, |bytes| bytes.start);
        let first = self.lir.dots.get(&op).map_or(0, |plan| staged_bytes(&plan.a));
        start + if number == 0 { 0 } else { first }
    }

    /// Writes the operands that go through shared memory there.
    pub(super) fn store_operands(&mut self, op: Op) -> Result<(), Error> {
        let lir = self.lir;
        let plan = lir.dots.get(&op).ok_or_else(|| Error::bug("a dot has no plan"))?;
        for (i, operand) in [&plan.a, &plan.b].into_iter().enumerate() {
            let Some(staging) = own_staging(operand) else { continue };
            let value = self.func.op(op).operands[i];
            let registers = self.get(value)?;
            self.store_shared(&staging.store, value, &registers, self.stage(op, i));
        }
        Ok(())
    }

    /// An operand as instructions take it from registers.
    pub(super) fn fragment(
        &mut self,
        op: Op,
        number: usize,
        operand: &'a RegisterOperand,
    ) -> Result<Fragment<'a>, Error> {
        let value = self.func.op(op).operands[number];
        if let Some(load) = operand.ring {
            let start = self.slot_of(load)?;
            return Ok(Fragment::new(operand, value, &[], start));
        }
        let registers = self.get(value)?;
        Ok(Fragment::new(operand, value, &registers, (self.stage(op, number), None)))
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

    fn dot_mma<'p>(
        &mut self,
        op: Op,
        unit: DotUnit,
        a: &mut Fragment<'p>,
        b: &mut Fragment<'p>,
        mut sum: Vec<Val>,
    ) -> Result<Vec<Val>, Error> {
        let data = self.func.op(op);
        let dtype = self.dtype(data.operands[0]);
        let elements = registers_by_element(self.layout(data.results[0])?);
        // Tiles start where the bits that a thread's registers have within a tile are 0.
        let tiles: Vec<[u32; 2]> = elements
            .keys()
            .copied()
            .filter(|[row, column]| row & 8 == 0 && column & 1 == 0)
            .collect();
        let depth = self.func.tile(data.operands[0]).shape.extent(1) as u32;
        let mut next = Some(self.mma_step(unit, [a, b], &tiles, 0)?);
        for k in (0..depth).step_by(unit.step() as usize) {
            let Some(step) = next.take() else { break };
            // The next step's words are on their way while this one multiplies.
            if k + unit.step() < depth {
                next = Some(self.mma_step(unit, [a, b], &tiles, k + unit.step())?);
            }
            for &[row, column] in &tiles {
                let places: Option<Vec<usize>> = [(0, 0), (0, 1), (8, 0), (8, 1)]
                    .into_iter()
                    .map(|(i, j)| elements.get(&[row + i, column + j]).map(|&reg| reg as usize))
                    .collect();
                let places = places.ok_or_else(|| Error::bug("a tile of a dot is torn"))?;
                let mut part: Vec<Val> = places.iter().map(|&reg| sum[reg]).collect();
                for (left, right) in step.products(unit, row, column) {
                    part = self.mma(unit, dtype, left, right, &part);
                }
                places.iter().zip(part).for_each(|(&reg, value)| sum[reg] = value);
            }
        }
        Ok(sum)
    }

    /// The words that one step along K multiplies.
    fn mma_step<'p>(
        &mut self,
        unit: DotUnit,
        [a, b]: [&mut Fragment<'p>; 2],
        tiles: &[[u32; 2]],
        k: u32,
    ) -> Result<MmaStep, Error> {
        let mut step = MmaStep::default();
        for &[row, column] in tiles {
            if let Entry::Vacant(entry) = step.rows.entry(row) {
                let words = self.mma_words(unit, a, |i, j| [row + i, k + j], [2, 2])?;
                entry.insert(self.mma_parts(unit, words));
            }
            if let Entry::Vacant(entry) = step.columns.entry(column) {
                let words = self.mma_words(unit, b, |i, j| [k + j, column + i], [1, 2])?;
                entry.insert(self.mma_parts(unit, words));
            }
        }
        Ok(step)
    }

    /// The words as the unit multiplies them, of which it ignores the bits below tf32: f32 as one tf32,
    /// or as two whose sum is closer to it.
    fn mma_parts(&self, unit: DotUnit, words: Vec<Val>) -> Vec<Vec<Val>> {
        let e = self.e;
        let int = |n: i64| e.int(e.i32(), n);
        let bits = |value: Val| e.bitcast(value, e.i32());
        match unit {
            DotUnit::MmaTf32 => {
                // One multiply, where exact rounding takes three instructions that would take longer
                // than the products. It keeps tf32 numbers, infinities and NaN; others are at most
                // 0.7 of a last place off, up as often as down.
                let scale = e.float(e.f32(), 1.0 + 11.0 / f64::from(1 << 15));
                vec![words.into_iter().map(|word| bits(e.fmul(word, scale))).collect()]
            }
            DotUnit::MmaTf32x3 => {
                // To nearest, so that the product of the two rests is below what f32 holds.
                let large = |&word: &Val| e.and(e.add(bits(word), int(0x1000)), int(!0x1fff));
                let large: Vec<Val> = words.iter().map(large).collect();
                let rest = |(&word, &part)| bits(e.fsub(word, e.bitcast(part, e.f32())));
                let rests = words.iter().zip(&large).map(rest).collect();
                vec![large, rests]
            }
            DotUnit::Mma16
            | DotUnit::MmaInt8
            | DotUnit::MmaF64
            | DotUnit::Fma
            | DotUnit::Wgmma(_) => vec![words],
        }
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
                let parts: Vec<Val> =
                    (0..unit.packed()).map(&mut element).collect::<Result<_, _>>()?;
                words.push(match parts[..] {
                    [whole] => whole,
                    _ => e.bitcast(e.build_vec(&parts), e.i32()),
                });
            }
        }
        Ok(words)
    }

    /// Adds the product of one m16n8 tile to its sums.
    fn mma(&self, unit: DotUnit, dtype: DType, a: &[Val], b: &[Val], sum: &[Val]) -> Vec<Val> {
        let shape = match (unit, dtype) {
            (DotUnit::MmaF64, _) => return self.mma_f64(a, b, sum),
            (DotUnit::MmaTf32 | DotUnit::MmaTf32x3, _) => "m16n8k8.row.col.f32.tf32.tf32.f32",
            (DotUnit::MmaInt8, DType::U8) => "m16n8k32.row.col.s32.u8.u8.s32",
            (DotUnit::MmaInt8, _) => "m16n8k32.row.col.s32.s8.s8.s32",
            (_, DType::F16) => "m16n8k16.row.col.f32.f16.f16.f32",
            _ => "m16n8k16.row.col.f32.bf16.bf16.f32",
        };
        self.mma_sync(shape, a, b, sum)
    }

    /// The same of f64: one instruction where a GPU has it, else one for each half of the rows and of K, in order.
    fn mma_f64(&self, a: &[Val], b: &[Val], sum: &[Val]) -> Vec<Val> {
        match self.facts.gpu.features.mma_f64 {
            F64Mma::M16N8K8 => self.mma_sync("m16n8k8.row.col.f64.f64.f64.f64", a, b, sum),
            F64Mma::M8N8K4 => {
                let shape = "m8n8k4.row.col.f64.f64.f64.f64";
                let half = |rows: usize| {
                    let before = sum[2 * rows..][..2].to_vec();
                    (0..2).fold(before, |sum, k| {
                        self.mma_sync(shape, &a[rows + 2 * k..][..1], &b[k..][..1], &sum)
                    })
                };
                [half(0), half(1)].concat()
            }
        }
    }

    /// One instruction; its sums follow those before it in type and number.
    fn mma_sync(&self, shape: &str, a: &[Val], b: &[Val], sum: &[Val]) -> Vec<Val> {
        let e = self.e;
        let sums: Vec<Ty> = sum.iter().map(|&value| e.type_of(value)).collect();
        let args: Vec<Val> = a.iter().chain(b).chain(sum).copied().collect();
        let mut next = 0;
        let mut list = |count: usize| {
            let names: Vec<String> = (next..next + count).map(|i| format!("${i}")).collect();
            next += count;
            format!("{{{}}}", names.join(", "))
        };
        let [to, left, right, before] = [sum.len(), a.len(), b.len(), sum.len()].map(&mut list);
        let text = format!("mma.sync.aligned.{shape} {to}, {left}, {right}, {before};");
        let letter = |ty: Ty| match ty {
            _ if ty == e.f32() => "f",
            _ if ty == e.f64() => "d",
            _ => "r",
        };
        let outputs = sums.iter().map(|&ty| format!("={}", letter(ty)));
        let inputs = args.iter().map(|&arg| letter(e.type_of(arg)).to_owned());
        let constraints = outputs.chain(inputs).collect::<Vec<_>>().join(",");
        let call = e.inline_asm(e.structure(&sums), &text, &constraints, &args, false);
        e.set_convergent(call);
        (0..sum.len() as u32).map(|i| e.extract_value(call, i)).collect()
    }
}

/// The words of one step along K, by row and by column of their tiles; each as the parts whose sum it
/// is, the largest first.
#[derive(Default)]
struct MmaStep {
    rows: BTreeMap<u32, Vec<Vec<Val>>>,
    columns: BTreeMap<u32, Vec<Vec<Val>>>,
}

impl MmaStep {
    /// What is multiplied and added for one tile, the smallest products first.
    fn products(&self, unit: DotUnit, row: u32, column: u32) -> Vec<(&[Val], &[Val])> {
        let pairs: &[(usize, usize)] = match unit {
            // The product of the two small parts is below what f32 holds.
            DotUnit::MmaTf32x3 => &[(1, 0), (0, 1), (0, 0)],
            _ => &[(0, 0)],
        };
        let (left, right) = (&self.rows[&row], &self.columns[&column]);
        pairs.iter().map(|&(i, j)| (&left[i][..], &right[j][..])).collect()
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
