//! Views by strides: any layout over the same storage, diagonals, flips.
//!
//! The gradient of a view goes back through the same layout over a dense tensor of the operand's shape:
//! zeros, into which `dy` is copied. Where a view may name an element twice, as that of
//! [`Tensor::as_strided`], `dy` is added at the places that it names. Windows of [`Tensor::unfold`] that share no element
//! are added together.

use genesis_kernel::ir::Scalar;

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::index::{add_at, places_of_layout};
use crate::ops::{Op, apply};
use crate::shape::{self, Layout};
use crate::tensor::Tensor;

impl Tensor {
    /// The elements at `offset + sum(index * stride)` of this tensor's storage, counted from its first
    /// element. What it names outside this tensor has no gradient.
    ///
    /// # Errors
    /// If some of them lie outside the storage, or a gradient of this tensor is wanted and it is not
    /// contiguous.
    #[track_caller]
    pub fn as_strided(&self, shape: &[usize], strides: &[i64], offset: usize) -> Result<Tensor> {
        const NAME: &str = "as_strided";
        if shape.len() != strides.len() {
            let message = format!("shape {shape:?} and strides {strides:?} differ in length");
            return Err(Error::op(NAME, message));
        }
        let is_wanted = is_grad_enabled() && self.requires_grad();
        if is_wanted && !self.is_contiguous() {
            return Err(Error::op(
                NAME,
                "has a gradient for contiguous tensors only; copy it first",
            ));
        }
        let own = if shape::numel(NAME, shape)? == 0 { 0 } else { offset };
        let outer = self.layout().offset().checked_add(own).and_then(|first| {
            let layout = Layout::new(shape.into(), strides.into(), first)?;
            self.storage().holds(&layout, self.dtype()).then_some(layout)
        });
        let outer = outer.ok_or_else(|| {
            let len = self.storage().bytes() / self.dtype().bytes();
            let message =
                format!("shape {shape:?} with strides {strides:?} leaves a storage of {len}");
            Error::op(NAME, message)
        })?;
        // Only where a gradient is wanted is the view of a dense tensor needed, and only contiguous tensors
        // have one.
        let inner = outer.at(own).unwrap_or_else(|| outer.clone());
        apply(OverlappingView { name: NAME, outer, inner, from: self.shape().to_vec() }, &[self])
    }

    /// Windows of `size` elements along `dim`, `step` apart, each along a new last axis; a view.
    ///
    /// # Errors
    /// If there is no such dimension, a window does not fit, or `step` is 0.
    #[track_caller]
    pub fn unfold(&self, dim: i64, size: usize, step: usize) -> Result<Tensor> {
        const NAME: &str = "unfold";
        let axis = shape::axis_or_scalar(NAME, dim, self.shape())?;
        let x = if self.rank() == 0 { self.reshape(&[1])? } else { self.clone() };
        let extent = x.shape()[axis];
        if size > extent {
            let message = format!(
                "a window of {size} does not fit dimension {dim} of shape {:?}",
                self.shape()
            );
            return Err(Error::op(NAME, message));
        }
        if step == 0 {
            return Err(Error::op(NAME, "a step of 0 never ends"));
        }
        let of = |layout: &Layout| layout.windows(axis, size, step);
        let (outer, inner) = seen(NAME, &x, of)?;
        let view = OverlappingView { name: NAME, outer, inner, from: x.shape().to_vec() };
        let windows = apply(Windows { view, axis: axis as i64, size, step }, &[&x])?;
        // The windows of a scalar are one, and it has no axis for that.
        if self.rank() == 0 { windows.squeeze(0) } else { Ok(windows) }
    }

