//! Reductions over any axes: sum, mean, max, min, and where the extremes stand.
//!
//! A tensor is brought to `[outer, n, inner]`, where `n` counts what is reduced. Axes that lie next
//! to each other in memory need no copy for that.

#[cfg(feature = "op-info")]
pub(super) mod info;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::tuning::reductions::parts_of_rows;
use kernels::{fold, reduce as device};

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::config::chip;
use crate::ops::{Op, Saves, apply, composite, wrong_dtype};
use crate::shape;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[("sum", Precision::Single)];

/// The axes of a reduction, sorted, and whether they stay as extent 1.
#[derive(Clone, Debug)]
pub(crate) struct Dims {
    axes: Vec<usize>,
    keep: bool,
}

impl Dims {
    pub(crate) fn new(op: &str, dims: &[i64], keep: bool, shape: &[usize]) -> Result<Dims> {
        let axis = |&d: &i64| shape::axis_or_scalar(op, d, shape);
        let mut axes = dims.iter().map(axis).collect::<Result<Vec<usize>>>()?;
        axes.sort_unstable();
        if axes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::op(op, format!("{dims:?} names a dimension twice")));
        }
        // A scalar is reduced over nothing.
        axes.truncate(shape.len());
        Ok(Dims { axes, keep })
    }

    fn all(shape: &[usize]) -> Dims {
        Dims { axes: (0..shape.len()).collect(), keep: false }
    }

    fn is_reduced(&self, axis: usize) -> bool {
        self.axes.contains(&axis)
    }

    /// The axes as a caller names them.
    pub(super) fn numbers(&self) -> Vec<i64> {
        self.axes.iter().map(|&axis| axis as i64).collect()
    }

    /// Whether the axes stay as extent 1.
    pub(super) fn keeps(&self) -> bool {
        self.keep
    }

    /// The result's shape.
    fn result(&self, shape: &[usize]) -> Vec<usize> {
        let keep = |(axis, &extent): (usize, &usize)| match self.is_reduced(axis) {
            false => Some(extent),
            true => self.keep.then_some(1),
        };
        shape.iter().enumerate().filter_map(keep).collect()
    }

    /// The result's shape with every reduced axis kept as 1.
    pub(super) fn kept(&self, shape: &[usize]) -> Vec<usize> {
        Dims { keep: true, ..self.clone() }.result(shape)
    }

    /// The number of elements that make one.
    pub(super) fn count(&self, shape: &[usize]) -> usize {
        shape::product(self.axes.iter().map(|&axis| shape[axis]))
    }

    /// One group of neighbouring axes, that of the most elements, and the others as they are numbered without it: each
    /// is reduced as it lies, where one reduction of all would need a copy with other axes last.
    fn in_turn(&self, x: &Tensor) -> Option<[Dims; 2]> {
        if !x.is_contiguous() || trace::is_on() {
            return None;
        }
        let groups: Vec<&[usize]> = self.axes.chunk_by(|a, b| a + 1 == *b).collect();
        let count = |group: &[usize]| shape::product(group.iter().map(|&axis| x.shape()[axis]));
        let most = groups.iter().copied().max_by_key(|group| count(group))?;
        let rest = groups.iter().filter(|group| **group != most).flat_map(|group| *group);
        let renumbered = |&axis: &usize| if axis > most[0] { axis - most.len() } else { axis };
        let part = |axes: Vec<usize>| Dims { axes, keep: false };
        let is_several = groups.len() > 1;
        is_several.then(|| [part(most.to_vec()), part(rest.map(renumbered).collect())])
    }

    /// The tensor with its axes in the order of memory, and these among them: a dense tensor whose axes were exchanged
    /// is reduced without a copy. As they are where what is kept would be in another order.
    #[track_caller]
    pub(super) fn in_memory_order(&self, x: &Tensor) -> Result<(Tensor, Dims)> {
        let as_it_is = || (x.clone(), Dims { axes: self.axes.clone(), keep: false });
        if x.is_contiguous() || trace::is_on() {
            return Ok(as_it_is());
        }
        let mut order: Vec<usize> = (0..x.rank()).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(x.strides()[axis]));
        let kept = order.iter().filter(|axis| !self.is_reduced(**axis));
        let permuted = x.permute(&order.iter().map(|&axis| axis as i64).collect::<Vec<_>>())?;
        if !permuted.is_contiguous() || !kept.is_sorted() {
            return Ok(as_it_is());
        }
        let axes = (0..x.rank()).filter(|&place| self.is_reduced(order[place])).collect();
        Ok((permuted, Dims { axes, keep: false }))
    }

    /// What a reduction of `[outer, n, inner]` to `[outer, inner]` makes of these axes.
    #[track_caller]
    pub(super) fn reduced(
        &self,
        x: &Tensor,
        reduce: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (laid_out, dims) = self.in_memory_order(x)?;
        reduce(&dims.canonical(&laid_out)?)?.reshape(&self.result(x.shape()))
    }

    /// The tensor as `[outer, n, inner]` with the reduced axes in the middle.
    #[track_caller]
    fn canonical(&self, x: &Tensor) -> Result<Tensor> {
        let rank = x.rank();
        let is_tail =
            self.axes.iter().eq((rank - self.axes.len()..rank).collect::<Vec<_>>().iter());
        let (Some(&first), Some(&last)) = (self.axes.first(), self.axes.last()) else {
            return x.reshape(&[x.numel(), 1, 1]);
        };
        if is_tail || last - first + 1 == self.axes.len() {
            let outer = shape::product(x.shape()[..first].iter());
            let inner = shape::product(x.shape()[last + 1..].iter());
            return x.reshape(&[outer, self.count(x.shape()), inner]);
        }
        let kept = (0..rank).filter(|&axis| !self.is_reduced(axis));
        let order: Vec<i64> = kept.chain(self.axes.iter().copied()).map(|a| a as i64).collect();
        let n = self.count(x.shape());
        let outer =
            shape::product((0..rank).filter(|&a| !self.is_reduced(a)).map(|a| x.shape()[a]));
        x.permute(&order)?.reshape(&[outer, n, 1])
    }
}

