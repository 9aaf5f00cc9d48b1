//! Methods of views: extents, strides, and tiles by coordinates.

use crate::ir::{BinaryOp, Builder, DType, Predicate, Shape, Value};

use super::arguments::Call;
use super::lower::{Lower, Res, name_of};
use super::memory::cache_of;
use super::value::{Operand, Val};

/// `v.dim(axis)`
pub(super) fn dim(lower: &mut Lower, call: &Call) -> Res {
    let (view, _, rank) = lower.view(call)?;
    let axis = call.axis(lower, 1, rank)?;
    Ok(Val::Ir(lower.build().view_dim(view, axis as u8)))
}

/// `v.stride(axis)`, in elements
pub(super) fn stride(lower: &mut Lower, call: &Call) -> Res {
    let (view, _, rank) = lower.view(call)?;
    let axis = call.axis(lower, 1, rank)?;
    Ok(Val::Ir(lower.build().view_stride(view, axis as u8)))
}

/// `v.ptr()`: a pointer to the first element
pub(super) fn ptr(lower: &mut Lower, call: &Call) -> Res {
    let (view, ..) = lower.view(call)?;
    Ok(Val::Ir(lower.build().view_ptr(view)))
}

/// `v.load::<M, N>([i, j])`
pub(super) fn load(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`load`")?;
    let (view, _, rank) = lower.view(call)?;
    let shape = call.shape(lower)?;
    if shape.rank() != rank {
        let (name, n) = (name_of(call.args[0].expr), shape.rank());
        let message = format!("{name} has {rank} axes, `load` is given {n} extents");
        return Err(lower
            .error(call.span, message)
            .help("write one extent for each axis, 1 for a unit axis"));
    }
    let coords = lower.coordinates("view", &call.args[1], rank)?;
    let mut builder = lower.build();
    builder.cache = cache_of(call);
    Ok(Val::Ir(builder.view_load(view, &coords, shape)))
}

/// `v.store([i, j], value)`, `v.store([i, j], value, mask)`; a scalar is a tile of extents 1
pub(super) fn store(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`store`")?;
    let (view, dtype, rank) = lower.view(call)?;
    lower.refuse_readonly(view, &call.args[0])?;
    let coords = lower.coordinates("view", &call.args[1], rank)?;
    let operand = &call.args[2];
    let value = lower.view_value(operand, dtype, rank)?;
    let shape = lower.func.tile(value).shape;
    let mask = lower.mask(call.args.get(3), shape)?;
    let mut builder = lower.build();
    builder.cache = cache_of(call);
    builder.view_store(view, value, &coords, mask);
    Ok(Val::Unit)
}

/// `view_of(ptr, [m, n], [row, 1])`: a view of memory from a pointer on
pub(super) fn view_of(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`view_of`")?;
    let (ptr, _, shape) = lower.pointer("`view_of`", &call.args[0])?;
    if !shape.is_scalar() {
        let found = lower.describe(&call.args[0].val);
        let message = format!("`view_of` takes one pointer, this is {found}");
        return Err(lower.error(call.args[0].span(), message));
    }
    let rank = match &call.args[1].val {
        Val::Array(parts) => parts.len(),
        _ => 1,
    };
    let extents = lower.indices(("view", "extents"), &call.args[1], rank)?;
    let strides = lower.indices(("view", "strides"), &call.args[2], rank)?;
    let mut b = lower.build();
    let extents: Vec<Value> = extents.into_iter().map(|n| at_least_zero(&mut b, n)).collect();
    Ok(Val::Ir(b.make_view(ptr, &extents, &strides)))
}

/// `v.subview([i, j], [m, n])`, `v.subview([i, j], [m, n], [2, 1])`: what is in it is in the view
pub(super) fn subview(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`subview`")?;
    let (view, _, rank) = lower.view(call)?;
    let starts = lower.coordinates("view", &call.args[1], rank)?;
    let extents = lower.indices(("view", "extents"), &call.args[2], rank)?;
    let steps = match call.args.get(3) {
        Some(operand) => Some(lower.indices(("view", "steps"), operand, rank)?),
        None => None,
    };
    let mut b = lower.build();
    let mut ptr = b.view_ptr(view);
    let (mut dims, mut strides) = (Vec::new(), Vec::new());
    for axis in 0..rank {
        let (start, stride) = (starts[axis], b.view_stride(view, axis as u8));
        let skipped = b.binary(BinaryOp::Mul, start, stride);
        ptr = b.ptr_add(ptr, skipped);
        let dim = b.view_dim(view, axis as u8);
        let step = steps.as_ref().map(|steps| steps[axis]);
        dims.push(elements_from(&mut b, (start, step), dim, extents[axis]));
        strides.push(match step {
            Some(step) => b.binary(BinaryOp::Mul, stride, step),
            None => stride,
        });
    }
    Ok(Val::Ir(b.make_view(ptr, &dims, &strides)))
}

