//! Lines: tiles along one axis that a loop loads beside the operands of its products, as what each row of
//! a block is scaled by.
//!
//! Threads would wait for memory at each of them. So the copy engine brings a line along with the operands
//! of the product that follows, in the same slot, and each warp reads its part of it there:
//!
//! ```text
//! %1 = view_load %l, %h, %i : f32[1x64]           %1 = tma_load 2 %h, %i : f32[1x64]     to registers
//! %2 = tma_load 0, %h, %i, 0 : bf16[64x128] ->    %2 = tma_load 0 %h, %i, 0 : bf16[64x128]
//! %3 = dot ieee %w, %2, %acc                      %3 = dot ieee %w, %2, %acc
//! ```

use super::source::{GRANULE, MAX_BLOCK, View};
use crate::ir::{Func, Op, OpKind, TensorMap};

/// A line and how it comes.
pub(super) struct Line {
    pub(super) map: TensorMap,
    pub(super) view: View,
    /// The axis of the tile along which it lies.
    pub(super) axis: usize,
    pub(super) bytes: u32,
}

impl Line {
    /// What a load loads, if it is a line that the copy engine can bring.
    pub(super) fn of(func: &Func, load: Op) -> Option<Line> {
        let data = func.op(load);
        if data.kind != OpKind::ViewLoad {
            return None;
        }
        let view = View::of(func, data.operands[0]).filter(|view| view.readonly)?;
        let shape = func.tile(data.results[0]).shape;
        let axis = usize::from(view.unit);
        let extent = shape.extent(axis);
        let bytes = (extent * view.dtype.bytes()) as u32;
        let fits = shape.numel() == extent
            && extent <= MAX_BLOCK as usize
            && extent.is_power_of_two()
            && u64::from(bytes).is_multiple_of(GRANULE);
        fits.then(|| Line { map: map(view, extent as u32), view, axis, bytes })
    }
}

/// The map that copies a line of so many elements.
fn map(view: View, extent: u32) -> TensorMap {
    let View { param, dtype, rank, unit, .. } = view;
    let mut axes: Vec<u8> = (0..rank).rev().collect();
    axes.sort_by_key(|&axis| axis != unit);
    let mut block = vec![1; axes.len()];
    block[0] = extent;
    TensorMap { param, dtype, axes, block, swizzle: 0, tf32: false }
}
