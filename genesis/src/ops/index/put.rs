//! Elements written at an index along one axis: of several writes to one element the last stays, as if they came one after
//! the other. On a GPU each element is left the position of its last write, by an atomic maximum; then all are read.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::along::take_along;
use super::fill::fill_along;
use super::flag;
use super::places::{places_along, put_at, put_winners};
use crate::autograd::SavedTensors;
use crate::error::Result;
use crate::launch;
use crate::ops::{Op, Saves, apply, composite};
use crate::tensor::Tensor;

/// `x` with values written where `gather` would read along an axis; values have the shape of the index.
#[track_caller]
pub(super) fn put_along(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    values: &Tensor,
) -> Result<Tensor> {
    let is_short = x.numel() > 0 && (1..1 << 31).contains(&index.numel());
    if x.device() == Device::Cpu || !is_short || index.rank() > 4 {
        return put_at(x, &places_along(op, x, axis, index)?, values);
    }
    apply(PutAlong { op, axis, winner: OnceLock::new() }, &[x, values, index])
}

struct PutAlong {
    op: &'static str,
    axis: usize,
    /// For each element the position of its last write in the index, or -1.
    winner: OnceLock<Tensor>,
}

impl PutAlong {
    #[track_caller]
    fn winner(&self, shape: &[usize], index: &Tensor) -> Result<Tensor> {
        let on = index.device();
        let winner = Tensor::full(shape, -1.0, (DType::I32, on))?;
        let flag = flag::args(self.op, on, shape[self.axis])?;
        launch::along::last_along(&winner, self.axis, index, &flag)?;
        Ok(winner)
    }
}

impl Op for PutAlong {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, values, index) = (inputs[0].contiguous()?, inputs[1].contiguous()?, inputs[2]);
        let winner = self.winner(x.shape(), index)?;
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        put_winners(&x, &winner, &values, &y)?;
        self.winner.get_or_init(|| winner);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(4)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let index = saved.input(2);
        let dx = match saved.wanted[0] {
            true => Some(fill_along(self.op, dy, self.axis, index, 0.0)?),
            false => None,
        };
        if !saved.wanted[1] {
            return Ok(vec![dx, None, None]);
        }
        let winner = match self.winner.get() {
            Some(winner) => winner.clone(),
            None => self.winner(dy.shape(), index)?,
        };
        let own = Tensor::arange(0.0, index.numel() as f64, 1.0, (DType::I32, dy.device()))?;
        let stayed = take_along(self.op, &winner, self.axis, index)?;
        let taken = take_along(self.op, dy, self.axis, index)?;
        let own = own.reshape(index.shape())?;
        let dvalues =
            composite(self.op, &[], [&taken, &stayed, &own], |[taken, stayed, own], _| {
                let zero = Tensor::zeros(&[], (taken.dtype(), taken.device()))?;
                stayed.eq(own)?.where_(taken, &zero)
            })?;
        Ok(vec![dx, Some(dvalues), None])
    }
}
