//! Index tiles and addresses: how the registers of a thread differ.
//!
//! A layout is linear, and so is an offset: the registers that a bit of their number tells apart differ
//! by one amount, in every thread the same. Here each register of such a tile is computed from a
//! neighbor by one addition of that amount, and a multiplication by a stride is done once a bit:
//!
//! ```text
//! i = iota                  [t, t+128, t+256, t+384]           steps 128, 256
//! m = i * stride            m0 = t*stride, a = 128*stride, b = 256*stride
//!                           [m0, m0+a, m0+b, (m0+b)+a]         steps a, b
//! p = x + m                 [p0 = x+m0, p0+a, p0+b, (p0+b)+a]  steps a, b
//! ```
//!
//! LLVM's straight-line strength reduction finds the same, and took a quarter of the compilation of a
//! kernel whose operands may have any strides. It is left out (`llvm/machine.rs`).

use std::rc::Rc;

use super::lower::Lowering;
use crate::Error;
use crate::codegen::llvm::Val;
use crate::ir::{BinaryOp, DType, Op, OpKind, Value};

/// For each bit of a register's number: what a register with the bit has more than the one without it;
/// nothing where both are equal.
pub(super) type Steps = Rc<[Option<Val>]>;

/// The bit by which a register is told from an earlier one that it is computed from, and that one.
fn origin(register: usize) -> Option<(usize, usize)> {
    let bit = register.checked_ilog2()?;
    Some((bit as usize, register & !(1 << bit)))
}

impl Lowering<'_> {
    /// The steps of a value, if its registers are so regular.
    fn steps(&self, value: Value) -> Option<Steps> {
        let known = self.known_steps[value.index()].clone();
        let is_single = || self.values[value.index()].as_ref().is_some_and(|all| all.len() == 1);
        known.or_else(|| is_single().then(|| Rc::from([])))
    }

    /// The steps of an `iota`: constants, as its layout says.
    pub(super) fn note_iota_steps(&mut self, value: Value, bases: &[u32]) {
        if !is_wide(self.dtype(value)) {
            return;
        }
        let ty = self.e.register_ty(self.dtype(value));
        let step = |&basis: &u32| (basis != 0).then(|| self.e.int(ty, i64::from(basis)));
        self.known_steps[value.index()] = Some(bases.iter().map(step).collect());
    }

    /// The steps of a tile whose registers are those of another: `map` says which.
    pub(super) fn note_renamed_steps(&mut self, from: Value, to: Value, map: &[u32]) {
        self.known_steps[to.index()] = self.steps(from).and_then(|steps| renamed(&steps, map));
    }

    /// Computes an op on tiles of regular registers; says whether it did.
    pub(super) fn stepped(&mut self, op: Op) -> Result<bool, Error> {
        let data = self.func.op(op);
        let result = data.results[0];
        let n = self.lir.num_regs(result) as usize;
        if !n.is_power_of_two() || n == 1 {
            return Ok(false);
        }
        let Some(steps) = self.result_steps(op, n.ilog2() as usize) else { return Ok(false) };
        let first: Vec<Val> = self.operands(op)?.iter().map(|operand| operand[0]).collect();
        let mut all = vec![self.one(op, &first)?];
        for register in 1..n {
            let Some((bit, before)) = origin(register) else { continue };
            let before = all[before];
            all.push(match at(&steps, bit) {
                None => before,
                Some(step) if self.is_ptr(result) => {
                    self.e.gep(self.e.memory_ty(self.dtype(result)), before, step)
                }
                Some(step) => self.e.add(before, step),
            });
        }
        self.set(result, all);
        self.known_steps[result.index()] = Some(steps);
        Ok(true)
    }

    /// What the registers of a result differ by; code for it stands before the op's own.
    fn result_steps(&self, op: Op, bits: usize) -> Option<Steps> {
        let data = self.func.op(op);
        let operand = |i: usize| data.operands.get(i).and_then(|&value| self.steps(value));
        match data.kind {
            OpKind::MultipleOf(_) => operand(0),
            OpKind::Binary(op) if is_wide(self.dtype(data.results[0])) => {
                let (left, right) = (operand(0)?, operand(1)?);
                match op {
                    BinaryOp::Add => Some(self.sums(&left, &right, bits)),
                    BinaryOp::Sub if is_even(&right) => Some(left),
                    BinaryOp::Mul if is_even(&right) => self.scaled(&left, data.operands[1]),
                    BinaryOp::Mul if is_even(&left) => self.scaled(&right, data.operands[0]),
                    _ => None,
                }
            }
            // A narrower offset could wrap where an address does not.
            OpKind::PtrAdd if self.dtype(data.operands[1]).bytes() == 8 => {
                Some(self.sums(&operand(0)?, &operand(1)?, bits))
            }
            _ => None,
        }
    }

    fn sums(&self, left: &Steps, right: &Steps, bits: usize) -> Steps {
        let sum = |bit| match (at(left, bit), at(right, bit)) {
            (Some(left), Some(right)) => Some(self.e.add(left, right)),
            (one, other) => one.or(other),
        };
        (0..bits).map(sum).collect()
    }

    /// The steps times a factor whose registers are all equal.
    fn scaled(&self, steps: &Steps, factor: Value) -> Option<Steps> {
        let factor = self.values[factor.index()].as_ref()?[0];
        Some(steps.iter().map(|step| step.map(|step| self.e.mul(step, factor))).collect())
    }
}

fn at(steps: &Steps, bit: usize) -> Option<Val> {
    steps.get(bit).copied().flatten()
}

/// Whether all registers are equal.
fn is_even(steps: &Steps) -> bool {
    steps.iter().all(Option::is_none)
}

/// Dtypes that indices have.
fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

/// The steps of registers taken from others, if each bit of a number selects at most one bit there.
fn renamed(steps: &Steps, map: &[u32]) -> Option<Steps> {
    let bits = map.len().checked_ilog2().filter(|_| map.len().is_power_of_two())?;
    if map.first() != Some(&0) {
        return None;
    }
    let is_linear = (1..map.len()).all(|register| {
        origin(register).is_some_and(|(bit, before)| map[register] == map[before] ^ map[1 << bit])
    });
    let step = |bit: u32| match map[1 << bit] {
        0 => Some(None),
        from => from.is_power_of_two().then(|| at(steps, from.ilog2() as usize)),
    };
    if is_linear { (0..bits).map(step).collect() } else { None }
}
