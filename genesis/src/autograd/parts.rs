//! Gradients of slices, put together in one pass.
//!
//! The gradient of a slice is zero outside of it. Those of the slices of one tensor are therefore kept as they are until
//! all have come, and then written side by side, in place of a padded tensor for each and the sums of these:
//!
//! ```text
//! q, k, v = x.chunk(3, -1)     dx = [dq | dk | dv]
//! a = x.narrow(0, 1, 2)        dx = [0 | da | 0]
//! ```

use std::collections::BTreeMap;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::runtime::Device;

use crate::error::{Error, Result};
use crate::launch;
use crate::tensor::Tensor;

/// Where the gradient of a slice lies in that of the tensor.
#[derive(Clone, Debug)]
pub struct Place {
    /// The shape of the tensor.
    pub from: Vec<usize>,
    /// The axis that was cut.
    pub axis: usize,
    /// The first element along it.
    pub start: usize,
}

/// The gradient of a slice, which has all axes of the tensor.
pub(super) struct Part {
    pub(super) dy: Tensor,
    pub(super) place: Place,
}

/// Parts along one axis of which no two meet, by their first element.
struct Row {
    axis: usize,
    dtype: DType,
    device: Device,
    parts: BTreeMap<usize, Part>,
}

impl Row {
    /// Whether a part fits between the others.
    fn takes(&self, part: &Part) -> bool {
        let Place { axis, start, .. } = part.place;
        let end = start + part.dy.shape()[axis];
        let before = self.parts.range(..end).next_back();
        let is_free = before.is_none_or(|(&at, other)| at + other.dy.shape()[axis] <= start);
        is_free && self.axis == axis && self.dtype == part.dy.dtype()
    }

    /// The gradient of the tensor: the parts, and zeros between them.
    fn joined(&self, from: &[usize]) -> Result<Tensor> {
        let axis = self.axis;
        let result = Tensor::uninitialized(from, (self.dtype, self.device))?;
        let to = |start: usize, end: usize| {
            let layout = result.layout().slice(axis, start, 1, end - start);
            let layout = layout.ok_or_else(|| Error::op("narrow", "a slice leaves its tensor"))?;
            Ok::<_, Error>(Tensor::plain(result.storage().clone(), layout, self.dtype))
        };
        let mut copies = Vec::with_capacity(2 * self.parts.len() + 1);
        let mut next = 0;
        for (&start, part) in &self.parts {
            let end = start + part.dy.shape()[axis];
            copies.push((None, to(next, start)?));
            copies.push((Some(part.dy.clone()), to(start, end)?));
            next = end;
        }
        copies.push((None, to(next, from[axis])?));
        launch::join::copies(&copies, Scalar::zero(self.dtype))?;
        Ok(result)
    }
}

/// The gradient of the tensor that these are of slices of; those that meet are added.
pub(super) fn joined(mut parts: Vec<Part>) -> Result<Option<Tensor>> {
    let Some(from) = parts.first().map(|part| part.place.from.clone()) else { return Ok(None) };
    // A slice of nothing begins where another may, and one alone says the shape of zeros.
    if parts.iter().any(|part| part.dy.numel() > 0) {
        parts.retain(|part| part.dy.numel() > 0);
    } else {
        parts.truncate(1);
    }
    let mut rows: Vec<Row> = Vec::new();
    for part in parts {
        let (axis, dtype, device) = (part.place.axis, part.dy.dtype(), part.dy.device());
        let row = match rows.iter_mut().position(|row| row.takes(&part)) {
            Some(row) => row,
            None => {
                rows.push(Row { axis, dtype, device, parts: BTreeMap::new() });
                rows.len() - 1
            }
        };
        rows[row].parts.insert(part.place.start, part);
    }
    let mut sum: Option<Tensor> = None;
    for row in rows {
        let dx = match row.parts.len() {
            1 => row.parts.into_values().next().map(|part| padded(&part.dy, &part.place)),
            _ => Some(row.joined(&from)),
        };
        if let Some(dx) = dx.transpose()? {
            sum = Some(match sum {
                Some(sum) => sum.add(&dx)?,
                None => dx,
            });
        }
    }
    Ok(sum)
}

/// Zeros with one part.
pub(crate) fn padded(dy: &Tensor, place: &Place) -> Result<Tensor> {
    let (zero, mut before) = (Scalar::zero(dy.dtype()), vec![0; place.from.len()]);
    before[place.axis] = place.start;
    let at = (dy.dtype(), dy.device());
    if dy.numel() > 0 {
        let result = Tensor::uninitialized(&place.from, at)?;
        if launch::pad::boxed(dy, &result, &before, zero)? {
            return Ok(result);
        }
    }
    let result = Tensor::zeros(&place.from, at)?;
    let layout = result.layout().slice(place.axis, place.start, 1, dy.shape()[place.axis]);
    let layout = layout.ok_or_else(|| Error::op("narrow", "a slice leaves its tensor"))?;
    launch::cast(dy, &Tensor::plain(result.storage().clone(), layout, dy.dtype()))?;
    Ok(result)
}
