//! Collectives between their machine instructions: the partial results of a reduction, scan or exchange so far.

use super::super::llvm::Val;
use crate::ir::{Combine, Op};

/// What an op's instructions so far have computed.
pub(super) enum Partial {
    /// Of a reduction: parts, and the number of the step that comes next.
    Reduce(Parts, usize),
    /// Of a scan: its state, and the number of the step that comes next.
    Scan(Scan, usize),
    /// Registers.
    Registers(Vec<Val>),
    /// Of a histogram: each element's rank so far; the counters of the bins that the thread adds up, then the counts that
    /// it holds.
    Histogram { ranks: Vec<Val>, counts: Vec<Val> },
}

/// A scan on its way.
pub(super) struct Scan {
    pub(super) op: Op,
    pub(super) combine: Combine,
    pub(super) reverse: bool,
    /// Each element's scan within its run.
    pub(super) elements: Parts,
    /// Each run's total, at its register in which the bits done so far are 0.
    pub(super) totals: Parts,
    /// The register bits done so far.
    pub(super) done: usize,
}

/// The parts of each operand: by operand, then by register; none for registers folded into others.
pub(super) type Parts = Vec<Vec<Option<Val>>>;

/// The values of one register, one an operand.
pub(super) fn at(parts: &Parts, reg: usize) -> Option<Vec<Val>> {
    parts.iter().map(|registers| registers[reg]).collect()
}

pub(super) fn put(parts: &mut Parts, reg: usize, values: &[Val]) {
    for (registers, &value) in parts.iter_mut().zip(values) {
        registers[reg] = Some(value);
    }
}

/// Registers that still have a value.
pub(super) fn live(parts: &Parts) -> Vec<usize> {
    let first = parts.first().map(Vec::as_slice).unwrap_or_default();
    (0..first.len()).filter(|&reg| first[reg].is_some()).collect()
}
