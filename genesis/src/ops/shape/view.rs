//! Views: other shapes over the same storage. None of them launches a kernel, except `reshape`
//! where the strides leave no other way.

use std::ops::{Bound, RangeBounds};

use genesis_kernel::runtime::origin;

use crate::autograd::parts::{Place, padded};
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, apply, unbroadcast};
use crate::shape::{self, Layout};
use crate::tensor::Tensor;

impl Tensor {
    /// The same elements in row-major order as another shape; one extent may be -1.
    ///
    /// A view where the strides allow it, else a copy.
    ///
    /// # Errors
    /// If the number of elements differs.
    #[track_caller]
    pub fn view(&self, dims: &[i64]) -> Result<Tensor> {
        self.reshape(&shape::infer_shape("view", dims, self.shape())?)
    }

    /// The same elements in row-major order as another shape.
    ///
    /// A view where the strides allow it, else a copy.
    ///
    /// # Errors
    /// If the number of elements differs.
    #[track_caller]
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        if shape == self.shape() {
            return Ok(self.clone());
        }
        if shape::count(shape) != Some(self.numel()) {
            let message = format!("can't view shape {:?} as {shape:?}", self.shape());
            return Err(Error::op("reshape", message));
        }
        match self.layout().reshape(shape) {
            Some(layout) => self.apply_view("reshape", layout, ViewKind::Reshape),
            None => self.copy()?.reshape(shape),
        }
    }

    /// All axes from `start` to `end`, both inclusive, joined to one.
    ///
    /// # Errors
    /// If there are no such axes.
    #[track_caller]
    pub fn flatten(&self, start: i64, end: i64) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.reshape(&[1]);
        }
        let start = shape::axis("flatten", start, self.shape())?;
        let end = shape::axis("flatten", end, self.shape())?;
        if start > end {
            return Err(Error::op("flatten", format!("axis {start} comes after axis {end}")));
        }
        let (head, rest) = self.shape().split_at(start);
        let (middle, tail) = rest.split_at(end - start + 1);
        self.reshape(&[head, &[shape::product(middle)], tail].concat())
    }

    /// The axes in another order: axis `i` of the result is axis `dims[i]`.
    ///
    /// # Errors
    /// If `dims` is not a permutation of the axes.
    #[track_caller]
    pub fn permute(&self, dims: &[i64]) -> Result<Tensor> {
        let perm: Result<Vec<usize>> =
            dims.iter().map(|&d| shape::axis("permute", d, self.shape())).collect();
        let perm = perm?;
        let layout = self.layout().permute(&perm).ok_or_else(|| {
            let message = format!("{dims:?} does not name each axis of {:?} once", self.shape());
            Error::op("permute", message)
        })?;
        self.apply_view("permute", layout, ViewKind::Permute(perm))
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// If there are no such axes.
    #[track_caller]
    pub fn transpose(&self, a: i64, b: i64) -> Result<Tensor> {
        let a = shape::axis("transpose", a, self.shape())?;
        let b = shape::axis("transpose", b, self.shape())?;
        let mut perm: Vec<i64> = (0..self.rank() as i64).collect();
        perm.swap(a, b);
        self.permute(&perm)
    }

    /// The last two axes exchanged.
    ///
    /// # Errors
    /// If there are fewer than two.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        self.transpose(-2, -1)
    }

    /// Repeated along new leading axes and axes of extent 1, without a copy.
    ///
    /// # Errors
    /// If another extent would have to change.
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        if shape == self.shape() {
            return Ok(self.clone());
        }
        shape::numel("broadcast_to", shape)?;
        let layout = self.layout().broadcast_to(shape).ok_or_else(|| {
            Error::op("broadcast_to", format!("{:?} does not broadcast to {shape:?}", self.shape()))
        })?;
        self.apply_view("broadcast_to", layout, ViewKind::Broadcast)
    }

    /// Without the axis `dim`, which must have extent 1.
    ///
    /// # Errors
    /// If it has another extent.
    #[track_caller]
    pub fn squeeze(&self, dim: i64) -> Result<Tensor> {
        let axis = shape::axis("squeeze", dim, self.shape())?;
        if self.shape()[axis] != 1 {
            let message = format!("dimension {dim} of {:?} is not 1", self.shape());
            return Err(Error::op("squeeze", message));
        }
        let mut shape = self.shape().to_vec();
        shape.remove(axis);
        self.reshape(&shape)
    }

    /// With a new axis of extent 1 at `dim`.
    ///
    /// # Errors
    /// If `dim` is out of range.
    #[track_caller]
    pub fn unsqueeze(&self, dim: i64) -> Result<Tensor> {
        let mut shape = self.shape().to_vec();
        shape.push(1);
        let axis = shape::axis("unsqueeze", dim, &shape)?;
        shape.pop();
        shape.insert(axis, 1);
        self.reshape(&shape)
    }

    /// `len` elements from `start` along `dim`.
    ///
    /// # Errors
    /// If they are not all there.
    #[track_caller]
    pub fn narrow(&self, dim: i64, start: usize, len: usize) -> Result<Tensor> {
        let (axis, layout) = self.narrowed(dim, start, len)?;
        let from = self.shape().to_vec();
        self.apply_view("narrow", layout, ViewKind::Slice { from, axis, start, step: 1 })
    }

    /// The axis that `dim` names, and the layout of `len` elements along it.
    #[track_caller]
    fn narrowed(&self, dim: i64, start: usize, len: usize) -> Result<(usize, Layout)> {
        let axis = shape::axis("narrow", dim, self.shape())?;
        let layout = self.layout().slice(axis, start, 1, len).ok_or_else(|| {
            let message = format!(
                "{len} elements from {start} are not in dimension {dim} of shape {:?}",
                self.shape()
            );
            Error::op("narrow", message)
        })?;
        Ok((axis, layout))
    }

    /// The elements of a range along `dim`: `x.slice(0, 2..5)`, `x.slice(-1, ..8)`.
    ///
    /// # Errors
    /// If they are not all there.
    #[track_caller]
    pub fn slice(&self, dim: i64, range: impl RangeBounds<usize>) -> Result<Tensor> {
        let axis = shape::axis("slice", dim, self.shape())?;
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.shape()[axis]),
        };
        let (Some(start), Some(end)) = (start, end) else {
            let message = format!("the range leaves dimension {dim} of shape {:?}", self.shape());
            return Err(Error::op("slice", message));
        };
        self.narrow(dim, start, end.saturating_sub(start))
    }

    /// Every `step`-th element along `dim`.
    ///
    /// # Errors
    /// If `step` is 0.
    #[track_caller]
    pub fn step(&self, dim: i64, step: usize) -> Result<Tensor> {
        let axis = shape::axis("step", dim, self.shape())?;
        if step == 0 {
            return Err(Error::op("step", "a step of 0 never ends"));
        }
        let len = self.shape()[axis].div_ceil(step);
        // Any step beyond the axis takes its first element alone.
        let step = step.min(i64::MAX as usize);
        let layout = sliced("step", self, (axis, 0, step, len))?;
        let from = self.shape().to_vec();
        self.apply_view("step", layout, ViewKind::Slice { from, axis, start: 0, step })
    }

    /// Element `index` along `dim`, without that axis.
    ///
    /// # Errors
    /// If it is not there.
    #[track_caller]
    pub fn select(&self, dim: i64, index: usize) -> Result<Tensor> {
        let (axis, layout) = self.narrowed(dim, index, 1)?;
        let mut shape = self.shape().to_vec();
        shape.remove(axis);
        let Some(layout) = layout.reshape(&shape) else {
            return self.narrow(dim, index, 1)?.reshape(&shape);
        };
        let from = self.shape().to_vec();
        self.apply_view("select", layout, ViewKind::Select { from, axis, index })
    }

    /// A batch of this alone, as a kernel takes it: the same memory, and no part of a history.
    pub(crate) fn as_batch(&self) -> Tensor {
        Tensor::plain(self.storage().clone(), self.layout().batch(), self.dtype())
    }

    #[track_caller]
    fn apply_view(&self, name: &'static str, layout: Layout, kind: ViewKind) -> Result<Tensor> {
        if self.is_viewed_inside() {
            let view = Tensor::plain(self.storage().clone(), layout, self.dtype());
            view.note_view(self);
            return Ok(view);
        }
        apply(View { name, layout, from: self.shape().to_vec(), kind }, &[self])
    }

    /// Whether a view made now is a part of the op at work and no op of its own: one of which nothing is
    /// recorded. A product of matrices makes three for its kernel, which takes batches.
    fn is_viewed_inside(&self) -> bool {
        let is_recorded = is_grad_enabled() && self.requires_grad();
        !is_recorded && !origin().op.is_empty() && !trace::is_on()
    }
}

