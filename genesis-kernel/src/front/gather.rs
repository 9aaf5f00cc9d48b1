//! `gather(x, index, axis)`: elements along an axis, at places that are computed; `scatter(x, index, axis)`: elements to such
//! places; and `element(x, [i, j])`, which gathers
//! along one axis after the other until one element is left:
//!
//! ```text
//! f32[4x8]   gather 1 by j : f32[4x1]   gather 0 by i : f32[1x1]   reshape : f32
//! ```

use crate::diag::Diagnostic;
use crate::ir::{Shape, Value};

use super::arguments::Call;
use super::broadcast::Class;
use super::lower::{Lower, Res};
use super::value::Val;

/// A tile and an index of integers along an axis of it.
struct Indexed {
    x: Value,
    /// Whether the tile is of numbers that take any dtype.
    is_soft: bool,
    index: Value,
    axis: usize,
    shapes: [Shape; 2],
}

impl Indexed {
    /// The arguments of a call of this name: a tile, an index, an axis.
    fn of(lower: &mut Lower, call: &Call, name: &str) -> Res<Indexed> {
        let (x, is_soft) = lower.number(&format!("`{name}`"), &call.args[0])?;
        let what = format!("the index of `{name}`");
        if !lower.number_dtype(&what, &call.args[1])?.is_int() {
            return Err(lower.wrong_class(&what, Class::Int, &call.args[1]));
        }
        let (index, _) = lower.number(&what, &call.args[1])?;
        let shapes = [x, index].map(|value| lower.func.tile(value).shape);
        if shapes[0].is_scalar() {
            let found = lower.describe(&call.args[0].val);
            return Err(lower.error(call.span, format!("`{name}` needs a tile, this is {found}")));
        }
        let axis = call.axis(lower, 2, shapes[0].rank())?;
        Ok(Indexed { x, is_soft, index, axis, shapes })
    }
}

/// `gather(x, index, axis)`
pub(super) fn gather(lower: &mut Lower, call: &Call) -> Res {
    let Indexed { x, is_soft, index, axis, shapes: [from, at] } =
        Indexed::of(lower, call, "gather")?;
    let is_other = |i: &usize| *i != axis && at.extent(*i) != from.extent(*i);
    if at.rank() != from.rank() || (0..from.rank()).any(|i| is_other(&i)) {
        return Err(mismatch(lower, call, [from, at], axis));
    }
    let value = lower.build().gather(x, index, axis);
    Ok(if is_soft { Val::Soft(value) } else { Val::Ir(value) })
}

/// `scatter(x, index, axis)`
pub(super) fn scatter(lower: &mut Lower, call: &Call) -> Res {
    let Indexed { x, is_soft, index, axis, shapes: [from, at] } =
        Indexed::of(lower, call, "scatter")?;
    if from != at {
        let message = format!("`scatter` of {from} by an index of {at}");
        return Err(lower.error(call.args[1].span(), message).help("their shapes are equal"));
    }
    if !from.extent(axis).is_power_of_two() {
        let message = format!("`scatter` along axis {axis} of {from}, which is no power of two");
        return Err(lower.error(call.span, message));
    }
    let value = lower.build().scatter(x, index, axis);
    Ok(if is_soft { Val::Soft(value) } else { Val::Ir(value) })
}

/// `element(x, coordinates)`
pub(super) fn element(lower: &mut Lower, call: &Call) -> Res {
    let (mut value, soft) = lower.number("`element`", &call.args[0])?;
    let mut shape = lower.func.tile(value).shape;
    if shape.is_scalar() {
        let found = lower.describe(&call.args[0].val);
        return Err(lower.error(call.span, format!("`element` needs a tile, this is {found}")));
    }
    let at = lower.coordinates("tile", &call.args[1], shape.rank())?;
    for axis in (0..shape.rank()).rev() {
        shape = shape.without(axis).with(axis, 1);
        let index = lower.build().broadcast(at[axis], shape);
        value = lower.build().gather(value, index, axis);
    }
    let value = lower.build().reshape(value, Shape::SCALAR);
    Ok(if soft { Val::Soft(value) } else { Val::Ir(value) })
}

fn mismatch(lower: &Lower, call: &Call, [from, at]: [Shape; 2], axis: usize) -> Diagnostic {
    let message = format!("`gather` along axis {axis} of {from} by an index of {at}");
    let help = match at.rank() == from.rank() {
        true => {
            "extents of the index are those of the tile but along the axis; `.broadcast_to` repeats it"
        }
        false => {
            "the index has as many axes as the tile; `.row()`, `.col()` and `.expand_dims(axis)` add one"
        }
    };
    lower.error(call.args[1].span(), message).help(help)
}
