//! Which call of Genesis a PyTorch name means: a row an op.

use anyhow::Result;
use genesis::Tensor;

use super::call::Call;
use super::{
    rows, rows_conv, rows_index, rows_layers, rows_math, rows_more, rows_nn, rows_shape,
    rows_vision,
};

/// What a call gives.
pub type Outs = Result<Vec<Tensor>>;

/// An op: PyTorch's name, and the call.
pub type Row = (&'static str, fn(&Call) -> Outs);

/// Every op, by group.
pub const GROUPS: &[&[Row]] = &[
    rows_math::ROWS,
    rows::ROWS,
    rows_shape::ROWS,
    rows_index::ROWS,
    rows_nn::ROWS,
    rows_more::ROWS,
    rows_layers::ROWS,
    rows_conv::ROWS,
    rows_vision::ROWS,
];

/// The call of a name; an overload may have a row of its own, `name/variant`.
pub fn find(op: &str, variant: &str) -> Option<fn(&Call) -> Outs> {
    let named = |name: &str| {
        let mut rows = GROUPS.iter().flat_map(|group| group.iter());
        rows.find(|(row, _)| *row == name).map(|(_, call)| *call)
    };
    named(&format!("{op}/{variant}")).or_else(|| named(op))
}

/// A single result.
pub(super) fn one(result: genesis::Result<Tensor>) -> Outs {
    Ok(vec![result?])
}

/// Two results.
pub(super) fn two(result: genesis::Result<(Tensor, Tensor)>) -> Outs {
    let (first, second) = result?;
    Ok(vec![first, second])
}
