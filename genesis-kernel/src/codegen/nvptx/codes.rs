//! Codes of up to 8 bits as floats: integers that are put into mantissas, two of 16-bit floats in an instruction.
//!
//! A conversion of an integer takes a multiprocessor as long as eight additions. But a code under the bits of
//! a power of two is a float already, and its sum with the power; a subtraction takes that away again, together
//! with what the kernel subtracts. All of it is exact:
//!
//! ```text
//! f16                      0x6400 | c = 1024 + c
//! bf16, c < 128            0x4300 | c = 128 + c
//! bf16                     0x4300 + c = 128 + c, or 2 c from 128 on:  c = min(it - 128, it / 2)
//! f32                      0x4b000000 | c = 8388608 + c
//! ```
//!
//! Only a left operand of tensor cores is made so: its registers come in pairs along K, as the bytes lie in
//! shared memory.

use super::super::llvm::Val;
use super::lowering::Lowering;
use crate::Error;
use crate::ir::{BinaryOp, DType, Op, OpKind, Value};

/// The selector of `prmt` that puts two bytes in the low halves of two half-words, below a byte of another
/// register.
const SPREAD: i64 = 0x4140;

/// Those that put one of two bytes low into a word, below zeros and a byte of another register.
const WIDE: [i64; 2] = [0x4220, 0x4221];

/// Codes in registers of 8 bits, and what is done to them first.
struct Codes {
    value: Value,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    Mask(u8),
    Shift(u8),
}

impl Step {
    /// The largest code behind it.
    fn most(self) -> u8 {
        match self {
            Step::None => 255,
            Step::Mask(mask) => mask,
            Step::Shift(by) => 255 >> by,
        }
    }
}