/// How many of `wanted` elements there are along an axis of `dim`, from `start` on and `step` apart: none where the start
/// is outside, or the step below 1.
fn elements_from(
    b: &mut Builder<'_>,
    (start, step): (Value, Option<Value>),
    dim: Value,
    wanted: Value,
) -> Value {
    let (zero, one) = (b.int(DType::I64, 0), b.int(DType::I64, 1));
    let mut inside = b.compare(Predicate::Ge, start, zero);
    let left = b.binary(BinaryOp::Sub, dim, start);
    let left = match step {
        Some(step) => {
            let is_ahead = b.compare(Predicate::Ge, step, one);
            inside = b.binary(BinaryOp::And, inside, is_ahead);
            // The first, and one for each whole step that is left.
            let steps = b.binary(BinaryOp::Sub, left, one);
            let steps = at_least_zero(b, steps);
            let steps = b.binary(BinaryOp::Div, steps, step);
            let more = b.binary(BinaryOp::Add, steps, one);
            let has_one = b.compare(Predicate::Ge, left, one);
            b.select(has_one, more, zero)
        }
        None => left,
    };
    let there = b.binary(BinaryOp::Min, left, wanted);
    let there = b.select(inside, there, zero);
    at_least_zero(b, there)
}

fn at_least_zero(b: &mut Builder<'_>, n: Value) -> Value {
    let zero = b.int(DType::I64, 0);
    b.binary(BinaryOp::Max, n, zero)
}

impl Lower {
    fn view(&self, call: &Call) -> Res<(Value, DType, usize)> {
        self.view_type(&call.args[0].val).ok_or_else(|| {
            let found = self.describe(&call.args[0].val);
            self.error(call.span, format!("`{}` is a method of views, this is {found}", call.name))
        })
    }

    /// One scalar for each axis of a view or a tile.
    pub(super) fn coordinates(
        &mut self,
        what: &str,
        operand: &Operand,
        rank: usize,
    ) -> Res<Vec<Value>> {
        self.indices((what, "coordinates"), operand, rank)
    }

    /// One index for each axis: coordinates, extents or strides.
    fn indices(
        &mut self,
        (what, kind): (&str, &str),
        operand: &Operand,
        rank: usize,
    ) -> Res<Vec<Value>> {
        let parts = match &operand.val {
            Val::Array(parts) | Val::Tuple(parts) => parts.clone(),
            val => vec![val.clone()],
        };
        if parts.len() != rank {
            let message = format!("the {what} has {rank} axes, {} {kind} are given", parts.len());
            return Err(self.error(operand.span(), message));
        }
        let expr = operand.expr;
        parts
            .into_iter()
            .map(|val| self.scalar_index(kind.trim_end_matches('s'), &Operand { val, expr }))
            .collect()
    }

    fn view_value(&mut self, operand: &Operand, dtype: DType, rank: usize) -> Res<Value> {
        let found = self.number_dtype("a store", operand)?;
        let name = name_of(operand.expr);
        if found != dtype && !self.is_soft(&operand.val) {
            let error =
                self.error(operand.span(), format!("{name} is {found}, the view is of {dtype}"));
            return Err(error.help(format!("convert it: `.to::<{dtype}>()`")));
        }
        let value = self.coerce(operand, dtype)?;
        let shape = self.func.tile(value).shape;
        if shape.is_scalar() {
            return Ok(self.build().reshape(value, Shape::new(&vec![1; rank])));
        }
        if shape.rank() != rank {
            let found = self.describe(&operand.val);
            let message = format!("the view has {rank} axes, {name} is {found}");
            let error = self.error(operand.span(), message);
            return Err(error.help("`.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"));
        }
        Ok(value)
    }
}
