//! The whole of a tensor's parts on the ranks, by what a [`Shard`] says.

use super::group::ProcessGroup;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::nn::{Cut, Shard};
use crate::shape::product;
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
            all.narrow(0, 0, product(shard.whole.iter()))?.copy()?.reshape(&shard.whole)
        }
        Cut::Axis(axis) => {
            let first = part.detach().movedim(&[axis as i64], &[0])?.contiguous()?;
            group.all_gather(&first)?.movedim(&[0], &[axis as i64])?.contiguous()
        }
    })?;
    whole_of(&whole, shard.outer.as_deref(), groups)
}
