//! Casts that have instructions of their own, on pairs of registers.
//!
//! A conversion of an integer takes a multiprocessor as long as eight additions. But a code of up to 8 bits under the bits
//! of a power of two is a float already, and its sum with the power; a subtraction takes that away again, together
//! with what the kernel subtracts:
//!
//! ```text
//! %4 = and %3, %mask : u8[..]
//! %5 = cast %4 : bf16[..]             of no use any more
//! %6 = sub %5, %zero : bf16[..]       select 6 cast codes less 8 mask 15
//! %7 = cast %x : bf16[..]             select 7 cast pairs, of f32
//! %8 = cast %y : f16[..]              select 8 cast float8, of f8e4m3
//! ```
//!
//! Only where tensor cores take what comes out, in warp-specialized kernels, registers come in pairs along K, as the bytes
//! lie in shared memory; elsewhere pairs cost registers that rows have no more.

use super::selection::{Cast, Step};
use super::{Code, RunBy};
use crate::ir::{BinaryOp, DType, Op, OpKind, TileType, Value};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// Selects the casts.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, gpu: &GpuTarget, by: RunBy) {
    let pass = Casts { lir, gpu, has_producer: by != RunBy::Block };
    for op in lir.func.walk() {
        if let Some(cast) = pass.visit(op) {
            code.selection.casts.insert(op, cast);
        }
    }
}

struct Casts<'a> {
    lir: &'a LayoutIr,
    gpu: &'a GpuTarget,
    /// Whether the kernel is warp-specialized.
    has_producer: bool,
}

impl Casts<'_> {
    fn visit(&self, op: Op) -> Option<Cast> {
        let data = self.lir.func.op(op);
        let is_cast = data.kind == OpKind::Cast;
        if !is_cast && data.kind != OpKind::Binary(BinaryOp::Sub) {
            return None;
        }
        let to = self.lir.func.tile(data.results[0]);
        if self.has_producer
            && let Some(codes) = self.codes_less_zero(op, to)
        {
            return Some(codes);
        }
        if !is_cast {
            return None;
        }
        let (from, to) = (self.lir.func.tile(data.operands[0]).dtype(), to.dtype());
        let is_short = |dtype| matches!(dtype, DType::F16 | DType::BF16 | DType::F32);
        let is_float8 = from.is_f8() && is_short(to) || to.is_f8() && is_short(from);
        if self.gpu.features.f8_conversions && is_float8 {
            return Some(Cast::Float8);
        }
        let is_rounded = from == DType::F32 && matches!(to, DType::F16 | DType::BF16);
        let in_pairs = self.lir.num_regs(data.results[0]).is_multiple_of(2);
        (self.has_producer && is_rounded && in_pairs).then_some(Cast::Pairs)
    }

    /// `codes.to::<X>() - zero` of a constant, or the cast alone.
    fn codes_less_zero(&self, op: Op, to: TileType) -> Option<Cast> {
        // Not every GPU adds bf16; the registers of other tiles need not be pairs.
        let fits = self.gpu.features.bf16_arithmetic
            && !to.is_ptr()
            && matches!(to.dtype(), DType::F16 | DType::BF16 | DType::F32)
            && self.lir.num_regs(self.lir.func.op(op).results[0]).is_multiple_of(2);
        let (cast, zero) = fits.then(|| self.cast_and_zero(op)).flatten()?;
        Some(Cast::Codes { zero, step: self.step(self.lir.func.op(cast).operands[0]) })
    }

    /// The cast of codes that an op is, or subtracts a constant from.
    fn cast_and_zero(&self, op: Op) -> Option<(Op, u8)> {
        let func = &self.lir.func;
        let data = func.op(op);
        let is_cast = |op: Op| {
            let data = func.op(op);
            data.kind == OpKind::Cast && func.tile(data.operands[0]).dtype() == DType::U8
        };
        match data.kind {
            OpKind::Cast => is_cast(op).then_some((op, 0)),
            OpKind::Binary(BinaryOp::Sub) => {
                let cast = func.def_op(data.operands[0]).filter(|&op| is_cast(op))?;
                let zero = func.as_const(data.operands[1])?.to_f64();
                let is_small = (0.0..=128.0).contains(&zero) && zero.fract() == 0.0;
                is_small.then_some((cast, zero as u8))
            }
            _ => None,
        }
    }

    /// How codes are masked or shifted from others in the same registers.
    fn step(&self, codes: Value) -> Step {
        let func = &self.lir.func;
        let step = func.def_op(codes).and_then(|op| {
            let data = func.op(op);
            let OpKind::Binary(kind) = data.kind else { return None };
            let number = u8::try_from(func.as_const(*data.operands.get(1)?)?.to_i64()).ok()?;
            let step = match kind {
                BinaryOp::And => Step::Mask(number),
                BinaryOp::Shr if (1..8).contains(&number) => Step::Shift(number),
                _ => return None,
            };
            let is_same = self.lir.layout(data.operands[0]) == self.lir.layout(data.results[0]);
            is_same.then_some(step)
        });
        step.unwrap_or(Step::None)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes, on_hopper};
    use crate::prelude::*;

    /// A product of codes of 4 bits around 8, with a zero that is subtracted from the high ones alone.
    #[kernel]
    fn quantized<X: Float, const N: usize, const ZERO: usize>(
        codes: View<u8, 2>,
        x: View<X, 2>,
        y: ViewMut<X, 2>,
    ) {
        let mut acc = zeros::<f32, N, N>();
        for p in range(0, codes.dim(1), N) {
            let c = codes.load::<N, N>([0, p]);
            let v = x.load::<N, N>([0, p]).trans();
            acc = dot((c & 15).to::<X>(), v, acc);
            acc = dot((c >> 4).to::<X>() - ZERO.to::<X>(), v, acc);
        }
        y.store([0, 0], acc.to::<X>());
    }

    #[test]
    fn operands_of_tensor_cores_are_cast_in_pairs() {
        let lir = on_hopper(&quantized::KERNEL, &[64, 8], 4);
        expect![[r#"
              ..
              return 24                               // return
            + select 15 cast codes less 0 mask 15     // cast
            + select 18 cast codes less 0 shift 4     // cast
            + select 19 cast codes less 8 shift 4     // sub
            + select 22 cast pairs                    // cast
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "casts"));
    }

    #[test]
    fn only_floats_of_8_bits_are_elsewhere() {
        let lir = assigned(
            "
kernel convert(%x: *f8e4m3 readonly, %y: *bf16 exclusive) {
  %0 = iota : i64[256]
  %1 = broadcast %x : *f8e4m3[256]
  %2 = ptr_add %1, %0 : *f8e4m3[256]
  %3 = load %2 : f8e4m3[256]
  %4 = cast %3 : f32[256]
  %5 = cast %4 : bf16[256]
  %6 = broadcast %y : *bf16[256]
  %7 = ptr_add %6, %0 : *bf16[256]
  store %7, %5
  return
}
",
            1,
        );
        expect![[r#"
              ..
              return 9                                // return
            + select 4 cast float8                    // cast
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "casts"));
    }
}
