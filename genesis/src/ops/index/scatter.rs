//! Scatters: reductions by index, whole slices, masks, and the flat indices of `put`.
//!
//! A reduction brings the index to places in row-major order, as all of `index` does.

#[cfg(feature = "op-info")]
pub(super) mod info;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use kernels::index as device;

use super::embedding::{places_in_order, scale_of};
use super::fill::fill_along;
use super::gather::{self, Scattered, fitted};
use super::parts::Index;
use super::places::{checked, places_along, wrapped};
use super::put::put_along;
use super::segments::{self, Fold, Line};
use super::slice_scatter::slice_scatter;
use super::slices::put_slices;
use super::unordered::Meeting;
use super::{along, flag, masks, unordered};
use crate::autograd::SavedTensors;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, check_pair, composite};
use crate::shape::{self, Layout};
use crate::tensor::Tensor;

/// How several writes to one place become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScatterReduce {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean; of integers rounded down.
    Mean,
    /// The largest; NaN wins.
    Amax,
    /// The smallest; NaN wins.
    Amin,
}

impl Tensor {
    /// This tensor with elements of `source` reduced into it where [`Tensor::gather`] would read. The
    /// element that is there counts too, unless `include_self` is false.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        const NAME: &str = "scatter_reduce";
        let Scattered { dense, axis, index, source } = fitted(NAME, self, dim, index, source)?;
        let at = At { op: NAME, axis, index };
        reduce_at(&dense, &at, &source, reduce, include_self)?.reshape(self.shape())
    }

    /// [`Tensor::scatter_reduce`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn scatter_reduce_(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<()> {
        let op = |x: &Tensor| x.scatter_reduce(dim, index, source, reduce, include_self);
        self.replace("scatter_reduce_", &[source], op)
    }

    /// This tensor with slices of `source` reduced into those at an index, along `dim`. The element that
    /// is there counts too, unless `include_self` is false.
    ///
    /// # Errors
    /// As [`Tensor::index_add`].
    #[track_caller]
    pub fn index_reduce(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        const NAME: &str = "index_reduce";
        check_pair(NAME, self, source)?;
        let x = with_axis(self)?;
        let axis = shape::axis_or_scalar(NAME, dim, x.shape())?;
        let index = gather::slices(NAME, &x, axis, index)?;
        if source.numel() != index.numel() {
            let message = format!("the source is {:?}, not {:?}", source.shape(), index.shape());
            return Err(Error::op(NAME, message));
        }
        let (source, at) = (source.reshape(index.shape())?, At { op: NAME, axis, index });
        reduce_at(&x, &at, &source, reduce, include_self)?.reshape(self.shape())
    }

    /// This tensor with slices of `source` written at an index, along `dim`; of several writes to one
    /// slice the last stays.
    ///
    /// # Errors
    /// As [`Tensor::index_add`].
    #[track_caller]
    pub fn index_copy(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        const NAME: &str = "index_copy";
        check_pair(NAME, self, source)?;
        let x = with_axis(self)?;
        let axis = shape::axis_or_scalar(NAME, dim, x.shape())?;
        let index = gather::line_of(NAME, &x, index)?.ravel()?;
        let mut written = x.shape().to_vec();
        written[axis] = index.numel();
        if source.numel() != shape::product(&written) {
            let message = format!("the source is {:?}, not {written:?}", source.shape());
            return Err(Error::op(NAME, message));
        }
        put_slices(NAME, &x, axis, &index, source)?.reshape(self.shape())
    }

    /// [`Tensor::index_copy`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_copy_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.replace("index_copy_", &[source], |x| x.index_copy(dim, index, source))
    }

    /// This tensor with one number in the slices at an index, along `dim`.
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    #[track_caller]
    pub fn index_fill(&self, dim: i64, index: &Tensor, value: f64) -> Result<Tensor> {
        const NAME: &str = "index_fill";
        let x = with_axis(self)?;
        let axis = shape::axis_or_scalar(NAME, dim, x.shape())?;
        let index = gather::slices(NAME, &x, axis, index)?;
        fill_along(NAME, &x, axis, &index, value)?.reshape(self.shape())
    }

    /// [`Tensor::index_fill`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_fill_(&self, dim: i64, index: &Tensor, value: f64) -> Result<()> {
        self.replace("index_fill_", &[], |x| x.index_fill(dim, index, value))
    }

    /// This tensor with one number where [`Tensor::gather`] would read.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn scatter_value(&self, dim: i64, index: &Tensor, value: f64) -> Result<Tensor> {
        const NAME: &str = "scatter";
        let (x, index) = gather::with_axes(NAME, self, dim, index)?;
        let axis = shape::axis(NAME, dim, x.shape())?;
        gather::check_fits(NAME, &x, axis, index.shape())?;
        let index = if index.rank() == 0 { index.reshape(&[1])? } else { index };
        fill_along(NAME, &x, axis, &index, value)?.reshape(self.shape())
    }

    /// This tensor with elements of `source` at positions in row-major order, written or added.
    ///
    /// # Errors
    /// If the index is not an integer tensor, the source has another count or dtype or, on the CPU, a
    /// position is not there.
    #[track_caller]
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
        const NAME: &str = "put";
        check_pair(NAME, self, source)?;
        if index.numel() != source.numel() {
            let message = format!("{:?} elements for {:?}", source.shape(), index.shape());
            return Err(Error::op(NAME, message));
        }
        let (x, index) = (self.ravel()?, checked(NAME, index, self)?.ravel()?);
        let source = source.ravel()?;
        let y = match accumulate {
            true => along::plus_along(NAME, &x, 0, &index, &source)?,
            false => put_along(NAME, &x, 0, &index, &source)?,
        };
        y.reshape(self.shape())
    }

    /// [`Tensor::put`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn put_(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<()> {
        self.replace("put_", &[source], |x| x.put(index, source, accumulate))
    }

    /// This tensor with the elements of `source`, in row-major order, where the mask is true. Waits for
    /// the device.
    ///
    /// # Errors
    /// If the mask is not bool or does not broadcast, dtypes differ, or the source has too few elements.
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        const NAME: &str = "masked_scatter";
        check_pair(NAME, self, source)?;
        if mask.dtype() != DType::Bool {
            return Err(Error::op(NAME, format!("the mask must be bool, got {}", mask.dtype())));
        }
        masks::replace(NAME, self, &mask.broadcast_to(self.shape())?, &source.ravel()?)
    }

    /// [`Tensor::masked_scatter`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> Result<()> {
        self.check_holds("masked_scatter_", &[mask])?;
        self.replace("masked_scatter_", &[source], |x| x.masked_scatter(mask, source))
    }

    /// This tensor with `source` instead of the elements of a range along `dim`; see
    /// [`Tensor::slice_step`].
    ///
    /// # Errors
    /// If there is no such dimension, the step is 0, or the source has another shape.
    #[track_caller]
    pub fn slice_scatter(
        &self,
        source: &Tensor,
        dim: i64,
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    ) -> Result<Tensor> {
        let to = |x: &Tensor| x.slice_step(dim, start, end, step);
        self.view_scatter("slice_scatter", source, Some(dim), to)
    }

    /// This tensor with `source` instead of element `index` along `dim`.
    ///
    /// # Errors
    /// If that is not there or the source has another shape.
    #[track_caller]
    pub fn select_scatter(&self, source: &Tensor, dim: i64, index: usize) -> Result<Tensor> {
        self.view_scatter("select_scatter", source, None, |x| x.select(dim, index))
    }

    /// This tensor with `source` instead of a diagonal; see [`Tensor::diagonal`].
    ///
    /// # Errors
    /// If there are no such axes or the source has another shape.
    #[track_caller]
    pub fn diagonal_scatter(
        &self,
        source: &Tensor,
        offset: i64,
        dim1: i64,
        dim2: i64,
    ) -> Result<Tensor> {
        self.view_scatter("diagonal_scatter", source, None, |x| x.diagonal(offset, dim1, dim2))
    }

    /// This tensor with `source` where a view of it has its elements, all along `dim` where that is given.
    #[track_caller]
    fn view_scatter(
        &self,
        op: &'static str,
        source: &Tensor,
        dim: Option<i64>,
        to: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if let Some(place) = self.place_of_slice(source, dim, &to)? {
            return slice_scatter(op, self, source, place);
        }
        let whole = self.copy_in_order()?;
        let part = to(&whole)?;
        if part.shape() != source.shape() {
            let message = format!("needs {:?}, got {:?}", part.shape(), source.shape());
            return Err(Error::op(op, message));
        }
        part.copy_(source)?;
        Ok(whole)
    }

    /// The axis and the first element of neighbours along `dim` that a view has, as many as `source` of the same kind.
    #[track_caller]
    fn place_of_slice(
        &self,
        source: &Tensor,
        dim: Option<i64>,
        to: &impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Option<(usize, usize)>> {
        let Some(dim) = dim else { return Ok(None) };
        let (whole, part) = (self.detach(), to(&self.detach())?);
        let axis = shape::axis("slice_scatter", dim, self.shape())?;
        let (step, own) = (whole.strides()[axis], part.strides().get(axis));
        let is_alike = source.dtype() == self.dtype() && source.device() == self.device();
        let fits = part.shape() == source.shape() && part.numel() > 0 && is_alike;
        if !fits || trace::is_on() || step == 0 || own != Some(&step) {
            return Ok(None);
        }
        let ahead = part.layout().offset() as i64 - whole.layout().offset() as i64;
        Ok(usize::try_from(ahead / step).ok().map(|start| (axis, start)))
    }

    /// This tensor with `values` written at an indexing; [`Tensor::index_put`] without adding.
    ///
    /// # Errors
    /// As [`Tensor::index_put`].
    #[track_caller]
    pub fn with_index(&self, parts: &[Index], values: &Tensor) -> Result<Tensor> {
        self.index_put(parts, values, false)
    }
}

