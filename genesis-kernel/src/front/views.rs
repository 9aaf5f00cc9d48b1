//! Methods of views: extents, strides, and tiles by coordinates.

use crate::ir::{DType, Shape, Value};

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

/// `v.store([i, j], value)`; a scalar is a tile of extents 1
pub(super) fn store(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`store`")?;
    let (view, dtype, rank) = lower.view(call)?;
    lower.refuse_readonly(view, &call.args[0])?;
    let coords = lower.coordinates("view", &call.args[1], rank)?;
    let operand = &call.args[2];
    let value = lower.view_value(operand, dtype, rank)?;
    let mut builder = lower.build();
    builder.cache = cache_of(call);
    builder.view_store(view, value, &coords);
    Ok(Val::Unit)
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
        let parts = match &operand.val {
            Val::Array(parts) | Val::Tuple(parts) => parts.clone(),
            val => vec![val.clone()],
        };
        if parts.len() != rank {
            let message =
                format!("the {what} has {rank} axes, {} coordinates are given", parts.len());
            return Err(self.error(operand.span(), message));
        }
        let expr = operand.expr;
        parts
            .into_iter()
            .map(|val| self.scalar_index("a coordinate", &Operand { val, expr }))
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
