//! Places: positions in the row-major order of a tensor. [`take_at`] reads them, [`put_at`] writes them (of several
//! writes to one place the last stays), [`add_at`] adds to them, in the order of what is added. Places are sums of
//! index tensors times strides.

use std::sync::OnceLock;

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::sorting::INDEXED;
use kernels::index as device;

use super::embedding;
use super::flag::{self, Range};
use super::segments::{self, Fold, Line};
use super::unordered;
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::along::Places;
use crate::ops::{Op, Saves, apply};
use crate::shape::{self, Layout, contiguous_strides};
use crate::tensor::Tensor;

/// An index tensor as i64, on the tensor's device.
#[track_caller]
pub(super) fn checked(op: &'static str, index: &Tensor, x: &Tensor) -> Result<Tensor> {
    if !index.dtype().is_int() {
        return Err(Error::op(op, format!("the index must be an integer, got {}", index.dtype())));
    }
    if index.device() != x.device() {
        let message = format!("devices differ, {} and {}", x.device(), index.device());
        return Err(Error::op(op, message));
    }
    index.detach().to_dtype(DType::I64)
}

/// Indices that count from the end, counted from the start, times a step. It is found out here whether they are in
/// range.
#[track_caller]
pub(super) fn wrapped(
    op: &'static str,
    index: &Tensor,
    extent: usize,
    step: i64,
) -> Result<Tensor> {
    let places = flag::resolve(op, index, Range { extent, wraps: true, step })?;
    flag::refuse(index.device())?;
    Ok(places)
}

/// `0, step, 2 step, ..` along one axis of a tensor of this rank.
#[track_caller]
pub(super) fn steps(
    extent: usize,
    step: i64,
    axis: usize,
    rank: usize,
    on: Device,
) -> Result<Tensor> {
    let mut shape = vec![1; rank];
    shape[axis] = extent;
    let values = Tensor::uninitialized(&shape, (DType::I64, on))?;
    let number = launch::number(DType::I64, step as f64);
    launch::dense(&device::count::KERNEL, &[], &[], &[(&values, true)], &[number])?;
    Ok(values)
}

/// The places that a layout names.
#[track_caller]
pub(crate) fn places_of_layout(layout: &Layout, on: Device) -> Result<Tensor> {
    let first = Tensor::full(&[], layout.offset() as f64, (DType::I64, on))?;
    let mut places = first.broadcast_to(layout.shape())?;
    if places.numel() == 0 {
        return Ok(places);
    }
    for (axis, (&extent, &stride)) in layout.shape().iter().zip(layout.strides()).enumerate() {
        places = places.add(&steps(extent, stride, axis, layout.rank(), on)?)?;
    }
    Ok(places)
}

/// The places in `x` that an index of its rank names along an axis.
#[track_caller]
pub(super) fn places_along(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
) -> Result<Tensor> {
    if index.numel() == 0 {
        // The axes of nothing may be as long as they like, and are not listed.
        return index.to_dtype(DType::I64);
    }
    let strides = contiguous_strides(x.shape());
    let mut places = wrapped(op, index, x.shape()[axis], strides[axis])?;
    for other in (0..index.rank()).filter(|&other| other != axis) {
        let extent = index.shape()[other];
        places = places.add(&steps(extent, strides[other], other, index.rank(), x.device())?)?;
    }
    Ok(places)
}

/// The elements of `x` at places.
#[track_caller]
pub(crate) fn take_at(x: &Tensor, places: &Tensor) -> Result<Tensor> {
    apply(Take { from: x.shape().to_vec(), is_distinct: false }, &[x, places])
}

/// [`take_at`] of places no two of which are equal: its gradient is written and not added.
#[track_caller]
fn take_distinct_at(x: &Tensor, places: &Tensor) -> Result<Tensor> {
    apply(Take { from: x.shape().to_vec(), is_distinct: true }, &[x, places])
}

/// A tensor of `n` zeros with values added at places.
#[track_caller]
pub(crate) fn add_at(values: &Tensor, places: &Tensor, n: usize) -> Result<Tensor> {
    apply(AddAt { n, shape: values.shape().to_vec() }, &[values, places])
}