/// A scalar as a vector.
fn with_axis(x: &Tensor) -> Result<Tensor> {
    if x.rank() == 0 { x.reshape(&[1]) } else { Ok(x.clone()) }
}

/// Where values meet a tensor: at an index of its rank along an axis.
#[derive(Clone)]
struct At {
    op: &'static str,
    axis: usize,
    index: Tensor,
}

impl At {
    /// How many values each element of `x` meets.
    #[track_caller]
    fn counts(&self, x: &Tensor) -> Result<Tensor> {
        let ones = Tensor::ones(&[], (DType::I64, x.device()))?.broadcast_to(self.index.shape())?;
        along::add_along(self.op, x.shape(), self.axis, &self.index, &ones)
    }
}

/// `x` with values reduced into it at an index, which has their shape.
#[track_caller]
fn reduce_at(
    x: &Tensor,
    at: &At,
    values: &Tensor,
    reduce: ScatterReduce,
    include_self: bool,
) -> Result<Tensor> {
    let is_half = x.dtype().is_float() && launch::accumulate_dtype(x.dtype()) != x.dtype();
    if is_half && !matches!(reduce, ScatterReduce::Amax | ScatterReduce::Amin) {
        // Sums, products and counts are not rounded before they meet.
        return Tensor::rounded_once([x, values], |[x, values]| {
            reduce_at(&x, at, &values, reduce, include_self)
        });
    }
    let At { op, axis, ref index } = *at;
    let base = |unit: f64| -> Result<Tensor> {
        if include_self {
            return Ok(x.clone());
        }
        x.masked_fill(&at.counts(x)?.gt_scalar(0.0)?, unit)
    };
    match reduce {
        ScatterReduce::Sum => along::plus_along(op, &base(0.0)?, axis, index, values),
        ScatterReduce::Mean => {
            let own = f64::from(u8::from(include_self));
            let counts = at.counts(x)?.add_scalar(own)?.maximum_scalar(1.0)?.to_dtype(x.dtype())?;
            let sum = base(0.0)?.add(&along::add_along(op, x.shape(), axis, index, values)?)?;
            if x.dtype().is_float() { sum.div(&counts) } else { sum.floor_divide(&counts) }
        }
        ScatterReduce::Prod => apply(ProdAt { op, axis }, &[&base(1.0)?, index, values]),
        ScatterReduce::Amax | ScatterReduce::Amin => {
            let is_max = reduce == ScatterReduce::Amax;
            apply(ExtremeAt { op, axis, is_max, include_self }, &[x, index, values])
        }
    }
}

