//! What lies in parts on ranks as one whole, for checkpoints and exports: any mesh reads what any other wrote.

use std::collections::BTreeMap;

use genesis_kernel::runtime::Device;

use super::ranks::Ranks;
use crate::distributed::{Collected, PartGroups, outermost, part_of, whole_of};
use crate::error::Result;
use crate::models::CausalLm;
use crate::nn::{Parameter, Shard, handles};
use crate::optim::State;
use crate::tensor::Tensor;

/// What is trained, by name, and the optimizer's state.
pub(super) type Trained = (BTreeMap<String, Tensor>, State);

/// The parameters that are trained, by name.
fn trained(model: &dyn CausalLm) -> BTreeMap<String, Parameter> {
    let all = handles(model.as_module()).into_iter();
    all.filter(|(_, parameter)| parameter.requires_grad()).collect()
}

/// The parameter whose state has this name.
fn owner(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(owner, _)| owner)
}

/// The cut of a parameter where a tensor of its state is in parts as it is; numbers of a parameter are whole.
fn cut_of<'p>(parameter: Option<&'p Parameter>, shape: &[usize]) -> Option<&'p Shard> {
    let parameter = parameter.filter(|parameter| parameter.shape() == shape)?;
    parameter.shard().map(|shard| &**shard)
}

impl Ranks {
    /// The whole tensor of a rank's part; all ranks call it.
    pub(super) fn whole(&self, part: &Tensor, shard: Option<&Shard>) -> Result<Tensor> {
        let (flat, axis) = (self.mesh.shards.as_ref(), self.mesh.tensor.as_ref());
        whole_of(part, shard, PartGroups { flat, axis })
    }

    /// All that is trained and the optimizer's state, whole, in the memory of the first rank's host; nothing on the
    /// others. All ranks call it.
    pub(super) fn collect(&self, model: &dyn CausalLm, state: &State) -> Result<Trained> {
        let parameters = trained(model);
        let own = parameters.iter().map(|(name, p)| (name, p.tensor(), p.shard().map(|s| &**s)));
        let model = self.on_first(own, BTreeMap::new())?.0;
        let own = state.tensors.iter().map(|(name, tensor)| {
            (name, tensor, cut_of(parameters.get(owner(name)), tensor.shape()))
        });
        let (tensors, numbers) = self.on_first(own, state.numbers.clone())?;
        let (model, tensors) = (model.into_iter().collect(), tensors.into_iter().collect());
        Ok((model, State { tensors, numbers }))
    }

    fn on_first<'t>(
        &self,
        own: impl Iterator<Item = (&'t String, &'t Tensor, Option<&'t Shard>)>,
        numbers: BTreeMap<String, f64>,
    ) -> Result<Collected> {
        let is_on_line = self.mesh.is_on_first_line();
        let mut wholes = Vec::new();
        for (name, part, shard) in own {
            let whole = self.whole(part, shard)?;
            if is_on_line {
                wholes.push((name.clone(), whole.to_device(Device::Cpu)?));
            }
        }
        match &self.stages {
            Some(stages) if is_on_line => stages.collect(wholes, numbers, Device::Cpu),
            _ => Ok((wholes, numbers)),
        }
    }
}

/// Of a whole model's tensors those that this rank has a part of, cut as its parameters are.
pub(super) fn parts_of_model(
    model: &dyn CausalLm,
    wholes: &BTreeMap<String, Tensor>,
) -> Result<BTreeMap<String, Tensor>> {
    let own = trained(model).into_iter();
    let found = own.filter_map(|(name, parameter)| Some((wholes.get(&name)?, name, parameter)));
    found
        .map(|(whole, name, p)| Ok((name, part_of(whole, p.shard().map(|shard| &**shard))?)))
        .collect()
}

/// Of an optimizer's whole state that of this rank's parts.
pub(super) fn parts_of_state(model: &dyn CausalLm, whole: &State) -> Result<State> {
    let parameters = trained(model);
    let mut state = State::default();
    for (name, tensor) in &whole.tensors {
        let Some(parameter) = parameters.get(owner(name)) else { continue };
        let shard = parameter.shard().map(|shard| &**shard);
        let shard = shard.filter(|shard| outermost(shard).whole == tensor.shape());
        let part = part_of(tensor, shard)?.to_device(parameter.device())?;
        state.tensors.insert(name.clone(), part);
    }
    let is_own = |name: &str| parameters.contains_key(owner(name)) || name.starts_with("group.");
    let numbers = whole.numbers.iter().filter(|(name, _)| is_own(name));
    state.numbers = numbers.map(|(name, number)| (name.clone(), *number)).collect();
    Ok(state)
}
