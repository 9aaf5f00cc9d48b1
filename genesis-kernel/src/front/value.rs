//! What a name can stand for while a kernel's body is walked.
//!
//! Three kinds of number are kept apart because they answer differently to "what is your dtype?":
//! a *hard* value has one, a *literal* takes its partner's, and a *soft* value is computed at run
//! time from literals alone (`where_(mask, 1, 0)`), so it too takes its partner's. Soft integers are
//! i64 and soft floats f64 until they meet a partner.

use crate::ir::{DType, Scalar, Value};

use super::ast::{ExprAst, FnAst, Span};

/// What a name or an expression stands for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Val {
    /// A tile, scalar, pointer or view with its own type.
    Ir(Value),
    /// A tile or scalar computed from literals; see the file's header.
    Soft(Value),
    /// A number known now, with its own dtype: const parameters are i64.
    Const(Scalar),
    /// A literal without a dtype.
    Lit(Lit),
    /// `(a, b)`
    Tuple(Vec<Val>),
    /// A struct that the kernel takes, by its fields.
    Struct(Vec<(&'static str, Val)>),
    /// `[a, b]`
    Array(Vec<Val>),
    /// Nothing.
    Unit,
    /// A device function by name.
    Function(Function),
    /// What is in an `Option`, which is known now.
    Optional(Option<Box<Val>>),
}

/// A literal without a dtype.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Lit {
    Int(i128),
    Float(f64),
}

/// A device function; equal when it is the same definition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function(pub(super) &'static FnAst);

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

/// A value with the expression it came from, for messages.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) val: Val,
    pub(super) expr: &'static ExprAst,
}

impl Operand {
    /// Where it stands.
    pub(super) fn span(&self) -> Span {
        self.expr.span
    }
}

impl Val {
    /// A compile-time i64.
    pub(super) fn int(value: i64) -> Val {
        Val::Const(Scalar::int(DType::I64, value))
    }

    /// A compile-time bool.
    pub(super) fn bool(value: bool) -> Val {
        Val::Const(Scalar::int(DType::Bool, i64::from(value)))
    }

    /// The integer it is known to be, if it is.
    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Val::Const(scalar) if scalar.dtype.is_int() => Some(scalar.to_i64()),
            Val::Lit(Lit::Int(value)) => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The bool it is known to be, if it is.
    pub(super) fn as_bool(&self) -> Option<bool> {
        match self {
            Val::Const(scalar) if scalar.dtype == DType::Bool => Some(scalar.bits != 0),
            _ => None,
        }
    }
}

/// The dtype of a literal that meets no partner.
pub(super) fn soft_dtype(lit: Lit) -> DType {
    match lit {
        Lit::Int(_) => DType::I64,
        Lit::Float(_) => DType::F64,
    }
}