impl Lowering<'_> {
    /// `codes.to::<X>() - zero` of a constant, or the cast alone, without a conversion.
    pub(super) fn codes_less_zero(&mut self, op: Op) -> Result<bool, Error> {
        let data = self.func.op(op);
        let to = self.func.tile(data.results[0]);
        // Not every GPU adds bf16; the registers of other tiles need not be pairs.
        let fits = self.facts.gpu.features.bf16_arithmetic
            && self.copies.is_some()
            && !to.is_ptr()
            && matches!(to.dtype(), DType::F16 | DType::BF16 | DType::F32)
            && self.lir.num_regs(data.results[0]).is_multiple_of(2);
        let Some((cast, zero)) = fits.then(|| self.cast_and_zero(op)).flatten() else {
            return Ok(false);
        };
        let codes = self.codes(self.func.op(cast).operands[0]);
        let registers = self.get(codes.value)?;
        let e = self.e;
        let both = |pair: &[Val]| {
            if to.dtype() == DType::F32 {
                return self.wide_pair(pair, codes.step, zero);
            }
            let floats = self.pair(pair, codes.step, to.dtype(), zero);
            let halves = e.bitcast(floats, e.vec(e.i16(), 2));
            [e.extract(halves, 0), e.extract(halves, 1)]
        };
        let results = registers.chunks(2).flat_map(both).collect();
        self.result(op, results)?;
        Ok(true)
    }

    /// The cast of codes that an op is, or subtracts a constant from.
    fn cast_and_zero(&self, op: Op) -> Option<(Op, u8)> {
        let data = self.func.op(op);
        let is_cast = |op: Op| {
            let data = self.func.op(op);
            data.kind == OpKind::Cast && self.dtype(data.operands[0]) == DType::U8
        };
        match data.kind {
            OpKind::Cast => is_cast(op).then_some((op, 0)),
            OpKind::Binary(BinaryOp::Sub) => {
                let cast = self.func.def_op(data.operands[0]).filter(|&op| is_cast(op))?;
                let zero = self.func.as_const(data.operands[1])?.to_f64();
                let is_small = (0.0..=128.0).contains(&zero) && zero.fract() == 0.0;
                is_small.then_some((cast, zero as u8))
            }
            _ => None,
        }
    }

    /// What codes are masked or shifted from.
    fn codes(&self, value: Value) -> Codes {
        let made = self.func.def_op(value).and_then(|op| {
            let data = self.func.op(op);
            let OpKind::Binary(kind) = data.kind else { return None };
            let number = u8::try_from(self.func.as_const(*data.operands.get(1)?)?.to_i64()).ok()?;
            let step = match kind {
                BinaryOp::And => Step::Mask(number),
                BinaryOp::Shr if (1..8).contains(&number) => Step::Shift(number),
                _ => return None,
            };
            let value = data.operands[0];
            (self.lir.layout(value) == self.lir.layout(data.results[0]))
                .then_some(Codes { value, step })
        });
        made.unwrap_or(Codes { value, step: Step::None })
    }

    /// Two floats of 32 bits.
    fn wide_pair(&self, pair: &[Val], step: Step, zero: u8) -> [Val; 2] {
        let e = self.e;
        let int = |n: i64| e.int(e.i32(), n);
        if step.most() < 128 {
            // The bits of bf16 are the upper ones.
            let word = e.bitcast(self.pair(pair, step, DType::BF16, zero), e.i32());
            let both = [e.shl(word, int(16)), e.and(word, int(0xffff_0000))];
            return both.map(|bits| e.bitcast(bits, e.f32()));
        }
        let bytes = e.zext(e.bitcast(e.build_vec(pair), e.i16()), e.i32());
        let bytes = match step {
            Step::Mask(mask) => e.and(bytes, int(i64::from(u16::from(mask) * 0x101))),
            Step::None | Step::Shift(_) => bytes,
        };
        WIDE.map(|selector| {
            let word = e.intrinsic("llvm.nvvm.prmt", &[], &[bytes, int(0x4b), int(selector)]);
            e.fsub(e.bitcast(word, e.f32()), e.float(e.f32(), 8_388_608.0 + f64::from(zero)))
        })
    }

    /// A word of two floats.
    fn pair(&self, pair: &[Val], step: Step, to: DType, zero: u8) -> Val {
        let e = self.e;
        let int = |n: i64| e.int(e.i32(), n);
        let both = |n: u16| int(i64::from(u32::from(n) << 16 | u32::from(n)));
        let bytes = e.zext(e.bitcast(e.build_vec(pair), e.i16()), e.i32());
        let spread =
            |above: i64| e.intrinsic("llvm.nvvm.prmt", &[], &[bytes, int(above), int(SPREAD)]);
        let (power, above, ty) = match to {
            DType::F16 => (0x6400u16, 0x64, e.f16()),
            _ => (0x4300, 0x43, e.bf16()),
        };
        let word = match step {
            Step::None => spread(above),
            Step::Mask(mask) => e.or(e.and(spread(0), both(mask.into())), both(power)),
            Step::Shift(by) => {
                let moved = e.lshr(spread(0), int(by.into()));
                e.or(e.and(moved, both(u16::from(255u8 >> by))), both(power))
            }
        };
        let ty = e.vec(ty, 2);
        let bits = |value: f32| match to {
            DType::F16 => half::f16::from_f32(value).to_bits(),
            _ => half::bf16::from_f32(value).to_bits(),
        };
        let splat = |value: f32| e.bitcast(both(bits(value)), ty);
        let (floats, zero) = (e.bitcast(word, ty), f32::from(zero));
        if to == DType::F16 {
            return e.fsub(floats, splat(1024.0 + zero));
        }
        let below = e.fsub(floats, splat(128.0 + zero));
        if step.most() < 128 {
            return below;
        }
        let half = e.intrinsic("llvm.fma", &[ty], &[floats, splat(0.5), splat(-zero)]);
        e.intrinsic("llvm.minnum", &[ty], &[below, half])
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::DType;
    use crate::prelude::*;
    use crate::target::Target;

    #[kernel]
    fn halves<X: Float, const N: usize, const ZERO: usize>(
        codes: View<u8, 2>,
        x: View<X, 2>,
        y: ViewMut<f32, 2>,
    ) {
        let mut acc = zeros::<f32, N, N>();
        for p in range(0, codes.dim(1), N) {
            let c = codes.load::<N, N>([0, p]);
            let v = x.load::<N, N>([0, p]).trans();
            acc = dot((c & 15).to::<X>() - ZERO.to::<X>(), v, acc);
            acc = dot((c >> 4).to::<X>() - ZERO.to::<X>(), v, acc);
        }
        y.store([0, 0], acc);
    }

    #[kernel]
    fn whole<X: Float, const N: usize, const ZERO: usize>(
        codes: View<u8, 2>,
        x: View<X, 2>,
        scales: View<f32, 1>,
        y: ViewMut<f32, 2>,
    ) {
        let mut acc = zeros::<f32, N, N>();
        let scale = scales.load::<N>([0]).col();
        for p in range(0, codes.dim(1), N) {
            let c = codes.load::<N, N>([0, p]);
            let v = x.load::<N, N>([0, p]).trans();
            acc = dot(c.to::<X>() - ZERO.to::<X>(), v, acc);
            acc = dot(((c.to::<f32>() - ZERO.to::<f32>()) * scale).to::<X>(), v, acc);
        }
        y.store([0, 0], acc);
    }

    /// How often a kernel of 32 codes a thread has an instruction.
    fn count(kernel: &crate::KernelDef, dtype: DType, what: &[&str]) -> Vec<usize> {
        let hints = Hints { num_warps: Some(4), ..Hints::contiguous(kernel.ast) };
        let special = kernel.specialize(&[dtype], &[64, 8], &hints).expect("it is well formed");
        let compiled = special.compile(&Target::sm_90a()).expect("it compiles");
        let ptx = compiled.ptx().expect("a GPU's");
        what.iter().map(|what| ptx.matches(what).count()).collect()
    }

    #[test]
    fn codes_of_4_bits_are_two_in_an_instruction() {
        for (dtype, add) in [(DType::F16, "add.rn.f16x2"), (DType::BF16, "add.rn.bf16x2")] {
            let what = ["ld.shared.b16", "prmt.b32", add, "cvt.rn"];
            assert_eq!(count(&halves::KERNEL, dtype, &what), [16, 16, 32, 0], "{dtype}");
        }
    }

    #[test]
    fn codes_of_8_bits_take_no_conversion() {
        let what = ["min.bf16x2", "add.rn.bf16x2", "add.rn.f16x2", "add.rn.f32", "cvt.rn.f32"];
        assert_eq!(count(&whole::KERNEL, DType::BF16, &what), [16, 16, 0, 32, 0]);
        assert_eq!(count(&whole::KERNEL, DType::F16, &what), [0, 0, 16, 32, 0]);
    }
}
