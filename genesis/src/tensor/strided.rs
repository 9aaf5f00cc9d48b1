//! Views by strides: any layout over the same storage, diagonals, flips.
//!
//! The gradient of a view goes back through the same layout over a dense tensor of the operand's shape:
//! zeros, into which `dy` is copied. Where a view may name an element twice, as those of
//! [`Tensor::as_strided`] and [`Tensor::unfold`], `dy` is added at the places that it names.

use super::Tensor;
use crate::autograd::{GradMeta, SavedTensors, is_grad_enabled};
use crate::error::{Error, Result};
use crate::ops::{Op, add_at, apply, launch, places_of_layout};
use crate::shape::{self, Axes, Layout};

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
        shape::check_numel(NAME, shape)?;
        let first = (self.layout().offset as i128) + offset as i128;
        let (mut low, mut high) = (first, first);
        let is_empty = shape.contains(&0);
        for (&extent, &stride) in shape.iter().zip(strides) {
            let reach = (extent.max(1) as i128 - 1).saturating_mul(i128::from(stride));
            if reach < 0 {
                low = low.saturating_add(reach)
            } else {
                high = high.saturating_add(reach)
            }
        }
        let len = (self.storage().bytes() / self.dtype().bytes()) as i128;
        if !is_empty && (low < 0 || high >= len) {
            let message =
                format!("shape {shape:?} with strides {strides:?} leaves a storage of {len}");
            return Err(Error::op(NAME, message));
        }
        let own = if is_empty { 0 } else { offset };
        let at = |offset| Layout { shape: shape.into(), strides: strides.into(), offset };
        let (outer, inner) = (at(self.layout().offset + own), at(own));
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
        let of = |layout: &Layout| {
            let mut windows = layout.clone();
            windows.shape[axis] = (extent - size) / step + 1;
            windows.strides[axis] *= step as i64;
            windows.shape.push(size);
            windows.strides.push(layout.strides[axis]);
            windows
        };
        let (outer, inner) = (of(x.layout()), of(&Layout::contiguous(x.shape())));
        let view = OverlappingView { name: NAME, outer, inner, from: x.shape().to_vec() };
        let windows = apply(view, &[&x])?;
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
        let of = |layout: &Layout| diagonal_of(layout, offset, a, b);
        self.strided_view("diagonal", of)
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
            axes.iter().fold(layout.clone(), |layout, &axis| {
                let extent = layout.shape[axis];
                layout.slice(axis, extent - 1, -1, extent)
            })
        })
    }

    /// Elements `start`, `start + step`, .. below `end` along `dim`, as Python slices: ends count
    /// from the back where negative and are brought into range.
    ///
    /// # Errors
    /// If there is no such axis or `step` is not positive.
    #[track_caller]
    pub fn slice_step(
        &self,
        dim: i64,
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    ) -> Result<Tensor> {
        let axis = shape::axis("slice", dim, self.shape())?;
        if step <= 0 {
            return Err(Error::op("slice", format!("the step must be positive, got {step}")));
        }
        let extent = self.shape()[axis] as i64;
        let clip = |end: i64| if end < 0 { (end + extent).max(0) } else { end.min(extent) };
        let (start, end) = (clip(start.unwrap_or(0)), clip(end.unwrap_or(extent)));
        let len = ((end - start).max(0) as usize).div_ceil(step as usize);
        let start = if len == 0 { 0 } else { start as usize };
        self.strided_view("slice", |layout| layout.slice(axis, start, step, len))
    }

    /// A view whose layout `of` derives from that of the operand; it may name no element twice.
    #[track_caller]
    pub(crate) fn strided_view(
        &self,
        name: &'static str,
        of: impl Fn(&Layout) -> Layout,
    ) -> Result<Tensor> {
        let inner = of(&Layout::contiguous(self.shape()));
        let view =
            StridedView { name, outer: of(self.layout()), inner, from: self.shape().to_vec() };
        apply(view, &[self])
    }
}

fn diagonal_of(layout: &Layout, offset: i64, a: usize, b: usize) -> Layout {
    let (down, right) = ((-offset).max(0) as usize, offset.max(0) as usize);
    let rows = layout.shape[a].saturating_sub(down);
    let cols = layout.shape[b].saturating_sub(right);
    let mut result = layout.clone();
    let len = rows.min(cols);
    if len > 0 {
        let skipped = down as i64 * layout.strides[a] + right as i64 * layout.strides[b];
        result.offset = (layout.offset as i64 + skipped) as usize;
    }
    let stride = layout.strides[a] + layout.strides[b];
    for axis in [a.max(b), a.min(b)] {
        result.shape = without(&result.shape, axis);
        result.strides = without(&result.strides, axis);
    }
    result.shape.push(len);
    result.strides.push(stride);
    result
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
        let (storage, meta) = (inputs[0].storage().clone(), GradMeta::detached());
        Ok(Tensor::from_parts(storage, self.outer.clone(), inputs[0].dtype(), meta))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (name, inner, from) = (self.name, self.inner.clone(), self.from.clone());
        Ok(vec![Some(apply(Fill { name, inner, from }, &[dy])?)])
    }
}

/// Zeros with a view of them filled in: the gradient of a view.
struct Fill {
    name: &'static str,
    inner: Layout,
    from: Vec<usize>,
}

impl Op for Fill {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let dy = inputs[0];
        let result = Tensor::zeros(&self.from, (dy.dtype(), dy.device()))?;
        let (storage, meta) = (result.storage().clone(), GradMeta::detached());
        let view = Tensor::from_parts(storage, self.inner.clone(), dy.dtype(), meta);
        launch::cast(dy, &view)?;
        Ok(result)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dy = dy.contiguous()?;
        let mut outer = self.inner.clone();
        outer.offset += dy.layout().offset;
        let view = StridedView {
            name: self.name,
            outer,
            inner: self.inner.clone(),
            from: self.from.clone(),
        };
        Ok(vec![Some(apply(view, &[&dy])?)])
    }
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
        let (storage, meta) = (inputs[0].storage().clone(), GradMeta::detached());
        Ok(Tensor::from_parts(storage, self.outer.clone(), inputs[0].dtype(), meta))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let places = places_of_layout(&self.inner, dy.device())?;
        let n = self.from.iter().product();
        Ok(vec![Some(add_at(dy, &places, n)?.reshape(&self.from)?)])
    }
}
/// The numbers of all axes but one.
fn without<T: Copy + Default>(of: &Axes<T>, axis: usize) -> Axes<T> {
    of.iter().enumerate().filter(|&(a, _)| a != axis).map(|(_, &n)| n).collect()
}
