//! From what the macros leave to tile IR: the body is walked once with its dtypes and constants
//! known, and every expression appends the ops it means.
//!
//! Shapes and dtypes are checked here again, although rustc has checked the body: constants are
//! known only now, and `[BM, BK]` against `[BN, BK]` is right or wrong by their values.
//!
//! ```text
//! let i = program_id(0) * BLOCK + arange::<BLOCK>();      %0 = program_id 0
//!                                                         %1 = const 1024:i64
//!                                                         %2 = mul %0, %1
//!                                                         %3 = iota : i64[1024]
//!                                                         %4 = broadcast %2 : i64[1024]
//!                                                         %5 = add %4, %3
//! ```

mod arguments;
mod assigned;
pub mod ast;
mod bits;
mod broadcast;
mod builtins;
mod call;
mod consts;
mod control;
mod create;
mod env;
mod expr;
pub mod fields;
mod gather;
mod hints;
mod inline_asm;
mod list;
mod loops;
mod lower;
mod math;
mod memory;
mod merge;
mod operators;
mod optional;
mod order;
mod random;
mod reduce;
mod scaled;
mod shapes;
#[cfg(test)]
mod tests;
pub(crate) mod unchecked;
mod value;
mod views;

use crate::diag::Diagnostic;
use crate::ir::{DType, Func, OpKind, ParamAttrs, Scalar, Shape, TileType, Type};

pub use self::hints::{Hints, LaunchOptions, ParamHint};

use self::ast::{DTypeBound, FnAst, ParamAst, PatternAst, TypeAst};
use self::env::Frame;
use self::lower::{Lower, Res};
use self::value::Val;

/// Lowers a kernel for these dtypes and constants, in the order of its parameters, to tile IR.
///
/// # Errors
/// If the kernel is wrong for them: a diagnostic at the user's line.
pub fn build(
    ast: &'static FnAst,
    dtypes: &[DType],
    consts: &[i64],
    hints: &Hints,
) -> Result<Func, Diagnostic> {
    let mut func = Func::new(ast.name);
    func.contract = ast.contract;
    let mut lower = Lower::new(func);
    let mut frame = Frame::new(ast, lower.region);
    frame.dtypes = ast.dtypes.iter().map(|param| param.name).zip(dtypes.iter().copied()).collect();
    frame.consts = ast.consts.iter().copied().zip(consts.iter().copied()).collect();
    lower.frames.push(frame);
    check_specialisation(&lower, ast, dtypes, consts)?;
    for (i, param) in ast.params.iter().enumerate() {
        let hint = hints.params.get(i).copied().unwrap_or_default();
        let is_constant =
            u32::try_from(i).is_ok_and(|i| hints.constant.checked_shr(i).unwrap_or(0) & 1 == 1);
        declare_param(&mut lower, param, hint, is_constant)?;
    }
    fields::declare(&mut lower, ast);
    lower.loc = None;
    lower.block_body(ast.body)?;
    let body = lower.func.body;
    let ops = &lower.func.region(body).ops;
    let end = ops.iter().position(|&op| matches!(lower.func.op(op).kind, OpKind::Return));
    match end {
        Some(end) => lower.func.region_mut(body).ops.truncate(end + 1),
        None => lower.build().ret(),
    }
    Ok(lower.func)
}

fn check_specialisation(lower: &Lower, ast: &FnAst, dtypes: &[DType], consts: &[i64]) -> Res<()> {
    let count = |what: &str, expected: usize, given: usize| {
        if expected == given {
            return Ok(());
        }
        let plural = if expected == 1 { "" } else { "s" };
        let message = format!("`{}` has {expected} {what}{plural}, {given} given", ast.name);
        Err(lower.error(ast.span, message))
    };
    count("dtype parameter", ast.dtypes.len(), dtypes.len())?;
    count("const parameter", ast.consts.len(), consts.len())?;
    for (param, &dtype) in ast.dtypes.iter().zip(dtypes) {
        if !call::accepts(param.bound, dtype) {
            let bound = match param.bound {
                DTypeBound::Element => "a dtype",
                DTypeBound::Number => "a number",
                DTypeBound::Float => "a float",
                DTypeBound::Float8 => "a float of 8 bits",
                DTypeBound::Int => "an integer",
                DTypeBound::Int8 => "an integer of 8 bits",
            };
            let message = format!("`{}` of `{}` is {bound}, not {dtype}", param.name, ast.name);
            return Err(lower.error(ast.span, message));
        }
    }
    Ok(())
}

fn declare_param(
    lower: &mut Lower,
    param: &'static ParamAst,
    hint: ParamHint,
    is_constant: bool,
) -> Res<()> {
    let name = match param.pattern {
        PatternAst::Name(name) => name,
        PatternAst::Wild => "_",
        PatternAst::Tuple(_) => {
            return Err(lower.error(param.span, "a parameter of a kernel has one name"));
        }
    };
    let mut attrs = ParamAttrs { multiple_of: hint.multiple_of, ..ParamAttrs::default() };
    attrs.constant = is_constant
        && matches!(
            param.ty,
            TypeAst::Ptr { mutable: false, .. }
                | TypeAst::View { mutable: false, .. }
                | TypeAst::Views { mutable: false, .. }
        );
    let ty = match &param.ty {
        TypeAst::Scalar(dtype) => Type::scalar(lower.dtype_ast(*dtype, param.span)?),
        TypeAst::Ptr { dtype, mutable } => {
            (attrs.readonly, attrs.exclusive) = (!mutable, *mutable);
            Type::Tile(TileType::ptr(lower.dtype_ast(*dtype, param.span)?, Shape::SCALAR))
        }
        TypeAst::View { dtype, rank, mutable } | TypeAst::Views { dtype, rank, mutable } => {
            (attrs.readonly, attrs.exclusive) = (!mutable, *mutable);
            attrs.unit_stride = hint.unit_stride;
            attrs.unit_axis = hint.unit_axis;
            attrs.zero_stride = hint.zero_stride;
            attrs.zero_row_stride = hint.zero_row_stride;
            attrs.stride_multiple_of = hint.stride_multiple_of;
            attrs.narrow = hint.narrow;
            if *rank == 0 || usize::from(*rank) > crate::ir::MAX_RANK {
                let message = format!("a view has 1 to {} axes", crate::ir::MAX_RANK);
                return Err(lower.error(param.span, message));
            }
            Type::View { dtype: lower.dtype_ast(*dtype, param.span)?, rank: *rank }
        }
        TypeAst::Tile(_) | TypeAst::Shaped(..) | TypeAst::Tuple(_) | TypeAst::Inferred => {
            let error = lower.error(param.span, format!("`{name}` can't be given to a kernel"));
            return Err(error.help("kernels take scalars, pointers and views"));
        }
    };
    let value = lower.func.add_param(name, ty, attrs);
    let val = match ty.as_tile() {
        Some(tile)
            if hint.equals_one
                && tile.shape.is_scalar()
                && tile.dtype().is_int()
                && !tile.is_ptr() =>
        {
            Val::Const(Scalar::int(tile.dtype(), 1))
        }
        _ => Val::Ir(value),
    };
    let val = optional::of_param(lower, param, name, val);
    lower.frame_mut().declare(name, val);
    Ok(())
}