    /// The diagonal of the planes of two axes, as a new last axis; above the main one for a positive
    /// `offset`, below it for a negative one.
    ///
    /// # Errors
    /// If there are no such axes, or they are the same.
    #[track_caller]
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        let (a, b) = (
            shape::axis("diagonal", dim1, self.shape())?,
            shape::axis("diagonal", dim2, self.shape())?,
        );
        if a == b {
            let message = format!("diagonal dimensions cannot be identical {dim1}, {dim2}");
            return Err(Error::op("diagonal", message));
        }
        if offset.checked_neg().is_none() {
            return Err(Error::op("diagonal", format!("offset {offset} is out of range")));
        }
        self.strided_view("diagonal", |layout| layout.diagonal(offset, a, b))
    }

    /// One number on the diagonal of a matrix, where both indices are equal.
    ///
    /// # Errors
    /// If this is no matrix, or a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn fill_diagonal_(&self, value: f64) -> Result<()> {
        if self.rank() != 2 {
            let message = format!("needs a matrix, got shape {:?}", self.shape());
            return Err(Error::op("fill_diagonal_", message));
        }
        self.diagonal(0, 0, 1)?.fill_(value)
    }

    /// The order along some axes reversed, without a copy.
    ///
    /// # Errors
    /// If there are no such axes or one is named twice.
    #[track_caller]
    pub fn flip(&self, dims: &[i64]) -> Result<Tensor> {
        let mut axes: Vec<usize> = Vec::new();
        for &dim in dims {
            let axis = shape::axis_or_scalar("flip", dim, self.shape())?;
            if axes.contains(&axis) {
                return Err(Error::op("flip", format!("{dims:?} names a dimension twice")));
            }
            axes.push(axis);
        }
        if self.rank() == 0 || self.numel() == 0 {
            return Ok(self.clone());
        }
        self.strided_view("flip", |layout| {
            axes.iter().try_fold(layout.clone(), |layout, &axis| {
                let extent = layout.shape()[axis];
                layout.slice(axis, extent - 1, -1, extent)
            })
        })
    }

    /// Elements `start`, `start + step`, .. before `end` along `dim`, as Python slices: ends count
    /// from the back where negative and are brought into range. A negative step goes from the last
    /// element, or `start`, towards the first; without an `end` it takes that too.
    ///
    /// # Errors
    /// If there is no such axis or `step` is 0.
    #[track_caller]
    pub fn slice_step(
        &self,
        dim: i64,
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    ) -> Result<Tensor> {
        let axis = shape::axis("slice", dim, self.shape())?;
        if step == 0 {
            return Err(Error::op("slice", "a step of 0 never ends"));
        }
        let extent = self.shape()[axis] as i64;
        // Where a walk may begin and end: from 0 to the extent, or from the last element to before 0.
        let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
        let clip = |at: i64| (if at < 0 { at + extent } else { at }).clamp(low, high);
        let (first, last) = if step > 0 { (low, high) } else { (high, low) };
        let (start, end) = (start.map_or(first, clip), end.map_or(last, clip));
        let reach = if step > 0 { end - start } else { start - end };
        let len = (reach.max(0) as u64).div_ceil(step.unsigned_abs()) as usize;
        let start = if len == 0 { 0 } else { start as usize };
        self.strided_view("slice", |layout| layout.slice(axis, start, step, len))
    }

    /// A view whose layout `of` derives from that of the operand; it may name no element twice.
    #[track_caller]
    pub(crate) fn strided_view(
        &self,
        name: &'static str,
        of: impl Fn(&Layout) -> Option<Layout>,
    ) -> Result<Tensor> {
        let (outer, inner) = seen(name, self, of)?;
        apply(StridedView { name, outer, inner, from: self.shape().to_vec() }, &[self])
    }

    /// A tensor of one value with this one in a view of it, whose layout `of` derives; it may name no element twice.
    #[track_caller]
    pub(crate) fn filled_in(
        &self,
        name: &'static str,
        shape: &[usize],
        value: f64,
        of: impl Fn(&Layout) -> Option<Layout> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        let inner = Layout::contiguous(shape).and_then(|dense| of(&dense));
        let inner = inner.ok_or_else(|| unseen(name, self))?;
        let of: Option<Derived> = Some(Box::new(of));
        apply(Fill { name, inner, from: shape.to_vec(), value, of }, &[self])
    }
}

/// What a view makes of the layout of a tensor, and of that of a dense one of its shape.
fn seen(
    name: &str,
    x: &Tensor,
    of: impl Fn(&Layout) -> Option<Layout>,
) -> Result<(Layout, Layout)> {
    let layouts = of(x.layout()).zip(Layout::contiguous(x.shape()).and_then(|dense| of(&dense)));
    layouts.ok_or_else(|| unseen(name, x))
}

fn unseen(name: &str, x: &Tensor) -> Error {
    let message =
        format!("the view leaves shape {:?} or has more elements than can be counted", x.shape());
    Error::op(name, message)
}

/// Another layout over the same storage.
struct StridedView {
    name: &'static str,
    outer: Layout,
    /// The same view of a dense tensor of shape `from`.
    inner: Layout,
    from: Vec<usize>,
}

