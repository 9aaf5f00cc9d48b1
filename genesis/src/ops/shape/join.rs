//! Several tensors as one, and one as several: `cat`, `stack`, `split`, `chunk`, `repeat`, `roll`.

use genesis_kernel::ir::Scalar;

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, promote};
use crate::shape;
use crate::tensor::{Tensor, host};

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[("cat", Precision::Widest), ("stack", Precision::Widest)];

impl Tensor {
    /// The tensors one after the other along `dim`; dtypes promote. One without elements and with one
    /// axis only is left out, as in PyTorch; of such alone the result is one more, whatever `dim`.
    ///
    /// # Errors
    /// If there is none, or they differ in another extent, in rank or in device.
    #[track_caller]
    pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
        let dtype = promote::result_type(tensors);
        let is_nothing = |t: &Tensor| t.shape() == [0];
        // Where nothing is left PyTorch does not look at `dim` either.
        let (some, dim): (Vec<&Tensor>, i64) = match tensors.iter().any(|t| !is_nothing(t)) {
            true => (tensors.iter().copied().filter(|t| !is_nothing(t)).collect(), dim),
            false => (tensors.to_vec(), 0),
        };
        let Some(first) = some.first() else {
            return Err(Error::op("cat", "needs at least one tensor"));
        };
        if first.rank() == 0 {
            return Err(Error::op("cat", "needs at least 1 dimension(s), got shape []"));
        }
        let axis = shape::axis("cat", dim, first.shape())?;
        for other in &some[1..] {
            let fits = other.rank() == first.rank()
                && (0..first.rank()).all(|a| a == axis || other.shape()[a] == first.shape()[a]);
            if !fits {
                let message = format!(
                    "shapes differ beside dimension {dim}, {:?} and {:?}",
                    first.shape(),
                    other.shape()
                );
                return Err(Error::op("cat", message));
            }
            if other.device() != first.device() {
                let message = format!("devices differ, {} and {}", first.device(), other.device());
                return Err(Error::op("cat", message));
            }
        }
        let parts: Vec<Tensor> = some.iter().map(|t| t.to_dtype(dtype)).collect::<Result<_>>()?;
        let extents: Vec<usize> = parts.iter().map(|t| t.shape()[axis]).collect();
        if sum_of(&extents).is_none() {
            return Err(Error::op(
                "cat",
                format!("{extents:?} add up to more than can be counted"),
            ));
        }
        apply(Cat { axis, extents }, &parts.iter().collect::<Vec<_>>())
    }

    /// The tensors along a new axis.
    ///
    /// # Errors
    /// If there is none, or shapes or devices differ.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::op("stack", "needs at least one tensor"));
        };
        if let Some(other) = tensors.iter().find(|t| t.shape() != first.shape()) {
            let message = format!("shapes differ, {:?} and {:?}", first.shape(), other.shape());
            return Err(Error::op("stack", message));
        }
        let parts: Vec<Tensor> = tensors.iter().map(|t| t.unsqueeze(dim)).collect::<Result<_>>()?;
        let dim = if dim < 0 { dim + first.rank() as i64 + 1 } else { dim };
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), dim)
    }

    /// Views of these extents along `dim`.
    ///
    /// # Errors
    /// If they do not add up to the extent of that dimension.
    #[track_caller]
    pub fn split_sizes(&self, sizes: &[usize], dim: i64) -> Result<Vec<Tensor>> {
        let axis = shape::axis("split", dim, self.shape())?;
        if sum_of(sizes) != Some(self.shape()[axis]) {
            let message =
                format!("{sizes:?} do not add up to dimension {dim} of shape {:?}", self.shape());
            return Err(Error::op("split", message));
        }
        let mut start = 0;
        let part = |&size: &usize| {
            start += size;
            self.narrow(dim, start - size, size)
        };
        sizes.iter().map(part).collect()
    }

    /// Views of `size` elements along `dim`; the last may have fewer.
    ///
    /// # Errors
    /// If there is no such dimension or `size` is 0.
    #[track_caller]
    pub fn split(&self, size: usize, dim: i64) -> Result<Vec<Tensor>> {
        let extent = self.shape()[shape::axis("split", dim, self.shape())?];
        if size == 0 && extent > 0 {
            return Err(Error::op("split", "parts of 0 elements never end"));
        }
        if extent == 0 {
            return Ok(vec![self.narrow(dim, 0, 0)?]);
        }
        host::check_views("split", extent.div_ceil(size))?;
        let starts = (0..extent).step_by(size);
        starts.map(|start| self.narrow(dim, start, size.min(extent - start))).collect()
    }

    /// At most `count` views of equal extent along `dim`; the last may be smaller.
    ///
    /// # Errors
    /// If there is no such dimension or `count` is 0.
    #[track_caller]
    pub fn chunk(&self, count: usize, dim: i64) -> Result<Vec<Tensor>> {
        let extent = self.shape()[shape::axis("chunk", dim, self.shape())?];
        if count == 0 {
            return Err(Error::op("chunk", "needs at least one chunk"));
        }
        if extent == 0 {
            host::check_views("chunk", count)?;
            return (0..count).map(|_| self.narrow(dim, 0, 0)).collect();
        }
        self.split(extent.div_ceil(count), dim)
    }

    /// Every slice along `dim`, without that axis.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn unbind(&self, dim: i64) -> Result<Vec<Tensor>> {
        let extent = self.shape()[shape::axis("unbind", dim, self.shape())?];
        host::check_views("unbind", extent)?;
        (0..extent).map(|index| self.select(dim, index)).collect()
    }

    /// The tensor as many times along each axis; more counts than axes make new leading axes.
    ///
    /// # Errors
    /// If there are fewer counts than axes.
    #[track_caller]
    pub fn repeat(&self, counts: &[usize]) -> Result<Tensor> {
        let Some(new) = counts.len().checked_sub(self.rank()) else {
            let message = format!("{counts:?} has fewer counts than shape {:?} axes", self.shape());
            return Err(Error::op("repeat", message));
        };
        let (mut once, mut many, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        for (axis, &count) in counts.iter().enumerate() {
            let extent = if axis < new { 1 } else { self.shape()[axis - new] };
            once.extend([1, extent]);
            many.extend([count, extent]);
            joined.push(count.checked_mul(extent).ok_or_else(|| {
                let message = format!("{counts:?} times shape {:?} can't be counted", self.shape());
                Error::op("repeat", message)
            })?);
        }
        shape::numel("repeat", &joined)?;
        self.reshape(&once)?.broadcast_to(&many)?.reshape(&joined)?.contiguous()
    }

    /// Every element `count` times in a row along `dim`.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn repeat_interleave(&self, count: usize, dim: i64) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.reshape(&[1])?.repeat_interleave(count, dim);
        }
        let axis = shape::axis("repeat_interleave", dim, self.shape())?;
        let mut wide = self.shape().to_vec();
        wide.insert(axis + 1, count);
        let mut joined = self.shape().to_vec();
        joined[axis] = joined[axis].checked_mul(count).ok_or_else(|| {
            let message =
                format!("{count} times dimension {dim} of {:?} can't be counted", self.shape());
            Error::op("repeat_interleave", message)
        })?;
        shape::numel("repeat_interleave", &joined)?;
        let x = self.unsqueeze(axis as i64 + 1)?;
        x.broadcast_to(&wide)?.reshape(&joined)?.contiguous()
    }

    /// The elements moved `shift` places along `dim`; those that leave at the end come in at the start.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn roll(&self, shift: i64, dim: i64) -> Result<Tensor> {
        if self.numel() == 0 || self.rank() == 0 {
            return Ok(self.clone());
        }
        self.dim(dim)?;
        apply(Roll { shift, dim }, &[self])
    }

    /// Axes moved to other places; the others keep their order.
    ///
    /// # Errors
    /// If an axis is not there or named twice, or the lists differ in length.
    #[track_caller]
    pub fn movedim(&self, source: &[i64], destination: &[i64]) -> Result<Tensor> {
        let axes = |dims: &[i64]| -> Result<Vec<usize>> {
            dims.iter().map(|&d| shape::axis("movedim", d, self.shape())).collect()
        };
        let (from, to) = (axes(source)?, axes(destination)?);
        let twice = |axes: &[usize]| axes.iter().enumerate().any(|(i, a)| axes[..i].contains(a));
        if from.len() != to.len() || twice(&from) || twice(&to) {
            let message = format!("{source:?} and {destination:?} do not pair distinct axes");
            return Err(Error::op("movedim", message));
        }
        let mut rest = (0..self.rank()).filter(|axis| !from.contains(axis));
        let order = (0..self.rank()).map(|place| match to.iter().position(|&t| t == place) {
            Some(index) => from[index] as i64,
            None => rest.next().map_or(0, |axis| axis as i64),
        });
        self.permute(&order.collect::<Vec<_>>())
    }

    /// Without the axes of `dims` that have extent 1; the others of them stay.
    ///
    /// # Errors
    /// If an axis is not there.
    #[track_caller]
    pub fn squeeze_dims(&self, dims: &[i64]) -> Result<Tensor> {
        let axes: Vec<usize> = dims
            .iter()
            .map(|&d| shape::axis_or_scalar("squeeze", d, self.shape()))
            .collect::<Result<_>>()?;
        let kept = self.shape().iter().enumerate();
        let kept = kept.filter(|(axis, extent)| **extent != 1 || !axes.contains(axis));
        self.reshape(&kept.map(|(_, &extent)| extent).collect::<Vec<_>>())
    }

    /// A view of another shape in which -1 keeps an extent and axes of extent 1 repeat.
    ///
    /// # Errors
    /// If an extent of more than 1 would have to change.
    #[track_caller]
    pub fn expand(&self, dims: &[i64]) -> Result<Tensor> {
        let refuse =
            || Error::op("expand", format!("{:?} does not expand to {dims:?}", self.shape()));
        let new = dims.len().checked_sub(self.rank()).ok_or_else(refuse)?;
        let extent = |(axis, &dim): (usize, &i64)| match dim {
            -1 if axis >= new => Ok(self.shape()[axis - new]),
            d => usize::try_from(d).map_err(|_| refuse()),
        };
        let shape: Vec<usize> = dims.iter().enumerate().map(extent).collect::<Result<_>>()?;
        self.broadcast_to(&shape)
    }
}

