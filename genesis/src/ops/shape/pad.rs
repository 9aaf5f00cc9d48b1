//! Padding, by constants and by elements of the tensor itself.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::launch::pad::Around;
use crate::ops::index::flag::{self, Range};
use crate::ops::{Op, apply, composite};
use crate::shape;
use crate::tensor::{Tensor, host};

/// What stands in the padding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum PadMode {
    /// One value.
    Constant(f64),
    /// The elements mirrored at the first and the last, which are not repeated.
    Reflect,
    /// The first and the last element.
    Replicate,
    /// The elements from the other end.
    Circular,
}

/// The most elements that may be added at one end: positions are listed on the host.
const MOST: u64 = 1 << 31;

impl Tensor {
    /// The tensor with elements added at the ends of its last axes: `pads` holds pairs (before, after),
    /// the last axis first, as in PyTorch. A negative count takes elements away.
    ///
    /// # Errors
    /// If there are more pairs than axes, less than nothing would be left, or a mirror has too few
    /// elements.
    #[track_caller]
    pub fn pad(&self, pads: &[i64], mode: PadMode) -> Result<Tensor> {
        if !pads.len().is_multiple_of(2) || pads.len() / 2 > self.rank() {
            let message = format!("{pads:?} are no pairs for axes of shape {:?}", self.shape());
            return Err(Error::op("pad", message));
        }
        if pads.iter().any(|pad| pad.unsigned_abs() > MOST) {
            return Err(Error::op("pad", format!("{pads:?} are more than memory holds")));
        }
        // An axis, its extent, and what is added at its ends, from the last axis on.
        let pairs: Vec<(usize, i64, [i64; 2])> = pads
            .chunks_exact(2)
            .zip((0..self.rank()).rev())
            .map(|(pair, axis)| (axis, self.shape()[axis] as i64, [pair[0], pair[1]]))
            .filter(|(_, _, pair)| *pair != [0, 0])
            .collect();
        for (_, extent, [before, after]) in &pairs {
            // Pads are at most 2^31, but an axis without elements may be as long as can be.
            if extent.checked_add(before + after).is_none_or(|extent| extent < 0) {
                let message = format!("{pads:?} leave less than nothing of {:?}", self.shape());
                return Err(Error::op("pad", message));
            }
        }
        if let PadMode::Constant(value) = mode {
            return constant(self, &pairs, value);
        }
        let mut x = self.clone();
        for (axis, extent, [before, after]) in pairs {
            let place = mirrored(extent, before, after, mode).ok_or_else(|| {
                let message = format!("{pads:?} is too much for shape {:?}", self.shape());
                Error::op("pad", message)
            })?;
            let all = (extent + before + after) as usize;
            if let Some(around) = Surrounded::of(&x, axis, [before, after], mode) {
                x = apply(around, &[&x])?;
                continue;
            }
            let mut places: Vec<i64> = host::reserve("pad", all)?;
            places.extend((-before..extent + after).map(place));
            let index = Tensor::from_slice_on(&places, &[places.len()], x.device())?;
            drop(places);
            x = x.index_select(axis as i64, &index)?;
        }
        Ok(x)
    }
}

/// The elements of an axis mirrored at its ends, or coming from the other end: on a GPU one launch, on the CPU a copy of
/// each run of neighbours, without a list of places.
#[derive(Clone, Copy)]
struct Surrounded {
    how: Around,
    /// `[outer, n, inner]` of the operand, and what `n` is in the result.
    shape: [usize; 3],
    padded: usize,
    axis: usize,
    mode: PadMode,
    /// Whether it is the gradient: from the result to the operand.
    is_gradient: bool,
}

impl Surrounded {
    fn of(x: &Tensor, axis: usize, [before, after]: [i64; 2], mode: PadMode) -> Option<Surrounded> {
        let extent = x.shape()[axis];
        let (start, end) = kept(extent as i64, before, after);
        let ends = match mode {
            PadMode::Reflect => None,
            PadMode::Circular => Some([start, end]),
            PadMode::Constant(_) | PadMode::Replicate => return None,
        };
        let (outer, inner) =
            (shape::product(&x.shape()[..axis]), shape::product(&x.shape()[axis + 1..]));
        let padded = (extent as i64 + before + after) as usize;
        let most = outer.checked_mul(inner)?.checked_mul(extent.max(padded))?;
        let is_there = outer * inner * extent * padded.min(1) > 0;
        // A gradient is added up by the list of places on the CPU.
        let runs = x.device().is_cuda() || !(is_grad_enabled() && x.requires_grad());
        let fits = runs && !trace::is_on() && is_there && most < launch::pad::MOST;
        let how = Around { before, ends };
        fits.then_some(Surrounded {
            how,
            shape: [outer, extent, inner],
            padded,
            axis,
            mode,
            is_gradient: false,
        })
    }

