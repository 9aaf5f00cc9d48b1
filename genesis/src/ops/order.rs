//! Order: `sort`, `argsort`, `topk`, and extremes with their positions.
//!
//! Rows are sorted by a network of compare-and-swap steps over pairs (value, position), so that equals
//! keep their order. Values come by gathering, which is how gradients find their way.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use kernels::sort as device;

use super::launch;
use crate::error::{Error, Result};
use crate::shape;
use crate::tensor::Tensor;

const BLOCK: usize = 1024;

impl Tensor {
    /// The elements along `dim` in order, and where each stood; equals keep their order, NaN counts as
    /// larger than all numbers.
    ///
    /// # Errors
    /// If there is no such dimension.
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        let index = self.argsort(dim, descending)?;
        Ok((self.along(dim, &index)?, index))
    }

    /// Where the elements along `dim` stand in order; equals keep their order.
    ///
    /// # Errors
    /// If there is no such dimension.
    pub fn argsort(&self, dim: i64, descending: bool) -> Result<Tensor> {
        let axis = shape::axis_or_scalar("sort", dim, self.shape())? as i64;
        if self.rank() == 0 {
            return Tensor::zeros(&[], (DType::I64, self.device()));
        }
        let x = self.detach();
        let x = if x.dtype() == DType::Bool { x.as_bytes() } else { x };
        let last = x.transpose(axis, -1)?;
        let n = last.dim(-1)?;
        let rows = last.numel().checked_div(n).unwrap_or(0);
        if rows * n == 0 {
            return Tensor::zeros(self.shape(), (DType::I64, self.device()));
        }
        let order = sorted(&last.reshape(&[rows, n])?, descending)?;
        order.reshape(last.shape())?.transpose(axis, -1)?.contiguous()
    }

    /// The `k` largest elements along `dim`, or the smallest, in order, and where they stood.
    ///
    /// # Errors
    /// If there is no such dimension or it has fewer than `k` elements.
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let axis = shape::axis_or_scalar("topk", dim, self.shape())?;
        let extent = self.shape().get(axis).copied().unwrap_or(1);
        if k > extent {
            let message = format!("has no {k} of {extent} elements, shape {:?}", self.shape());
            return Err(Error::op("topk", message));
        }
        let index = self.argsort(dim, largest)?;
        if self.rank() == 0 {
            return if k == 1 {
                Ok((self.clone(), index))
            } else {
                Ok((self.reshape(&[1])?.narrow(0, 0, 0)?, index.reshape(&[1])?.narrow(0, 0, 0)?))
            };
        }
        let index = index.narrow(dim, 0, k)?.contiguous()?;
        Ok((self.along(dim, &index)?, index))
    }

    /// The largest element along `dim` and where it stands; the first of equals, NaN before numbers.
    /// The gradient goes to that element.
    ///
    /// # Errors
    /// If there is no such dimension or it is empty.
    pub fn max_with_index(&self, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_with_index(dim, keep, Tensor::argmax)
    }

    /// The smallest element along `dim` and where it stands; the first of equals, NaN before numbers.
    /// The gradient goes to that element.
    ///
    /// # Errors
    /// If there is no such dimension or it is empty.
    pub fn min_with_index(&self, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_with_index(dim, keep, Tensor::argmin)
    }

    fn extreme_with_index(
        &self,
        dim: i64,
        keep: bool,
        arg: fn(&Tensor, i64) -> Result<Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            shape::axis_or_scalar("max", dim, self.shape())?;
            return Ok((self.clone(), Tensor::zeros(&[], (DType::I64, self.device()))?));
        }
        let axis = shape::axis("max", dim, self.shape())? as i64;
        let bytes = if self.dtype() == DType::Bool { self.as_bytes() } else { self.detach() };
        let index = arg(&bytes, axis)?.unsqueeze(axis)?;
        let value = self.along(axis, &index)?;
        if keep { Ok((value, index)) } else { Ok((value.squeeze(axis)?, index.squeeze(axis)?)) }
    }

    /// [`Tensor::gather`] by an index that is known to be right.
    fn along(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 { Ok(self.clone()) } else { self.gather(dim, index) }
    }
}

/// The positions of the elements of each row in order.
fn sorted(x: &Tensor, descending: bool) -> Result<Tensor> {
    let (rows, n) = (x.shape()[0], x.shape()[1]);
    let places = n.next_power_of_two();
    let keys = Tensor::uninitialized(&[rows, places], (x.dtype(), x.device()))?;
    let at = Tensor::uninitialized(&[rows, places], (DType::I64, x.device()))?;
    let number = |value: usize| launch::number(DType::I64, value as f64);
    let (key, position) = (launch::pointer(&keys, true), launch::pointer(&at, true));
    let (dtypes, consts) = ([x.dtype()], [BLOCK as i64]);
    let args = [launch::view_of(x, false), key, position, number(places)];
    let grid = Grid::xy(places.div_ceil(BLOCK), rows);
    launch::warped(&device::sort_begin::KERNEL, &keys, grid, &dtypes, &consts, None, &args)?;
    let pairs = rows * places / 2;
    let mut run = 2;
    while run <= places {
        // The last run is whole rows, all of them upwards.
        let bit = if run == places { 0 } else { run };
        let mut distance = run / 2;
        while distance > 0 {
            let numbers = [pairs, bit, distance, usize::from(descending)].map(number);
            let args = [&[key, position][..], &numbers].concat();
            let grid = Grid::x(pairs.div_ceil(BLOCK));
            launch::warped(&device::sort_step::KERNEL, &keys, grid, &dtypes, &consts, None, &args)?;
            distance /= 2;
        }
        run *= 2;
    }
    at.narrow(1, 0, n)?.contiguous()
}