/// The products of values at places of a tensor like `x`, on the CPU.
#[track_caller]
fn products_in_order(places: &Tensor, values: &Tensor, x: &Tensor) -> Result<Tensor> {
    let wide = launch::accumulate_dtype(x.dtype());
    let products = Tensor::ones(x.shape(), (wide, Device::Cpu))?;
    let args = [
        launch::view_of(places, false),
        launch::pointer(values, false),
        launch::pointer(&products, true),
        launch::number(DType::I64, x.numel() as f64),
    ];
    let (kernel, dtypes) = (&device::prod_in_order::KERNEL, [values.dtype(), wide]);
    launch::warped(kernel, &products, Grid::x(1), &dtypes, &[], None, &args)?;
    products.to_dtype(x.dtype())
}

/// `x` times the products of values at an index.
#[derive(Clone, Copy)]
struct ProdAt {
    op: &'static str,
    axis: usize,
}

impl ProdAt {
    /// At places, of which there are too many for [`segments`], or on the CPU.
    #[track_caller]
    fn by_places(x: &Tensor, places: &Tensor, values: &Tensor) -> Result<Tensor> {
        let (places, values) = (places.ravel()?.contiguous()?, values.ravel()?.contiguous()?);
        if x.device() == Device::Cpu {
            return x.mul(&products_in_order(&places, &values, x)?);
        }
        let products = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        let (keys, starts) = places_in_order(&places, x.numel())?;
        let args = [
            launch::pointer(&keys, false),
            launch::pointer(&starts, false),
            launch::pointer(&values, false),
            launch::view_of(&products.ravel()?, true),
            launch::number(DType::I64, scale_of(&places) as f64),
        ];
        const BLOCK: usize = 128;
        let grid = Grid::x(x.numel().div_ceil(BLOCK));
        let dtypes = [x.dtype(), launch::accumulate_dtype(x.dtype())];
        let kernel = &device::prod_at::KERNEL;
        launch::warped(kernel, &products, grid, &dtypes, &[BLOCK as i64], None, &args)?;
        x.mul(&products)
    }
}