/// `x` with sums of values added, which `sums` makes of them; 16-bit floats are rounded once, bools stay bools, whose
/// sum is whether one is true.
#[track_caller]
pub(super) fn plus(
    x: &Tensor,
    values: &Tensor,
    sums: &dyn Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let is_half = x.dtype() == values.dtype() && launch::accumulate_dtype(x.dtype()) != x.dtype();
    if is_half && x.dtype().is_float() {
        // The sum is not rounded before it is added.
        return Tensor::rounded_once([x, values], |[x, values]| plus(&x, &values, sums));
    }
    let sums = sums(values)?.reshape(x.shape())?;
    let is_bool = x.dtype() == DType::Bool && values.dtype() == DType::Bool;
    x.add(&if is_bool { sums.to_bool()? } else { sums })
}

/// `x` with values added at places; 16-bit floats are rounded once, bools stay bools, whose sum is whether
/// one is true.
#[track_caller]
pub(crate) fn plus_at(x: &Tensor, values: &Tensor, places: &Tensor) -> Result<Tensor> {
    plus(x, values, &|values| add_at(values, places, x.numel()))
}

/// `x` with values written at places.
#[track_caller]
pub(crate) fn put_at(x: &Tensor, places: &Tensor, values: &Tensor) -> Result<Tensor> {
    apply(Put { winner: OnceLock::new() }, &[x, places, values])
}

#[track_caller]
fn flat(t: &Tensor) -> Result<Tensor> {
    t.contiguous()?.reshape(&[t.numel()])
}

struct Take {
    from: Vec<usize>,
    is_distinct: bool,
}

impl Op for Take {
    fn name(&self) -> &'static str {
        "take"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, places) = (inputs[0].contiguous()?, flat(inputs[1])?);
        let y = Tensor::uninitialized(inputs[1].shape(), (x.dtype(), x.device()))?;
        if y.numel() > 0 {
            let args = [
                launch::pointer(&x, false),
                launch::view_of(&places, false),
                launch::view_of(&flat(&y)?, true),
                launch::number(DType::I64, x.numel() as f64),
            ];
            let grid = Grid::x(y.numel().div_ceil(INDEXED));
            launch::warped(
                &device::take::KERNEL,
                &y,
                grid,
                &[x.dtype()],
                &[INDEXED as i64],
                None,
                &args,
            )?;
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (n, places) = (shape::product(&self.from), saved.input(1));
        let dx = match self.is_distinct {
            true => put_once(dy, places, n)?,
            false => add_at(dy, places, n)?,
        };
        Ok(vec![Some(dx.reshape(&self.from)?), None])
    }
}

/// A vector of `n` zeros with values written at places, no two of which are equal.
#[track_caller]
pub(in crate::ops) fn put_once(values: &Tensor, places: &Tensor, n: usize) -> Result<Tensor> {
    apply(PutOnce { n, shape: values.shape().to_vec() }, &[values, places])
}

struct PutOnce {
    n: usize,
    shape: Vec<usize>,
}

impl Op for PutOnce {
    fn name(&self) -> &'static str {
        "put"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        unordered::written_once(inputs[0], inputs[1], self.n)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let places = saved.input(1).reshape(&self.shape)?;
        Ok(vec![Some(take_distinct_at(dy, &places)?), None])
    }
}

struct AddAt {
    n: usize,
    shape: Vec<usize>,
}

