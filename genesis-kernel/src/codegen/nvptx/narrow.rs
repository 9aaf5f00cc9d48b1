//! Ops on 64-bit indices that machine IR has selected to be done in 32 bits; see [`crate::machine`]'s `narrow`.

use super::lowering::Lowering;
use crate::Error;
use crate::codegen::elementwise::{self, Target};
use crate::codegen::llvm::Val;
use crate::ir::{BinaryOp, DType, Op, OpKind, Value};
use crate::machine::{Counter, Short};

impl Lowering<'_> {
    /// One register of an elementwise op.
    pub(super) fn one(&self, op: Op, operands: &[Val]) -> Result<Val, Error> {
        match self.facts.code.selection.narrow.ops.get(&op) {
            Some(&short) => self.narrowed(op, operands, short),
            None => elementwise::lower(self.e, Target::Nvptx, self.func, op, operands),
        }
    }

    /// The op in 32 bits.
    fn narrowed(&self, op: Op, operands: &[Val], short: Short) -> Result<Val, Error> {
        let e = self.e;
        let cut = [operands[0], operands[1]].map(|value| e.trunc(value, e.i32()));
        let dtype = match short {
            Short::Signed => DType::I32,
            Short::Unsigned => DType::U32,
        };
        let wide = |value: Val| match short {
            Short::Signed => e.sext(value, e.i64()),
            Short::Unsigned => e.zext(value, e.i64()),
        };
        match &self.func.op(op).kind {
            OpKind::Binary(BinaryOp::Mul) => {
                let [a, b] = cut.map(wide);
                Ok(e.mul(a, b))
            }
            OpKind::Binary(op @ (BinaryOp::Div | BinaryOp::Rem)) => {
                Ok(wide(elementwise::binary(e, Target::Nvptx, *op, dtype, &cut)?))
            }
            OpKind::Compare(predicate) => {
                Ok(elementwise::compare(e, Target::Nvptx, *predicate, dtype, &cut))
            }
            kind => Err(Error::bug(format!("{kind:?} is not done in 32 bits"))),
        }
    }

    /// How a loop counts.
    pub(super) fn counter(&self, op: Op) -> Result<Counter, Error> {
        let counter = self.facts.code.selection.narrow.loops.get(&op).copied();
        counter.ok_or_else(|| Error::bug("a loop that counts in no number of bits"))
    }

    /// Whether a loop carries a scalar of 64 bits in 32.
    pub(super) fn is_carried_short(&self, value: Value) -> bool {
        self.facts.code.selection.narrow.carried.contains(&value)
    }
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
