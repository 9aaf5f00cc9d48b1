//! What is known of each value while a function is written.

use std::collections::BTreeMap;

use super::super::llvm::Block;
use super::registers::{Increments, Registers};
use super::thread::Threads;
use crate::ir::{Op, Region, Value};

/// The registers of values, and what is known of these; by the value's number.
pub(super) struct Values {
    pub(super) registers: Vec<Option<Registers>>,
    /// The increments of a value's registers, where they are linear.
    pub(super) increments: Vec<Option<Increments>>,
    /// The region and the stage (barriers passed) in which each value got its registers; see [`super::rematerialize_rows`].
    pub(super) born: Vec<Option<(Region, u32)>>,
    pub(super) rows: Rows,
    /// Code with rematerialized indices, the innermost last.
    pub(super) scopes: Vec<Rematerialized>,
}

impl Values {
    /// Of so many values none is known.
    pub(super) fn new(count: usize) -> Values {
        Values {
            registers: vec![None; count],
            increments: vec![None; count],
            born: vec![None; count],
            rows: Rows::default(),
            scopes: Vec::new(),
        }
    }
}

/// Rows of 16-bit floats, and what is rematerialized from them.
#[derive(Default)]
pub(super) struct Rows {
    /// What was rematerialized, with the stage.
    pub(super) known: BTreeMap<Value, (u32, Registers)>,
    /// How many registers each load loads.
    pub(super) loaded: BTreeMap<Op, usize>,
    /// Loads of packed floats to rematerialize from: their region and words.
    pub(super) packed: BTreeMap<Value, (Region, u32)>,
}

/// Where code is being written.
#[derive(Clone, Copy)]
pub(super) struct Here {
    /// The op that is lowered.
    pub(super) op: Op,
    /// The region that it is in.
    pub(super) region: Region,
    /// Barriers so far.
    pub(super) stage: u32,
}

/// What to restore behind code whose indices are rematerialized.
pub(super) struct Rematerialized {
    pub(super) threads: Threads,
    /// The block where indices are rematerialized, and the code that uses them.
    pub(super) entry: Block,
    pub(super) body: Block,
    pub(super) known: Vec<(Value, Registers, Option<Increments>)>,
}