/// Another layout over the same storage.
struct View {
    name: &'static str,
    layout: Layout,
    from: Vec<usize>,
    kind: ViewKind,
}

/// How a view came about; its gradient goes the other way.
enum ViewKind {
    Reshape,
    Permute(Vec<usize>),
    Broadcast,
    Slice { from: Vec<usize>, axis: usize, start: usize, step: usize },
    Select { from: Vec<usize>, axis: usize, index: usize },
}

impl Op for View {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let storage = x.storage().clone();
        Ok(Tensor::plain(storage, self.layout.clone(), x.dtype()))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dx = match &self.kind {
            ViewKind::Reshape => dy.reshape(&self.from)?,
            ViewKind::Permute(perm) => dy.permute(&inverse(perm))?,
            ViewKind::Broadcast => unbroadcast(dy, &self.from)?,
            ViewKind::Slice { from, axis, start, step } => {
                let (from, axis, start, step) = (from.clone(), *axis, *start, *step);
                let len = dy.shape()[axis];
                apply(Scatter { from, axis, start, step, len }, &[dy])?
            }
            ViewKind::Select { from, axis, index } => {
                let (from, axis, start) = (from.clone(), *axis, *index);
                let dy = dy.unsqueeze(axis as i64)?;
                apply(Scatter { from, axis, start, step: 1, len: 1 }, &[&dy])?
            }
        };
        Ok(vec![Some(dx)])
    }

    fn place(&self) -> Option<Place> {
        let (from, axis, start) = match &self.kind {
            ViewKind::Slice { from, axis, start, step: 1 } => (from, *axis, *start),
            ViewKind::Select { from, axis, index } => (from, *axis, *index),
            _ => return None,
        };
        Some(Place { from: from.clone(), axis, start })
    }
}

