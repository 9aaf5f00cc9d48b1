//! Atomics: element by element, in row-major order, each behind its mask.
//!
//! All are in acquire-release order among all threads, which is what a processor does anyway, whatever order and scope
//! the kernel asks for.
//!
//! Integers use the processor's own operations. Floats use a loop of compare-and-swap around the same
//! code that elementwise ops have, so that minimum and maximum treat NaN and -0 alike everywhere.

use super::super::elementwise::{self, from_memory, to_memory};
use super::super::llvm::{IntPred, Order, Rmw, Val};
use super::chunk::Chunk;
use super::lowering::Lower;
use super::nest::Space;
use crate::Error;
use crate::ir::{AtomicOp, BinaryOp, DType, Op, OpKind};

fn integer_op(op: AtomicOp, signed: bool) -> Rmw {
    match (op, signed) {
        (AtomicOp::Add, _) => Rmw::Add,
        (AtomicOp::Max, true) => Rmw::Max,
        (AtomicOp::Max, false) => Rmw::UMax,
        (AtomicOp::Min, true) => Rmw::Min,
        (AtomicOp::Min, false) => Rmw::UMin,
        (AtomicOp::And, _) => Rmw::And,
        (AtomicOp::Or, _) => Rmw::Or,
        (AtomicOp::Xor, _) => Rmw::Xor,
        (AtomicOp::Exchange, _) => Rmw::Xchg,
    }
}

fn binary_op(op: AtomicOp) -> Result<BinaryOp, Error> {
    match op {
        AtomicOp::Add => Ok(BinaryOp::Add),
        AtomicOp::Max => Ok(BinaryOp::Max),
        AtomicOp::Min => Ok(BinaryOp::Min),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Exchange => {
            Err(Error::bug(format!("atomic {op:?} on floats is no loop")))
        }
    }
}

impl Lower<'_> {
    /// An atomic op over all elements.
    pub(super) fn atomic(&mut self, op: Op) -> Result<(), Error> {
        let data = self.func.op(op);
        self.flush_before(op)?;
        let result = data.results[0];
        let place = self.plan.kept[result.index()].then(|| self.new_place(result));
        let space = Space::scalar(self.func.tile(data.operands[0]).shape);
        self.nest(space, &data.operands, None, &mut |lower, chunk| {
            let old = lower.atomic_element(op, chunk)?;
            if !lower.has_axes(result) {
                lower.scalars[result.index()] = Some(old);
            } else if let Some(place) = place {
                lower.store_place(chunk, result, place, old);
            }
            Ok(())
        })?;
        self.places[result.index()] = place;
        Ok(())
    }

    fn atomic_element(&mut self, op: Op, chunk: &mut Chunk) -> Result<Val, Error> {
        let data = self.func.op(op);
        let dtype = self.dtype(data.operands[0]);
        let operands = data.operands.iter().map(|&x| self.lanes_of(chunk, x));
        let operands = operands.collect::<Result<Vec<Val>, Error>>()?;
        let mask = data.kind.mask_operand().and_then(|position| operands.get(position)).copied();
        self.guarded(mask, dtype, &mut |lower| match data.kind {
            OpKind::AtomicRmw(atomic, _) => {
                lower.atomic_rmw(atomic, dtype, operands[0], operands[1])
            }
            _ => Ok(lower.atomic_cas(dtype, [operands[0], operands[1], operands[2]])),
        })
    }

    fn atomic_cas(&self, dtype: DType, [ptr, expected, new]: [Val; 3]) -> Val {
        let e = self.e;
        let bits = e.int_ty(dtype.bytes() as u32 * 8);
        let expected = e.bitcast(to_memory(e, dtype, expected), bits);
        let new = e.bitcast(to_memory(e, dtype, new), bits);
        let old = e.atomic_cas(ptr, expected, new, Order::AcqRel);
        from_memory(e, dtype, e.bitcast(old, e.memory_ty(dtype)))
    }

    /// Runs code where the mask is true; zero elsewhere.
    fn guarded(
        &mut self,
        mask: Option<Val>,
        dtype: DType,
        body: &mut dyn FnMut(&mut Self) -> Result<Val, Error>,
    ) -> Result<Val, Error> {
        let Some(mask) = mask else { return body(self) };
        let e = self.e;
        let zero = e.zero(e.register_ty(dtype));
        let (inside, done) = (e.block("masked_on"), e.block("masked_end"));
        let before = e.current_block();
        e.cond_br(mask, inside, done);
        e.position(inside);
        let value = body(self)?;
        let after = e.current_block();
        e.br(done);
        e.position(done);
        Ok(e.phi(e.register_ty(dtype), &[(zero, before), (value, after)]))
    }

    fn atomic_rmw(
        &mut self,
        op: AtomicOp,
        dtype: DType,
        ptr: Val,
        value: Val,
    ) -> Result<Val, Error> {
        let e = self.e;
        if !dtype.is_float() || op == AtomicOp::Exchange {
            let bits = e.int_ty(dtype.bytes() as u32 * 8);
            let value = e.bitcast(to_memory(e, dtype, value), bits);
            let old =
                e.atomic_rmw(integer_op(op, dtype.is_signed_int()), ptr, value, Order::AcqRel);
            return Ok(from_memory(e, dtype, e.bitcast(old, e.memory_ty(dtype))));
        }
        let binary = binary_op(op)?;
        let bits = e.int_ty(dtype.bits());
        let first = e.load_aligned(bits, ptr, dtype.bytes() as u32);
        e.set_relaxed(first);
        let (before, again, done) = (e.current_block(), e.block("again"), e.block("swapped"));
        e.br(again);
        e.position(again);
        let seen = e.phi(bits, &[(first, before)]);
        let old = e.bitcast(seen, e.register_ty(dtype));
        let new = elementwise::binary(e, self.target(), binary, dtype, &[old, value])?;
        let found = e.atomic_cas(ptr, seen, e.bitcast(new, bits), Order::AcqRel);
        e.add_incoming(seen, found, e.current_block());
        e.cond_br(e.icmp(IntPred::Eq, found, seen), done, again);
        e.position(done);
        Ok(old)
    }
}