    /// Copies run after run of neighbours, forward or backward, of `x: [outer, n, inner]` to `y: [outer, m, inner]`.
    #[track_caller]
    fn copy_runs(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        let (n, m, before) = (self.shape[1] as i64, self.padded as i64, self.how.before);
        let after = m - n - before;
        let Some(place) = mirrored(n, before, after, self.mode) else { return Ok(()) };
        let mut at = -before;
        while at < n + after {
            let (begin, first) = (at, place(at));
            at += 1;
            let step = if at < n + after && place(at) < first { -1 } else { 1 };
            while at < n + after && place(at) == first + (at - begin) * step {
                at += 1;
            }
            let len = (at - begin) as usize;
            let layout = x.layout().slice(1, first as usize, step, len);
            let layout = layout.ok_or_else(|| Error::op("pad", "a run leaves its axis"))?;
            let run = Tensor::plain(x.storage().clone(), layout, x.dtype());
            launch::cast(&run, &y.narrow(1, (begin + before) as usize, len)?)?;
        }
        Ok(())
    }
}

impl Op for Surrounded {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let ([outer, n, inner], m) = (self.shape, self.padded);
        let (from, to) = if self.is_gradient { (m, n) } else { (n, m) };
        let x = inputs[0];
        let mut shape = x.shape().to_vec();
        shape[self.axis] = to;
        let y = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
        let (x, y_seen) =
            (x.reshape(&[outer, from, inner])?.contiguous()?, y.reshape(&[outer, to, inner])?);
        match self.is_gradient {
            false if x.device() == Device::Cpu => self.copy_runs(&x, &y_seen)?,
            false => launch::pad::around(&x, &y_seen, self.how)?,
            true => launch::pad::around_bwd(&x, &y_seen, self.how)?,
        }
        Ok(y)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let turned = Surrounded { is_gradient: !self.is_gradient, ..*self };
        Ok(vec![Some(apply(turned, &[dy])?)])
    }
}

/// What is left of a tensor in a larger one of a value; see [`Tensor::pad`].
#[track_caller]
fn constant(x: &Tensor, pairs: &[(usize, i64, [i64; 2])], value: f64) -> Result<Tensor> {
    let (mut middle, mut shape) = (x.clone(), x.shape().to_vec());
    for &(axis, extent, [before, after]) in pairs {
        let (start, end) = kept(extent, before, after);
        let Some(len) = end.checked_sub(start).and_then(|len| usize::try_from(len).ok()) else {
            let message =
                format!("[{before}, {after}] takes more than there is of {:?}", x.shape());
            return Err(Error::op("pad", message));
        };
        if len as i64 != extent {
            middle = middle.narrow(axis as i64, start as usize, len)?;
        }
        shape[axis] = (extent + before + after) as usize;
    }
    if shape == middle.shape() {
        return Ok(middle);
    }
    shape::numel("pad", &shape)?;
    let (pairs, kept) = (pairs.to_vec(), middle.shape().to_vec());
    middle.filled_in("pad", &shape, value, move |dense| {
        pairs.iter().try_fold(dense.clone(), |layout, &(axis, _, [before, _])| {
            layout.slice(axis, before.max(0) as usize, 1, kept[axis])
        })
    })
}

/// Where what negative pads leave of an axis starts and ends.
fn kept(extent: i64, before: i64, after: i64) -> (i64, i64) {
    ((-before).max(0), extent - (-after).max(0))
}

/// Which element stands at each place, counted from the first; none where some place has none.
fn mirrored(extent: i64, before: i64, after: i64, mode: PadMode) -> Option<impl Fn(i64) -> i64> {
    let (start, end) = kept(extent, before, after);
    let place = move |at: i64| match mode {
        PadMode::Reflect => {
            let at = if at < 0 { -at } else { at };
            if at >= extent { 2 * (extent - 1) - at } else { at }
        }
        // What is cropped is gone before the rest comes around.
        PadMode::Circular => start + (at - start).rem_euclid((end - start).max(1)),
        _ => at.clamp(0, (extent - 1).max(0)),
    };
    // An element is mirrored, or comes around, once.
    let is_near = match mode {
        PadMode::Reflect => before.max(after) < extent,
        PadMode::Circular => before.max(after) <= end - start,
        _ => true,
    };
    let (first, last) = (-before, extent + after - 1);
    // Between its ends a walk leaves the elements nowhere that the ends do not.
    let is_there = |at: i64| (0..extent).contains(&place(at));
    (is_near && (first > last || (is_there(first) && is_there(last)))).then_some(place)
}

