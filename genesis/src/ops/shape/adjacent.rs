//! Adjacent tensors in one memory, as one view.
//!
//! What is trained lies so too: each part is a leaf that is written by itself, in a part of the storage, and
//! [`Tensor::joined`] of them is recorded. The gradient of the view is then one tensor, and its parts are the gradients of the
//! leaves, none of them copied:
//!
//! ```text
//! q [Q, C], k [K, C], v [V, C]     joined: w [Q + K + V, C]     dw -> dq | dk | dv
//! ```

use std::sync::Arc;

use crate::autograd::{SavedTensors, is_grad_enabled, no_grad};
use crate::error::{Error, Result};
use crate::ops::{Op, apply};
use crate::shape::Layout;
use crate::tensor::Tensor;

impl Tensor {
    /// Tensors that differ in their first extent alone as one, `[sum of the first extents, ..]`, without
    /// history; none where one does not begin in memory where the one before ends.
    pub(crate) fn adjacent(parts: &[&Tensor]) -> Option<Tensor> {
        let (first, others) = parts.split_first()?;
        let (&rows, inner) = first.shape().split_first()?;
        let (mut rows, mut end) = (rows, end_of(first)?);
        for part in others {
            let is_next = Arc::ptr_eq(first.storage().whole(), part.storage().whole())
                && part.dtype() == first.dtype()
                && part.layout().offset() == end;
            let (&own, own_inner) = part.shape().split_first()?;
            if !is_next || own_inner != inner {
                return None;
            }
            (rows, end) = (rows.checked_add(own)?, end_of(part)?);
        }
        let shape = [&[rows], inner].concat();
        let layout = Layout::contiguous(&shape)?.at(first.layout().offset())?;
        Some(Tensor::plain(first.storage().whole().clone(), layout, first.dtype()))
    }

    /// [`Tensor::adjacent`] tensors as one, whose gradient goes to them where one is recorded; none where they lie apart, or
    /// only some of them want a gradient.
    pub(crate) fn joined(parts: &[&Tensor]) -> Result<Option<Tensor>> {
        let wanting = parts.iter().filter(|part| part.requires_grad()).count();
        let is_recorded = is_grad_enabled() && wanting > 0;
        // Writes to what shares one storage can't be told apart.
        let is_apart = parts.iter().all(|part| part.storage().is_part());
        if is_recorded && (wanting < parts.len() || !is_apart) {
            return Ok(None);
        }
        let Some(whole) = Tensor::adjacent(parts) else { return Ok(None) };
        if !is_recorded {
            return Ok(Some(whole));
        }
        let rows = parts.iter().map(|part| part.shape()[0]).collect();
        apply(Joined { rows, whole }, parts).map(Some)
    }

    /// Parts of a dense tensor along its first axis, `rows` of it each. Nothing but them has its memory from now on, and each
    /// counts its own writes.
    ///
    /// # Errors
    /// If they are more than there are.
    pub(crate) fn apart(self, rows: &[usize]) -> Result<Vec<Tensor>> {
        let mut start = 0;
        let part = |&rows: &usize| {
            let layout = self.layout().slice(0, start, 1, rows).filter(|_| self.is_contiguous());
            start += rows;
            let layout = layout.ok_or_else(|| Error::op("apart", "the parts exceed their sum"))?;
            Ok(Tensor::plain(Arc::new(self.storage().part()), layout, self.dtype()))
        };
        rows.iter().map(part).collect()
    }

    /// Copies of tensors that differ in their first extent alone, each beginning in memory where the one before ends, and
    /// each written by itself: what [`Tensor::joined`] takes. They have no history.
    pub(crate) fn pack_apart(parts: &[&Tensor]) -> Result<Vec<Tensor>> {
        let rows = parts.iter().map(|part| part.dim(0)).collect::<Result<Vec<_>>>()?;
        no_grad(|| Tensor::cat(parts, 0))?.detach().apart(&rows)
    }

    /// Copies of tensors that differ in their first extent alone, each beginning in memory where the one before
    /// ends: what [`Tensor::adjacent`] takes. They have no history.
    pub(crate) fn pack(parts: &[&Tensor]) -> Result<Vec<Tensor>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let all = no_grad(|| Tensor::cat(parts, 0))?;
        let mut start = 0;
        let part = |part: &&Tensor| {
            let rows = part.dim(0)?;
            start += rows;
            Ok(all.narrow(0, start - rows, rows)?.detach())
        };
        parts.iter().map(part).collect()
    }
}

/// The view of adjacent tensors.
struct Joined {
    rows: Vec<usize>,
    whole: Tensor,
}

impl Op for Joined {
    fn name(&self) -> &'static str {
        "joined"
    }

    fn forward(&self, _: &[&Tensor]) -> Result<Tensor> {
        Ok(self.whole.detach())
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(dy.split_sizes(&self.rows, 0)?.into_iter().map(Some).collect())
    }

    fn rows(&self) -> Option<&[usize]> {
        Some(&self.rows)
    }
}