impl Tensor {
    /// The sum of all elements. Integers and bools give i64.
    ///
    /// # Numerics
    /// f16 and bf16 are added in f32 and rounded once.
    /// # Errors
    /// If the dtype is for storage only.
    #[track_caller]
    pub fn sum(&self) -> Result<Tensor> {
        let x = self.as_countable();
        apply(Sum::new("sum", &x, Dims::all(x.shape()), false)?, &[&x])
    }

    /// The sum over some dimensions; `keep` keeps them as extent 1. Integers and bools give i64.
    ///
    /// # Errors
    /// If there are no such dimensions, one is named twice, or the dtype is for storage only.
    #[track_caller]
    pub fn sum_dims(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        let x = self.as_countable();
        apply(Sum::new("sum", &x, Dims::new("sum", dims, keep, x.shape())?, false)?, &[&x])
    }

    /// Bools as numbers 0 and 1, all else as it is.
    pub(in crate::ops) fn as_countable(&self) -> Tensor {
        if self.dtype() == DType::Bool { self.as_bytes() } else { self.clone() }
    }

    /// The mean of all elements; NaN of none.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn mean(&self) -> Result<Tensor> {
        apply(Sum::new("mean", self, Dims::all(self.shape()), true)?, &[self])
    }

    /// The mean over some dimensions; `keep` keeps them as extent 1.
    ///
    /// # Errors
    /// If there are no such dimensions, one is named twice, or the dtype is not a float.
    #[track_caller]
    pub fn mean_dims(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        apply(Sum::new("mean", self, Dims::new("mean", dims, keep, self.shape())?, true)?, &[self])
    }

    /// The largest element; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// If there is no element.
    #[track_caller]
    pub fn max(&self) -> Result<Tensor> {
        extreme(&MAX, self, Dims::all(self.shape()), true)
    }

    /// The largest element over some dimensions; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// If there are no such dimensions, or no element.
    #[track_caller]
    pub fn max_dims(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        extreme(&MAX, self, Dims::new("max", dims, keep, self.shape())?, false)
    }

    /// The smallest element; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// If there is no element.
    #[track_caller]
    pub fn min(&self) -> Result<Tensor> {
        extreme(&MIN, self, Dims::all(self.shape()), true)
    }

    /// The smallest element over some dimensions; NaN wins. Equal ones share the gradient.
    ///
    /// # Errors
    /// If there are no such dimensions, or no element.
    #[track_caller]
    pub fn min_dims(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        extreme(&MIN, self, Dims::new("min", dims, keep, self.shape())?, false)
    }

    /// Where the largest element along `dim` stands, i64; the first of equals, NaN before numbers.
    ///
    /// # Errors
    /// If there is no such dimension, it is empty, or the dtype is bool.
    #[track_caller]
    pub fn argmax(&self, dim: i64) -> Result<Tensor> {
        arg_extreme("argmax", &ARGMAX, self, dim)
    }

    /// Where the smallest element along `dim` stands, i64; the first of equals, NaN before numbers.
    ///
    /// # Errors
    /// If there is no such dimension, it is empty, or the dtype is bool.
    #[track_caller]
    pub fn argmin(&self, dim: i64) -> Result<Tensor> {
        arg_extreme("argmin", &ARGMIN, self, dim)
    }
}