impl Tensor {
    /// One where a class is, zero elsewhere, along a new last axis; i64.
    ///
    /// # Errors
    /// If the dtype is not i64 or a class is not in `0..classes`; as [`Tensor::embedding`] on a GPU.
    #[track_caller]
    pub fn one_hot(&self, classes: usize) -> Result<Tensor> {
        const NAME: &str = "one_hot";
        if self.dtype() != DType::I64 {
            return Err(Error::op(NAME, format!("needs i64, got {}", self.dtype())));
        }
        if self.device() == Device::Cpu {
            let is_wrong = |class: &i64| !(0..classes as i64).contains(class);
            if let Some(wrong) = self.indices_to_check()?.into_iter().find(is_wrong) {
                let message = format!("class {wrong} is out of range for {classes} classes");
                return Err(Error::op(NAME, message));
            }
        }
        let index = match self.device() {
            Device::Cpu => self.clone(),
            _ => {
                let range = Range { extent: classes, wraps: false, step: 1 };
                flag::resolve(NAME, self, range)?
            }
        };
        if self.numel() == 0 {
            let shape = [self.shape(), &[classes]].concat();
            return Tensor::zeros(&shape, (DType::I64, self.device()));
        }
        let all = Tensor::arange(0.0, classes as f64, 1.0, (DType::I64, self.device()))?;
        composite("one_hot", &[], [&index.unsqueeze(-1)?, &all], |[index, all], _| {
            index.eq(all)?.to_dtype(DType::I64)
        })
    }

    /// [`Tensor::one_hot`] of as many classes as there are: one more than the largest. Waits for the
    /// device.
    ///
    /// # Errors
    /// If the dtype is not i64, there is no element, or one is negative.
    #[track_caller]
    pub fn one_hot_of_all(&self) -> Result<Tensor> {
        if self.numel() == 0 {
            return Err(Error::op("one_hot", "no elements say how many classes there are"));
        }
        self.one_hot((self.max()?.item()? + 1.0).max(0.0) as usize)
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::PadMode;
    use crate::ops::info::{Dense, Family, OpInfo, cpu};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "pad/constant",
            Family::Exact,
            |x| x[0].pad(&[1, -1, 0, 2], PadMode::Constant(7.0)),
            |x| {
                Dense::from_fn(&[4, 3], |at| {
                    if at[0] < 2 && at[1] > 0 { x[0].at(&[at[0], at[1] - 1]) } else { 7.0 }
                })
            },
            &[&[&[2, 3]]],
        )
        .peer("F.pad(x[0], (1, -1, 0, 2), 'constant', 7.0)"),
        OpInfo::new(
            "pad/reflect",
            Family::Exact,
            |x| x[0].pad(&[2, 1], PadMode::Reflect),
            |x| Dense::from_fn(&[2, 6], |at| x[0].at(&[at[0], [2, 1, 0, 1, 2, 1][at[1]]])),
            &[&[&[2, 3]]],
        )
        .peer("F.pad(x[0], (2, 1), 'reflect')")
        .refusing(&[(
            || cpu(&[2], DType::F32)?.pad(&[2, 0], PadMode::Reflect),
            "pad: [2, 0] is too much for shape [2]",
        )]),
        OpInfo::new(
            "pad/circular",
            Family::Exact,
            |x| x[0].pad(&[2, 1], PadMode::Circular),
            |x| Dense::from_fn(&[2, 6], |at| x[0].at(&[at[0], (at[1] + 1) % 3])),
            &[&[&[2, 3]]],
        )
        .peer("F.pad(x[0], (2, 1), 'circular')"),
        OpInfo::new(
            "one_hot",
            Family::Exact,
            |x| x[0].one_hot(5),
            |x| Dense::from_fn(&[4, 5], |at| f64::from(u8::from(x[0].data[at[0]] == at[1] as f64))),
            &[&[&[4]]],
        )
        .peer("F.one_hot(x[0], 5)")
        .indexed(&[(0, 5)])
        .of(&[DType::I64])
        .flat()
        .refusing(&[(|| cpu(&[2], DType::F32)?.one_hot(3), "one_hot: needs i64, got f32")]),
        OpInfo::new(
            "one_hot_of_all",
            Family::Exact,
            |x| x[0].one_hot_of_all()?.argmax(-1),
            |x| x[0].clone(),
            &[&[&[4, 3]]],
        )
        .peer("F.one_hot(x[0]).argmax(-1)")
        .indexed(&[(0, 5)])
        .of(&[DType::I64])
        .flat(),
    ];
}
