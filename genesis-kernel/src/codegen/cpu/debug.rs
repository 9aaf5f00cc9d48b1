//! Assertions and prints: calls back to the host.
//!
//! A failed assertion is recorded with its program and ends that program; others run on. The launch then
//! gives the first one as its error. A print hands the host the addresses of its operands' elements.

use super::super::llvm::{Function, Val};
use super::lowering::Lower;
use super::nest::Space;
use crate::Error;
use crate::ir::{Op, Shape, TileType};

/// Bytes from the start of a host record to the function that takes failed assertions.
const ASSERT_OFFSET: i64 = 0;

/// Bytes to the function that prints.
const PRINT_OFFSET: i64 = 8;

impl Lower<'_> {
    fn callback(&self, offset: i64, n_args: usize) -> Function {
        let e = self.e;
        let slot = e.gep(e.i8(), self.program.host, self.index(offset));
        let value = e.load_aligned(e.ptr(0), slot, 8);
        let params = [e.ptr(0), e.i64(), e.i64(), e.ptr(0)];
        Function { value, ty: e.function_ty(e.void(), &params[..n_args]) }
    }

    /// An assertion over all elements.
    pub(super) fn assert(&mut self, op: Op) -> Result<(), Error> {
        let condition = self.func.op(op).operands[0];
        let number = self.index(self.n_asserts);
        self.n_asserts += 1;
        let space = Space::new(self.func.tile(condition).shape);
        self.nest(space, &[condition], None, &mut |lower, chunk| {
            let e = lower.e;
            let lanes = lower.lanes_of(chunk, condition)?;
            let lanes = chunk.tail.map_or(lanes, |tail| e.or(lanes, e.not(tail)));
            let all = if chunk.lanes == 1 {
                lanes
            } else {
                e.intrinsic("llvm.vector.reduce.and", &[e.type_of(lanes)], &[lanes])
            };
            let (failed, passed) = (e.block("failed"), e.block("passed"));
            e.cond_br(all, passed, failed);
            e.position(failed);
            let callback = lower.callback(ASSERT_OFFSET, 3);
            e.call(callback, &[lower.program.host, number, lower.program.linear]);
            lower.end_program();
            e.position(passed);
            Ok(())
        })
    }

    /// A print of some scalars and tiles.
    pub(super) fn print(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let number = self.index(self.n_prints);
        self.n_prints += 1;
        let operands = self.func.op(op).operands.clone();
        let mut addresses: Vec<Val> = Vec::new();
        for &operand in &operands {
            let place = self.alloc(self.func.tile(operand));
            self.copy_to(operand, place)?;
            addresses.push(place);
        }
        let list_shape = Shape::new(&[operands.len().max(1)]);
        let list = self.alloc(TileType::ptr(crate::ir::DType::U8, list_shape));
        for (i, address) in (0i64..).zip(addresses) {
            e.store_aligned(address, e.gep(e.ptr(0), list, self.index(i)), 8);
        }
        let callback = self.callback(PRINT_OFFSET, 4);
        e.call(callback, &[self.program.host, number, self.program.linear, list]);
        Ok(())
    }
}
