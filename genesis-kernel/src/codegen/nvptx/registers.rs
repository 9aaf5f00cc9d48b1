//! SIMT registers of a tile: one LLVM scalar for each register of the layout.

use std::rc::Rc;

use super::super::llvm::{Block as LlvmBlock, Emitter, Val};

/// The address space of global memory.
pub(super) const GLOBAL: u32 = 1;
/// The address space of shared memory.
pub(super) const SHARED: u32 = 3;

/// One value in each thread: a tile's registers in order, a scalar alone, or a view's address, extents
/// and strides.
pub(super) type Registers = Rc<[Val]>;

/// For each bit of a register's number: the difference of a register with the bit and the one without it;
/// none where both are equal.
pub(super) type Increments = Rc<[Option<Val>]>;

/// The phis of values carried around a loop.
pub(super) struct Carried {
    pub(super) phis: Vec<Vec<Val>>,
}

impl Carried {
    pub(super) fn registers(&self) -> Vec<Registers> {
        self.phis.iter().map(|phis| phis.as_slice().into()).collect()
    }

    /// What the phis become by way of the last block of the loop's body.
    pub(super) fn close(&self, e: &Emitter, next: &[Registers], last: LlvmBlock) {
        for (phis, next) in self.phis.iter().zip(next) {
            for (&phi, &value) in phis.iter().zip(next.iter()) {
                e.add_incoming(phi, value, last);
            }
        }
    }
}
