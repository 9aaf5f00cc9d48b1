//! Straight-line strength reduction of index tiles and addresses over the registers of a thread.
//!
//! A layout is linear, and so is an offset: the registers that one bit of their number tells apart differ by one
//! *increment*, the same in every thread. Each register of such a tile is computed from a neighbor by one addition, and a
//! multiplication by a stride is done once a bit:
//!
//! ```text
//! i = iota                  [t, t+128, t+256, t+384]           increments 128, 256
//! m = i * stride            m0 = t*stride, a = 128*stride, b = 256*stride
//!                           [m0, m0+a, m0+b, (m0+b)+a]         increments scaled 0: a, b
//! p = x + m                 [p0 = x+m0, p0+a, p0+b, (p0+b)+a]  increments sum: a, b
//! ```
//!
//! LLVM's straight-line strength reduction finds the same, and took a quarter of the compilation of a kernel whose
//! operands may have any strides. It is left out (`llvm/machine.rs`).

use super::Code;
use super::selection::Increments;
use crate::ir::{BinaryOp, DType, Op, OpKind, Value};
use crate::layout::LayoutIr;

/// Selects the ops whose registers are computed from each other.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let mut pass = StrengthReduction { lir, linear: vec![None; lir.func.n_values()] };
    for op in lir.func.walk() {
        if let Some(increments) = pass.visit(op) {
            code.selection.increments.insert(op, increments);
        }
    }
}

struct StrengthReduction<'a> {
    lir: &'a LayoutIr,
    /// The bits of the register number at which each value has an increment, if its registers are linear.
    linear: Vec<Option<u32>>,
}

impl StrengthReduction<'_> {
    fn visit(&mut self, op: Op) -> Option<Increments> {
        let result = *self.lir.func.op(op).results.first()?;
        let n = self.lir.num_regs(result);
        if !n.is_power_of_two() || n == 1 {
            return None;
        }
        let (increments, bits) = self.of(op, result)?;
        self.linear[result.index()] = Some(bits);
        Some(increments)
    }

    /// The bits of a value; a single register has no increments.
    fn bits(&self, value: Value) -> Option<u32> {
        let is_single = self.lir.num_regs(value) == 1;
        self.linear[value.index()].or_else(|| is_single.then_some(0))
    }

    fn is_ptr(&self, value: Value) -> bool {
        self.lir.func.tile(value).is_ptr()
    }

    /// Whether its dtype is one that indices have.
    fn is_wide(&self, value: Value) -> bool {
        let dtype = self.lir.func.tile(value).dtype();
        matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
    }

    /// The increments of an op's result and the bits at which it has any.
    fn of(&self, op: Op, result: Value) -> Option<(Increments, u32)> {
        let data = self.lir.func.op(op);
        let operand = |i: usize| self.bits(*data.operands.get(i)?);
        match &data.kind {
            OpKind::Iota if self.is_wide(result) => {
                let bases = self.lir.layout(result)?.reg.clone();
                let bits = set(bases.iter().map(|&basis| basis != 0));
                Some((Increments::Constants(bases), bits))
            }
            kind if kind.is_view() && (self.is_ptr(result) || self.is_wide(result)) => {
                let from = operand(0)?;
                let renamed = renamed(&self.lir.view_registers(op)?)?;
                let has = |bit: &Option<u32>| bit.is_some_and(|bit| from >> bit & 1 != 0);
                let bits = set(renamed.iter().map(has));
                Some((Increments::Renamed(renamed), bits))
            }
            OpKind::MultipleOf(_) => Some((Increments::Same, operand(0)?)),
            OpKind::Binary(op) if self.is_wide(result) => {
                let (left, right) = (operand(0)?, operand(1)?);
                match op {
                    BinaryOp::Add => Some((Increments::Sum, left | right)),
                    BinaryOp::Sub if right == 0 => Some((Increments::Same, left)),
                    BinaryOp::Mul if right == 0 => Some((Increments::Scaled(0), left)),
                    BinaryOp::Mul if left == 0 => Some((Increments::Scaled(1), right)),
                    _ => None,
                }
            }
            // A narrower offset could wrap where an address does not.
            OpKind::PtrAdd if self.lir.func.tile(data.operands[1]).dtype().bytes() == 8 => {
                Some((Increments::Sum, operand(0)? | operand(1)?))
            }
            _ => None,
        }
    }
}

