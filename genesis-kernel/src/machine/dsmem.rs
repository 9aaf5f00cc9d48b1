//! Exchanges between blocks of a cluster by `st.async`: which ops have them, and the mbarrier that counts the bytes.
//!
//! An offset is written once and its mbarrier has one phase, so this is only for ops that run once: one in a loop, or
//! inside a branch, keeps the cluster barrier.

use super::exchange::{SMALL_BYTES, Step, dtypes, most_bytes, steps_of};
use crate::ir::{DType, Op, OpKind};
use crate::layout::LayoutIr;

/// Bytes of an mbarrier after the scratch, with what keeps the next scratch aligned.
const BARRIER_BYTES: u32 = 16;

/// Bytes that each block receives for an op, if its partial results go by DSMEM stores.
pub(crate) fn received_bytes(lir: &LayoutIr, op: Op) -> Option<u32> {
    let runs_once = lir.func.region(lir.func.body).ops.contains(&op);
    let is_sum = matches!(lir.func.op(op).kind, OpKind::Reduce { .. });
    if lir.num_blocks == 1 || !is_sum || !runs_once || lir.producer.is_some() {
        return None;
    }
    let (steps, dtypes) = (steps_of(lir, op), dtypes(lir, op));
    let mut exchanges = steps.iter().filter_map(|step| match step {
        Step::Warps(exchange) => Some(exchange),
        Step::Reg(_) | Step::Lane(_) => None,
    });
    let exchange = exchanges.next().filter(|exchange| !exchange.blocks().is_empty())?;
    let is_small = most_bytes(&steps, &dtypes) + BARRIER_BYTES <= SMALL_BYTES;
    let fits =
        exchanges.next().is_none() && is_small && dtypes.iter().all(|&d| is_async_storable(d));
    let element: u32 = dtypes.iter().map(|dtype| dtype.bytes() as u32).sum();
    // Every offset is written by one thread.
    (fits && !crate::knobs::get().all_barriers).then_some(exchange.elements * element)
}

fn is_async_storable(dtype: DType) -> bool {
    matches!(dtype.bytes(), 4 | 8)
}

/// Bytes that an op's scratch has for a barrier.
pub(crate) fn barrier_bytes(lir: &LayoutIr, op: Op) -> u32 {
    received_bytes(lir, op).map_or(0, |_| BARRIER_BYTES)
}

/// The offset of the mbarrier of an op's DSMEM stores in shared memory, if it has some.
pub(crate) fn barrier(
    lir: &LayoutIr,
    scratch: Option<std::ops::Range<u32>>,
    op: Op,
) -> Option<u32> {
    received_bytes(lir, op)?;
    Some(scratch?.start + most_bytes(&steps_of(lir, op), &dtypes(lir, op)))
}
