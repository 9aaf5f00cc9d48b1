//! Values that grow evenly from lane to lane.

use super::super::llvm::Val;

/// A value that grows by the same amount from lane to lane.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    /// The value of the first lane.
    pub(super) start: Val,
    /// How much it grows from one lane to the next; elements, for a pointer.
    pub(super) step: Step,
}

/// How much a value grows from one lane to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// By this much.
    Const(i64),
    /// By a register.
    Dynamic(Val),
}

/// The step of a uniform value.
pub(super) const NONE: Step = Step::Const(0);

/// The step of values that follow each other.
pub(super) const ONE: Step = Step::Const(1);
