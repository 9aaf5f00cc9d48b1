//! Parts of tensors and their wholes, by what a [`Shard`] says.

use super::group::ProcessGroup;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::nn::{Cut, Shard};
use crate::tensor::Tensor;

const NAME: &str = "shard";

/// The ranks that have the parts of each kind of cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartGroups<'a> {
    /// Of [`Cut::Flat`].
    pub(crate) flat: Option<&'a ProcessGroup>,
    /// Of [`Cut::Axis`].
    pub(crate) axis: Option<&'a ProcessGroup>,
}

/// The whole tensor of this rank's part and those of the other ranks, all of which call it: the inner cuts are undone
/// first.
pub(crate) fn whole_of(
    part: &Tensor,
    shard: Option<&Shard>,
    groups: PartGroups<'_>,
) -> Result<Tensor> {
    let Some(shard) = shard else { return Ok(part.detach()) };
    let group = match shard.cut {
        Cut::Flat => groups.flat,
        Cut::Axis(_) => groups.axis,
    };
    let group = group.filter(|group| group.size() == shard.count).ok_or_else(|| {
        let message =
            format!("no group of {} ranks has the parts of {:?}", shard.count, shard.whole);
        Error::op(NAME, message)
    })?;
    let whole = no_grad(|| match shard.cut {
        Cut::Flat => {
            let all = group.all_gather(&part.detach())?;
            all.narrow(0, 0, elements(&shard.whole))?.copy()?.reshape(&shard.whole)
        }
        Cut::Axis(axis) => {
            let first = part.detach().movedim(&[axis as i64], &[0])?.contiguous()?;
            group.all_gather(&first)?.movedim(&[0], &[axis as i64])?.contiguous()
        }
    })?;
    whole_of(&whole, shard.outer.as_deref(), groups)
}

/// The shape of a part.
pub(super) fn part_shape(shard: &Shard) -> Vec<usize> {
    match shard.cut {
        Cut::Flat => vec![elements(&shard.whole).div_ceil(shard.count.max(1))],
        Cut::Axis(axis) => {
            let mut shape = shard.whole.clone();
            if let Some(extent) = shape.get_mut(axis) {
                *extent /= shard.count.max(1);
            }
            shape
        }
    }
}

pub(super) fn elements(shape: &[usize]) -> usize {
    crate::shape::product(shape.iter())
}

/// The cut that was made first.
pub(crate) fn outermost(shard: &Shard) -> &Shard {
    shard.outer.as_deref().map_or(shard, outermost)
}

/// The part of a whole tensor: the outer cuts first.
pub(crate) fn part_of(whole: &Tensor, shard: Option<&Shard>) -> Result<Tensor> {
    let Some(shard) = shard else { return Ok(whole.clone()) };
    let whole = part_of(whole, shard.outer.as_deref())?;
    if whole.shape() != shard.whole {
        let message = format!("a part of {:?} can't be of {:?}", shard.whole, whole.shape());
        return Err(Error::op(NAME, message));
    }
    match shard.cut {
        Cut::Axis(axis) => {
            let extent = whole.shape()[axis] / shard.count;
            whole.narrow(axis as i64, shard.index * extent, extent)?.contiguous()
        }
        Cut::Flat => {
            let (all, chunk) = (whole.numel(), whole.numel().div_ceil(shard.count));
            let zeros =
                Tensor::zeros(&[chunk * shard.count - all], (whole.dtype(), whole.device()))?;
            let flat = Tensor::cat(&[&whole.reshape(&[all])?, &zeros], 0)?;
            flat.narrow(0, shard.index * chunk, chunk)?.contiguous()
        }
    }
}
