//! Pairs of 16-bit floats that go round a loop of MMAs as words.
//!
//! Operands of the next iteration's MMAs that a loop carries stay as the instruction takes them: two of 16 bits in a
//! register. Else they would be taken apart and packed again in each iteration, or ptxas would keep a register a half.
//!
//! ```text
//! %9 = for .. carry (%10 = %8) {      %10: bf16[128x64], 64 registers     select 12 words 0: 32 registers
//!   mma, of %10
//!   ..
//!   yield %11
//! }
//! ```

use super::Code;
use crate::ir::{DType, Elem, Op, OpKind, Value};
use crate::layout::{DotUnit, LayoutIr};

/// Selects what loops carry as words.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let func = &lir.func;
    let is_loop = |op: &Op| matches!(func.op(*op).kind, OpKind::For(_));
    for op in func.walk().into_iter().filter(is_loop) {
        if lir.multistage.contains_key(&op) || !multiplies(lir, op) {
            continue;
        }
        let args = &func.region(func.op(op).regions[0]).args[1..];
        code.selection.words.extend(args.iter().filter(|&&arg| has_pairs(lir, arg)));
    }
}

/// Whether a loop has MMAs that run beside other instructions.
fn multiplies(lir: &LayoutIr, op: Op) -> bool {
    let is_async =
        |op: Op| lir.dots.get(&op).is_some_and(|plan| matches!(plan.unit, DotUnit::Wgmma(_)));
    lir.func.walk_in(lir.func.op(op).regions[0]).into_iter().any(is_async)
}

/// Whether a value is a tile of 16-bit floats whose registers are pairs.
fn has_pairs(lir: &LayoutIr, value: Value) -> bool {
    let is_half = lir.func.ty(value).as_tile().is_some_and(|tile| {
        matches!(tile.elem, Elem::Data(DType::F16 | DType::BF16)) && !tile.shape.is_scalar()
    });
    is_half && lir.num_regs(value).is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{attend, changes, on_hopper};
    use crate::prelude::*;

    /// A product whose left operand is that of the iteration before.
    #[kernel]
    fn powers<X: Float, const M: usize, const N: usize>(b: View<X, 2>, y: ViewMut<X, 2>) {
        let mut left = zeros::<X, M, N>();
        for p in range(0, b.dim(0), N) {
            let acc = dot(left, b.load::<N, N>([p, 0]), zeros::<f32, M, N>());
            left = acc.to::<X>();
        }
        y.store([program_id(0) * M, 0], left);
    }

    #[test]
    fn a_left_operand_goes_round_as_words() {
        let lir = on_hopper(&powers::KERNEL, &[64, 64], 4);
        expect![[r#"
              ..
              return 14                               // return
            + select 6 words 0                        // for
              select 9 cast pairs                     // cast
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "carried_words"));
    }

    #[test]
    fn weights_of_the_next_iteration_go_round_as_words_and_accumulators_as_they_are() {
        let lir = on_hopper(&attend::KERNEL, &[128, 64, 64], 8);
        expect![[r#"
              ..
              select 25 cast pairs                    // cast
            + select 26 words 3                       // for
              select 42 cast pairs                    // cast
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "carried_words"));
    }
}
