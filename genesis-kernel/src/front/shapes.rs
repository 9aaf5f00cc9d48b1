//! Moving, adding and dropping axes. Tiles of pointers have them too.

use crate::ir::{MAX_RANK, Shape, TileType, Value};

use super::arguments::{Call, make_shape};
use super::ast::GenericAst;
use super::broadcast::{Aligned, Class};
use super::lower::{Lower, Res};
use super::value::{Operand, Val};

/// `x.row()`: [N] to [1, N].
pub(super) fn row(lower: &mut Lower, call: &Call) -> Res {
    unit_axis(lower, call, 0)
}

/// `x.col()`: [N] to [N, 1].
pub(super) fn col(lower: &mut Lower, call: &Call) -> Res {
    unit_axis(lower, call, 1)
}

fn unit_axis(lower: &mut Lower, call: &Call, axis: usize) -> Res {
    let (value, ty) = lower.tile("a shape", &call.args[0])?;
    if ty.shape.rank() != 1 {
        let found = lower.describe(&call.args[0].val);
        let message = format!("`.{}()` needs a tile with 1 axis, this is {found}", call.name);
        let error = lower.error(call.args[0].span(), message);
        return Err(error.help("add a unit axis anywhere with `.expand_dims(axis)`"));
    }
    lower.like_operand(&call.args[0], |lower| lower.build().expand_dims(value, axis))
}

/// `x.expand_dims(axis)`
pub(super) fn expand_dims(lower: &mut Lower, call: &Call) -> Res {
    let (value, ty) = lower.tile("`expand_dims`", &call.args[0])?;
    if ty.shape.rank() == MAX_RANK {
        return Err(lower.error(call.span, format!("a tile has at most {MAX_RANK} axes")));
    }
    let axis = call.axis(lower, 1, ty.shape.rank() + 1)?;
    lower.like_operand(&call.args[0], |lower| lower.build().expand_dims(value, axis))
}

/// `x.squeeze(axis)`
pub(super) fn squeeze(lower: &mut Lower, call: &Call) -> Res {
    let (value, ty) = lower.tile("`squeeze`", &call.args[0])?;
    let axis = call.axis(lower, 1, ty.shape.rank())?;
    if ty.shape.extent(axis) != 1 {
        let message = format!(
            "`squeeze` drops an axis of extent 1, axis {axis} of {} has {}",
            ty.shape,
            ty.shape.extent(axis)
        );
        return Err(lower.error(call.span, message));
    }
    lower.like_operand(&call.args[0], |lower| lower.build().reshape(value, ty.shape.without(axis)))
}

/// `x.reshape::<M, N>()`
pub(super) fn reshape(lower: &mut Lower, call: &Call) -> Res {
    let shape = call.shape(lower)?;
    to_shape(lower, call, shape)
}

fn to_shape(lower: &mut Lower, call: &Call, shape: Shape) -> Res {
    let (value, ty) = lower.tile("a shape", &call.args[0])?;
    if ty.shape.numel() != shape.numel() {
        let (from, to) = (ty.shape.numel(), shape.numel());
        let message =
            format!("`{}` of {} to {shape}: {from} elements and {to}", call.name, ty.shape);
        return Err(lower.error(call.span, message).help("the number of elements must stay"));
    }
    if !ty.shape.reshapes_in_order(shape) {
        let message = format!("can't reshape {} to {shape}", ty.shape);
        let help = "extents that are merged or split must be powers of two, but for the first";
        return Err(lower.error(call.span, message).help(help));
    }
    lower.like_operand(&call.args[0], |lower| lower.build().reshape(value, shape))
}

/// `x.broadcast_to::<M, N>()`
pub(super) fn broadcast_to(lower: &mut Lower, call: &Call) -> Res {
    let shape = call.shape(lower)?;
    let (value, ty) = lower.tile("`broadcast_to`", &call.args[0])?;
    if ty.shape.broadcast(shape) != Some(shape) {
        let message = format!("a tile of shape {} does not broadcast to {shape}", ty.shape);
        let help = if ty.shape.rank() == shape.rank() {
            "extents must be equal or 1; `.row()` and `.col()` add a unit axis"
        } else {
            "ranks must be equal; `.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"
        };
        return Err(lower.error(call.span, message).help(help));
    }
    lower.like_operand(&call.args[0], |lower| lower.build().broadcast(value, shape))
}

/// `x.trans()`: the last two axes change places.
pub(super) fn trans(lower: &mut Lower, call: &Call) -> Res {
    let (value, ty) = lower.tile("`trans`", &call.args[0])?;
    let rank = ty.shape.rank();
    if rank < 2 {
        let found = lower.describe(&call.args[0].val);
        return Err(lower.error(call.span, format!("`trans` needs 2 axes, this is {found}")));
    }
    let mut perm: Vec<u8> = (0..rank as u8).collect();
    perm.swap(rank - 2, rank - 1);
    lower.like_operand(&call.args[0], |lower| lower.build().transpose(value, &perm))
}