impl Op for StridedView {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        Ok(Tensor::plain(x.storage().clone(), self.outer.clone(), x.dtype()))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (name, inner, from) = (self.name, self.inner.clone(), self.from.clone());
        let back = |layout: &Layout| view_back(&self.inner, &self.from, layout);
        if back(dy.layout()).is_some() {
            return Ok(vec![Some(dy.strided_view(name, back)?)]);
        }
        Ok(vec![Some(apply(Fill { name, inner, from, value: 0.0, of: None }, &[dy])?)])
    }
}

/// The layout by which the gradient of a view, which lies as `dy` says, is that of what was viewed, a tensor of shape `from`;
/// `view` is the layout of the view of a dense one. None where the view does not name each element once, along axes of its
/// own: then what it leaves out has a gradient of zero.
fn view_back(view: &Layout, from: &[usize], dy: &Layout) -> Option<Layout> {
    if view.numel() == 0 || view.numel() != shape::product(from) {
        return None;
    }
    let dense = shape::contiguous_strides(from);
    let mut strides: shape::Axes<i64> = dense.iter().copied().collect();
    let mut first = dy.offset() as i64;
    for (axis, &extent) in from.iter().enumerate().filter(|&(_, &extent)| extent > 1) {
        let is_own = |&k: &usize| {
            view.shape()[k] == extent && view.strides()[k].checked_abs() == Some(dense[axis])
        };
        let own = (0..view.rank()).find(is_own)?;
        let step = dy.strides()[own];
        strides[axis] = if view.strides()[own] < 0 { -step } else { step };
        if view.strides()[own] < 0 {
            first += (extent as i64 - 1) * step;
        }
    }
    Layout::new(from.iter().copied().collect(), strides, usize::try_from(first).ok()?)
}

/// The layout of a view, of that of a tensor of any strides.
type Derived = Box<dyn Fn(&Layout) -> Option<Layout> + Send + Sync>;

/// A value with a view filled in: the gradient of a view, where it is zero.
struct Fill {
    name: &'static str,
    inner: Layout,
    from: Vec<usize>,
    value: f64,
    /// The same view of what is not dense, where it is known.
    of: Option<Derived>,
}

impl Op for Fill {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let dy = inputs[0];
        let at = (dy.dtype(), dy.device());
        if let Some(before) = first_of_box(&self.inner, &self.from) {
            let result = Tensor::uninitialized(&self.from, at)?;
            let value = match dy.dtype() {
                dtype if dtype.is_float() => Scalar::float(dtype, self.value),
                dtype => Scalar::int(dtype, self.value as i64),
            };
            if launch::pad::boxed(dy, &result, &before, value)? {
                return Ok(result);
            }
        }
        let result = Tensor::full(&self.from, self.value, at)?;
        let view = Tensor::plain(result.storage().clone(), self.inner.clone(), dy.dtype());
        launch::cast(dy, &view)?;
        Ok(result)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (name, inner, from) = (self.name, self.inner.clone(), self.from.clone());
        if let Some(outer) = self.of.as_ref().and_then(|of| of(dy.layout())) {
            return Ok(vec![Some(apply(StridedView { name, outer, inner, from }, &[dy])?)]);
        }
        let dy = dy.contiguous()?;
        let first = dy.layout().offset() + inner.offset();
        let outer = inner.at(first).ok_or_else(|| unseen(name, &dy))?;
        Ok(vec![Some(apply(StridedView { name, outer, inner, from }, &[&dy])?)])
    }
}

/// Where a view of a dense tensor of this shape begins, if it is a box of it: as many axes, each walked by steps of one.
fn first_of_box(view: &Layout, shape: &[usize]) -> Option<Vec<usize>> {
    let dense = shape::contiguous_strides(shape);
    let is_step = |axis: usize| view.shape()[axis] <= 1 || view.strides()[axis] == dense[axis];
    if view.rank() != shape.len() || view.numel() == 0 || !(0..shape.len()).all(is_step) {
        return None;
    }
    let mut left = view.offset();
    let first = dense.iter().map(|&step| {
        let at = left / step as usize;
        left -= at * step as usize;
        at
    });
    let first: Vec<usize> = first.collect();
    let ends = first.iter().zip(view.shape()).map(|(at, extent)| at + extent);
    ends.zip(shape).all(|(end, &extent)| end <= extent).then_some(first)
}

/// Another layout over the same storage, which may name an element more than once.
struct OverlappingView {
    name: &'static str,
    outer: Layout,
    /// The same view of a dense tensor of shape `from`.
    inner: Layout,
    from: Vec<usize>,
}