/// The offset behind a dense tensor.
fn end_of(tensor: &Tensor) -> Option<usize> {
    tensor.is_contiguous().then(|| tensor.layout().offset() + tensor.numel())
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;
    use crate::autograd::BackwardOptions;

    #[test]
    fn parts_of_one_tensor_are_it_again() -> crate::Result<()> {
        let whole = Tensor::randn(&[6, 4], Device::Cpu)?;
        let part = |start, len| whole.narrow(0, start, len);
        let packed = Tensor::pack(&[&part(2, 1)?, &part(0, 2)?])?;
        let again = Tensor::adjacent(&packed.iter().collect::<Vec<_>>()).expect("they are");
        assert_eq!(again.narrow(0, 1, 2)?.to_vec::<f32>()?, part(0, 2)?.to_vec::<f32>()?);
        let (a, b, c) = (part(0, 1)?, part(1, 3)?, part(4, 2)?);
        let all = Tensor::adjacent(&[&a, &b, &c]).expect("they are");
        assert_eq!(all.to_vec::<f32>()?, whole.to_vec::<f32>()?);
        let two = Tensor::adjacent(&[&b, &c]).expect("they are");
        assert_eq!(two.to_vec::<f32>()?, part(1, 5)?.to_vec::<f32>()?);
        Ok(())
    }

    fn leaves() -> crate::Result<Vec<Tensor>> {
        let part = |rows: usize| Tensor::randn(&[rows, 4], Device::Cpu);
        let parts = [part(2)?, part(1)?, part(3)?];
        let packed = Tensor::pack_apart(&parts.each_ref())?;
        for (packed, part) in packed.iter().zip(&parts) {
            assert_eq!(packed.to_vec::<f32>()?, part.to_vec::<f32>()?);
        }
        packed.into_iter().map(|leaf| leaf.requires_grad_(true)).collect()
    }

    #[test]
    fn a_gradient_is_cut_into_those_of_the_parts() -> crate::Result<()> {
        let leaves = leaves()?;
        let parts: Vec<&Tensor> = leaves.iter().collect();
        let joined = Tensor::joined(&parts)?.expect("they lie beside one another");
        assert_eq!(joined.address(), leaves[0].address(), "nothing is copied");
        let dy = Tensor::randn(&[6, 4], Device::Cpu)?;
        joined.mul(&dy)?.sum()?.backward()?;
        let grads = leaves.iter().map(|leaf| leaf.grad().expect("it is read"));
        let grads = grads.collect::<Vec<_>>();
        assert_eq!(grads[1].address(), grads[0].address() + 2 * 4 * 4, "they are parts of one");
        let all = Tensor::cat(&grads.iter().collect::<Vec<_>>(), 0)?;
        assert_eq!(all.to_vec::<f32>()?, dy.to_vec::<f32>()?);
        // One that somebody else has is copied before it is cut.
        leaves.iter().for_each(Tensor::zero_grad);
        let joined = Tensor::joined(&parts)?.expect("they lie beside one another");
        let before = dy.to_vec::<f32>()?;
        joined.backward_with(Some(&dy), BackwardOptions::default())?;
        leaves[0].grad().expect("it is read").zero_()?;
        assert_eq!(dy.to_vec::<f32>()?, before);
        Ok(())
    }

    #[test]
    fn a_write_to_a_part_is_one_to_the_view() -> crate::Result<()> {
        let leaves = leaves()?;
        let parts: Vec<&Tensor> = leaves.iter().collect();
        let joined = Tensor::joined(&parts)?.expect("they lie beside one another");
        let y = joined.square()?.sum()?;
        let alone = leaves[1].square()?.sum()?;
        no_grad(|| leaves[2].zero_())?;
        let refused = y.backward().unwrap_err().to_string();
        assert!(refused.contains("was changed in place since"), "{refused}");
        alone.backward()
    }

    #[test]
    fn what_is_not_alike_is_not_joined() -> crate::Result<()> {
        let leaves = leaves()?;
        let copy = leaves[1].detach().copy()?.requires_grad_(true)?;
        assert!(Tensor::joined(&[&leaves[0], &copy])?.is_none(), "it lies elsewhere");
        assert!(Tensor::joined(&[&leaves[1], &leaves[0]])?.is_none(), "in another order");
        let frozen = leaves[1].clone().requires_grad_(false)?;
        assert!(Tensor::joined(&[&leaves[0], &frozen])?.is_none(), "one is frozen");
        let all = no_grad(|| Tensor::joined(&[&leaves[0], &frozen]))?.expect("without a record");
        assert!(!all.requires_grad());
        // Of one storage, in which writes can't be told apart.
        let whole = Tensor::randn(&[4, 2], Device::Cpu)?;
        let halves = [whole.narrow(0, 0, 2)?.detach(), whole.narrow(0, 2, 2)?.detach()];
        let halves = halves.map(|half| half.requires_grad_(true));
        let [a, b] = halves;
        assert!(Tensor::joined(&[&a?, &b?])?.is_none());
        Ok(())
    }

    #[test]
    fn others_are_not() -> crate::Result<()> {
        let whole = Tensor::randn(&[6, 4], Device::Cpu)?;
        let (a, b) = (whole.narrow(0, 0, 2)?, whole.narrow(0, 2, 2)?);
        let none = |parts: &[&Tensor]| assert!(Tensor::adjacent(parts).is_none(), "{parts:?}");
        none(&[&b, &a]);
        none(&[&a, &a]);
        none(&[&a, &whole.narrow(0, 3, 1)?]);
        none(&[&a, &b.copy()?]);
        none(&[&a.t()?, &b.t()?]);
        none(&[&a, &whole.narrow(0, 2, 2)?.reshape(&[2, 2, 2])?]);
        none(&[]);
        Ok(())
    }
}
