//! Multistage loops that are being emitted: their stage indices and indices loaded ahead.

use std::collections::BTreeMap;

use super::super::llvm::Val;
use super::registers::{Carried, Registers};
use crate::ir::Op;

/// The loops that are open, and the stages that their loads are in.
#[derive(Default)]
pub(super) struct Buffers {
    /// The loops, the innermost last.
    pub(super) copying: Vec<Copying>,
    /// The stage that a load's value is in, in bytes from the start of its buffer; `i32`.
    pub(super) slots: BTreeMap<Op, Val>,
}

/// What of a copy is left to do once its loads have arrived.
pub(super) struct Late {
    pub(super) load: Op,
    pub(super) registers: Vec<Val>,
    pub(super) address: Val,
    pub(super) on: Option<Val>,
}

/// The iteration that is copied.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// Its index.
    pub(super) index: Val,
    /// Whether the loop has it.
    pub(super) exists: Val,
    /// Where its stage begins, in bytes from the start of the buffer; `i32`.
    pub(super) at: Val,
}

/// What the loads of a buffer's slice gave for one iteration, in the slice's order.
pub(super) type Indices = Vec<Registers>;

/// The registers that a loop carries, as phis of its header.
pub(super) struct Header {
    pub(super) index: Val,
    pub(super) read: Val,
    pub(super) write: Val,
    /// The indices of the next iteration that is copied.
    pub(super) indices: Carried,
}

/// A loop over a multistage buffer whose code is being written.
pub(super) struct Copying {
    pub(super) of: Op,
    /// Upper bound and step.
    pub(super) bounds: [Val; 2],
    /// Iterations that are copied before the loop, and the one behind them.
    pub(super) first: Vec<Ahead>,
    /// The loop's header, once its body is written.
    pub(super) header: Option<Header>,
    /// Indices that were loaded, by how many iterations they are ahead.
    pub(super) indices: BTreeMap<u32, Indices>,
    /// The iteration whose addresses were computed last.
    pub(super) current: Option<Ahead>,
    pub(super) late: Vec<Late>,
}