impl Op for OverlappingView {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        Ok(Tensor::plain(x.storage().clone(), self.outer.clone(), x.dtype()))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let n = shape::product(&self.from);
        if dy.numel() > 0 && !self.inner.may_overlap() && self.inner.end() <= n {
            // Each place is named once: nothing is added.
            let (name, inner, from) = (self.name, self.inner.clone(), self.from.clone());
            return Ok(vec![Some(apply(Fill { name, inner, from, value: 0.0, of: None }, &[dy])?)]);
        }
        let places = places_of_layout(&self.inner, dy.device())?;
        Ok(vec![Some(add_at(dy, &places, n)?.reshape(&self.from)?)])
    }
}

/// Windows along an axis.
struct Windows {
    view: OverlappingView,
    axis: i64,
    size: usize,
    step: usize,
}

/// Windows that share an element, at most, whose gradients are added one after the other.
const SHARED: usize = 64;

impl Op for Windows {
    fn name(&self) -> &'static str {
        self.view.name()
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        self.view.forward(inputs)
    }

    /// Each so many windows share no element: a strided sum each.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let Windows { axis, size, step, .. } = *self;
        let count = dy.dim(axis)?;
        let apart = size.div_ceil(step).min(count);
        if is_grad_enabled() || apart > SHARED || dy.numel() == 0 {
            return self.view.backward(saved, dy);
        }
        let wide = launch::accumulate_dtype(dy.dtype());
        let dx = Tensor::zeros(&self.view.from, (wide, dy.device()))?;
        let windows = dx.unfold(axis, size, step)?;
        for first in 0..apart {
            let every = |t: &Tensor| t.slice_step(axis, Some(first as i64), None, apart as i64);
            let (own, part) = (every(&windows)?, every(dy)?);
            match apart {
                1 => own.copy_(&part)?,
                _ => own.add_(&part.to_dtype(wide)?)?,
            }
        }
        Ok(vec![Some(dx.to_dtype(dy.dtype())?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, WIDE, cpu};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "diagonal",
            Family::Exact,
            |x| x[0].diagonal(1, 0, 2),
            |x| Dense::from_fn(&[3, 2], |at| x[0].at(&[at[1], at[0], at[1] + 1])),
            &[&[&[2, 3, 4]]],
        )
        .peer("torch.diagonal(x[0], 1, 0, 2)")
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.diagonal(0, 1, 1),
            "diagonal: diagonal dimensions cannot be identical 1, 1",
        )]),
        OpInfo::new(
            "flip",
            Family::Exact,
            |x| x[0].flip(&[0, -1]),
            |x| Dense::from_fn(&[2, 3, 4], |at| x[0].at(&[1 - at[0], at[1], 3 - at[2]])),
            &[&[&[2, 3, 4]]],
        )
        .peer("torch.flip(x[0], (0, -1))"),
        OpInfo::new(
            "slice_step",
            Family::Exact,
            |x| x[0].slice_step(2, Some(-6), Some(99), 2),
            |x| Dense::from_fn(&[2, 3, 3], |at| x[0].at(&[at[0], at[1], 1 + 2 * at[2]])),
            &[&[&[2, 3, 7]]],
        )
        .peer("x[0][:, :, -6:99:2]"),
        OpInfo::new(
            "unfold",
            Family::Exact,
            |x| x[0].unfold(0, 3, 2),
            |x| Dense::from_fn(&[3, 2, 3], |at| x[0].at(&[at[0] * 2 + at[2], at[1]])),
            &[&[&[8, 2]]],
        )
        .peer("x[0].unfold(0, 3, 2)")
        .refusing(&[
            (
                || cpu(&[2], DType::F32)?.unfold(0, 3, 1),
                "unfold: a window of 3 does not fit dimension 0 of shape [2]",
            ),
            (|| cpu(&[2], DType::F32)?.unfold(0, 1, 0), "unfold: a step of 0 never ends"),
            (
                || cpu(&[5], DType::F32)?.slice_step(0, None, None, 0),
                "slice: a step of 0 never ends",
            ),
        ]),
        OpInfo::new(
            "as_strided",
            Family::Exact,
            |x| x[0].contiguous()?.as_strided(&[3, 2], &[2, 1], 1),
            |x| Dense::from_fn(&[3, 2], |at| x[0].data[1 + 2 * at[0] + at[1]]),
            &[&[&[3, 3]]],
        )
        .peer("x[0].contiguous().as_strided((3, 2), (2, 1), 1)")
        .of(WIDE)
        .refusing(&[(
            || cpu(&[4], DType::F32)?.as_strided(&[3], &[2], 0),
            "as_strided: shape [3] with strides [2] leaves a storage of 4",
        )]),
    ];
}
