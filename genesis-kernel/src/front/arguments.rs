//! The arguments of a call of the language: dtypes, shapes and axes among them are constants.

use crate::ir::{DType, MAX_RANK, Shape};

use super::ast::{GenericAst, Span, TypeAst};
use super::lower::{Lower, MAX_ELEMENTS, Res};
use super::value::Operand;

/// A call of a function of the language.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) span: Span,
    pub(super) generics: &'static [GenericAst],
    pub(super) args: Vec<Operand>,
}

impl Call {
    /// The `n`-th dtype among the `::<..>` arguments.
    pub(super) fn dtype(&self, lower: &Lower) -> Res<DType> {
        let written = self.generics.iter().find_map(|generic| match generic {
            GenericAst::Type(TypeAst::Scalar(dtype)) => Some(*dtype),
            _ => None,
        });
        match written {
            Some(dtype) => lower.dtype_ast(dtype, self.span),
            None => {
                let message = format!("`{}` needs a dtype", self.name);
                let help = format!("name it: `{}::<f32>`", self.name);
                Err(lower.error(self.span, message).help(help))
            }
        }
    }

    /// The shape that the constants among the `::<..>` arguments make.
    pub(super) fn shape(&self, lower: &mut Lower) -> Res<Shape> {
        let mut extents = Vec::new();
        for generic in self.generics {
            if let GenericAst::Const(expr) = generic {
                let operand = lower.operand(expr)?;
                extents.push(extent(lower, &operand)?);
            }
        }
        make_shape(lower, &extents, self.span)
    }

    /// The axis that an argument names, counted from the end where negative; below `rank`.
    pub(super) fn axis(&self, lower: &Lower, argument: usize, rank: usize) -> Res<usize> {
        let operand = &self.args[argument];
        let Some(axis) = operand.val.as_int() else {
            let found = lower.describe(&operand.val);
            let message = format!("an axis must be a constant, this is {found}");
            return Err(lower.error(operand.span(), message));
        };
        let rank_i64 = rank as i64;
        let from_start = if axis < 0 { axis.saturating_add(rank_i64) } else { axis };
        if (0..rank_i64).contains(&from_start) {
            return Ok(from_start as usize);
        }
        let (name, plural) = (self.name, if rank == 1 { "axis" } else { "axes" });
        let message = format!("`{name}` along axis {axis} of something with {rank} {plural}");
        Err(lower.error(operand.span(), message).help("axes count from 0"))
    }
}

/// An extent: a constant of at least 1.
pub(super) fn extent(lower: &Lower, operand: &Operand) -> Res<usize> {
    let found = match operand.val.as_int() {
        Some(extent) if (1..=MAX_ELEMENTS as i64).contains(&extent) => return Ok(extent as usize),
        Some(extent) if extent > 0 => {
            let message =
                format!("an extent of {extent}, where a tile has at most {MAX_ELEMENTS} elements");
            let help = "use a smaller block, and loop over parts or launch more programs";
            return Err(lower.error(operand.span(), message).help(help));
        }
        Some(extent) => format!("an extent must be at least 1, this is {extent}"),
        None => {
            format!("an extent must be a constant, this is {}", lower.describe(&operand.val))
        }
    };
    Err(lower.error(operand.span(), found).help("use a const parameter or a literal"))
}

/// A shape of these extents, within the limits.
pub(super) fn make_shape(lower: &Lower, extents: &[usize], span: Span) -> Res<Shape> {
    if extents.len() > MAX_RANK {
        let message =
            format!("a tile has at most {MAX_RANK} axes, this would have {}", extents.len());
        return Err(lower.error(span, message));
    }
    let shape = Shape::new(extents);
    lower.check_elements(Some(span), shape)?;
    Ok(shape)
}
