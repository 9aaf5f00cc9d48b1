//! Left operands that are computed: cast from a shorter dtype, scaled, or made by another product.
//!
//! The right operand must be in shared memory, the left one may be in registers. What it is computed from
//! still comes through the copy engine, and each warp reads its part of it from the slot:
//!
//! ```text
//! %1 = view_load %a, %i, %p : i8[128x64]          %1 = tma_load 0 %i, %p : i8[128x64]     to registers
//! %2 = cast %1 : bf16[128x64]               ->    %2 = cast %1 : bf16[128x64]
//! %3 = view_load %b, %p, %j : bf16[64x256]        %3 = tma_load 1 %p, %j : bf16[64x256]
//! %4 = dot ieee %2, %3, %acc : f32[128x256]       %4 = dot ieee %2, %3, %acc : f32[128x256]
//! ```

use std::collections::BTreeSet;

use super::operand::{Operand, operand};
use crate::ir::{DType, Func, Multicast, OpKind, Region, Value};

/// The loads behind a left operand that is computed in a region; none if one of them is of as many
/// elements and no copy, so that nothing would run ahead of the product.
pub(super) fn computed(
    func: &Func,
    uses: &[u32],
    region: Region,
    left: Value,
) -> Option<Vec<Operand>> {
    if !matches!(func.tile(left).dtype(), DType::F16 | DType::BF16) {
        return None;
    }
    let numel = func.tile(left).shape.numel();
    let inside = func.walk_in(region);
    let (mut found, mut seen, mut work) = (Vec::new(), BTreeSet::new(), vec![left]);
    while let Some(value) = work.pop() {
        let def = func.def_op(value).filter(|op| inside.contains(op));
        // What comes from outside of the loop or goes round it is in registers already.
        let Some(op) = def.filter(|_| seen.insert(value)) else { continue };
        if let Some(operand) = loaded(func, uses, region, value) {
            found.push(operand);
            continue;
        }
        let data = func.op(op);
        match data.kind {
            OpKind::Dot { .. } => continue,
            OpKind::ViewLoad | OpKind::Load if func.tile(value).shape.numel() >= numel => {
                return None;
            }
            OpKind::If => {
                let lasts = data.regions.iter().filter_map(|&r| func.region(r).ops.last());
                work.extend(lasts.flat_map(|&last| func.op(last).operands.iter().copied()));
            }
            _ if !data.regions.is_empty() => return None,
            _ => {}
        }
        let tiles = data.operands.iter().filter(|&&operand| func.ty(operand).as_tile().is_some());
        work.extend(tiles);
    }
    Some(found)
}

/// A value that the copy engine can bring, with K contiguous as the registers of the operand want it.
fn loaded(func: &Func, uses: &[u32], region: Region, value: Value) -> Option<Operand> {
    if func.tile(value).shape.rank() != 2 {
        return None;
    }
    // The value itself may be used often: its uses read registers.
    let mut uses = uses.to_vec();
    uses[value.index()] = 1;
    let mut operand = operand(func, &uses, region, (value, 1), Multicast::None)?;
    // Axes of the view that are rows of the tile together are lines of its slot, one after the other.
    let [rows, columns] = &operand.source.axes;
    let is_matrix = !rows.is_empty() && columns.len() == 1;
    (operand.contiguous == 1 && is_matrix).then(|| {
        operand.registers = true;
        operand.map.tf32 = false;
        operand
    })
}
