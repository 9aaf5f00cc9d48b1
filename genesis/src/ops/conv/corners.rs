//! The elements beside the points of a grid, those of a point as a row: which they are, and how much each counts. A kernel
//! for all of the one, and one for all of the other.

use genesis_kernel::ir::DType;

use super::grid_options::{GridMode, GridSample};
use crate::error::Result;
use crate::ops::composite;
use crate::tensor::Tensor;

const NAME: &str = "grid_sample";

/// Points of pictures of some extents.
pub(super) struct Corners<'a> {
    options: &'a GridSample,
    /// `[N P, axes]`, the coordinate along the last axis first.
    grid: &'a Tensor,
    extents: &'a [usize],
    /// For each axis the numbers of the elements beside a point: `[1, K, 1]`, with K along the axis.
    steps: Vec<Tensor>,
}

impl<'a> Corners<'a> {
    pub(super) fn of(
        options: &'a GridSample,
        grid: &'a Tensor,
        extents: &'a [usize],
    ) -> Result<Corners<'a>> {
        let taps = options.taps_of_axis();
        let line = Tensor::arange(0.0, taps as f64, 1.0, (grid.dtype(), grid.device()))?;
        let along = |axis: usize| {
            let mut shape = vec![1; extents.len() + 1];
            shape[axis + 1] = taps;
            line.reshape(&shape)
        };
        let steps = (0..extents.len()).map(along).collect::<Result<_>>()?;
        Ok(Corners { options, grid, extents, steps })
    }

    /// The coordinate of each point along each axis, then the steps.
    fn operands(&self) -> Result<Vec<Tensor>> {
        let axes = self.extents.len();
        let mut shape = vec![1; axes + 1];
        shape[0] = self.grid.shape()[0];
        let coordinate = |axis: usize| self.grid.select(1, axes - 1 - axis)?.reshape(&shape);
        let mut operands: Vec<Tensor> = (0..axes).map(coordinate).collect::<Result<_>>()?;
        operands.extend(self.steps.iter().cloned());
        Ok(operands)
    }

    fn numbers(&self) -> Vec<f64> {
        let options = self.options.consts().map(|number| number as f64);
        options.into_iter().chain(self.extents.iter().map(|&extent| extent as f64)).collect()
    }

    /// How much each counts, `[N P, K, ..]`; the gradient is that of the points.
    pub(super) fn weights(&self) -> Result<Tensor> {
        if self.options.mode == GridMode::Nearest {
            let shape = [&[self.grid.shape()[0]], &vec![1; self.extents.len()][..]].concat();
            return Tensor::ones(&shape, (self.grid.dtype(), self.grid.device()));
        }
        let (numbers, of) = (self.numbers(), self.operands()?);
        match &of[..] {
            [a, b, c, d] => composite(NAME, &numbers, [a, b, c, d], weight_of::<4>),
            [a, b, c, d, e, f] => composite(NAME, &numbers, [a, b, c, d, e, f], weight_of::<6>),
            _ => unreachable!("a grid has 2 axes or 3"),
        }
    }

    /// Where each stands in the pixels of all `n` pictures, -1 beyond their edges: `[N P, K, ..]`.
    pub(super) fn index(&self, n: usize) -> Result<Tensor> {
        let rows = self.grid.shape()[0];
        let mut shape = vec![1; self.extents.len() + 1];
        shape[0] = rows;
        let pictures = Tensor::arange(0.0, n as f64, 1.0, (DType::I64, self.grid.device()))?;
        let pictures = pictures.repeat_interleave(rows / n, 0)?.reshape(&shape)?;
        let (numbers, of) = (self.numbers(), self.operands()?);
        match &of[..] {
            [a, b, c, d] => composite(NAME, &numbers, [&pictures, a, b, c, d], place_of::<5>),
            [a, b, c, d, e, f] => {
                composite(NAME, &numbers, [&pictures, a, b, c, d, e, f], place_of::<7>)
            }
            _ => unreachable!("a grid has 2 axes or 3"),
        }
    }
}

/// Options and extents of [`Corners::numbers`].
fn read(numbers: &[f64]) -> (GridSample, &[f64]) {
    let (options, extents) = numbers.split_at(4);
    (GridSample::of_consts(options), extents)
}

/// The product of the weights along all axes.
fn weight_of<const N: usize>(of: [&Tensor; N], numbers: &[f64]) -> Result<Tensor> {
    let (options, extents) = read(numbers);
    let (at, steps) = of.split_at(extents.len());
    let mut product: Option<Tensor> = None;
    for ((at, step), &extent) in at.iter().zip(steps).zip(extents) {
        let weight = options.weight(at, step, extent as usize)?;
        product = Some(match product {
            Some(product) => product.mul(&weight)?,
            None => weight,
        });
    }
    product.map_or_else(|| Ok(of[0].clone()), Ok)
}

/// The number of the pixel that coordinates along all axes have.
fn place_of<const N: usize>(of: [&Tensor; N], numbers: &[f64]) -> Result<Tensor> {
    let (options, extents) = read(numbers);
    let (at, steps) = of[1..].split_at(extents.len());
    let mut place = of[0].clone();
    let mut is_there: Option<Tensor> = None;
    for ((at, step), &extent) in at.iter().zip(steps).zip(extents) {
        let own = options.element(at, step, extent as usize)?;
        let inside = own.ge_scalar(0.0)?.logical_and(&own.lt_scalar(extent)?)?;
        place = place.mul_scalar(extent)?.add(&own.to_dtype(DType::I64)?)?;
        is_there = Some(match is_there {
            Some(all) => all.logical_and(&inside)?,
            None => inside,
        });
    }
    let none = Tensor::full(&[], -1.0, (DType::I64, place.device()))?;
    match is_there {
        Some(is_there) => is_there.where_(&place, &none),
        None => Ok(place),
    }
}
