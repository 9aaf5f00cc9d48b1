//! What a composed kernel computes: steps from tensors to results.

use std::fmt;

use crate::ir::{DType, Scalar};
use crate::kernel::KernelDef;

/// What a composed kernel computes.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// How the elements are walked.
    pub form: Form,
    /// The tensors that are read, in the order of the kernel's parameters.
    pub leaves: Vec<Leaf>,
    /// Numbers that a launch gives: scalar parameters, after all others.
    pub params: Vec<DType>,
    /// What is computed, each from what comes before it.
    pub steps: Vec<Step>,
    /// What is stored and as which dtype: one place for each result.
    pub results: Vec<(Source, DType)>,
    /// What makes one element of a row of each result, where rows are reduced.
    pub folds: Vec<Fold>,
}

/// How the elements are walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Dense tensors as one axis: `BLOCK`.
    Flat,
    /// Two axes: `ROWS`, `COLS`.
    Matrix,
    /// Four axes of any strides: `ROWS`, `COLS` of the last two.
    Strided,
    /// Two axes, of which the last is reduced: `ROWS`, `COLS`. The kernel takes after the tensors the
    /// number of columns (i64), and a factor for each sum. The programs along the second axis of the grid
    /// share a row; each stores one column.
    Rows,
}

/// What makes one element of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// The sum, in this dtype.
    Sum(DType),
    /// The largest; NaN wins.
    Max,
    /// The smallest; NaN wins.
    Min,
}

/// A tensor that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The dtype in memory.
    pub dtype: DType,
    /// Which of the axes it has.
    pub access: Access,
}

/// Which axes of the walk a tensor has; it is repeated along the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// All: a view of as many axes.
    Full,
    /// The last of two: a view of one axis.
    Row,
    /// The first of two: a view of one axis.
    Column,
    /// None: a view of one axis of one element.
    One,
}

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// What is done.
    pub kind: StepKind,
    /// On what, in the order of the kernel's operands.
    pub inputs: Vec<Source>,
}

/// What a step does.
#[derive(Clone)]
pub enum StepKind {
    /// The maths of a kernel, for dtypes in the order of its parameters, with numbers for its scalars: each a
    /// [`Source::Number`] or a [`Source::Param`].
    Kernel(&'static KernelDef, Vec<DType>, Vec<Source>),
    /// A conversion.
    Cast(DType),
    /// Whether a number is not zero.
    NotZero(DType),
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    /// A tensor.
    Leaf(usize),
    /// An earlier step.
    Step(usize),
    /// A number that is part of the kernel.
    Number(Scalar),
    /// A number that a launch gives.
    Param(usize),
}

impl fmt::Debug for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Two kernels may have one name.
            StepKind::Kernel(def, dtypes, numbers) => {
                write!(f, "{}::{}{dtypes:?}{numbers:?}", def.ast.module, def.ast.name)
            }
            StepKind::Cast(dtype) => write!(f, "to {dtype}"),
            StepKind::NotZero(dtype) => write!(f, "{dtype} is not zero"),
        }
    }
}

impl PartialEq for StepKind {
    fn eq(&self, other: &StepKind) -> bool {
        match (self, other) {
            (StepKind::Kernel(a, x, m), StepKind::Kernel(b, y, n)) => {
                std::ptr::eq(*a, *b) && x == y && m == n
            }
            (StepKind::Cast(a), StepKind::Cast(b)) => a == b,
            (StepKind::NotZero(a), StepKind::NotZero(b)) => a == b,
            _ => false,
        }
    }
}