/// The number whose bits these are, the lowest first.
fn set(bits: impl Iterator<Item = bool>) -> u32 {
    bits.zip(0..).fold(0, |all, (is_set, bit)| all | u32::from(is_set) << bit)
}

/// The bits of registers taken from others, if each bit of a number selects at most one bit there.
fn renamed(map: &[u32]) -> Option<Vec<Option<u32>>> {
    let bits = map.len().checked_ilog2().filter(|_| map.len().is_power_of_two())?;
    if map.first() != Some(&0) {
        return None;
    }
    let is_linear = (1..map.len()).all(|register| {
        let bit = 1 << register.ilog2();
        map[register] == map[register & !bit] ^ map[bit]
    });
    let from = |bit: u32| match map[1 << bit] {
        0 => Some(None),
        from => from.is_power_of_two().then(|| Some(from.ilog2())),
    };
    if is_linear { (0..bits).map(from).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes};

    #[test]
    fn a_stride_is_multiplied_once_a_bit() {
        let lir = assigned(
            "
kernel gather(%x: *f32 readonly, %stride: i64, %y: *f32 exclusive) {
  %0 = iota : i64[1024]
  %1 = broadcast %stride : i64[1024]
  %2 = mul %0, %1 : i64[1024]
  %3 = broadcast %x : *f32[1024]
  %4 = ptr_add %3, %2 : *f32[1024]
  %5 = load %4 : f32[1024]
  %6 = broadcast %y : *f32[1024]
  %7 = ptr_add %6, %0 : *f32[1024]
  store %7, %5
  return
}
",
            4,
        );
        expect![[r#"
              ..
              return 9                                // return
            + select 0 increments 128, 256, 512       // iota
            + select 1 increments renamed -, -, -     // broadcast
            + select 2 increments scaled 0            // mul
            + select 3 increments renamed -, -, -     // broadcast
            + select 4 increments sum                 // ptr_add
              select 5 cache readonly                 // load
            + select 6 increments renamed -, -, -     // broadcast
            + select 7 increments sum                 // ptr_add
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "strength_reduction"));
    }

    #[test]
    fn a_product_of_tiles_is_not_linear() {
        let lir = assigned(
            "
kernel square(%x: *f32 readonly, %y: *f32 exclusive) {
  %0 = iota : i64[1024]
  %1 = mul %0, %0 : i64[1024]
  %2 = broadcast %x : *f32[1024]
  %3 = ptr_add %2, %1 : *f32[1024]
  %4 = load %3 : f32[1024]
  %5 = broadcast %y : *f32[1024]
  %6 = ptr_add %5, %0 : *f32[1024]
  store %6, %4
  return
}
",
            4,
        );
        expect![[r#"
              ..
              return 8                                // return
            + select 0 increments 128, 256, 512       // iota
              select 1 narrow s32                     // mul
            + select 2 increments renamed -, -, -     // broadcast
              select 4 cache readonly                 // load
            + select 5 increments renamed -, -, -     // broadcast
            + select 6 increments sum                 // ptr_add
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "strength_reduction"));
    }

    #[test]
    fn renamed_registers_keep_their_bits_in_another_order() {
        assert_eq!(renamed(&[0, 2, 1, 3]), Some(vec![Some(1), Some(0)]));
        assert_eq!(renamed(&[0, 0, 1, 1]), Some(vec![None, Some(0)]));
        assert_eq!(renamed(&[0, 3, 1, 2]), None);
        assert_eq!(renamed(&[1, 0]), None);
    }
}
