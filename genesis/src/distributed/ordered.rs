//! Sums in the order of ranks: the audit mode of a group.
//!
//! NCCL adds in an order that follows its rings and trees. Here each rank gets all parts and adds them up itself,
//! first rank first, as one rank would that takes the parts of a batch one after the other. So `N` ranks give
//! the bits of one, at the price of `N` times the traffic and memory.

use genesis_kernel::runtime::nccl::ReduceOp;

use super::group::ProcessGroup;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl ProcessGroup {
    /// The same group with sums and means in the order of ranks: equal to those of one process that adds the
    /// tensors of all ranks up, first rank first, bit for bit.
    ///
    /// For audits: it moves as many times the bytes as there are ranks.
    ///
    /// # Examples
    /// ```
    /// use genesis::distributed::{ReduceOp, init};
    /// use genesis::Tensor;
    ///
    /// let group = init()?.with_ordered_reductions();
    /// let x = Tensor::ones(&[4], group.device())?;
    /// group.all_reduce(&x, ReduceOp::Avg)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0; 4]);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn with_ordered_reductions(&self) -> ProcessGroup {
        let mut group = self.clone();
        group.is_ordered = true;
        group
    }

    /// Whether sums are in the order of ranks.
    pub fn has_ordered_reductions(&self) -> bool {
        self.is_ordered
    }

    /// What [`ProcessGroup::all_reduce`] does then.
    #[track_caller]
    pub(super) fn all_reduce_in_order(&self, x: &Tensor, op: ReduceOp) -> Result<()> {
        no_grad(|| {
            let flat = x.detach().reshape(&[1, x.numel()])?;
            let all = self.all_gather(&flat)?;
            x.copy_(&folded(&all, op)?.reshape(x.shape())?)
        })
    }

    /// This rank's row of the mean of `x: [ranks, elements]` over all ranks of this group and of those that have the same
    /// rows, in the order of all of them; of each `alike` ranks, next to each other, the first one counts.
    #[track_caller]
    pub(super) fn mean_in_order(
        &self,
        replicas: Option<&ProcessGroup>,
        alike: usize,
        x: &Tensor,
    ) -> Result<Tensor> {
        no_grad(|| {
            let mut parts = self.all_to_all(x)?; // [ranks, elements]
            if alike > 1 {
                parts = parts.slice_step(0, None, None, alike as i64)?.contiguous()?;
            }
            match replicas {
                Some(replicas) => folded(&replicas.all_gather(&parts)?, ReduceOp::Avg),
                None => folded(&parts, ReduceOp::Avg),
            }
        })
    }

    /// What [`ProcessGroup::reduce_scatter_into`] does then.
    #[track_caller]
    pub(super) fn reduce_scatter_in_order(
        &self,
        x: &Tensor,
        part: &Tensor,
        op: ReduceOp,
    ) -> Result<()> {
        no_grad(|| {
            let parts = self.all_to_all(&x.reshape(&[self.size(), part.numel()])?)?;
            part.copy_(&folded(&parts, op)?.reshape(part.shape())?)
        })
    }
}

/// The rows of a matrix joined, first row first.
fn folded(rows: &Tensor, op: ReduceOp) -> Result<Tensor> {
    let join = |a: &Tensor, b: &Tensor| match op {
        ReduceOp::Sum | ReduceOp::Avg => a.add(b),
        ReduceOp::Prod => a.mul(b),
        ReduceOp::Max => a.maximum(b),
        ReduceOp::Min => a.minimum(b),
    };
    let count = rows.shape()[0];
    let first = rows.select(0, 0)?;
    let all = (1..count).try_fold(first, |sum, rank| join(&sum, &rows.select(0, rank)?))?;
    match op {
        ReduceOp::Avg if !all.dtype().is_float() => {
            let message = format!("NCCL does not average {}", all.dtype());
            Err(Error::op("all_reduce", message))
        }
        ReduceOp::Avg => all.div_scalar(count as f64),
        _ => Ok(all),
    }
}