struct Sum {
    name: &'static str,
    dims: Dims,
    is_mean: bool,
    from: Vec<usize>,
}

impl Sum {
    fn new(name: &'static str, x: &Tensor, dims: Dims, is_mean: bool) -> Result<Sum> {
        let fits = if is_mean { x.dtype().is_arithmetic_float() } else { x.dtype().is_number() };
        if !fits {
            let wants = if is_mean { "a float" } else { "a number" };
            return Err(wrong_dtype(name, wants, x.dtype()));
        }
        Ok(Sum { name, dims, is_mean, from: x.shape().to_vec() })
    }

    fn scale(&self) -> f64 {
        if self.is_mean { 1.0 / self.dims.count(&self.from) as f64 } else { 1.0 }
    }
}

impl Op for Sum {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let shape = self.dims.result(x.shape());
        let [dtype, wide] = match x.dtype().is_float() {
            true => [x.dtype(), launch::accumulate_dtype(x.dtype())],
            false => [DType::I64; 2],
        };
        let sum = |x: &Tensor, dims: &Dims, dtype: DType, scale: f64| {
            let x = dims.canonical(x)?;
            let shape = [x.shape()[0], x.shape()[2]];
            let result = Tensor::uninitialized(&shape, (dtype, x.device()))?;
            launch::sum(&x, &result, scale)?;
            Ok::<_, Error>(result)
        };
        let (mut x, mut dims) = self.dims.in_memory_order(x)?;
        while let Some([first, rest]) = dims.in_turn(&x) {
            x = sum(&x, &first, wide, 1.0)?.reshape(&first.result(x.shape()))?;
            dims = rest;
        }
        let result = sum(&x, &dims, dtype, self.scale())?;
        result.reshape(&shape)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dy = dy.reshape(&self.dims.kept(&self.from))?;
        let dy = if self.is_mean { dy.mul_scalar(self.scale())? } else { dy };
        Ok(vec![Some(dy.broadcast_to(&self.from)?)])
    }
}

/// What `max` and `min` differ in.
struct ExtremeRow {
    name: &'static str,
    kernels: launch::Fold,
}

static MAX: ExtremeRow = ExtremeRow {
    name: "max",
    kernels: [
        &fold::max_rows::KERNEL,
        &fold::max_cols::KERNEL,
        &fold::max_rows_shared::KERNEL,
        &fold::max_cols_shared::KERNEL,
    ],
};
static MIN: ExtremeRow = ExtremeRow {
    name: "min",
    kernels: [
        &fold::min_rows::KERNEL,
        &fold::min_cols::KERNEL,
        &fold::min_rows_shared::KERNEL,
        &fold::min_cols_shared::KERNEL,
    ],
};

