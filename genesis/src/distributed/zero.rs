//! ZeRO stage 1: each rank keeps the optimizer's state of some of the parameters.

use std::collections::BTreeSet;

use genesis_kernel::runtime::Device;

use super::collected::collect;
use super::group::ProcessGroup;
use crate::autograd::no_grad;
use crate::error::Result;
use crate::optim::{Optimizer, State};
use crate::tensor::Tensor;

/// An optimizer of which each rank steps, and keeps the state of, some of the parameters.
///
/// Whole parameters are dealt out, the largest first to the rank that has least, so that every optimizer
/// does what it does on one rank. Gradients are the same on all ranks, as
/// [`DistributedDataParallel`](super::DistributedDataParallel) leaves them; after a step each parameter comes
/// from the rank that stepped it.
///
/// # Examples
/// ```
/// use genesis::distributed::{ZeroOptimizer, init};
/// use genesis::nn::{Linear, Module};
/// use genesis::optim::{AdamW, AdamWOptions, Optimizer};
///
/// let group = init()?;
/// let model = Linear::new(8, 4, group.device())?;
/// let options = AdamWOptions::default();
/// let mut optimizer =
///     ZeroOptimizer::new(model.named_parameters(), &group, |own| AdamW::new(own, options));
/// optimizer.step()?;
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct ZeroOptimizer<O> {
    optimizer: O,
    parameters: Vec<Tensor>,
    /// The names of this rank's.
    names: BTreeSet<String>,
    /// The rank that steps each.
    owners: Vec<usize>,
    group: ProcessGroup,
}

impl<O: Optimizer> ZeroOptimizer<O> {
    /// Deals parameters out and makes the optimizer of this rank's.
    pub fn new(
        parameters: Vec<(String, Tensor)>,
        group: &ProcessGroup,
        make: impl FnOnce(Vec<(String, Tensor)>) -> O,
    ) -> ZeroOptimizer<O> {
        let sizes: Vec<usize> = parameters.iter().map(|(_, tensor)| tensor.numel()).collect();
        let owners = deal(&sizes, group.size());
        let own = parameters.iter().zip(&owners).filter(|(_, owner)| **owner == group.rank());
        let own: Vec<(String, Tensor)> = own.map(|(parameter, _)| parameter.clone()).collect();
        let names = own.iter().map(|(name, _)| name.clone()).collect();
        let optimizer = make(own);
        let parameters = parameters.into_iter().map(|(_, tensor)| tensor).collect();
        ZeroOptimizer { optimizer, parameters, names, owners, group: group.clone() }
    }

    /// The optimizer of this rank's parameters.
    pub fn local(&self) -> &O {
        &self.optimizer
    }

    /// The state of all ranks' parameters in the memory of the first rank's host, and nothing on the others. Tensors
    /// travel one at a time; all ranks call it.
    ///
    /// # Errors
    /// If a collective can't be made, or memory runs out.
    pub fn consolidated_state_dict(&self) -> Result<State> {
        let own = self.optimizer.state_dict()?;
        let to = |(name, tensor): (String, Tensor)| Ok((name, tensor.to_device(Device::Cpu)?));
        let tensors = match self.group.rank() {
            0 => own.tensors.into_iter().map(to).collect::<Result<Vec<_>>>()?,
            _ => own.tensors.into_iter().collect(),
        };
        let (tensors, numbers) = collect(&self.group, tensors, own.numbers, Device::Cpu)?;
        Ok(State { tensors: tensors.into_iter().collect(), numbers })
    }

    /// Gives all ranks what each has stepped.
    fn share(&self) -> Result<()> {
        no_grad(|| {
            let mut all = self.parameters.iter().zip(&self.owners);
            all.try_for_each(|(parameter, owner)| self.group.broadcast(&parameter.detach(), *owner))
        })
    }
}

/// The rank of each parameter: the largest first, to the rank that has least so far.
fn deal(sizes: &[usize], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(sizes[index]));
    let (mut owners, mut held) = (vec![0; sizes.len()], vec![0usize; ranks]);
    for index in order {
        let least = (0..ranks).min_by_key(|&rank| held[rank]).unwrap_or(0);
        owners[index] = least;
        held[least] += sizes[index];
    }
    owners
}

impl<O: Optimizer> Optimizer for ZeroOptimizer<O> {
    fn step(&mut self) -> Result<()> {
        self.optimizer.step()?;
        self.share()
    }

    fn step_unless(&mut self, found: &Tensor) -> Result<()> {
        self.optimizer.step_unless(found)?;
        self.share()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn lrs(&self) -> Vec<f64> {
        self.optimizer.lrs()
    }

    fn set_lrs(&mut self, lrs: &[f64]) {
        self.optimizer.set_lrs(lrs);
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.optimizer.set_momentum(momentum);
    }

    /// The state of this rank's parameters: each rank saves its own.
    fn state_dict(&self) -> Result<State> {
        self.optimizer.state_dict()
    }

    /// Takes the state of this rank's parameters; that of others may be there too.
    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let is_own = |key: &str| {
            let owner = key.rsplit_once('/').map_or("", |(owner, _)| owner);
            self.names.contains(owner) || owner.starts_with("group.")
        };
        let mut own = state.clone();
        own.tensors.retain(|key, _| is_own(key));
        own.numbers.retain(|key, _| is_own(key));
        self.optimizer.load_state_dict(&own)
    }
}

#[cfg(test)]
mod tests {
    use super::deal;

    #[test]
    fn parameters_are_dealt_evenly() {
        let owners = deal(&[10, 7, 3, 4, 6, 0], 2);
        let held = |rank| {
            let of = owners.iter().zip([10, 7, 3, 4, 6, 0]).filter(|(owner, _)| **owner == rank);
            of.map(|(_, size)| size).sum::<usize>()
        };
        assert_eq!([held(0), held(1)], [14, 16]);
        assert!(deal(&[], 3).is_empty());
        assert_eq!(deal(&[1], 3), [0]);
    }
}
