//! 64-bit arithmetic on indices only where their ranges need it.
//!
//! An index of the language has 64 bits, and a GPU's arithmetic 32: a product takes four instructions,
//! a comparison two, a division a hundred. Where the ranges of the operands prove that 32 bits hold
//! them, the op is done in 32 and its result made wide again, which is exact:
//!
//! ```text
//! %m = mul %row, %stride      both in 0 .. 2^32       mul.wide.u32, of 32 bits to 64
//! %q = div %pid, %n           both in 0 .. 2^32       div.u32
//! %c = cmp lt %i, %n          both in -2^31 .. 2^31   setp.lt.s32
//! ```
//!
//! Program ids and `iota` are small by themselves; extents and strides are where a launch promises
//! it, which it does where all of its views have them in 0 .. 2^30 and 0 .. 2^31. So loops count in 32
//! bits where those hold their bounds, and what they carry of indices goes round in 32 bits.

use super::lowering::Lowering;
use crate::Error;
use crate::analysis::Range;
use crate::codegen::elementwise::{self, Target};
use crate::codegen::llvm::Val;
use crate::ir::{BinaryOp, DType, Op, OpKind, Type, Value};

impl Lowering<'_> {
    /// One register of an elementwise op.
    pub(super) fn one(&self, op: Op, operands: &[Val]) -> Result<Val, Error> {
        match self.narrowed(op, operands)? {
            Some(value) => Ok(value),
            None => elementwise::lower(self.e, Target::Nvptx, self.func, op, operands),
        }
    }

    /// The op in 32 bits, where they hold its operands.
    fn narrowed(&self, op: Op, operands: &[Val]) -> Result<Option<Val>, Error> {
        let data = self.func.op(op);
        let &[a, b] = data.operands.as_slice() else { return Ok(None) };
        let is_wide = self.func.ty(a).as_tile().is_some_and(|t| !t.is_ptr())
            && self.dtype(a) == DType::I64
            && self.dtype(b) == DType::I64;
        if !is_wide {
            return Ok(None);
        }
        let ranges = [a, b].map(|value| self.facts.axes.ranges().of_value(value));
        let e = self.e;
        let cut = || [operands[0], operands[1]].map(|value| e.trunc(value, e.i32()));
        Ok(match &data.kind {
            OpKind::Binary(BinaryOp::Mul) if ranges.iter().all(is_signed) => {
                let [a, b] = cut().map(|value| e.sext(value, e.i64()));
                Some(e.mul(a, b))
            }
            OpKind::Binary(BinaryOp::Mul) if ranges.iter().all(is_unsigned) => {
                let [a, b] = cut().map(|value| e.zext(value, e.i64()));
                Some(e.mul(a, b))
            }
            OpKind::Binary(op @ (BinaryOp::Div | BinaryOp::Rem))
                if ranges.iter().all(is_unsigned) =>
            {
                let result = elementwise::binary(e, Target::Nvptx, *op, DType::U32, &cut())?;
                Some(e.zext(result, e.i64()))
            }
            OpKind::Compare(predicate) if ranges.iter().all(is_signed) => {
                Some(elementwise::compare(e, Target::Nvptx, *predicate, DType::I32, &cut()))
            }
            OpKind::Compare(predicate) if ranges.iter().all(is_unsigned) => {
                Some(elementwise::compare(e, Target::Nvptx, *predicate, DType::U32, &cut()))
            }
            _ => None,
        })
    }

    /// Whether 32 bits hold the bounds of a loop, from zero up, and its step.
    pub(super) fn counts_in_32_bits(&self, op: Op) -> bool {
        let of = |value| self.facts.axes.ranges().of_value(value);
        let &[lower, upper, step, ..] = self.func.op(op).operands.as_slice() else { return false };
        of(lower).low >= 0 && [of(lower), of(upper), of(step)].iter().all(is_signed)
    }

    /// Whether the index after a loop's last one may need more bits than it is counted in, as 32 where the
    /// step is the number of programs.
    pub(super) fn may_wrap(&self, op: Op, is_short: bool) -> bool {
        let most = if is_short { i64::from(i32::MAX) } else { i64::MAX };
        let high = |i: usize| self.facts.axes.ranges().of_value(self.func.op(op).operands[i]).high;
        high(1).checked_add(high(2)).is_none_or(|after| after > most)
    }

    /// Whether 32 bits hold a scalar of 64.
    pub(super) fn fits_32_bits(&self, value: Value) -> bool {
        let is_index = self.func.ty(value) == Type::scalar(DType::I64);
        is_index && is_signed(&self.facts.axes.ranges().of_value(value))
    }
}

fn is_signed(range: &Range) -> bool {
    range.low >= i64::from(i32::MIN) && range.high <= i64::from(i32::MAX)
}

fn is_unsigned(range: &Range) -> bool {
    range.low >= 0 && range.high <= i64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use crate::kernel::KernelDef;
    use crate::prelude::*;
    use crate::target::Target;

    #[kernel]
    fn strided<const N: usize>(x: View<f32, 2>, y: ViewMut<f32, 2>) {
        let across = cdiv(y.dim(1), N);
        let (i, j) = (program_id(0) / across * N, program_id(0) % across * N);
        y.store([i, j], x.load::<N, N>([i, j]));
    }

    #[kernel]
    fn summed<const N: usize>(x: View<f32, 2>, y: ViewMut<f32, 1>) {
        let mut sum = zeros::<f32, N>();
        for j in range(0, x.dim(1), N) {
            sum += x.load::<1, N>([program_id(0), j]).reshape::<N>();
        }
        y.store([0], sum);
    }

    fn ptx(kernel: &KernelDef, narrow: bool) -> String {
        let mut hints = Hints::contiguous(kernel.ast);
        for param in &mut hints.params {
            param.narrow = narrow;
        }
        let special = kernel.specialize(&[], &[32], &hints).expect("it is well formed");
        let compiled = special.compile(&Target::sm_90a()).expect("it compiles");
        compiled.ptx().expect("a GPU's").to_owned()
    }

    #[test]
    fn small_views_need_no_wide_products_and_quotients() {
        let (narrow, wide) = (ptx(&strided::KERNEL, true), ptx(&strided::KERNEL, false));
        let count = |ptx: &str, what: &str| ptx.matches(what).count();
        assert!(count(&wide, "div.s64") + count(&wide, "div.u64") > 0, "{wide}");
        assert_eq!(count(&narrow, "div.s64") + count(&narrow, "div.u64"), 0, "{narrow}");
        assert!(count(&narrow, "div.u32") > 0, "{narrow}");
        assert!(count(&narrow, "mul.lo.s64") < count(&wide, "mul.lo.s64"), "{narrow}\n{wide}");
    }

    #[test]
    fn loops_over_small_views_count_in_32_bits() {
        let count = |narrow: bool| {
            let ptx = ptx(&summed::KERNEL, narrow);
            let is_wide = |line: &&str| line.contains("setp.") && line.contains(".s64");
            ptx.lines().filter(is_wide).count()
        };
        assert_eq!(count(true), 0);
        assert!(count(false) > 0);
    }
}