/// The sum of extents, if it is a number.
fn sum_of(extents: &[usize]) -> Option<usize> {
    extents.iter().try_fold(0usize, |sum, &extent| sum.checked_add(extent))
}

/// Tensors one after the other along an axis.
struct Cat {
    axis: usize,
    extents: Vec<usize>,
}

impl Op for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let mut shape = inputs[0].shape().to_vec();
        shape[self.axis] = sum_of(&self.extents).unwrap_or(usize::MAX);
        let dtype = inputs[0].dtype();
        let result = Tensor::uninitialized(&shape, (dtype, inputs[0].device()))?;
        let mut start = 0;
        let part = |(&input, &extent): (&&Tensor, &usize)| {
            let layout = result.layout().slice(self.axis, start, 1, extent);
            let layout = layout.ok_or_else(|| Error::op("cat", "the parts exceed their sum"))?;
            start += extent;
            let to = Tensor::plain(result.storage().clone(), layout, dtype);
            Ok::<_, Error>((Some(input.clone()), to))
        };
        let parts = inputs.iter().zip(&self.extents).map(part).collect::<Result<Vec<_>>>()?;
        launch::join::copies(&parts, Scalar::int(dtype, 0))?;
        Ok(result)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let parts = dy.split_sizes(&self.extents, self.axis as i64)?;
        Ok(parts.into_iter().map(Some).collect())
    }
}

