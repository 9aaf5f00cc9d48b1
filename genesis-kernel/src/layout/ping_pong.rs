//! Whether a kernel has a ping-pong schedule: two consumer warpgroups alternate over the tiles of a program.
//!
//! Accumulators fill the registers of the warps that compute a tile, so nothing is multiplied during its epilogue. Where
//! four warps compute a tile, a second four can have accumulators of their own: their main loop overlaps the epilogue of
//! the first.
//!
//! ```text
//! warps 0 to 3   multiply 0 | store 0 | .         multiply 2 | store 2
//! warps 4 to 7   .            multiply 1 | store 1 | .         multiply 3
//! ```
//!
//! The stages of the pipeline are used in the order of the tiles, as with one consumer.

use super::lir::{DotOperand, DotUnit, LayoutIr};
use crate::analysis::is_persistent;
use crate::ir::{Func, Op, OpKind};
use crate::tuning::multiprocessor::WARPGROUP_WARPS;
use crate::tuning::warps;

/// The loop over tiles at which two consumers alternate; none where all warps cooperate on every tile.
pub fn ping_pong_loop(lir: &LayoutIr) -> Option<Op> {
    let func = &lir.func;
    let is_split = !func.tma.loads.is_empty() && lir.num_warps == WARPGROUP_WARPS;
    if !is_split || !is_persistent(func) || !lir.multistage.is_empty() {
        return None;
    }
    let mut owners =
        func.region(func.body).ops.iter().copied().filter(|&op| !func.op(op).regions.is_empty());
    let shared = owners.next()?;
    let is_only = owners.next().is_none() && func.op(shared).results.is_empty();
    let is_share = |op: Op| matches!(func.op(op).kind, OpKind::For(_));
    // What would need memory, or a barrier, that the other set uses too.
    let meets = |op: Op| match &func.op(op).kind {
        kind if kind.is_exchange() || kind.is_atomic() => true,
        OpKind::Dot { .. } => !lir.dots.get(&op).is_some_and(|plan| {
            let is_shared = |operand: &DotOperand| matches!(operand, DotOperand::Shared(_));
            matches!(plan.unit, DotUnit::Wgmma(_)) && is_shared(&plan.a) && is_shared(&plan.b)
        }),
        _ => false,
    };
    let is_large = |&op: &Op| {
        let is_dot = matches!(func.op(op).kind, OpKind::Dot { .. });
        let accumulators = || func.tile(func.op(op).results[0]).shape.numel();
        is_dot && warps::is_ping_pong(accumulators() / lir.num_blocks as usize, lir.num_warps)
    };
    let walk = func.walk();
    let loads = |func: &Func| -> Vec<Op> {
        let is_load = |op: &Op| matches!(func.op(*op).kind, OpKind::TmaLoad(_));
        func.walk().into_iter().filter(is_load).collect()
    };
    let is_same = lir.producer.as_ref().is_none_or(|producer| loads(producer) == loads(func));
    let takes = is_only
        && is_same
        && is_share(shared)
        && walk.iter().any(is_large)
        && !walk.into_iter().any(meets);
    takes.then_some(shared)
}

/// Warps that compute, of all consumers.
pub fn computing_warps(lir: &LayoutIr) -> u32 {
    match ping_pong_loop(lir) {
        Some(_) => 2 * lir.num_warps,
        None => lir.num_warps,
    }
}
