//! Fast dequantization: integers of up to 8 bits become floats by `lop3` into mantissas, two of 16 bits in an instruction.
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
//! Which casts are made so, says machine IR.

use super::super::llvm::Val;
use super::lowering::Lowering;
use crate::Error;
use crate::ir::{DType, Op, OpKind, Value};
use crate::machine::Step;

/// The selector of `prmt` that puts two bytes in the low halves of two half-words, below a byte of another
/// register.
const SPREAD: i64 = 0x4140;

/// Those that put one of two bytes low into a word, below zeros and a byte of another register.
const WIDE: [i64; 2] = [0x4220, 0x4221];

impl Lowering<'_> {
    /// A cast of codes, less a constant, without a conversion.
    pub(super) fn codes_less_zero(&mut self, op: Op, zero: u8, step: Step) -> Result<(), Error> {
        let to = self.dtype(self.func.op(op).results[0]);
        let codes = self.codes(op, step)?;
        let registers = self.get(codes)?;
        let e = self.e;
        let both = |pair: &[Val]| {
            if to == DType::F32 {
                return self.wide_pair(pair, step, zero);
            }
            let floats = self.pair(pair, step, to, zero);
            let halves = e.bitcast(floats, e.vec(e.i16(), 2));
            [e.extract(halves, 0), e.extract(halves, 1)]
        };
        let results = registers.chunks(2).flat_map(both).collect();
        self.result(op, results)
    }

    /// The codes that an op casts, or the left operand of a subtraction does: those that are masked or shifted first.
    fn codes(&self, op: Op, step: Step) -> Result<Value, Error> {
        let operand = |op: Op| self.func.op(op).operands[0];
        let made_by = |value| self.func.def_op(value).ok_or_else(|| Error::bug("codes of no op"));
        let cast = match self.func.op(op).kind {
            OpKind::Cast => op,
            _ => made_by(operand(op))?,
        };
        match step {
            Step::None => Ok(operand(cast)),
            Step::Mask(_) | Step::Shift(_) => Ok(operand(made_by(operand(cast))?)),
        }
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
            Step::Mask(mask) => self.masked_or(spread(0), mask.into(), power),
            Step::Shift(by) => {
                let moved = e.lshr(spread(0), int(by.into()));
                self.masked_or(moved, u16::from(255u8 >> by), power)
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

    /// `word & mask | power` in both half-words, one instruction: ptxas makes two of an `and` and an `or` of constants.
    fn masked_or(&self, word: Val, mask: u16, power: u16) -> Val {
        let e = self.e;
        let both = |n: u16| u32::from(n) << 16 | u32::from(n);
        // The truth table of `a & b | c`.
        let text = format!("lop3.b32 $0, $1, {:#x}, {:#x}, 0xea;", both(mask), both(power));
        e.inline_asm(e.i32(), &text, "=r,r", &[word], false)
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
            let what = ["ld.shared.b16", "prmt.b32", "lop3.b32", add, "cvt.rn"];
            assert_eq!(count(&halves::KERNEL, dtype, &what), [16, 16, 32, 32, 0], "{dtype}");
        }
    }

    #[test]
    fn codes_of_8_bits_take_no_conversion() {
        let what = ["min.bf16x2", "add.rn.bf16x2", "add.rn.f16x2", "add.rn.f32", "cvt.rn.f32"];
        assert_eq!(count(&whole::KERNEL, DType::BF16, &what), [16, 16, 0, 32, 0]);
        assert_eq!(count(&whole::KERNEL, DType::F16, &what), [0, 0, 16, 32, 0]);
    }
}
