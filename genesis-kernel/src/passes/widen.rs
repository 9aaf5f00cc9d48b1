//! Products of floats of 8 bits as products of f16, where no tensor core reads them as they are.
//!
//! f16 holds every float of 8 bits, so that nothing but registers and time is lost. Only what the copy
//! engine leaves in shared memory is multiplied as it is:
//!
//! ```text
//! %2 = dot ieee %0, %1, %acc : f32[64x64]   ->   %2 = cast %0 : f16[64x32]
//!                                                %3 = cast %1 : f16[32x64]
//!                                                %4 = dot ieee %2, %3, %acc : f32[64x64]
//! ```

use super::Pass;
use super::rewrite::{Action, rewrite};
use crate::ir::{DType, DotPrecision, Func, Op, OpKind};

/// Widens the operands of one function's products.
pub const WIDEN: Pass = Pass { name: "widen", run };

fn run(func: &mut Func) {
    rewrite(func, &mut |cx, op| {
        if !is_widened(cx.func, op) {
            return Action::Keep;
        }
        let [a, b, acc] = [0, 1, 2].map(|i| cx.func.op(op).operands[i]);
        let mut builder = cx.builder();
        let [a, b] = [a, b].map(|operand| builder.cast(operand, DType::F16));
        Action::value(builder.dot(a, b, acc, DotPrecision::Ieee))
    });
}

fn is_widened(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    let is_loaded = |i: usize| {
        let def = func.def_op(data.operands[i]);
        def.is_some_and(|def| matches!(func.op(def).kind, OpKind::TmaLoad(_)))
    };
    matches!(data.kind, OpKind::Dot { .. })
        && func.tile(data.operands[0]).dtype().is_f8()
        && !(is_loaded(0) && is_loaded(1))
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::WIDEN;
    use expect_test::expect;

    #[test]
    fn the_example_of_the_header() {
        check(
            &WIDEN,
            "kernel k(%x: f8e4m3, %y: f8e4m3, %s: f32, %p: *f32) {
                %0 = broadcast %x : f8e4m3[64x32]
                %1 = broadcast %y : f8e4m3[32x64]
                %2 = broadcast %s : f32[64x64]
                %3 = dot fast %0, %1, %2 : f32[64x64]
                %4 = broadcast %p : *f32[64x64]
                store %4, %3
                return
            }",
            expect![[r#"
                kernel k(%x: f8e4m3, %y: f8e4m3, %s: f32, %p: *f32) {
                  %0 = broadcast %x : f8e4m3[64x32]
                  %1 = broadcast %y : f8e4m3[32x64]
                  %2 = broadcast %s : f32[64x64]
                  %3 = cast %0 : f16[64x32]
                  %4 = cast %1 : f16[32x64]
                  %5 = dot ieee %3, %4, %2 : f32[64x64]
                  %6 = broadcast %p : *f32[64x64]
                  store %6, %5
                  return
                }
            "#]],
        );
    }
}
