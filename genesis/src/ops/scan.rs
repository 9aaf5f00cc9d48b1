//! Running sums along a dimension.

use super::{Op, Saves, apply, launch, wrong_dtype};
use crate::autograd::SavedTensors;
use crate::error::Result;
use crate::shape;
use crate::tensor::Tensor;

impl Tensor {
    /// The running sum along `dim`: element `j` is the sum of the elements up to and with `j`.
    ///
    /// # Numerics
    /// f16 and bf16 are added in f32 and rounded once.
    /// # Errors
    /// If there is no such dimension, or the dtype is bool.
    pub fn cumsum(&self, dim: i64) -> Result<Tensor> {
        along(self, dim, false)
    }
}

fn along(x: &Tensor, dim: i64, reverse: bool) -> Result<Tensor> {
    let axis = shape::axis("cumsum", dim, x.shape())? as i64;
    if !x.dtype().is_number() {
        return Err(wrong_dtype("cumsum", "a number", x.dtype()));
    }
    if axis + 1 == x.rank() as i64 {
        return apply(Cumsum { reverse }, &[x]);
    }
    apply(Cumsum { reverse }, &[&x.transpose(axis, -1)?])?.transpose(axis, -1)
}

/// Along the last axis; from its end where `reverse`.
struct Cumsum {
    reverse: bool,
}

impl Op for Cumsum {
    fn name(&self) -> &'static str {
        "cumsum"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        if x.numel() > 0 {
            let n = x.shape()[x.rank() - 1];
            let rows = x.reshape(&[x.numel() / n, n])?;
            launch::cumsum(&rows, &y.reshape(&[x.numel() / n, n])?, self.reverse)?;
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::NOTHING
    }

    /// An element goes into every sum from its own on.
    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(along(dy, -1, !self.reverse)?)])
    }
}
