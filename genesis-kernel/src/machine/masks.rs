//! Masks that are known for a whole register: whatever the thread, its index is inside of a tile's own
//! extent, or in what was added to make the extent a power of two.
//!
//! A register's part of an `iota` is fixed and a thread's part has bits of its own, so each register
//! has an exact range. Loads, stores and work of registers that are all padding then leave no code.
//!
//! ```text
//! iota 4096 < 2560, reg [.., 1024, 2048]     registers of 0, 1024, 2048, 3072 + 0..1023
//!   -> true, true, (thread < 512), false     select 5 mask T T . F       // cmp
//! load %p, %5, %zero                         select 7 guards T T . F     // load: the last is not done
//! select %5, %x, %y                          select 8 mask %1 %1 . %2    // select: x, x, a select, y
//! ```
//!
//! Where a mask is constant over longer runs than a register's distance from another, both are equal, and the first one
//! computes it:
//!
//! ```text
//! iota 1024 < n, n a multiple of 4           select 5 mask . =0 =0 =0 . =4 =4 =4
//! ```

use std::collections::BTreeMap;

use super::Code;
use super::selection::{Guard, Register};
use crate::analysis::AxisAnalysis;
use crate::ir::{BinaryOp, DType, Op, OpKind, Predicate, UnaryOp, Value};
use crate::layout::{Conversion, LayoutIr, f2, view_registers};

/// Selects the registers of masks, and of what they select, that need no code, and the accesses that need no predicate.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let axes = AxisAnalysis::of(&lir.func);
    let mut pass = KnownMasks { lir, axes, known: BTreeMap::new() };
    let masks = &mut code.selection.masks;
    for op in lir.func.walk() {
        let registers = pass.visit(op);
        if registers.iter().any(Option::is_some) {
            masks.registers.insert(op, registers);
        }
        let guards = pass.guards(op);
        if guards.iter().any(|&guard| guard != Guard::Masked) {
            masks.guards.insert(op, guards);
        }
    }
}

/// For each register whether it is true or false in every thread, if that is known.
type Known = Vec<Option<bool>>;

struct KnownMasks<'a> {
    lir: &'a LayoutIr,
    axes: AxisAnalysis,
    /// Masks with known registers.
    known: BTreeMap<Value, Known>,
}