impl Op for ProdAt {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, index, values) = (inputs[0], inputs[1], inputs[2]);
        if x.numel() == 0 || values.numel() == 0 {
            return x.copy();
        }
        if !segments::folds((x.dtype(), x.device()), x.numel(), values.numel()) {
            return ProdAt::by_places(x, &places_along(self.op, x, self.axis, index)?, values);
        }
        let y = x.copy()?;
        let flag = flag::args(self.op, x.device(), x.shape()[self.axis])?;
        if let Some(line) = Line::along(x.shape(), self.axis, index.shape()) {
            segments::fold_into(&y, [index, values], line, Fold::Product, flag)?;
            return Ok(y);
        }
        let places = places_along(self.op, x, self.axis, index)?;
        let (line, flag) = (Line::of_places(x.numel(), values.numel()), segments::untold(flag));
        segments::fold_into(&y, [&places, values], line, Fold::Product, flag)?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 7, output: true }
    }

    /// The product of all others. Where one value of a place is zero, that one has the product of the
    /// rest; where two are, none has any.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let ProdAt { op, axis } = *self;
        let (x, index, values, y) =
            (saved.input(0), saved.input(1), saved.input(2), saved.output());
        let read = |t: &Tensor| along::take_along(op, t, axis, index);
        let is_zero = composite(op, &[], [values], |[values], _| {
            values.eq_scalar(0.0)?.to_dtype(DType::I32)
        })?;
        let zeros = read(&along::add_along(op, x.shape(), axis, index, &is_zero)?)?;
        let others = composite(op, &[], [values, &zeros], |[values, zeros], _| {
            let is_only = values.eq_scalar(0.0)?.logical_and(&zeros.eq_scalar(1.0)?)?;
            values.masked_fill(&is_only, 1.0)
        })?;
        let rest = read(&dy.mul(&apply(*self, &[x, index, &others])?)?)?;
        let usual = read(&dy.mul(y)?)?;
        let of = [values, &zeros, &rest, &usual];
        let dvalues = composite(op, &[], of, |[values, zeros, rest, usual], _| {
            let is_zero = values.eq_scalar(0.0)?;
            let is_only = is_zero.logical_and(&zeros.eq_scalar(1.0)?)?;
            is_only.where_(rest, &usual.div(&values.masked_fill(&is_zero, 1.0)?)?)
        })?;
        let dx = apply(*self, &[dy, index, values])?;
        Ok(vec![Some(dx), None, Some(dvalues)])
    }
}

/// The largest or smallest of `x` and the values that an index brings to its place.
struct ExtremeAt {
    op: &'static str,
    axis: usize,
    is_max: bool,
    include_self: bool,
}

