//! How much shared memory each op needs while it runs: its scratch.

use super::dsmem;
use super::exchange::{dtypes, most_bytes, steps_of};
use crate::ir::{Op, OpKind};
use crate::layout::{Conversion, DotOperand, LayoutIr, MultistageBuffer, SharedPlan};

/// Bytes of scratch of an op; 0 where it needs none. `uses` counts those of each value.
pub(crate) fn scratch_bytes(lir: &LayoutIr, uses: &[u32], op: Op) -> u32 {
    match &lir.func.op(op).kind {
        OpKind::Reduce { .. } => exchange_bytes(lir, op) + dsmem::barrier_bytes(lir, op),
        OpKind::Scan { .. } => exchange_bytes(lir, op),
        OpKind::ConvertLayout => match lir.conversion(op) {
            Some(Conversion::Shared(plan)) => plan.bytes(),
            _ => 0,
        },
        OpKind::Gather { .. } => lir.gather(op).map_or(0, |plan| plan.bytes()),
        OpKind::Scatter { .. } => lir.scatter(op).map_or(0, |plan| plan.bytes()),
        OpKind::Histogram => lir.histogram(op).bytes(),
        OpKind::Dot { .. } => dot_bytes(lir, op),
        OpKind::AtomicRmw(..) | OpKind::AtomicCas(_) => atomic_bytes(lir, uses, op),
        OpKind::For(_) => lir.multistage.get(&op).map_or(0, MultistageBuffer::bytes),
        _ => 0,
    }
}

/// Those of a reduction's or scan's largest exchange.
fn exchange_bytes(lir: &LayoutIr, op: Op) -> u32 {
    most_bytes(&steps_of(lir, op), &dtypes(lir, op))
}

/// Bytes of shared memory that a dot needs: both operands side by side.
fn dot_bytes(lir: &LayoutIr, op: Op) -> u32 {
    lir.dots.get(&op).map_or(0, |plan| staged_bytes(&plan.a) + staged_bytes(&plan.b))
}

/// The way of an operand through shared memory that the dot itself stores to.
pub(crate) fn own_staging(operand: &DotOperand) -> Option<&SharedPlan> {
    operand.registers().filter(|operand| operand.ring.is_none())?.staging.as_ref()
}

/// Bytes of an operand that the dot itself stores.
pub(crate) fn staged_bytes(operand: &DotOperand) -> u32 {
    own_staging(operand).map_or(0, |plan| plan.bytes().next_multiple_of(128))
}

/// Bytes to hand old values to the threads that hold copies.
fn atomic_bytes(lir: &LayoutIr, uses: &[u32], op: Op) -> u32 {
    let result = lir.func.op(op).results[0];
    let copies = match lir.layout(result) {
        Some(layout) => layout.free_lanes() | layout.free_warps() != 0,
        None => true,
    };
    let tile = lir.func.tile(result);
    let is_wanted = copies && uses[result.index()] > 0;
    if is_wanted { (tile.shape.numel() * tile.dtype().bytes()) as u32 } else { 0 }
}