/// `x.permute([1, 0, 2])`, or `x.permute::<1, 0, 2>()`.
pub(super) fn permute(lower: &mut Lower, call: &Call) -> Res {
    let (value, ty) = lower.tile("`permute`", &call.args[0])?;
    let mut axes = Vec::new();
    match call.args.get(1).map(|operand| &operand.val) {
        Some(Val::Array(parts) | Val::Tuple(parts)) => axes.extend(parts.iter().map(Val::as_int)),
        Some(val) => axes.push(val.as_int()),
        None => {
            for generic in call.generics {
                if let GenericAst::Const(expr) = generic {
                    axes.push(lower.expr(expr)?.as_int());
                }
            }
        }
    }
    let rank = ty.shape.rank();
    let perm: Option<Vec<u8>> = axes
        .iter()
        .map(|axis| axis.filter(|a| (0..rank as i64).contains(a)).map(|a| a as u8))
        .collect();
    let Some(perm) = perm.filter(|perm| is_permutation(perm, rank)) else {
        let message = format!("`permute` needs each of the {rank} axes of {} once", ty.shape);
        return Err(lower.error(call.span, message).help("axes are constants that count from 0"));
    };
    lower.like_operand(&call.args[0], |lower| lower.build().transpose(value, &perm))
}

fn is_permutation(perm: &[u8], rank: usize) -> bool {
    perm.len() == rank && (0..rank as u8).all(|axis| perm.contains(&axis))
}

/// `join(a, b)`: a new last axis of extent 2.
pub(super) fn join(lower: &mut Lower, call: &Call) -> Res {
    let aligned = lower.align("`join`", Class::Any, &[&call.args[0], &call.args[1]])?;
    let mut extents = aligned.shape.extents();
    extents.push(2);
    make_shape(lower, &extents, call.span)?;
    let value = lower.build().join(aligned.values[0], aligned.values[1]);
    Ok(aligned.wrap(value))
}

/// `cat::<M, N>(a, b)`: one behind the other along the axis that the result has twice as long.
pub(super) fn cat(lower: &mut Lower, call: &Call) -> Res {
    let (aligned, to) = doubled(lower, call)?;
    let (from, rank) = (aligned.shape, aligned.shape.rank());
    let doubles = |&axis: &usize| to.extent(axis) == 2 * from.extent(axis);
    let axis = (0..rank).find(doubles).unwrap_or(0);
    if !from.extent(axis).is_power_of_two() {
        let message = format!("`cat` along axis {axis} of {from}, which is no power of two");
        return Err(lower
            .error(call.span, message)
            .help("extents along the axis must be powers of two"));
    }
    let mut perm: Vec<u8> = (0..rank as u8).collect();
    perm.insert(axis, rank as u8);
    let mut build = lower.build();
    let both = build.join(aligned.values[0], aligned.values[1]);
    let both = build.transpose(both, &perm);
    let value = build.reshape(both, to);
    Ok(aligned.wrap(value))
}

/// `interleave::<M, N>(a, b)`: elements of the two in turns along the last axis.
pub(super) fn interleave(lower: &mut Lower, call: &Call) -> Res {
    let (aligned, to) = doubled(lower, call)?;
    let last = aligned.shape.rank() - 1;
    if to.extent(last) != 2 * aligned.shape.extent(last) {
        let message = format!("`interleave` of {} to {to}", aligned.shape);
        return Err(lower.error(call.span, message).help("the last extent is twice as long"));
    }
    let mut build = lower.build();
    let both = build.join(aligned.values[0], aligned.values[1]);
    let value = build.reshape(both, to);
    Ok(aligned.wrap(value))
}

/// Two tiles of one shape, and the shape that has one axis twice as long.
fn doubled(lower: &mut Lower, call: &Call) -> Res<(Aligned, Shape)> {
    let to = call.shape(lower)?;
    let what = format!("`{}`", call.name);
    let aligned = lower.align(&what, Class::Any, &[&call.args[0], &call.args[1]])?;
    let from = aligned.shape;
    if from.rank() == MAX_RANK {
        return Err(lower.error(call.span, format!("{what} takes at most {} axes", MAX_RANK - 1)));
    }
    let pairs: Vec<(usize, usize)> = from.extents().into_iter().zip(to.extents()).collect();
    let twice = pairs.iter().filter(|(a, b)| *b == 2 * a).count();
    let same = pairs.iter().filter(|(a, b)| a == b).count();
    if from.is_scalar() || from.rank() != to.rank() || twice != 1 || twice + same != from.rank() {
        let message = format!("{what} of two tiles of {from} can't have shape {to}");
        let help = "one extent of the result is twice that of the tiles, the others are equal";
        return Err(lower.error(call.span, message).help(help));
    }
    Ok((aligned, to))
}

/// `split(x)`: the two halves of a last axis of extent 2.
pub(super) fn split(lower: &mut Lower, call: &Call) -> Res {
    let (value, ty) = lower.tile("`split`", &call.args[0])?;
    if ty.shape.extents().last() != Some(&2) {
        let found = lower.describe(&call.args[0].val);
        let message = format!("`split` needs a last axis of extent 2, this is {found}");
        return Err(lower.error(call.span, message));
    }
    let (a, b) = lower.build().split(value);
    let soft = lower.is_soft(&call.args[0].val);
    let wrap = |value| if soft { Val::Soft(value) } else { Val::Ir(value) };
    Ok(Val::Tuple(vec![wrap(a), wrap(b)]))
}

impl Lower {
    /// A tile, scalar or pointers, with its type.
    pub(super) fn tile(&mut self, what: &str, operand: &Operand) -> Res<(Value, TileType)> {
        let value = match self.pointee(&operand.val) {
            Some((pointer, ..)) => pointer,
            None => self.number(what, operand)?.0,
        };
        Ok((value, self.func.tile(value)))
    }

    /// The result of an op on one operand, soft where the operand is.
    pub(super) fn like_operand(
        &mut self,
        operand: &Operand,
        build: impl FnOnce(&mut Lower) -> Value,
    ) -> Res {
        let value = build(self);
        Ok(if self.is_soft(&operand.val) { Val::Soft(value) } else { Val::Ir(value) })
    }
}
