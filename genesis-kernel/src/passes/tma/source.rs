//! Where a tile comes from: views that the copy engine takes, and tiles of them behind unit axes and
//! transposes.

use crate::ir::{DType, Func, Op, OpKind, Shape, TensorMap, Type, Value};

/// Bytes that addresses, strides and the first place of a box must be multiples of.
pub(super) const GRANULE: u64 = 16;
/// The most elements of one copy along an axis.
pub(super) const MAX_BLOCK: u32 = 256;

/// A parameter that the copy engine can read or write.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The parameter's number.
    pub param: u32,
    pub dtype: DType,
    pub rank: u8,
    /// The axis whose stride is 1.
    pub unit: u8,
    pub readonly: bool,
}

impl View {
    /// The view behind a value, if its promises are enough.
    pub(super) fn of(func: &Func, value: Value) -> Option<View> {
        let number = func.params.iter().position(|param| param.value == value)?;
        let attrs = &func.params[number].attrs;
        let Type::View { dtype, rank } = func.ty(value) else { return None };
        let unit = if attrs.unit_stride { rank.checked_sub(1) } else { attrs.unit_axis }?;
        let holds = |n: u64| n > 0 && n.is_multiple_of(GRANULE);
        let strides = rank == 1 || holds(attrs.stride_multiple_of * dtype.bytes() as u64);
        (holds(attrs.multiple_of) && strides && unit < rank).then_some(View {
            param: number as u32,
            dtype,
            rank,
            unit,
            readonly: attrs.readonly,
        })
    }

    /// The map that copies blocks of these extents, in the order of the view's axes, the unit axis
    /// cut into panels of `panel` bytes.
    ///
    /// Axes that make one axis of the tile together with the unit axis, `beside` it, come last: a panel
    /// is all the rows of the tile, and then comes the next one.
    pub(super) fn map(&self, block: &[u32], panel: u32, beside: &[u8]) -> Option<TensorMap> {
        let mut axes: Vec<u8> = (0..self.rank).rev().collect();
        let place = |axis: &u8| (*axis != self.unit, beside.contains(axis));
        axes.sort_by_key(place);
        let mut block: Vec<u32> = axes.iter().map(|&axis| block[usize::from(axis)]).collect();
        block[0] = panel / self.dtype.bytes() as u32;
        let fits = block.iter().all(|&extent| extent <= MAX_BLOCK);
        let (param, dtype) = (self.param, self.dtype);
        fits.then_some(TensorMap { param, dtype, axes, block, swizzle: panel, tf32: false })
    }
}

/// A tile of rank 2 that is a load of a view, but for unit axes, a transpose, and axes of the view that
/// follow each other and are one of the tile: a box of rows and columns as a line of positions.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub load: Op,
    pub view: View,
    /// The view's axes behind each axis of the tile, the last fastest.
    pub axes: [Vec<u8>; 2],
    /// The ops between the load and the tile.
    pub chain: Vec<Op>,
}

impl Source {
    /// Where `value` comes from, if nothing else uses it on its way.
    pub(super) fn of(func: &Func, uses: &[u32], value: Value) -> Option<Source> {
        let mut chain = Vec::new();
        let mut at = value;
        let load = loop {
            if uses[at.index()] != 1 && !is_multiplied(func, at) {
                return None;
            }
            let op = func.def_op(at)?;
            match func.op(op).kind {
                OpKind::ViewLoad => break op,
                OpKind::Reshape | OpKind::ExpandDims { .. } | OpKind::Transpose { .. } => {
                    chain.push(op);
                    at = func.op(op).operands[0];
                }
                _ => return None,
            }
        };
        let view = View::of(func, func.op(load).operands[0]).filter(|view| view.readonly)?;
        let loaded = func.tile(func.op(load).results[0]).shape;
        let own = |axis: u8| if loaded.extent(axis.into()) == 1 { vec![] } else { vec![axis] };
        let axes = chain
            .iter()
            .rev()
            .try_fold((0..view.rank).map(own).collect(), |axes, &op| joined(func, op, axes))?;
        let [first, second] = <[Vec<u8>; 2]>::try_from(axes).ok()?;
        Some(Source { load, view, axes: [first, second], chain })
    }

    /// The axis of the tile that lies contiguous in memory, and the view's axes beside the one with
    /// stride 1 in it.
    pub(super) fn contiguous(&self) -> Option<(usize, &[u8])> {
        let last_is_unit = |axes: &Vec<u8>| axes.last() == Some(&self.view.unit);
        let axis = self.axes.iter().position(last_is_unit)?;
        self.axes[axis].split_last().map(|(_, beside)| (axis, beside))
    }
}

/// Whether products are all that reads a tile, as it is or in another shape. Each gets it for itself: it
/// comes from the second-level cache.
fn is_multiplied(func: &Func, value: Value) -> bool {
    let users = func.walk().into_iter().filter(|&op| func.op(op).operands.contains(&value));
    users.into_iter().all(|op| match func.op(op).kind {
        OpKind::Dot { .. } => true,
        OpKind::Reshape | OpKind::ExpandDims { .. } | OpKind::Transpose { .. } => {
            is_multiplied(func, func.op(op).results[0])
        }
        _ => false,
    })
}

/// The view's axes behind each axis of an op's result, by those behind each axis of its operand.
fn joined(func: &Func, op: Op, axes: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let data = func.op(op);
    let (from, to) = (func.tile(data.operands[0]).shape, func.tile(data.results[0]).shape);
    if let OpKind::Transpose { perm } = &data.kind {
        return Some(perm.iter().map(|&axis| axes[usize::from(axis)].clone()).collect());
    }
    let mut rest = axes.into_iter().zip(from.extents());
    let join = |wanted: usize| {
        let (mut behind, mut extent) = (Vec::new(), 1);
        while extent < wanted {
            let (more, n) = rest.next()?;
            extent *= n;
            behind.extend(more);
        }
        let is_in_order = behind.windows(2).all(|pair| pair[0] < pair[1]);
        (extent == wanted && is_in_order).then_some(behind)
    };
    to.extents().into_iter().map(join).collect()
}

/// What is behind each axis of an op's result, by what is behind each axis of its operand; none for
/// an axis that is new.
pub(super) fn through(func: &Func, op: Op, axes: Vec<Option<u8>>) -> Option<Vec<Option<u8>>> {
    let data = func.op(op);
    let (from, to) = (func.tile(data.operands[0]).shape, func.tile(data.results[0]).shape);
    if let OpKind::Transpose { perm } = &data.kind {
        return Some(perm.iter().map(|&axis| axes[usize::from(axis)]).collect());
    }
    let wide = |shape: Shape| -> Vec<usize> {
        (0..shape.rank()).filter(|&axis| shape.extent(axis) != 1).collect()
    };
    let (before, after) = (wide(from), wide(to));
    let extents = |shape: Shape, axes: &[usize]| -> Vec<usize> {
        axes.iter().map(|&axis| shape.extent(axis)).collect()
    };
    if extents(from, &before) != extents(to, &after) {
        return None;
    }
    let mut behind = vec![None; to.rank()];
    for (old, new) in before.into_iter().zip(after) {
        behind[new] = axes[old];
    }
    Some(behind)
}
