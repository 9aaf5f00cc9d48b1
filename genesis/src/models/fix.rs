//! How values are stored in a file that are otherwise in a model.

use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How a file stores a tensor that a model has otherwise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Fix {
    /// As the model does.
    Same,
    /// Rows of each of so many heads with pairs of channels side by side.
    PairedRows {
        /// The heads.
        heads: usize,
    },
    /// With 1 added.
    PlusOne,
    /// With its two axes exchanged.
    Transposed,
    /// As one of a stack.
    Row(usize),
}

impl Fix {
    /// The shape that the model has of what a file stores in this shape; none where it can't be.
    pub(super) fn shape(self, stored: &[usize]) -> Option<Vec<usize>> {
        match (self, stored) {
            (Fix::Transposed, &[a, b]) => Some(vec![b, a]),
            (Fix::Transposed, _) => None,
            (Fix::Row(row), [rows, rest @ ..]) if row < *rows => Some(rest.to_vec()),
            (Fix::Row(_), _) => None,
            (Fix::Same | Fix::PlusOne | Fix::PairedRows { .. }, shape) => Some(shape.to_vec()),
        }
    }

    /// The tensor of the model from the one of the file.
    pub(super) fn apply(self, stored: Tensor) -> Result<Tensor> {
        match self {
            Fix::Same => Ok(stored),
            Fix::PlusOne => stored.sub_scalar(1.0),
            Fix::Transposed => stored.t()?.contiguous(),
            Fix::Row(row) => stored.select(0, row)?.contiguous(),
            Fix::PairedRows { heads } => {
                let shape = stored.shape().to_vec();
                let rows = shape.first().copied().unwrap_or(0);
                if heads == 0 || !rows.is_multiple_of(2 * heads) {
                    let message = format!("{rows} rows are no pairs of {heads} heads");
                    return Err(Error::op("gguf", message));
                }
                let pairs = [&[heads, rows / heads / 2, 2], &shape[1..]].concat();
                stored.reshape(&pairs)?.transpose(1, 2)?.reshape(&shape)
            }
        }
    }
    /// The tensor of a file from the one of the model: the inverse of [`Fix::apply`].
    pub(super) fn undo(self, own: &Tensor) -> Result<Tensor> {
        match self {
            Fix::Same => Ok(own.clone()),
            Fix::PlusOne => own.add_scalar(1.0),
            Fix::Transposed => own.t()?.contiguous(),
            Fix::Row(_) => Err(Error::op("gguf", "experts are not written")),
            Fix::PairedRows { heads } => {
                let shape = own.shape().to_vec();
                let rows = shape.first().copied().unwrap_or(0);
                if heads == 0 || !rows.is_multiple_of(2 * heads) {
                    let message = format!("{rows} rows are no pairs of {heads} heads");
                    return Err(Error::op("gguf", message));
                }
                let halves = [&[heads, 2, rows / heads / 2], &shape[1..]].concat();
                own.reshape(&halves)?.transpose(1, 2)?.reshape(&shape)
            }
        }
    }
}