fn inverse(perm: &[usize]) -> Vec<i64> {
    let mut inverse = vec![0; perm.len()];
    for (to, &from) in perm.iter().enumerate() {
        inverse[from] = to as i64;
    }
    inverse
}

/// The layout of `len` elements of a tensor from `start` along an axis, `step` apart.
fn sliced(
    op: &str,
    x: &Tensor,
    (axis, start, step, len): (usize, usize, usize, usize),
) -> Result<Layout> {
    let layout = x.layout().slice(axis, start, step as i64, len);
    layout.ok_or_else(|| {
        let message = format!(
            "{len} elements from {start}, {step} apart, are not in dimension {axis} of shape {:?}",
            x.shape()
        );
        Error::op(op, message)
    })
}

/// Zeros with a slice filled in: the gradient of a slice.
struct Scatter {
    from: Vec<usize>,
    axis: usize,
    start: usize,
    step: usize,
    len: usize,
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "narrow"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let dy = inputs[0];
        if self.step == 1 {
            let place = Place { from: self.from.clone(), axis: self.axis, start: self.start };
            return padded(dy, &place);
        }
        let result = Tensor::zeros(&self.from, (dy.dtype(), dy.device()))?;
        let layout = sliced("narrow", &result, (self.axis, self.start, self.step, self.len))?;
        let slice = Tensor::plain(result.storage().clone(), layout, dy.dtype());
        launch::cast(dy, &slice)?;
        Ok(result)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (axis, from) = (self.axis, dy.shape().to_vec());
        let kind = ViewKind::Slice { from, axis, start: self.start, step: self.step };
        let slice = sliced("narrow", dy, (axis, self.start, self.step, self.len))?;
        let narrowed = dy.apply_view("narrow", slice, kind)?;
        Ok(vec![Some(narrowed)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::info::{Dense, Family, NUMBERS, OpInfo, Sample, cpu};
    use genesis_kernel::ir::DType;

    const SAMPLES: &[Sample] = &[&[&[2, 3, 4]]];

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "reshape",
            Family::Exact,
            |x| x[0].reshape(&[x[0].shape()[0] * x[0].shape()[1], x[0].shape()[2]]),
            |x| Dense { shape: vec![6, 4], data: x[0].data.clone() },
            SAMPLES,
        )
        .peer("x[0].reshape(-1, x[0].shape[2])")
        .of(NUMBERS),
        OpInfo::new(
            "permute",
            Family::Exact,
            |x| x[0].permute(&[2, 0, 1])?.contiguous(),
            |x| Dense::from_fn(&[4, 2, 3], |at| x[0].at(&[at[1], at[2], at[0]])),
            SAMPLES,
        )
        .peer("x[0].permute(2, 0, 1).contiguous()")
        .of(NUMBERS),
        OpInfo::new(
            "narrow",
            Family::Exact,
            |x| x[0].narrow(1, 1, 2)?.copy(),
            |x| Dense::from_fn(&[2, 2, 4], |at| x[0].at(&[at[0], at[1] + 1, at[2]])),
            SAMPLES,
        )
        .peer("x[0].narrow(1, 1, 2).contiguous()")
        .of(NUMBERS),
        OpInfo::new(
            "step",
            Family::Exact,
            |x| x[0].step(2, 2)?.copy(),
            |x| Dense::from_fn(&[2, 3, 2], |at| x[0].at(&[at[0], at[1], at[2] * 2])),
            SAMPLES,
        )
        .peer("x[0][:, :, ::2].contiguous()")
        .of(NUMBERS),
        OpInfo::new(
            "broadcast_to",
            Family::Exact,
            |x| x[0].broadcast_to(&[&[3], x[0].shape()].concat())?.copy(),
            |x| Dense::from_fn(&[3, 2, 3, 4], |at| x[0].at(&at[1..])),
            SAMPLES,
        )
        .peer("x[0].expand(3, *x[0].shape).contiguous()")
        .of(NUMBERS),
        OpInfo::new(
            "view",
            Family::Exact,
            |x| x[0].contiguous()?.view(&[-1, 4]),
            |x| Dense { shape: vec![6, 4], data: x[0].data.clone() },
            SAMPLES,
        )
        .peer("x[0].contiguous().view(-1, 4)"),
        OpInfo::new(
            "flatten",
            Family::Exact,
            |x| x[0].flatten(0, 1),
            |x| Dense { shape: vec![6, 4], data: x[0].data.clone() },
            SAMPLES,
        )
        .peer("torch.flatten(x[0], 0, 1)"),
        OpInfo::new(
            "transpose",
            Family::Exact,
            |x| x[0].transpose(0, 2),
            |x| Dense::from_fn(&[4, 3, 2], |at| x[0].at(&[at[2], at[1], at[0]])),
            SAMPLES,
        )
        .peer("torch.transpose(x[0], 0, 2)"),
        OpInfo::new(
            "t",
            Family::Exact,
            |x| x[0].t(),
            |x| Dense::from_fn(&[2, 4, 3], |at| x[0].at(&[at[0], at[2], at[1]])),
            SAMPLES,
        )
        .peer("x[0].mT"),
        OpInfo::new(
            "squeeze",
            Family::Exact,
            |x| x[0].squeeze(1),
            |x| Dense { shape: vec![3, 2], data: x[0].data.clone() },
            &[&[&[3, 1, 2]]],
        )
        .peer("torch.squeeze(x[0], 1)")
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.squeeze(1),
            "squeeze: dimension 1 of [2, 3] is not 1",
        )]),
        OpInfo::new(
            "unsqueeze",
            Family::Exact,
            |x| x[0].unsqueeze(-1),
            |x| Dense { shape: vec![3, 2, 1], data: x[0].data.clone() },
            &[&[&[3, 2]]],
        )
        .peer("torch.unsqueeze(x[0], -1)"),
        OpInfo::new(
            "slice",
            Family::Exact,
            |x| x[0].slice(1, 1..),
            |x| Dense::from_fn(&[2, 2, 4], |at| x[0].at(&[at[0], at[1] + 1, at[2]])),
            SAMPLES,
        )
        .peer("x[0][:, 1:]"),
        OpInfo::new(
            "select",
            Family::Exact,
            |x| x[0].select(1, 2),
            |x| Dense::from_fn(&[2, 4], |at| x[0].at(&[at[0], 2, at[1]])),
            SAMPLES,
        )
        .peer("torch.select(x[0], 1, 2)"),
    ];
}