impl KnownMasks<'_> {
    fn known(&self, value: Value, register: usize) -> Option<bool> {
        self.known.get(&value)?[register]
    }

    /// Notes what is known of an op's result; gives the registers that need no code, of an op that has any.
    fn visit(&mut self, op: Op) -> Vec<Option<Register>> {
        let data = self.lir.func.op(op);
        let &[result] = data.results.as_slice() else { return Vec::new() };
        let Some(tile) = self.lir.func.ty(result).as_tile() else { return Vec::new() };
        let is_mask = !tile.is_ptr() && tile.dtype() == DType::Bool;
        if !is_mask && data.kind != OpKind::Select {
            return Vec::new();
        }
        let n = self.lir.num_regs(result) as usize;
        if let Some(known) = self.moved(op, n) {
            self.note(result, known);
            return Vec::new();
        }
        if !data.kind.is_elementwise() {
            return Vec::new();
        }
        let equal = if is_mask { self.equal_registers(result) } else { 0 };
        let (mut known, mut registers): (Known, Vec<Option<Register>>) = (Vec::new(), Vec::new());
        for register in 0..n {
            if register & equal != 0 {
                let first = register & !equal;
                known.push(known[first]);
                registers.push(Some(Register::Equal(first as u32)));
                continue;
            }
            let (is_true, selected) = self.one(op, register);
            known.push(is_true);
            registers.push(selected);
        }
        if is_mask {
            self.note(result, known);
        }
        registers
    }

    fn note(&mut self, value: Value, known: Known) {
        if known.iter().any(Option::is_some) {
            self.known.insert(value, known);
        }
    }

    /// What is known of masks that are constants, or registers of others under other numbers.
    fn moved(&self, op: Op, n: usize) -> Option<Known> {
        let data = self.lir.func.op(op);
        let renamed = |map: Vec<u32>| {
            let known = |&from: &u32| self.known(data.operands[0], from as usize);
            map.iter().map(known).collect()
        };
        match &data.kind {
            OpKind::Const(scalar) => Some(vec![Some(scalar.to_i64() != 0); n]),
            kind if kind.is_view() => Some(renamed(self.lir.view_registers(op)?)),
            OpKind::ConvertLayout => match self.lir.conversion(op) {
                Some(Conversion::Registers(map)) => Some(renamed(map)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a register of an elementwise op is known, and how it is had without code.
    fn one(&self, op: Op, register: usize) -> (Option<bool>, Option<Register>) {
        let data = self.lir.func.op(op);
        let known = |i: usize| self.known(data.operands[i], register);
        let constant = |value: bool| (Some(value), Some(Register::Constant(value)));
        let operand = |i: usize| (known(i), Some(Register::Operand(i)));
        match data.kind {
            OpKind::Compare(predicate) => {
                let is_true = self.compared(predicate, &data.operands, register as u32);
                is_true.map_or((None, None), constant)
            }
            OpKind::Select => match known(0) {
                Some(true) => operand(1),
                Some(false) => operand(2),
                None => (None, None),
            },
            OpKind::Binary(BinaryOp::And) => match (known(0), known(1)) {
                (Some(false), _) | (_, Some(false)) => constant(false),
                (Some(true), _) => operand(1),
                (_, Some(true)) => operand(0),
                (None, None) => (None, None),
            },
            OpKind::Binary(BinaryOp::Or) => match (known(0), known(1)) {
                (Some(a), Some(b)) => constant(a || b),
                _ => (None, None),
            },
            OpKind::Unary(UnaryOp::Not) => known(0).map_or((None, None), |is| constant(!is)),
            _ => (None, None),
        }
    }

    /// What a comparison of integers gives in every thread, for one register of its result.
    fn compared(&self, predicate: Predicate, operands: &[Value], register: u32) -> Option<bool> {
        let (a, b) = (self.range(operands[0], register)?, self.range(operands[1], register)?);
        let (less, at_most) = (a.1 < b.0, a.1 <= b.0);
        let (more, at_least) = (a.0 > b.1, a.0 >= b.1);
        let either = |yes: bool, no: bool| (yes || no).then_some(yes);
        match predicate {
            Predicate::Lt => either(less, at_least),
            Predicate::Le => either(at_most, more),
            Predicate::Gt => either(more, at_most),
            Predicate::Ge => either(at_least, less),
            Predicate::Eq | Predicate::Ne => None,
        }
    }

    /// The smallest and the largest value, in any thread, of a register of signed integers, where they follow from its place
    /// and constants.
    fn range(&self, value: Value, register: u32) -> Option<(i64, i64)> {
        let op = self.lir.func.def_op(value)?;
        let data = self.lir.func.op(op);
        if !self.lir.func.tile(value).dtype().is_signed_int() {
            return None;
        }
        match &data.kind {
            OpKind::Const(scalar) => Some((scalar.to_i64(), scalar.to_i64())),
            OpKind::Iota => {
                let layout = self.lir.layout(value)?;
                let threads = layout.lane.iter().chain(&layout.warp).chain(&layout.block);
                let first = i64::from(f2::combine(&layout.reg, register));
                Some((first, first + i64::from(threads.fold(0, |bits, basis| bits | basis))))
            }
            kind if kind.is_view() => {
                let operand = data.operands[0];
                let from = match (self.lir.layout(operand), self.lir.layout(value)) {
                    (Some(from), Some(to)) => {
                        *view_registers(&data.kind, from, to)?.get(register as usize)?
                    }
                    _ => 0,
                };
                self.range(operand, from)
            }
            OpKind::Binary(BinaryOp::Add) => {
                let a = self.range(data.operands[0], register)?;
                let b = self.range(data.operands[1], register)?;
                Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
            }
            _ => None,
        }
    }

    /// The bits of the register number that do not change a mask: it is constant over as long runs.
    fn equal_registers(&self, value: Value) -> usize {
        let Some(layout) = self.lir.layout(value) else { return 0 };
        let info = self.axes.of_value(&self.lir.func, value);
        let is_equal = |basis: u32| {
            (0..layout.shape.rank()).any(|axis| {
                let step = u64::from(layout.coord(basis, axis));
                step != 0 && step < info.constancy(axis)
            })
        };
        let bits = layout.reg.iter().enumerate().filter(|&(_, &basis)| is_equal(basis));
        bits.fold(0, |mask, (i, _)| mask | 1 << i)
    }

    /// In which threads the accesses of an op with a mask are done. An atomic is an access a register, and is never left out.
    fn guards(&self, op: Op) -> Vec<Guard> {
        let data = self.lir.func.op(op);
        let position = data.kind.mask_operand();
        let Some(&mask) = position.and_then(|i| data.operands.get(i)) else { return Vec::new() };
        let is_atomic = data.kind.is_atomic();
        let leaders: Vec<u32> = match is_atomic {
            true => (0..self.lir.num_regs(mask)).collect(),
            false => self.lir.access(op).groups.iter().map(|group| group[0]).collect(),
        };
        let guard = |&leader: &u32| match self.known(mask, leader as usize) {
            Some(true) => Guard::Always,
            Some(false) if !is_atomic => Guard::Never,
            _ => Guard::Masked,
        };
        leaders.iter().map(guard).collect()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes};

    #[test]
    fn registers_of_padding_leave_no_code() {
        let lir = assigned(
            "
kernel padded(%x: *f32 readonly multiple_of 16, %y: *f32 exclusive multiple_of 16) {
  %0 = iota : i64[4096]
  %1 = const 2560 : i64
  %2 = broadcast %1 : i64[4096]
  %3 = cmp lt %0, %2 : bool[4096]
  %4 = broadcast %x : *f32[4096]
  %5 = ptr_add %4, %0 : *f32[4096]
  %6 = const 0.0 : f32
  %7 = broadcast %6 : f32[4096]
  %8 = load %5, %3, %7 : f32[4096]
  %9 = exp2_approx %8 : f32[4096]
  %10 = select %3, %9, %7 : f32[4096]
  %11 = broadcast %y : *f32[4096]
  %12 = ptr_add %11, %0 : *f32[4096]
  store %12, %10, %3
  return
}
",
            4,
        );
        expect![[r#"
              ..
              return 14                               // return
            + select 3 mask T =0 =0 =0 T =4 =4 =4 T =8 =8 =8 T =12 =12 =12 T =16 =16 =16 F =20 =20 =20 F =24 =24 =24 F =28 =28 =28 // cmp
            + select 8 guards T T T T T F F F         // load
              select 8 cache readonly                 // load
            + select 10 mask %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %1 %2 %2 %2 %2 %2 %2 %2 %2 %2 %2 %2 %2 // select
            + select 13 guards T T T T T F F F        // store
        "#]].assert_eq(&changes(&lir, RunBy::Block, "masks"));
    }

    #[test]
    fn a_conjunction_is_what_is_not_known_of_it() {
        let lir = assigned(
            "
kernel inside(%y: *f32 exclusive multiple_of 16, %n: i64 multiple_of 4) {
  %0 = iota : i64[1024]
  %1 = const 768 : i64
  %2 = broadcast %1 : i64[1024]
  %3 = cmp lt %0, %2 : bool[1024]
  %4 = broadcast %n : i64[1024]
  %5 = cmp lt %0, %4 : bool[1024]
  %6 = and %3, %5 : bool[1024]
  %7 = const 1.0 : f32
  %8 = broadcast %7 : f32[1024]
  %9 = broadcast %y : *f32[1024]
  %10 = ptr_add %9, %0 : *f32[1024]
  store %10, %8, %6
  return
}
",
            4,
        );
        expect![[r#"
              ..
              return 12                               // return
            + select 3 mask T =0 =0 =0 . =4 =4 =4     // cmp
            + select 5 mask . =0 =0 =0 . =4 =4 =4     // cmp
            + select 6 mask %1 =0 =0 =0 . =4 =4 =4    // and
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "masks"));
    }
}
