//! Whether 16-bit floats are added and multiplied in pairs (`add.f16x2`, `fma.rn.bf16x2`).
//!
//! Finding the pairs is a matter of LLVM's SLP vectorizer, which takes longer than all its other passes (1.6 ms of a
//! softmax): it runs where there are any. The hundreds of accumulators of a warp-specialized kernel ptxas pairs by itself.
//!
//! ```text
//! %3 = load %2 : bf16[2048]
//! %4 = add %3, %3 : bf16[2048]        packed.arithmetic
//! ```

use super::{Code, RunBy};
use crate::ir::{DType, Func, Value};
use crate::layout::LayoutIr;

/// Selects it for the kernel.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, by: RunBy) {
    code.selection.packed_arithmetic = matches!(by, RunBy::Block) && has_pairs(&lir.func);
}

/// Whether there are floats of which two fit a register.
fn has_pairs(func: &Func) -> bool {
    let is_half = |&value: &Value| {
        let tile = func.ty(value).as_tile().filter(|tile| !tile.is_ptr());
        tile.is_some_and(|tile| matches!(tile.dtype(), DType::F16 | DType::BF16))
    };
    func.walk().iter().any(|&op| func.op(op).results.iter().any(is_half))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::machine::golden::{changes, on_hopper, row_sum, tiles};
    use crate::prelude::*;

    /// A row twice.
    #[kernel]
    fn doubled<X: Float, const N: usize>(x: View<X, 1>, y: ViewMut<X, 1>) {
        let row = x.load::<N>([program_id(0) * N]);
        y.store([program_id(0) * N], row + row);
    }

    #[test]
    fn halves_are_added_in_pairs() {
        let lir = on_hopper(&doubled::KERNEL, &[1024], 4);
        expect![[r#"
              ..
              select 32 increments sum                // ptr_add
            + packed.arithmetic
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "packed_arithmetic"));
    }

    #[test]
    fn other_floats_have_none() {
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&row_sum(2048, None), RunBy::Block, "packed_arithmetic"));
    }

    #[test]
    fn accumulators_are_left_to_the_assembler() {
        let lir = on_hopper(&tiles::KERNEL, &[64, 256, 64], 4);
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "packed_arithmetic"));
    }
}
