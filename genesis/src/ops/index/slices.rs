//! Slices written at an index of one axis: of several writes to one slice the last stays.
//!
//! Which write that is, is found for each slice and not for each element, so that a write costs a pass over the tensor.
//!
//! ```text
//! index 2 0 2 of 4 slices    the write that stays 1 -1 2 -1    y: source[1] x[1] source[2] x[3]
//! ```

use std::sync::OnceLock;

use super::along::take_named_slices;
use super::flag;
use super::places::{kept_writes, last_writes};
use crate::autograd::SavedTensors;
use crate::error::Result;
use crate::launch;
use crate::ops::{Op, Saves, apply, composite};
use crate::shape::product;
use crate::tensor::Tensor;

/// `x` with slices of `source` written along an axis where a vector of indices says; `source` has the shape of what the
/// index names.
#[track_caller]
pub(super) fn put_slices(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    let (shape, n) = (x.shape(), index.numel());
    let [outer, inner] = [product(&shape[..axis]), product(&shape[axis + 1..])];
    let extent = shape[axis];
    let (rows, written) =
        (x.reshape(&[outer, extent, inner])?, source.reshape(&[outer, n, inner])?);
    let put = PutSlices { op, extent, last: OnceLock::new() };
    apply(put, &[&rows, index, &written])?.reshape(shape)
}

/// Of `x: [A, D, B]`, an index of N and `source: [A, N, B]`.
struct PutSlices {
    op: &'static str,
    extent: usize,
    /// For each slice the write that stays, or -1: a vector.
    last: OnceLock<Tensor>,
}

impl PutSlices {
    #[track_caller]
    fn last(&self, index: &Tensor) -> Result<Tensor> {
        if let Some(last) = self.last.get() {
            return Ok(last.clone());
        }
        let flag = flag::args(self.op, index.device(), self.extent)?;
        let last = last_writes(index, self.extent, true, flag)?;
        Ok(self.last.get_or_init(|| last).clone())
    }
}

impl Op for PutSlices {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, index, source) = (inputs[0], inputs[1], inputs[2]);
        let last = self.last(index)?;
        flag::refuse(x.device())?;
        if source.numel() == 0 || x.numel() == 0 {
            return x.copy();
        }
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        launch::along::put_slices(x, &last, source, &y)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let index = saved.input(1);
        let last = self.last(index)?;
        let line = last.reshape(&[1, self.extent, 1])?;
        let dx = composite(self.op, &[], [dy, &line], |[dy, last], _| {
            let zero = Tensor::zeros(&[], (dy.dtype(), dy.device()))?;
            last.lt_scalar(0.0)?.where_(dy, &zero)
        })?;
        let kept = kept_writes(index, &last)?;
        Ok(vec![Some(dx), None, Some(take_named_slices(dy, &kept, true)?)])
    }
}
