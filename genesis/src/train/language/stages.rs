//! A run whose layers are in stages on several ranks: 1F1B over the batches of a step.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::batch::TokenBatch;
use super::keeping::Keeping;
use super::loss::{in_half, loss_of_hidden};
use crate::autograd::no_grad;
use crate::distributed::{Collected, Pipeline, ProcessGroup, ReduceOp, collect, uncounted};
use crate::error::Result;
use crate::models::{CausalLm, Pass};
use crate::tensor::Tensor;

/// The stages of a model.
pub(super) struct Stages {
    group: ProcessGroup,
    training: Pipeline,
    evaluation: Pipeline,
    /// Parameters that the first and the last stage have both, and these two.
    shared: Vec<String>,
    ends: Option<ProcessGroup>,
}

impl Stages {
    /// The stages on the ranks of a group, all of which call it.
    pub(super) fn new(group: &ProcessGroup, shared: Vec<String>) -> Result<Stages> {
        let ends = match shared.is_empty() {
            true => None,
            false => group.subgroup(&[0, group.size() - 1])?,
        };
        let (training, evaluation) = (Pipeline::new(group)?, Pipeline::new(group)?);
        Ok(Stages { group: group.clone(), training, evaluation, shared, ends })
    }

    /// Whether a parameter is one that the first stage has too.
    pub(super) fn has_again(&self, name: &str) -> bool {
        !self.training.is_first() && self.shared.iter().any(|shared| shared == name)
    }

    /// The forward and backward of all batches of a step, of which some count nothing; `loss` makes of hidden states, on the
    /// last stage, what is gone backward from.
    pub(super) fn step(
        &self,
        model: &Arc<dyn CausalLm>,
        (own, counts): (&[&TokenBatch], &[bool]),
        (half, keeping): (Option<DType>, &Keeping),
        loss: impl Fn(&Tensor, usize) -> Result<Tensor>,
    ) -> Result<()> {
        let forward = forward(model, (own, counts), (half, keeping));
        self.training.step_sum(own.len(), |at| Ok(own[at].tokens.clone()), forward, loss)?;
        Ok(())
    }

    /// The sum of the losses of a batch, on the last stage; 0 on the others.
    pub(super) fn evaluate(
        &self,
        model: &Arc<dyn CausalLm>,
        batch: &TokenBatch,
        half: Option<DType>,
    ) -> Result<f64> {
        let (own, counts) = ([batch], [true]);
        let loss = |y: &Tensor, _: usize| loss_of_hidden(model, y, batch, half);
        let keeping = Keeping::default();
        let forward = forward(model, (&own, &counts), (half, &keeping));
        let losses = self.evaluation.infer(1, |_| Ok(batch.tokens.clone()), forward, loss)?;
        losses.first().map_or(Ok(0.0), Tensor::item)
    }

    /// Adds the gradients of parameters that two stages have up.
    pub(super) fn sum_shared(&self, model: &dyn CausalLm) -> Result<()> {
        let Some(ends) = &self.ends else { return Ok(()) };
        let all = model.named_parameters().into_iter();
        for (_, parameter) in all.filter(|(name, _)| self.shared.contains(name)) {
            let sum = no_grad(|| match parameter.grad() {
                Some(grad) => grad.detach().copy()?.contiguous(),
                None => parameter.detach().zeros_like(),
            })?;
            ends.all_reduce(&sum, ReduceOp::Sum)?;
            parameter.set_grad(Some(sum));
        }
        Ok(())
    }

    /// Tensors and numbers of all stages on the first one, in the order of stages; what a stage has again is left out.
    /// Nothing on the others. Tensors go to a device one by one.
    pub(super) fn collect(
        &self,
        own: Vec<(String, Tensor)>,
        numbers: BTreeMap<String, f64>,
        to: Device,
    ) -> Result<Collected> {
        let is_own = |(name, _): &(String, Tensor)| !self.has_again(owner(name));
        let own = own.into_iter().filter(is_own).collect();
        collect(&self.group, own, numbers, to)
    }

    /// Gives all stages the values of the first.
    pub(super) fn tell(&self, x: &Tensor) -> Result<()> {
        self.group.broadcast(x, 0)
    }
}

/// What a stage computes: batches come one after the other.
fn forward<'a>(
    model: &'a Arc<dyn CausalLm>,
    (own, counts): (&'a [&'a TokenBatch], &'a [bool]),
    (half, keeping): (Option<DType>, &'a Keeping),
) -> impl Fn(&Tensor) -> Result<Tensor> + 'a {
    let next = Cell::new(0);
    move |x| {
        let at = next.replace(next.get() + 1);
        let run = || model.hidden(x, &Pass::Packed(&own[at].packed));
        let run = || keeping.run(model, || in_half(half, run));
        if counts[at] { run() } else { uncounted(run) }
    }
}

/// The parameter whose state has this name.
fn owner(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(owner, _)| owner)
}
