//! Negation, absolute value, minimum and maximum of integers, as ptxas gets them right.
//!
//! To LLVM `abs` and `0 - x` of the least value give it again, and it selects PTX's `abs` and `neg` for
//! them. ptxas (12.8 to 13.0, from `-O1` on) makes less of these:
//!
//! - It sign-extends the operand of `neg.s16` and `abs.s16` and uses the 32-bit result as it is, so that
//!   -32768 becomes 32768.
//! - An `abs` of 32 or 64 bits is never less than 0 to it.
//! - Of `max(a, max(b, -c))` it makes one `VIMNMX3` (from sm_90 on) and loses the sign; of `min` too.
//! - Of a `max` or `min` of 16 bits and a constant, and a comparison of the result with that constant, it
//!   makes one `VIMNMX.S16x2` (from sm_90 on), whose unused upper half writes the same predicate.
//!
//! ```text
//! 0 - x            ~x + 1, as assembly, lest LLVM see through it
//! abs x            max x, (~x + 1)
//! max.s16 x, 5     trunc (max.s32 (sext x), 5)
//! x * -8           ~(x << 3) + 1, which instruction selection would make of it
//! ```
//!
//! are right, and cost an instruction or two more. They take the places of all such operations once LLVM's passes are
//! done, which make `0 - x`, `llvm.abs` and the like of every other form (`select(x < 0, -x, x)`, `x * -1`, `~x + 1`).
//! What is negated after that is a loop's index, by LLVM's loop strength reduction; it is added, and `neg.s32` alone is
//! right.

use super::super::llvm::{Emitter, IntPred, IntegerOp, Ty, Val};

/// Bits up to which minima and maxima are done in 32.
const SHORT: u32 = 16;

/// Replaces the operations of a module.
pub(super) fn legalize(e: &Emitter) {
    for inst in e.integer_ops() {
        let Some(op) = e.integer_op(inst) else { continue };
        match op {
            IntegerOp::Negate(x) => e.replace(inst, || by_lane(e, x, &|x| negated(e, x))),
            IntegerOp::NegativeMultiple { x, shift } => e.replace(inst, || {
                let ty = e.type_of(x);
                negated(e, e.shl(x, e.int(ty, i64::from(shift))))
            }),
            IntegerOp::NegativeQuotient { x, shift } => e.replace(inst, || quotient(e, x, shift)),
            IntegerOp::Abs(x) => e.replace(inst, || by_lane(e, x, &|x| absolute(e, x))),
            IntegerOp::Extremum { name, signed, operands } => {
                let ty = e.type_of(operands[0]);
                if e.int_bits(ty) <= SHORT {
                    e.replace(inst, || {
                        let wide = e.vec(e.i32(), e.lanes(ty));
                        let [a, b] = operands.map(|x| extended(e, x, wide, signed));
                        e.trunc(e.intrinsic(name, &[wide], &[a, b]), ty)
                    });
                }
            }
        }
    }
}

fn extended(e: &Emitter, x: Val, ty: Ty, signed: bool) -> Val {
    if signed { e.sext(x, ty) } else { e.zext(x, ty) }
}

/// Does something to each lane of a vector, or to a scalar.
fn by_lane(e: &Emitter, x: Val, one: &dyn Fn(Val) -> Val) -> Val {
    match e.lanes(e.type_of(x)) {
        1 => one(x),
        n => e.build_vec(&(0..n).map(|lane| one(e.extract(x, lane))).collect::<Vec<_>>()),
    }
}

/// Does something in the next width that PTX has registers of.
fn in_register(e: &Emitter, x: Val, one: impl FnOnce(Val, u32) -> Val) -> Val {
    let ty = e.type_of(x);
    let bits = e.int_bits(ty);
    let width = bits.next_power_of_two().max(16);
    if width == bits {
        return one(x, width);
    }
    e.trunc(one(e.sext(x, e.int_ty(width)), width), ty)
}

fn negated(e: &Emitter, x: Val) -> Val {
    in_register(e, x, |x, bits| {
        let letter = match bits {
            16 => 'h',
            32 => 'r',
            _ => 'l',
        };
        let text = format!("not.b{bits} \t$0, $1;\n\tadd.s{bits} \t$0, $0, 1;");
        e.inline_asm(e.type_of(x), &text, &format!("={letter},{letter}"), &[x], false)
    })
}

fn absolute(e: &Emitter, x: Val) -> Val {
    in_register(e, x, |x, _| e.intrinsic("llvm.smax", &[e.type_of(x)], &[x, negated(e, x)]))
}

/// `x / -(1 << shift)`.
fn quotient(e: &Emitter, x: Val, shift: u32) -> Val {
    let ty = e.type_of(x);
    if shift + 1 == e.int_bits(ty) {
        // Of the least number, which only itself is a multiple of.
        return e.zext(e.icmp(IntPred::Eq, x, e.int(ty, 1_i64 << shift)), ty);
    }
    negated(e, e.sdiv(x, e.int(ty, 1_i64 << shift)))
}

#[cfg(test)]
mod tests {
    use crate::ir::DType;
    use crate::kernel::KernelDef;
    use crate::prelude::*;
    use crate::target::Target;

    #[kernel]
    fn forms<X: Int, const N: usize>(x: View<X, 1>, y: ViewMut<X, 1>) {
        let v = x.load::<N>([0]);
        let zero = zeros_like(v);
        let negative = zero - v;
        let doubled = v * (zero - 2_i32.to::<X>()) + v / (zero - 4_i32.to::<X>());
        let magnitude = where_(v < zero, negative, v);
        let least = minimum(v, 5_i32.to::<X>());
        let most = maximum(least, negative);
        y.store([0], abs(v) + negative + magnitude * (zero - 1_i32.to::<X>()) + most + doubled);
    }

    fn ptx(kernel: &KernelDef, dtype: DType, target: &Target) -> String {
        let special = kernel.specialize(&[dtype], &[128], &Hints::contiguous(kernel.ast));
        let compiled = special.expect("it is well formed").compile(target).expect("it compiles");
        compiled.ptx().expect("a GPU's").to_owned()
    }

    #[test]
    fn nothing_is_left_that_the_assembler_gets_wrong() {
        for target in [Target::sm_80(), Target::sm_90a()] {
            for dtype in [DType::I8, DType::I16, DType::I32, DType::I64] {
                let ptx = ptx(&forms::KERNEL, dtype, &target);
                let is_wrong = |line: &&str| {
                    let name = line.split_whitespace().next().unwrap_or_default();
                    let last = line.trim_end_matches(';').rsplit(' ').next().unwrap_or_default();
                    let short = ["max.s16", "min.s16", "max.u16", "min.u16"].contains(&name);
                    name.starts_with("neg.s")
                        || name.starts_with("abs.s")
                        || (name.starts_with("sub.s") && line.contains(", 0, "))
                        || (short && !last.starts_with('%'))
                };
                let wrong: Vec<&str> = ptx.lines().filter(is_wrong).collect();
                assert!(wrong.is_empty(), "{dtype}: {wrong:?}\n{ptx}");
                assert!(ptx.contains("not.b"), "{ptx}");
            }
        }
    }
}
