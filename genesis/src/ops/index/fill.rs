//! One number written at an index, and values written to a view: no element is written twice with different values, so
//! that no order of writes is looked for. The tensor is copied, and what is named is written over it.

use genesis_kernel::ir::Scalar;

use super::flag;
use super::parts::Index;
use super::places::{places_along, put_at, wrapped};
use crate::autograd::SavedTensors;
use crate::error::Result;
use crate::launch;
use crate::ops::{Op, Saves, apply};
use crate::tensor::Tensor;

/// `x` with one number where `gather` would read along an axis.
#[track_caller]
pub(super) fn fill_along(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    value: f64,
) -> Result<Tensor> {
    apply(FillAlong { op, axis, value }, &[x, index])
}

fn scalar(x: &Tensor, value: f64) -> Scalar {
    match x.dtype() {
        dtype if dtype.is_float() => Scalar::float(dtype, value),
        dtype => Scalar::int(dtype, value as i64),
    }
}

struct FillAlong {
    op: &'static str,
    axis: usize,
    value: f64,
}

impl Op for FillAlong {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, index, extent) = (inputs[0], inputs[1], inputs[0].shape()[self.axis]);
        let y = x.copy_in_order()?;
        if index.numel() == 0 {
            return Ok(y);
        }
        if x.numel() == 0 {
            wrapped(self.op, index, extent, 1)?;
            return Ok(y);
        }
        let flag = flag::args(self.op, x.device(), extent)?;
        if launch::along::filled_along(&y, self.axis, index, scalar(x, self.value), &flag)? {
            flag::refuse(x.device())?;
            return Ok(y);
        }
        let value = Tensor::full(&[], self.value, (x.dtype(), x.device()))?;
        let places = places_along(self.op, x, self.axis, index)?;
        put_at(x, &places, &value.broadcast_to(places.shape())?)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(fill_along(self.op, dy, self.axis, saved.input(1), 0.0)?), None])
    }
}

/// `x` with `values` in place of what parts without an index tensor name.
#[track_caller]
pub(super) fn put_view(x: &Tensor, parts: &[Index], values: &Tensor) -> Result<Tensor> {
    let of = x.detach().index(parts)?;
    let values = values.broadcast_to(of.shape())?.to_dtype(x.dtype())?;
    apply(PutView { parts: parts.to_vec() }, &[x, &values])
}

struct PutView {
    parts: Vec<Index>,
}

impl Op for PutView {
    fn name(&self) -> &'static str {
        "index_put"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let y = inputs[0].copy_in_order()?;
        launch::cast(inputs[1], &y.index(&self.parts)?)?;
        Ok(y)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let rest = FillView { parts: self.parts.clone() };
        Ok(vec![Some(apply(rest, &[dy])?), Some(dy.index(&self.parts)?)])
    }
}

/// Zeros in place of what parts name.
struct FillView {
    parts: Vec<Index>,
}

impl Op for FillView {
    fn name(&self) -> &'static str {
        "index_put"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let y = inputs[0].copy_in_order()?;
        launch::fill(&y.index(&self.parts)?, scalar(&y, 0.0))?;
        Ok(y)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(FillView { parts: self.parts.clone() }, &[dy])?)])
    }
}
