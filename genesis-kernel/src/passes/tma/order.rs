//! Whether the copy engine may write what a store writes: it keeps no order with other accesses of the view.
//!
//! What else reads the view must have read it by then. So it is where each such load stands ahead of the store and the
//! stored tile is computed from what it gives, as in an epilogue that adds to what is there:
//!
//! ```text
//! for %tile = program_id 0 to %tiles step num_programs 0 {
//!   %1 = view_load %c, %i, %j        ahead of the store, and in %3
//!   %2 = dot %a, %b, %acc
//!   %3 = add %2, %1
//!   view_store %c, %3, %i, %j   ->   tma_store
//! }
//! ```
//!
//! In a loop a copy may still be under way when the next iteration reads, but the iterations of a share of a grid are points
//! of the grid, among which there is no order anyway.

use std::collections::BTreeSet;

use crate::analysis::is_share_of_grid;
use crate::ir::{Func, Op, OpKind, Region, Value};

/// Whether a store may be a copy, as far as other accesses of its view go.
pub(super) fn allows_copy(func: &Func, store: Op) -> bool {
    let view = func.op(store).operands[0];
    let asks = |kind: &OpKind| matches!(kind, OpKind::ViewDim(_) | OpKind::ViewStride(_));
    func.walk().into_iter().filter(|&op| op != store).all(|op| {
        let data = func.op(op);
        asks(&data.kind) || !data.operands.contains(&view) || is_read_by_then(func, op, store)
    })
}

/// Whether an access is a load that a store waits for.
fn is_read_by_then(func: &Func, load: Op, store: Op) -> bool {
    func.op(load).kind == OpKind::ViewLoad
        && stands_ahead(func, load, store)
        && goes_into(func, func.op(load).results[0], func.op(store).operands[1])
}

/// Whether one op stands ahead of another in a region that no loop but a share of a grid repeats.
fn stands_ahead(func: &Func, first: Op, second: Op) -> bool {
    let (Some(first), Some(second)) = (path(func, func.body, first), path(func, func.body, second))
    else {
        return false;
    };
    let common = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let repeats = |&(region, place): &(Region, usize)| {
        let op = func.region(region).ops[place];
        func.op(op).kind.is_loop() && !is_share_of_grid(func, op)
    };
    match (first.get(common), second.get(common)) {
        (Some((a, i)), Some((b, j))) => a == b && i < j && !first[..common].iter().any(repeats),
        _ => false,
    }
}

/// From the outside in, the regions that hold an op, and where in each.
fn path(func: &Func, region: Region, op: Op) -> Option<Vec<(Region, usize)>> {
    func.region(region).ops.iter().enumerate().find_map(|(place, &at)| {
        if at == op {
            return Some(vec![(region, place)]);
        }
        let inner = func.op(at).regions.iter().find_map(|&inner| path(func, inner, op))?;
        Some([vec![(region, place)], inner].concat())
    })
}

/// Whether a value is computed from another.
fn goes_into(func: &Func, source: Value, value: Value) -> bool {
    let (mut open, mut seen) = (vec![value], BTreeSet::new());
    while let Some(value) = open.pop() {
        if value == source {
            return true;
        }
        let Some(op) = func.def_op(value).filter(|&op| seen.insert(op)) else { continue };
        let data = func.op(op);
        let last = |&region: &Region| func.region(region).ops.last().copied();
        let yields = data.regions.iter().filter_map(last).flat_map(|op| &func.op(op).operands);
        open.extend(data.operands.iter().chain(yields));
    }
    false
}
