//! What an indexing of brackets is made of.

use crate::tensor::Tensor;

/// One part of an indexing: `x[2, ..., 1..5, mask]`.
#[derive(Clone, Debug)]
pub enum Index {
    /// One element, which may count from the end; its axis goes.
    At(i64),
    /// Start, end and step, as in Python; a negative step goes backwards.
    Range(Option<i64>, Option<i64>, i64),
    /// A new axis of extent 1.
    NewAxis,
    /// As many whole axes as are left.
    Ellipsis,
    /// Integers, which may count from the end, or a bool mask of one or more axes.
    Tensor(Tensor),
}
