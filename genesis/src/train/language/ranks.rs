//! A run on several ranks: of the batches of a step each learns from its own.
//!
//! All ranks read the same data in the same order, so that the place of the loader, the learning rate and the
//! number of learned tokens are the same on all. A step takes `accumulate` batches a rank; its gradients are those
//! of one rank that takes them all. The first rank writes what a run writes.

use std::sync::Arc;

use genesis_kernel::ir::DType;

use crate::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup, ReduceOp};
use crate::error::Result;
use crate::models::CausalLm;
use crate::nn::{Module, Visitor, VisitorMut};
use crate::tensor::Tensor;

/// The model that all ranks train.
struct Shared(Arc<dyn CausalLm>);

impl Module for Shared {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.0.visit(visitor);
    }

    fn visit_mut(&mut self, _: &mut VisitorMut<'_>) {}

    fn as_module(&self) -> &dyn Module {
        self.0.as_module()
    }
}

/// The ranks of a run.
pub(super) struct Ranks {
    group: ProcessGroup,
    reducer: DistributedDataParallel<Shared>,
}

impl Ranks {
    /// Lets the gradients of a model be reduced over a group; its values are those of the first rank.
    pub(super) fn new(model: &Arc<dyn CausalLm>, group: &ProcessGroup) -> Result<Ranks> {
        // The same learned tokens count on all ranks: no buffer changes in training.
        let options = DdpOptions { broadcast_buffers: false, ..DdpOptions::default() };
        let reducer = DistributedDataParallel::new(Shared(model.clone()), group, options)?;
        Ok(Ranks { group: group.clone(), reducer })
    }

    pub(super) fn size(&self) -> usize {
        self.group.size()
    }

    /// Which of a step's batches are this rank's.
    pub(super) fn takes(&self, batch: usize) -> bool {
        batch % self.size() == self.group.rank()
    }

    /// Goes backward from the losses that `of` gives for each of the `own`; gradients are then the sums over all
    /// ranks. What is reduced is reduced in the backward of the last.
    pub(super) fn backward<T>(
        &self,
        own: &[T],
        mut of: impl FnMut(&T) -> Result<Tensor>,
    ) -> Result<()> {
        // Gradients come as means over ranks.
        let mut step = |part: &T| of(part)?.mul_scalar(self.size() as f64)?.backward();
        let Some((last, others)) = own.split_last() else { return self.reducer.reduce_gradients() };
        self.reducer.no_sync(|| others.iter().try_for_each(&mut step))?;
        step(last)
    }

    /// Numbers added up over all ranks; waits for them.
    pub(super) fn sum<const N: usize>(&self, numbers: [f64; N]) -> Result<[f64; N]> {
        let device = self.group.device();
        let sums = Tensor::from_slice_on(&numbers, &[N], device)?.to_dtype(DType::F64)?;
        self.group.all_reduce(&sums, ReduceOp::Sum)?;
        let mut numbers = numbers;
        numbers.copy_from_slice(&sums.to_vec::<f64>()?);
        Ok(numbers)
    }
}
