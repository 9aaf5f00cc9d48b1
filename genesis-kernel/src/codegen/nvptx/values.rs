//! The value map of code generation: registers, scalars and addresses by value of the layout IR.

use std::collections::BTreeMap;

use super::super::llvm::Block;
use super::registers::{Increments, Registers};
use super::thread::Threads;
use crate::ir::Value;

/// The registers of values, and what is known of these; by the value's number.
pub(super) struct Values {
    pub(super) registers: Vec<Option<Registers>>,
    /// The increments of a value's registers, where they are linear.
    pub(super) increments: Vec<Option<Increments>>,
    /// The registers of what was recomputed last; see [`super::rematerialize_rows`].
    pub(super) recomputed: BTreeMap<Value, Registers>,
    /// Code with rematerialized indices, the innermost last.
    pub(super) scopes: Vec<Rematerialized>,
}

impl Values {
    /// Of so many values none is known.
    pub(super) fn new(count: usize) -> Values {
        Values {
            registers: vec![None; count],
            increments: vec![None; count],
            recomputed: BTreeMap::new(),
            scopes: Vec::new(),
        }
    }
}

/// What to restore behind code whose indices are rematerialized.
pub(super) struct Rematerialized {
    pub(super) threads: Threads,
    /// The block where indices are rematerialized, and the code that uses them.
    pub(super) entry: Block,
    pub(super) body: Block,
    pub(super) known: Vec<(Value, Registers, Option<Increments>)>,
}