/// Elements moved along an axis, around its end; back in the gradient.
struct Roll {
    shift: i64,
    dim: i64,
}

impl Op for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, dim) = (inputs[0], self.dim);
        let extent = x.dim(dim)?;
        let at = extent - self.shift.rem_euclid(extent as i64) as usize;
        let (head, tail) = (x.narrow(dim, 0, at)?, x.narrow(dim, at, extent - at)?);
        Tensor::cat(&[&tail, &head], dim)
    }

    fn saves(&self) -> Saves {
        Saves::NOTHING
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.roll(-(self.shift % dy.dim(self.dim)? as i64), self.dim)?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, cpu};
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "cat",
            Family::Exact,
            |x| Tensor::cat(&[&x[0], &x[1]], 1),
            |x| {
                Dense::from_fn(&[2, 5], |at| {
                    if at[1] < 3 { x[0].at(at) } else { x[1].at(&[at[0], at[1] - 3]) }
                })
            },
            &[&[&[2, 3], &[2, 2]]],
        )
        .peer("torch.cat(x, 1)")
        .refusing(&[
            (|| Tensor::cat(&[], 0), "cat: needs at least one tensor"),
            (
                || {
                    let (a, b) = (cpu(&[2, 3], DType::F32)?, cpu(&[2], DType::F32)?);
                    Tensor::cat(&[&a, &b], 0)
                },
                "cat: shapes differ beside dimension 0, [2, 3] and [2]",
            ),
        ]),
        OpInfo::new(
            "stack",
            Family::Exact,
            |x| Tensor::stack(&[&x[0], &x[1]], -1),
            |x| Dense::from_fn(&[2, 3, 2], |at| x[at[2]].at(&at[..2])),
            &[&[&[2, 3], &[2, 3]]],
        )
        .peer("torch.stack(x, -1)"),
        OpInfo::new(
            "repeat",
            Family::Exact,
            |x| x[0].repeat(&[2, 1, 3]),
            |x| Dense::from_fn(&[2, 2, 9], |at| x[0].at(&[at[1], at[2] % 3])),
            &[&[&[2, 3]]],
        )
        .peer("x[0].repeat(2, 1, 3)"),
        OpInfo::new(
            "repeat_interleave",
            Family::Exact,
            |x| x[0].repeat_interleave(3, 0),
            |x| Dense::from_fn(&[6, 3], |at| x[0].at(&[at[0] / 3, at[1]])),
            &[&[&[2, 3]]],
        )
        .peer("torch.repeat_interleave(x[0], 3, 0)"),
        OpInfo::new(
            "roll",
            Family::Exact,
            |x| x[0].roll(-2, 1),
            |x| Dense::from_fn(&[2, 5], |at| x[0].at(&[at[0], (at[1] + 2) % 5])),
            &[&[&[2, 5]]],
        )
        .peer("torch.roll(x[0], -2, 1)"),
        OpInfo::new(
            "movedim",
            Family::Exact,
            |x| x[0].movedim(&[0], &[-1]),
            |x| Dense::from_fn(&[3, 4, 2], |at| x[0].at(&[at[2], at[0], at[1]])),
            &[&[&[2, 3, 4]]],
        )
        .peer("torch.movedim(x[0], 0, -1)"),
        OpInfo::new(
            "tril",
            Family::Exact,
            |x| x[0].tril(1),
            |x| Dense::from_fn(&[3, 4], |at| if at[1] <= at[0] + 1 { x[0].at(at) } else { 0.0 }),
            &[&[&[3, 4]]],
        )
        .peer("torch.tril(x[0], 1)"),
        OpInfo::new(
            "triu",
            Family::Exact,
            |x| x[0].triu(1),
            |x| Dense::from_fn(&[3, 4], |at| if at[1] > at[0] { x[0].at(at) } else { 0.0 }),
            &[&[&[3, 4]]],
        )
        .peer("torch.triu(x[0], 1)"),
        OpInfo::new(
            "split_sizes",
            Family::Exact,
            |x| Ok(x[0].split_sizes(&[1, 3], 1)?.swap_remove(1)),
            |x| Dense::from_fn(&[2, 3], |at| x[0].at(&[at[0], at[1] + 1])),
            &[&[&[2, 4]]],
        )
        .peer("torch.split(x[0], [1, 3], 1)[1]"),
        OpInfo::new(
            "split",
            Family::Exact,
            |x| Ok(x[0].split(3, 0)?.swap_remove(1)),
            |x| Dense::from_fn(&[2, 2], |at| x[0].at(&[at[0] + 3, at[1]])),
            &[&[&[5, 2]]],
        )
        .peer("torch.split(x[0], 3, 0)[1]"),
        OpInfo::new(
            "chunk",
            Family::Exact,
            |x| Ok(x[0].chunk(2, 0)?.swap_remove(1)),
            |x| Dense::from_fn(&[2, 2], |at| x[0].at(&[at[0] + 3, at[1]])),
            &[&[&[5, 2]]],
        )
        .peer("torch.chunk(x[0], 2, 0)[1]"),
        OpInfo::new(
            "unbind",
            Family::Exact,
            |x| Ok(x[0].unbind(1)?.swap_remove(2)),
            |x| Dense::from_fn(&[2], |at| x[0].at(&[at[0], 2])),
            &[&[&[2, 3]]],
        )
        .peer("torch.unbind(x[0], 1)[2]"),
        OpInfo::new(
            "squeeze_dims",
            Family::Exact,
            |x| x[0].squeeze_dims(&[0, 1]),
            |x| Dense { shape: vec![3, 2], data: x[0].data.clone() },
            &[&[&[1, 3, 2]]],
        )
        .peer("torch.squeeze(x[0], (0, 1))"),
        OpInfo::new(
            "expand",
            Family::Exact,
            |x| x[0].expand(&[3, -1, 4])?.copy(),
            |x| Dense::from_fn(&[3, 2, 4], |at| x[0].at(&[at[1], 0])),
            &[&[&[2, 1]]],
        )
        .peer("x[0].expand(3, -1, 4).contiguous()"),
        OpInfo::new(
            "eye",
            Family::Exact,
            |x| Tensor::eye(x[0].shape()[0], x[0].shape()[1], (x[0].dtype(), x[0].device())),
            |_| Dense { shape: vec![2, 3], data: vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0] },
            &[&[&[2, 3]]],
        )
        .peer("torch.eye(*x[0].shape, dtype=x[0].dtype, device=x[0].device)")
        .flat(),
    ];
}
