//! A tensor with another in the place of a slice: the parts before and behind it and what is written, in one launch.

use genesis_kernel::ir::Scalar;

use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, apply};
use crate::tensor::Tensor;

/// `x` with `source` from `start` on along an axis, where it fits; both of one dtype and device.
#[track_caller]
pub(super) fn slice_scatter(
    op: &'static str,
    x: &Tensor,
    source: &Tensor,
    (axis, start): (usize, usize),
) -> Result<Tensor> {
    apply(SliceScatter { op, axis, start, len: source.shape()[axis] }, &[x, source])
}

struct SliceScatter {
    op: &'static str,
    axis: usize,
    start: usize,
    len: usize,
}

impl SliceScatter {
    /// `x` around the slice, and there `source`, or zeros.
    fn joined(&self, x: &Tensor, source: Option<&Tensor>) -> Result<Tensor> {
        let (axis, extent, end) = (self.axis, x.shape()[self.axis], self.start + self.len);
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let cut = |t: &Tensor, from: usize, to: usize| {
            let layout = t.layout().slice(axis, from, 1, to - from);
            let layout = layout.ok_or_else(|| Error::op(self.op, "the slice leaves its tensor"))?;
            Ok::<_, Error>(Tensor::plain(t.storage().clone(), layout, t.dtype()))
        };
        let kept = |from, to| Ok::<_, Error>((Some(cut(x, from, to)?), cut(&y, from, to)?));
        let written = (source.cloned(), cut(&y, self.start, end)?);
        let parts = [kept(0, self.start)?, written, kept(end, extent)?];
        launch::join::copies(&parts, Scalar::zero(x.dtype()))?;
        Ok(y)
    }
}

impl Op for SliceScatter {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        self.joined(inputs[0], Some(inputs[1]))
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dx = match saved.wanted[0] {
            true => Some(apply(Without(SliceScatter { ..*self }), &[dy])?),
            false => None,
        };
        Ok(vec![dx, Some(dy.narrow(self.axis as i64, self.start, self.len)?)])
    }
}

/// Zeros in the place of a slice; its own gradient.
struct Without(SliceScatter);

impl Op for Without {
    fn name(&self) -> &'static str {
        self.0.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        self.0.joined(inputs[0], None)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(Without(SliceScatter { ..self.0 }), &[dy])?)])
    }
}