impl Op for AddAt {
    fn name(&self) -> &'static str {
        "add_at"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (values, places) = (flat(inputs[0])?, flat(inputs[1])?);
        let at = (values.dtype(), values.device());
        if at.1 == Device::Cpu {
            return add_on_host(&values, &places, self.n);
        }
        if unordered::is_unordered(&values) {
            return unordered::add_at(&values, &places, self.n);
        }
        if values.dtype().is_float() && segments::folds(at, self.n, values.numel()) {
            let sums = Tensor::zeros(&[self.n], at)?;
            let line = Line::of_places(self.n, values.numel());
            let flag = segments::untold(flag::args("add_at", at.1, self.n)?);
            segments::fold_into(&sums, [&places, &values], line, Fold::Sum, flag)?;
            return Ok(sums);
        }
        if values.dtype().is_float() {
            let sums = Tensor::zeros(&[self.n, 1], at)?;
            if values.numel() > 0 && self.n > 0 {
                let column = values.reshape(&[values.numel(), 1])?;
                embedding::in_order(&places, &column, &sums)?;
            }
            return sums.reshape(&[self.n]);
        }
        // Sums wrap, so that those of a narrow integer are the low bits of those of a wide one.
        let wide = values.to_dtype(DType::I64)?;
        let copies = copies_for(values.numel(), self.n);
        let sums = Tensor::zeros(&[copies, self.n], (DType::I64, at.1))?;
        if values.numel() > 0 {
            let args = [
                launch::view_of(&places, false),
                launch::view_of(&wide, false),
                launch::pointer(&sums, true),
                launch::number(DType::I64, self.n as f64),
                launch::number(DType::I64, copies as f64),
            ];
            let grid = Grid::x(values.numel().div_ceil(INDEXED));
            launch::warped(
                &device::add_at::KERNEL,
                &sums,
                grid,
                &[DType::I64],
                &[INDEXED as i64],
                None,
                &args,
            )?;
        }
        let sums = if copies == 1 { sums.reshape(&[self.n])? } else { sums.sum_dims(&[0], false)? };
        sums.to_dtype(at.0)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(take_at(dy, &saved.input(1).reshape(&self.shape)?)?), None])
    }
}

/// How many copies of `n` sums `count` values are added to on a GPU, whose atomic additions to one address wait for each
/// other: as many as leave a few values for each sum.
pub(super) fn copies_for(count: usize, n: usize) -> usize {
    const EACH: usize = 16;
    (count / EACH / n.max(1)).clamp(1, 512)
}

/// For each of `n` places the write that stays, or -1.
#[track_caller]
fn winners(places: &Tensor, n: usize) -> Result<Tensor> {
    let flag = segments::untold(flag::args("put", places.device(), n)?);
    last_writes(places, n, false, flag)
}

/// [`winners`] of a vector of indices; one below 0 counts from the end where it `wraps`, and one that is not there goes
/// to `flag`.
#[track_caller]
pub(super) fn last_writes(index: &Tensor, n: usize, wraps: bool, flag: [Arg; 2]) -> Result<Tensor> {
    let winner = Tensor::full(&[n], -1.0, (DType::I64, index.device()))?;
    if index.numel() > 0 {
        let args = [
            launch::view_of(index, false),
            launch::pointer(&winner, true),
            launch::number(DType::I64, n as f64),
            launch::number(DType::I64, if wraps { n as f64 } else { 0.0 }),
            flag[0],
            flag[1],
        ];
        let grid = Grid::x(index.numel().div_ceil(INDEXED));
        let kernel = &device::last_write::KERNEL;
        launch::warped(kernel, &winner, grid, &[], &[INDEXED as i64], None, &args)?;
    }
    Ok(winner)
}

/// The place of each of a vector of indices, those below 0 counted from the end, or -1 where another write stayed.
#[track_caller]
pub(super) fn kept_writes(index: &Tensor, winner: &Tensor) -> Result<Tensor> {
    let (n, places) =
        (winner.numel(), Tensor::uninitialized(index.shape(), (DType::I64, index.device()))?);
    if index.numel() > 0 {
        let args = [
            launch::view_of(index, false),
            launch::pointer(winner, false),
            launch::view_of(&places, true),
            launch::number(DType::I64, n as f64),
            launch::number(DType::I64, n as f64),
        ];
        let grid = Grid::x(index.numel().div_ceil(INDEXED));
        let kernel = &device::kept_writes::KERNEL;
        launch::warped(kernel, &places, grid, &[], &[INDEXED as i64], None, &args)?;
    }
    Ok(places)
}

