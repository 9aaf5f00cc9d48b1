//! Masks that are known for a whole register: whatever the thread, its index is inside of a tile's own
//! extent, or in what was added to make the extent a power of two.
//!
//! A register's part of an `iota` is fixed and a thread's part has bits of its own, so each register
//! has an exact range. Loads, stores and work of registers that are all padding then leave no code.
//!
//! ```text
//! iota 4096 < 2560, reg [.., 1024, 2048]     registers of 0, 1024, 2048, 3072 + 0..1023
//!   -> true, true, (thread < 512), false
//! ```

use super::lowering::Lowering;
use crate::ir::{BinaryOp, OpKind, Predicate, Value};
use crate::layout::{f2, view_registers};

/// The smallest and the largest value of a number in any thread.
type Range = (i64, i64);

impl Lowering<'_> {
    /// What a comparison of integers gives in every thread, for one register of its result.
    pub(super) fn known_comparison(
        &self,
        predicate: Predicate,
        operands: &[Value],
        reg: u32,
    ) -> Option<bool> {
        let (a, b) = (self.range(operands[0], reg)?, self.range(operands[1], reg)?);
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

    /// The values of a register of signed integers, where they follow from its place and constants.
    fn range(&self, value: Value, reg: u32) -> Option<Range> {
        let op = self.func.def_op(value)?;
        let data = self.func.op(op);
        if !self.func.tile(value).dtype().is_signed_int() {
            return None;
        }
        match &data.kind {
            OpKind::Const(scalar) => Some((scalar.to_i64(), scalar.to_i64())),
            OpKind::Iota => {
                let layout = self.lir.layout(value)?;
                let threads = layout.lane.iter().chain(&layout.warp).chain(&layout.block);
                let first = i64::from(f2::combine(&layout.reg, reg));
                Some((first, first + i64::from(threads.fold(0, |bits, basis| bits | basis))))
            }
            kind if kind.is_view() => {
                let operand = data.operands[0];
                let from = match (self.lir.layout(operand), self.lir.layout(value)) {
                    (Some(from), Some(to)) => {
                        *view_registers(&data.kind, from, to)?.get(reg as usize)?
                    }
                    _ => 0,
                };
                self.range(operand, from)
            }
            OpKind::Binary(BinaryOp::Add) => {
                let (a, b) =
                    (self.range(data.operands[0], reg)?, self.range(data.operands[1], reg)?);
                Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
            }
            _ => None,
        }
    }
}
