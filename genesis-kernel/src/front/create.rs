//! Where the program stands in the grid, and tiles made from nothing.

use crate::ir::{BinaryOp, DType, Scalar, Shape, Value};

use super::arguments::Call;
use super::lower::{Lower, Res};
use super::value::{Lit, Operand, Val};

/// `program_id(axis)`
pub(super) fn program_id(lower: &mut Lower, call: &Call) -> Res {
    let axis = call.axis(lower, 0, 3)?;
    lower.refuse_in_combine(call.span, "`program_id`")?;
    Ok(Val::Ir(lower.build().program_id(axis as u8)))
}

/// `num_programs(axis)`
pub(super) fn num_programs(lower: &mut Lower, call: &Call) -> Res {
    let axis = call.axis(lower, 0, 3)?;
    lower.refuse_in_combine(call.span, "`num_programs`")?;
    Ok(Val::Ir(lower.build().num_programs(axis as u8)))
}

/// `arange::<N>()`
pub(super) fn arange(lower: &mut Lower, call: &Call) -> Res {
    let shape = call.shape(lower)?;
    if shape.rank() != 1 {
        let message = format!("`arange` takes 1 extent, {} given", shape.rank());
        return Err(lower.error(call.span, message).help("write `arange::<BLOCK>()`"));
    }
    Ok(Val::Ir(lower.build().iota(shape.extent(0))))
}

/// `zeros::<T, M, N>()`
pub(super) fn zeros(lower: &mut Lower, call: &Call) -> Res {
    filled(lower, call, 0)
}

/// `ones::<T, M, N>()`
pub(super) fn ones(lower: &mut Lower, call: &Call) -> Res {
    filled(lower, call, 1)
}

fn filled(lower: &mut Lower, call: &Call, value: i64) -> Res {
    let (dtype, shape) = (call.dtype(lower)?, call.shape(lower)?);
    Ok(Val::Ir(lower.build().full(Scalar::int(dtype, value), shape)))
}

/// `full::<T, M, N>(value)`
pub(super) fn full(lower: &mut Lower, call: &Call) -> Res {
    let (dtype, shape) = (call.dtype(lower)?, call.shape(lower)?);
    repeat(lower, &call.args[0], dtype, shape)
}

/// `zeros_like(x)`
pub(super) fn zeros_like(lower: &mut Lower, call: &Call) -> Res {
    let (value, soft) = lower.number("`zeros_like`", &call.args[0])?;
    let ty = lower.func.tile(value);
    let zero = lower.build().full(Scalar::zero(ty.dtype()), ty.shape);
    Ok(if soft { Val::Soft(zero) } else { Val::Ir(zero) })
}

/// `full_like(x, value)`
pub(super) fn full_like(lower: &mut Lower, call: &Call) -> Res {
    let (value, _) = lower.number("`full_like`", &call.args[0])?;
    let ty = lower.func.tile(value);
    repeat(lower, &call.args[1], ty.dtype(), ty.shape)
}

fn repeat(lower: &mut Lower, operand: &Operand, dtype: DType, shape: Shape) -> Res {
    let value = lower.coerce(operand, dtype)?;
    if !lower.func.tile(value).shape.is_scalar() {
        let found = lower.describe(&operand.val);
        let error =
            lower.error(operand.span(), format!("a tile is filled with a scalar, this is {found}"));
        return Err(error.help("repeat a tile with `broadcast_to`"));
    }
    Ok(Val::Ir(lower.build().broadcast(value, shape)))
}

/// `multiple_of(x, n)`: a promise about every element.
pub(super) fn multiple_of(lower: &mut Lower, call: &Call) -> Res {
    let n = match call.args.get(1) {
        Some(operand) => Some(operand.val.as_int()),
        None => {
            let expr = call.generics.iter().find_map(|generic| match generic {
                super::ast::GenericAst::Const(expr) => Some(*expr),
                super::ast::GenericAst::Type(_)
                | super::ast::GenericAst::Order(_)
                | super::ast::GenericAst::Scope(_) => None,
            });
            expr.map(|expr| lower.expr(expr)).transpose()?.map(|val| val.as_int())
        }
    };
    let Some(n) = n.flatten().filter(|&n| n > 0) else {
        return Err(lower.error(call.span, "`multiple_of` needs a positive constant"));
    };
    let operand = &call.args[0];
    if let Some((pointer, dtype, _)) = lower.pointee(&operand.val) {
        // Of pointers the user counts elements, the IR bytes.
        let bytes = (n as u64).saturating_mul(dtype.bytes() as u64);
        return Ok(Val::Ir(lower.build().multiple_of(pointer, bytes)));
    }
    if operand.val.as_int().is_some() {
        return Ok(operand.val.clone());
    }
    let aligned = lower.align("`multiple_of`", super::broadcast::Class::Int, &[operand])?;
    let value = lower.build().multiple_of(aligned.values[0], n as u64);
    Ok(aligned.wrap(value))
}

/// `grouped(tile, m, n, group)`: which tile of an m x n grid program number `tile` takes, so that
/// neighbours share rows of `group` tiles and thereby the cache.
pub(super) fn grouped(lower: &mut Lower, call: &Call) -> Res {
    let mut scalars = Vec::with_capacity(4);
    for operand in &call.args {
        scalars.push(lower.scalar_index("`grouped`", operand)?);
    }
    let [tile, m, n, group]: [Value; 4] = match scalars.try_into() {
        Ok(scalars) => scalars,
        Err(_) => return Err(lower.error(call.span, "`grouped` takes 4 arguments")),
    };
    let mut build = lower.build();
    let width = build.binary(BinaryOp::Mul, group, n);
    let band = build.binary(BinaryOp::Div, tile, width);
    let first = build.binary(BinaryOp::Mul, band, group);
    let left = build.binary(BinaryOp::Sub, m, first);
    let rows = build.binary(BinaryOp::Min, left, group);
    let within = build.binary(BinaryOp::Rem, tile, width);
    let row = build.binary(BinaryOp::Rem, within, rows);
    let i = build.binary(BinaryOp::Add, first, row);
    let j = build.binary(BinaryOp::Div, within, rows);
    Ok(Val::Tuple(vec![Val::Ir(i), Val::Ir(j)]))
}

impl Lower {
    /// An operand that is compile-time true or false; `default` where it is not given.
    pub(super) fn known_flag(&self, operand: Option<&Operand>, default: bool) -> Res<bool> {
        let Some(operand) = operand else { return Ok(default) };
        match &operand.val {
            Val::Lit(Lit::Int(value)) => Ok(*value != 0),
            val => val.as_bool().ok_or_else(|| {
                let found = self.describe(val);
                self.error(operand.span(), format!("this must be `true` or `false`, it is {found}"))
            }),
        }
    }
}