/// The extreme of numbers; of bools as of 0 and 1.
///
/// The gradient of an extreme that is NaN goes to the elements that are, if these share it, as in PyTorch
/// where all axes are reduced; else it is NaN.
#[track_caller]
fn extreme(row: &'static ExtremeRow, x: &Tensor, dims: Dims, nan_shares: bool) -> Result<Tensor> {
    if x.dtype() == DType::Bool {
        return Ok(extreme(row, &x.as_bytes(), dims, nan_shares)?.as_bools());
    }
    apply(Extreme::new(row, x, dims, nan_shares)?, &[x])
}

struct Extreme {
    row: &'static ExtremeRow,
    dims: Dims,
    from: Vec<usize>,
    nan_shares: bool,
}

impl Extreme {
    fn new(row: &'static ExtremeRow, x: &Tensor, dims: Dims, nan_shares: bool) -> Result<Extreme> {
        if !x.dtype().is_number() {
            return Err(wrong_dtype(row.name, "a number", x.dtype()));
        }
        if dims.count(x.shape()) == 0 {
            let message = format!("has no value over no elements, shape {:?}", x.shape());
            return Err(Error::op(row.name, message));
        }
        Ok(Extreme { row, dims, from: x.shape().to_vec(), nan_shares })
    }
}

impl Op for Extreme {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let extreme = |x: &Tensor, dims: &Dims| {
            let x = dims.canonical(x)?;
            let shape = [x.shape()[0], x.shape()[2]];
            let result = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
            launch::extreme(self.row.kernels, &x, &result)?;
            Ok::<_, Error>(result)
        };
        let (mut x, mut dims) = self.dims.in_memory_order(inputs[0])?;
        while let Some([first, rest]) = dims.in_turn(&x) {
            x = extreme(&x, &first)?.reshape(&first.result(x.shape()))?;
            dims = rest;
        }
        extreme(&x, &dims)?.reshape(&self.dims.result(inputs[0].shape()))
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 1, output: true }
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let kept = self.dims.kept(&self.from);
        let (y, dy) = (saved.output().reshape(&kept)?, dy.reshape(&kept)?);
        let mut mask = saved.input(0).eq(&y)?;
        if self.nan_shares && y.dtype().is_float() {
            mask = mask.logical_or(&saved.input(0).isnan()?)?;
        }
        let mask = mask.to_dtype(dy.dtype())?;
        let axes: Vec<i64> = self.dims.axes.iter().map(|&a| a as i64).collect();
        let share = dy.div(&mask.sum_dims(&axes, true)?)?;
        Ok(vec![Some(mask.mul(&share)?)])
    }
}

/// Where the extremes of rows stand.
#[track_caller]
fn arg_of_rows(kernel: &'static KernelDef, rows: &Tensor) -> Result<Tensor> {
    let (m, n) = (rows.shape()[0], rows.shape()[1]);
    match parts_of_rows(&chip(rows.device()), m, n) {
        1 => arg_of_whole_rows(kernel, rows),
        parts => arg_by_parts(kernel, rows, parts),
    }
}

/// Where the extremes of rows stand, a program a row.
#[track_caller]
fn arg_of_whole_rows(kernel: &'static KernelDef, rows: &Tensor) -> Result<Tensor> {
    let result = Tensor::uninitialized(&[rows.shape()[0]], (DType::I64, rows.device()))?;
    launch::arg_rows(kernel, rows, &result)?;
    Ok(result)
}