/// The shortest slices that are reduced as lines.
const LINE: usize = 16;

/// On the CPU: one index for each slice along an axis, where that is what `index` repeats for all of its elements.
#[track_caller]
fn of_slices(x: &Tensor, axis: usize, index: &Tensor, values: &Tensor) -> Result<Option<Tensor>> {
    let repeats = |a: usize| {
        let is_one = index.strides()[a] == 0 || x.shape()[a] == 1;
        a == axis || (is_one && index.shape()[a] == x.shape()[a])
    };
    let fits = x.device() == Device::Cpu
        && x.dtype().is_number()
        && index.rank() == x.rank()
        && x.numel() > 0
        && values.numel() > 0
        && (0..x.rank()).all(repeats)
        && shape::product(&x.shape()[axis + 1..]) >= LINE;
    if !fits {
        return Ok(None);
    }
    let layout = Layout::new(
        [index.shape()[axis]].into_iter().collect(),
        [index.strides()[axis]].into_iter().collect(),
        index.layout().offset(),
    );
    Ok(layout.map(|layout| Tensor::plain(index.storage().clone(), layout, index.dtype())))
}

impl ExtremeAt {
    /// Slice after slice, by an index for each.
    #[track_caller]
    fn by_slices(&self, x: &Tensor, line: &Tensor, values: &Tensor) -> Result<Tensor> {
        let (extent, count) = (x.shape()[self.axis], line.numel());
        let line = wrapped(self.op, line, extent, 1)?;
        let outer = shape::product(&x.shape()[..self.axis]);
        let inner = shape::product(&x.shape()[self.axis + 1..]);
        let y = x.copy()?;
        let (of, values) =
            (y.reshape(&[outer, extent, inner])?, values.reshape(&[outer, count, inner])?);
        let how = (self.is_max, !self.include_self);
        launch::along::extreme_slices_in_order(&line, &values, &of, how)?;
        Ok(y)
    }
}

impl Op for ExtremeAt {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, index, values) = (inputs[0], inputs[1], inputs[2]);
        let ExtremeAt { op, axis, is_max, include_self } = *self;
        if let Some(line) = of_slices(x, axis, index, values)? {
            return self.by_slices(x, &line, values);
        }
        if index.rank() <= 4 {
            let at = Meeting { op, axis, index, values };
            return unordered::extreme(x, &at, is_max, include_self);
        }
        let (places, values) = (places_along(op, x, axis, index)?.ravel()?, values.ravel()?);
        let at = Meeting { op, axis: 0, index: &places, values: &values };
        unordered::extreme(&x.ravel()?, &at, is_max, include_self)?.reshape(x.shape())
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 7, output: true }
    }

    /// All that are equal to the result share the gradient.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, index, values, y) =
            (saved.input(0), saved.input(1), saved.input(2), saved.output());
        let ExtremeAt { op, axis, include_self, .. } = *self;
        let seen = along::take_along(op, y, axis, index)?;
        let hits = composite(op, &[], [values, &seen], |[values, seen], _| {
            values.eq(seen)?.to_dtype(DType::I32)
        })?;
        // Counts are integers, whose sums need no order.
        let winners = along::add_along(op, x.shape(), axis, index, &hits)?;
        // An element itself wins where these are equal.
        let own = match include_self {
            true => [x.clone(), y.clone()],
            false => {
                let at = At { op, axis, index: index.clone() };
                [at.counts(x)?, Tensor::zeros(&[], (DType::I64, x.device()))?]
            }
        };
        let of = [dy, &winners, &own[0], &own[1]];
        let share = composite(op, &[], of, |[dy, winners, own, to], _| {
            let own = own.eq(to)?.to_dtype(dy.dtype())?;
            dy.div(&winners.to_dtype(dy.dtype())?.add(&own)?.maximum_scalar(1.0)?)
        })?;
        let dx = composite(op, &[], [&share, &own[0], &own[1]], |[share, own, to], _| {
            share.mul(&own.eq(to)?.to_dtype(share.dtype())?)
        })?;
        let taken = along::take_along(op, &share, axis, index)?;
        let dvalues = composite(op, &[], [&taken, values, &seen], |[taken, values, seen], _| {
            taken.mul(&values.eq(seen)?.to_dtype(taken.dtype())?)
        })?;
        Ok(vec![Some(dx), None, Some(dvalues)])
    }
}
