//! Products of extents: how many elements a shape has, if they can be counted.

use std::borrow::Borrow;

use crate::error::{Error, Result};

/// The product of extents, if elements can be counted: where an extent of 0 is taken as 1 it fits `isize`,
/// so that strides of an empty tensor are numbers too.
#[inline]
pub(crate) fn count(extents: &[usize]) -> Option<usize> {
    let (mut counted, mut is_empty) = (1usize, false);
    for &extent in extents {
        counted = counted.checked_mul(extent.max(1))?;
        is_empty |= extent == 0;
    }
    match is_empty {
        _ if counted > isize::MAX as usize => None,
        true => Some(0),
        false => Some(counted),
    }
}

/// The number of elements of a shape that a caller gives.
///
/// # Errors
/// If they can't be counted.
pub(crate) fn numel(op: &str, shape: &[usize]) -> Result<usize> {
    count(shape).ok_or_else(|| uncountable(op, shape))
}

/// The refusal of a shape with more elements than can be counted.
pub(crate) fn uncountable(op: &str, shape: &[usize]) -> Error {
    Error::op(op, format!("shape {shape:?} has more elements than can be counted"))
}

/// The product of some of the extents of one tensor, which can be counted.
#[inline]
pub(crate) fn product<E: Borrow<usize>>(extents: impl IntoIterator<Item = E>) -> usize {
    extents.into_iter().fold(1, |product, extent| product.saturating_mul(*extent.borrow()))
}
