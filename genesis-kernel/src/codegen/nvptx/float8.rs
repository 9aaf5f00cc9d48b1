//! Casts of pairs: from f32 to 16 bits, and of floats of 8 bits on GPUs that have instructions for them (sm_89 and up), two at a time.
//!
//! To f16 the instruction is exact. From f32 it rounds once to nearest even as
//! [`crate::ir::float8`] says, but gives the largest number where the format has something beyond. What is
//! beyond is the next pattern in both formats, so one is added there:
//!
//! ```text
//! f8e4m3  500.0  ->  0x7e (448)    + 1  =  0x7f (NaN)
//! f8e5m2  1e9    ->  0x7b (57344)  + 1  =  0x7c (infinity)
//! ```

use super::super::elementwise::{Target as Machine, cast};
use super::super::llvm::{FloatPred, Val};
use super::lowering::Lowering;
use crate::Error;
use crate::ir::float8;
use crate::ir::{DType, Op};

impl Lowering<'_> {
    /// A cast of pairs from f32 to 16 bits, by the instruction that rounds two and packs them.
    pub(super) fn cast_pairs(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let (from, to) = (self.dtype(data.operands[0]), self.dtype(data.results[0]));
        let e = self.e;
        let operands = self.operands_of_rows(op)?;
        let both = |pair: &[Val]| {
            let halves = cast(e, Machine::Nvptx, e.build_vec(pair), from, to);
            [e.extract(halves, 0), e.extract(halves, 1)]
        };
        let registers = operands[0].chunks(2).flat_map(both).collect();
        self.result(op, registers)
    }

    /// A cast from or to floats of 8 bits, by the instructions for it.
    pub(super) fn cast_float8(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        let (from, to) = (self.dtype(data.operands[0]), self.dtype(data.results[0]));
        let operand = self.get(data.operands[0])?;
        let pairs = operand.chunks(2).map(|pair| {
            let [low, high] = [pair[0], pair[pair.len() - 1]];
            let both = if from.is_f8() {
                self.widen_pair(from, to, [low, high])
            } else {
                self.narrow_pair(from, to, [low, high])
            };
            both.into_iter().take(pair.len())
        });
        let registers = pairs.flatten().collect();
        self.result(op, registers)
    }

    fn widen_pair(&self, from: DType, to: DType, pair: [Val; 2]) -> [Val; 2] {
        let e = self.e;
        let packed = e.bitcast(e.build_vec(&pair), e.i16());
        let name = match from {
            DType::F8E4M3 => "llvm.nvvm.e4m3x2.to.f16x2.rn",
            _ => "llvm.nvvm.e5m2x2.to.f16x2.rn",
        };
        let halves = e.intrinsic(name, &[], &[packed]);
        let halves = e.bitcast(halves, e.vec(e.i16(), 2));
        [0, 1].map(|i| cast(e, Machine::Nvptx, e.extract(halves, i), DType::F16, to))
    }

    fn narrow_pair(&self, from: DType, to: DType, pair: [Val; 2]) -> [Val; 2] {
        let e = self.e;
        let format = float8::format(to).expect("callers cast to floats of 8 bits");
        let wide = pair.map(|x| cast(e, Machine::Nvptx, x, from, DType::F32));
        let name = match to {
            DType::F8E4M3 => "llvm.nvvm.ff.to.e4m3x2.rn",
            _ => "llvm.nvvm.ff.to.e5m2x2.rn",
        };
        let packed = e.intrinsic(name, &[], &[wide[1], wide[0]]);
        let packed = e.bitcast(packed, e.vec(e.i8(), 2));
        let (limit, is_beyond_too) = format.limit();
        let pred = if is_beyond_too { FloatPred::Oge } else { FloatPred::Ogt };
        [0, 1].map(|i| {
            let magnitude = e.intrinsic("llvm.fabs", &[e.f32()], &[wide[i as usize]]);
            let is_beyond = e.fcmp(pred, magnitude, e.float(e.f32(), limit));
            e.add(e.extract(packed, i), e.zext(is_beyond, e.i8()))
        })
    }
}
