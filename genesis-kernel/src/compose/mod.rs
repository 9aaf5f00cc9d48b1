//! Kernels composed at run time: one kernel that does what several elementwise kernels would do one
//! after the other, with what is between them in registers, and perhaps a sum or an extreme of the
//! rows at the end.
//!
//! The maths comes from the kernels themselves: their syntax is in the program, as a static, and its
//! loads and stores are taken off (`body`). What is written around is a kernel of the language like any
//! other: it is specialised, compiled, cached on disk, inspected and launched as those are.
//!
//! ```text
//! let x0 = x0.load::<BLOCK>([at]);
//! let s0 = mul(x0, 2.0);          the body of `mul_scalar`
//! let s1 = tanh(s0);              the body of `tanh`
//! y0.store([at], s1.broadcast_to::<BLOCK>());
//! ```

mod body;
mod forms;
mod indirect;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::diag::Error;
use crate::ir::{DType, Scalar};
use crate::kernel::KernelDef;

pub use indirect::indirect;

/// What a composed kernel computes.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// How the elements are walked.
    pub form: Form,
    /// The tensors that are read, in the order of the kernel's parameters.
    pub leaves: Vec<Leaf>,
    /// What is computed, each from what comes before it.
    pub steps: Vec<Step>,
    /// What is stored and as which dtype: one place for each result.
    pub results: Vec<(Source, DType)>,
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
    /// number of columns (i64), the number of programs that share a row (i64), and a factor for the
    /// sum; it stores one column for each of these programs.
    Rows(Fold),
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
    /// The maths of a kernel, for dtypes in the order of its parameters, with numbers for its scalars.
    Kernel(&'static KernelDef, Vec<DType>, Vec<Scalar>),
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
    /// A number.
    Number(Scalar),
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

/// The kernel of a recipe: made at its first use, the same one afterwards. It takes views of the leaves,
/// then of the results, then what its form says.
///
/// # Errors
/// If a kernel among the steps is not elementwise.
pub fn compose(recipe: &Recipe) -> Result<&'static KernelDef, Error> {
    static KNOWN: Mutex<BTreeMap<String, &'static KernelDef>> = Mutex::new(BTreeMap::new());
    let key = format!("{recipe:?}");
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(def) = known.get(&key) {
        return Ok(def);
    }
    let ast = forms::kernel(recipe)?;
    let def: &'static KernelDef = Box::leak(Box::new(KernelDef::new(ast)));
    known.insert(key, def);
    Ok(def)
}