/// `y`: `x` with the writes that stay, of dense values.
#[track_caller]
pub(super) fn put_winners(x: &Tensor, winner: &Tensor, values: &Tensor, y: &Tensor) -> Result<()> {
    if x.numel() == 0 {
        return Ok(());
    }
    // An element that is repeated stays one; of other strides this is a copy, which stays until the launch.
    let x = x.reshape(&[x.numel()])?;
    let args = [
        launch::view_of(&x, false),
        launch::view_of(&flat(winner)?, false),
        launch::pointer(values, false),
        launch::view_of(&flat(y)?, true),
    ];
    let (kernel, dtypes) = (&device::put::KERNEL, [x.dtype(), winner.dtype()]);
    let grid = Grid::x(x.numel().div_ceil(INDEXED));
    launch::warped(kernel, y, grid, &dtypes, &[INDEXED as i64], None, &args)
}

/// `x` with values written at places one after the other, on the CPU.
#[track_caller]
fn put_in_order(x: &Tensor, places: &Tensor, values: &Tensor) -> Result<Tensor> {
    let y = x.detach().copy()?;
    if places.numel() > 0 && x.numel() > 0 {
        let args = [
            launch::view_of(places, false),
            launch::pointer(values, false),
            launch::pointer(&y, true),
            launch::number(DType::I64, x.numel() as f64),
        ];
        let kernel = &device::put_in_order::KERNEL;
        launch::warped(kernel, &y, Grid::x(1), &[x.dtype()], &[], None, &args)?;
    }
    Ok(y)
}

struct Put {
    /// For each place the write that stays, or -1, where the forward needed to know.
    winner: OnceLock<Tensor>,
}

impl Op for Put {
    fn name(&self) -> &'static str {
        "put"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, places, values) = (inputs[0].contiguous()?, flat(inputs[1])?, flat(inputs[2])?);
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        if x.device() == Device::Cpu {
            return put_in_order(&x, &places, &values);
        }
        let winner = winners(&places, x.numel())?;
        put_winners(&x, &winner, &values, &y)?;
        self.winner.get_or_init(|| winner);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let places = saved.input(1);
        let winner = match self.winner.get() {
            Some(winner) => winner.clone(),
            None => winners(&flat(places)?, dy.numel())?,
        };
        let zero = Tensor::zeros(&[], (dy.dtype(), dy.device()))?;
        let is_old = winner.lt_scalar(0.0)?.reshape(dy.shape())?;
        let dx = is_old.where_(dy, &zero)?;
        let own = Tensor::arange(0.0, places.numel() as f64, 1.0, (DType::I64, dy.device()))?;
        let stays = take_at(&winner, places)?.eq(&own.reshape(places.shape())?)?;
        let dvalues = stays.where_(&take_at(dy, places)?, &zero)?;
        Ok(vec![Some(dx), None, Some(dvalues)])
    }
}

/// The dtype that sums of values on the CPU have on their way.
pub(super) fn sum_dtype(dtype: DType) -> DType {
    if dtype.is_number() { launch::accumulate_dtype(dtype) } else { DType::I64 }
}

/// Sums of values at places that count from 0, on the CPU; a place that is not there gets nothing.
#[track_caller]
fn add_on_host(values: &Tensor, places: &Tensor, n: usize) -> Result<Tensor> {
    let wide = sum_dtype(values.dtype());
    let sums = Tensor::zeros(&[n], (wide, Device::Cpu))?;
    let of = values.numel();
    if of > 0 && n > 0 {
        let own =
            if values.dtype().is_number() { values.clone() } else { values.to_dtype(wide)? };
        let lines = [1, 1, of];
        let whole = Places { steps: [0; 3], extent: n, step: 1, share: [1, of], wraps: false };
        let none = Arg::Scalar(Scalar::int(DType::I64, 0));
        let flag = [flag::args("add_at", Device::Cpu, n)?[0], none];
        let (places, own) = (places.reshape(&lines)?, own.reshape(&lines)?);
        launch::along::add_in_order(&places, &own, &sums, &whole, flag)?;
    }
    sums.to_dtype(values.dtype())
}