/// Where the extremes of a few long rows stand: each is cut into so many parts of one length, so that many programs
/// share it. The extreme of a row is that of the extremes of its parts, and the first of equals stands in the first.
///
/// Parts of one row overlap where its length is no multiple of their number, which changes no extreme.
#[track_caller]
fn arg_by_parts(kernel: &'static KernelDef, rows: &Tensor, parts: usize) -> Result<Tensor> {
    let (m, n) = (rows.shape()[0], rows.shape()[1]);
    let step = n / parts;
    if m > 1 && step * parts < n {
        let of = |row: usize| arg_by_parts(kernel, &rows.narrow(0, row, 1)?, parts);
        let each: Vec<Tensor> = (0..m).map(of).collect::<Result<_>>()?;
        return Tensor::cat(&each.iter().collect::<Vec<_>>(), 0);
    }
    let each = n - step * (parts - 1);
    let stride = rows.strides()[1];
    let part = match m {
        1 => rows.as_strided(&[parts, each], &[step as i64 * stride, stride], 0)?,
        _ => rows.reshape(&[m * parts, each])?,
    };
    let at = arg_of_whole_rows(kernel, &part)?;
    let values = part.gather(1, &at.unsqueeze(1)?)?.reshape(&[m, parts])?;
    let first = arg_of_whole_rows(kernel, &values)?.reshape(&[m, 1])?;
    let own = at.reshape(&[m, parts])?.gather(1, &first)?;
    let place = composite("argmax", &[step as f64], [&own, &first], |[own, first], n| {
        own.add(&first.mul_scalar(n[0])?)
    })?;
    place.reshape(&[m])
}

/// The kernels of an index of an extreme: of rows, of columns, of columns that programs share.
type ArgKernels = [&'static KernelDef; 3];

static ARGMAX: ArgKernels = [
    &device::argmax_rows::KERNEL,
    &device::argmax_cols::KERNEL,
    &device::argmax_cols_shared::KERNEL,
];
static ARGMIN: ArgKernels = [
    &device::argmin_rows::KERNEL,
    &device::argmin_cols::KERNEL,
    &device::argmin_cols_shared::KERNEL,
];

#[track_caller]
fn arg_extreme(
    name: &'static str,
    [rows, cols, cols_shared]: &'static ArgKernels,
    x: &Tensor,
    dim: i64,
) -> Result<Tensor> {
    let axis = shape::axis(name, dim, x.shape())?;
    if !x.dtype().is_number() {
        return Err(wrong_dtype(name, "a number", x.dtype()));
    }
    if x.shape()[axis] == 0 {
        let message = format!("has no index over no elements, shape {:?}", x.shape());
        return Err(Error::op(name, message));
    }
    if x.shape()[axis] > i32::MAX as usize {
        return Err(Error::op(name, format!("has no index that large, shape {:?}", x.shape())));
    }
    let x = x.detach();
    let dims = Dims { axes: vec![axis], keep: false };
    if x.numel() == 0 {
        return Tensor::zeros(&dims.result(x.shape()), (DType::I64, x.device()));
    }
    dims.reduced(&x, |x| {
        let [outer, n, inner] = [0, 1, 2].map(|axis| x.shape()[axis]);
        if inner == 1 {
            return arg_of_rows(rows, &x.reshape(&[outer, n])?);
        }
        let result = Tensor::uninitialized(&[outer, inner], (DType::I64, x.device()))?;
        launch::arg_cols([cols, cols_shared], x, &result)?;
        Ok(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equals in several parts, NaN, and an extreme in what is over at the end.
    #[test]
    fn rows_in_parts_have_the_extremes_of_whole_rows() -> Result<()> {
        let n = 103;
        let mut values: Vec<f32> = (0..4 * n).map(|i| ((i * 37) % 29) as f32).collect();
        values[n + 70] = f32::NAN;
        values[n + 40] = f32::NAN;
        values[2 * n + 102] = 99.0;
        values[3 * n + 101] = -99.0;
        let rows = Tensor::from_slice_on(&values, &[4, n], genesis_kernel::runtime::Device::Cpu)?;
        for kernel in [&device::argmax_rows::KERNEL, &device::argmin_rows::KERNEL] {
            let whole = arg_of_whole_rows(kernel, &rows)?.to_vec::<i64>()?;
            for parts in [1, 2, 10, 51, 103] {
                let found = arg_by_parts(kernel, &rows, parts)?.to_vec::<i64>()?;
                assert_eq!(found, whole, "{parts} parts");
            }
        }
        Ok(())
    }
}
