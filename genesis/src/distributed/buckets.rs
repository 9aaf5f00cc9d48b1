//! Gradient buckets: gradients that one all-reduce sums.

use std::ops::Range;

use genesis_kernel::ir::DType;

use crate::error::Result;
use crate::tensor::Tensor;

/// Slots begin at multiples of so many bytes, so that kernels may load them by vectors.
const ALIGNMENT: usize = 16;

/// A parameter as buckets see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) elements: usize,
    pub(super) dtype: DType,
}

/// Parameters whose gradients are reduced by one collective, in the order in which they come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Bucket {
    pub(super) members: Vec<usize>,
}

/// Deals parameters out to buckets in the order given: neighbours of one dtype, up to so many bytes each.
/// The first bucket is small, so that the first collective starts early.
pub(super) fn deal(order: &[usize], slots: &[Slot], most: usize, first: usize) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut room = 0;
    for &member in order {
        let Slot { elements, dtype } = slots[member];
        let bytes = elements * dtype.bytes();
        let is_kin = |bucket: &Bucket| {
            bucket.members.last().is_some_and(|&other| slots[other].dtype == dtype)
        };
        match buckets.last_mut().filter(|bucket| bytes <= room && is_kin(bucket)) {
            Some(bucket) => {
                bucket.members.push(member);
                room -= bytes;
            }
            None => {
                let limit = if buckets.is_empty() { first } else { most };
                buckets.push(Bucket { members: vec![member] });
                room = limit.saturating_sub(bytes);
            }
        }
    }
    buckets
}

impl Bucket {
    /// The gradients side by side in memory of their own, and behind them a flag for each: 1 where this
    /// rank has the gradient, so that after the reduction it is over 0 where some rank has it.
    pub(super) fn pack(&self, grads: &[Option<Tensor>], parameters: &[Tensor]) -> Result<Tensor> {
        let like = &parameters[self.members[0]];
        let at = (like.dtype(), like.device());
        let mut pieces = Vec::with_capacity(2 * grads.len() + 1);
        for (grad, &member) in grads.iter().zip(&self.members) {
            let elements = parameters[member].numel();
            pieces.push(match grad {
                Some(grad) => grad.detach().to_dtype(like.dtype())?.reshape(&[elements])?,
                None => Tensor::zeros(&[elements], at)?,
            });
            let padding = padded(elements, like.dtype()) - elements;
            if padding > 0 {
                pieces.push(Tensor::zeros(&[padding], at)?);
            }
        }
        pieces.push(match grads.iter().all(Option::is_some) {
            true => Tensor::full(&[grads.len()], 1.0, at)?,
            false => {
                let flags: Vec<f32> = grads.iter().map(|g| f32::from(g.is_some())).collect();
                let flags = Tensor::from_slice_on(&flags, &[flags.len()], like.device())?;
                flags.to_dtype(like.dtype())?
            }
        });
        Tensor::cat(&pieces.iter().collect::<Vec<_>>(), 0)
    }

    /// Where each gradient lies in what [`Bucket::pack`] gives.
    pub(super) fn places(&self, slots: &[Slot]) -> Vec<Range<usize>> {
        let mut start = 0;
        self.members
            .iter()
            .map(|&member| {
                let Slot { elements, dtype } = slots[member];
                let place = start..start + elements;
                start += padded(elements, dtype);
                place
            })
            .collect()
    }

    /// The flags of what [`Bucket::pack`] gives.
    pub(super) fn flags(&self, flat: &Tensor) -> Result<Tensor> {
        let count = self.members.len();
        flat.narrow(0, flat.numel() - count, count)
    }
}

fn padded(elements: usize, dtype: DType) -> usize {
    elements.next_multiple_of(ALIGNMENT / dtype.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use genesis_kernel::runtime::Device;

    fn slot(elements: usize, dtype: DType) -> Slot {
        Slot { elements, dtype }
    }

    #[test]
    fn buckets_take_neighbours_of_a_dtype_up_to_a_size() {
        let f32 = |elements| slot(elements, DType::F32);
        let slots = [f32(10), f32(10), f32(100), slot(8, DType::BF16), f32(1), f32(1)];
        let dealt = deal(&[5, 4, 3, 2, 1, 0], &slots, 80, 4);
        let members: Vec<_> = dealt.into_iter().map(|bucket| bucket.members).collect();
        assert_eq!(members, [vec![5], vec![4], vec![3], vec![2], vec![1, 0]]);
    }

    #[test]
    fn what_is_packed_is_found_again() -> Result<()> {
        let like = |n| Tensor::zeros(&[n], Device::Cpu);
        let parameters = [like(3)?, like(4)?];
        let slots = [slot(3, DType::F32), slot(4, DType::F32)];
        let bucket = Bucket { members: vec![1, 0] };
        let grad = Tensor::from_slice(&[1f32, 2., 3., 4.], &[4])?;
        let flat = bucket.pack(&[Some(grad), None], &parameters)?;
        assert_eq!(flat.to_vec::<f32>()?, [1., 2., 3., 4., 0., 0., 0., 0., 1., 0.]);
        assert_eq!(bucket.places(&slots), [0..4, 4..7]);
        assert_eq!(bucket.flags(&flat)?.to_vec::<f32>()?, [1., 0.]);
        Ok(())
    }
}
