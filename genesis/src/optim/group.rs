//! Parameter groups, each with options of its own, and optimizer state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use genesis_kernel::trace;

use super::rule::{Batch, Member, Rule, Setting, Skip};
use super::{Optimizer, State};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::launch::many::Tables;
use crate::tensor::Tensor;

/// Parameters with names: `model.named_parameters()`, or `model.parameters()`, which are named by their
/// number.
#[derive(Clone, Debug, Default)]
pub struct Parameters(Vec<(Option<String>, Tensor)>);

impl From<Vec<Tensor>> for Parameters {
    fn from(tensors: Vec<Tensor>) -> Parameters {
        Parameters(tensors.into_iter().map(|tensor| (None, tensor)).collect())
    }
}

impl From<Vec<(String, Tensor)>> for Parameters {
    fn from(tensors: Vec<(String, Tensor)>) -> Parameters {
        Parameters(tensors.into_iter().map(|(name, tensor)| (Some(name), tensor)).collect())
    }
}

impl Parameters {
    /// Names and tensors; those without a name have their number.
    pub(super) fn named(self) -> (Vec<String>, Vec<Tensor>) {
        let name = |(number, (name, tensor)): (usize, (Option<String>, Tensor))| {
            (name.unwrap_or_else(|| number.to_string()), tensor)
        };
        self.0.into_iter().enumerate().map(name).unzip()
    }
}

/// An optimizer: a [`Rule`] over groups of parameters.
///
/// Every optimizer of this module is one, such as [`Adam`](super::Adam) with the options
/// [`AdamOptions`](super::AdamOptions).
///
/// # Examples
/// Weight decay for matrices only:
/// ```
/// use genesis::optim::{AdamW, AdamWOptions, Optimizer};
/// # use genesis::nn::{Linear, Module};
/// # let model = Linear::new(4, 2, genesis::Device::Cpu)?;
/// let (matrices, others): (Vec<_>, Vec<_>) =
///     model.named_parameters().into_iter().partition(|(_, tensor)| tensor.rank() > 1);
/// let options = AdamWOptions { lr: 3e-4, ..Default::default() };
/// let mut optimizer = AdamW::new(matrices, options);
/// optimizer.add_group(others, AdamWOptions { weight_decay: 0.0, ..options })?;
/// assert_eq!(optimizer.parameters().len(), 2);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct Optim<R> {
    parameters: Vec<Tensor>,
    entries: Vec<Entry>,
    groups: Vec<R>,
    tables: Tables,
    /// Its number among all optimizers: whose numbers a graph asks for.
    id: u64,
}

/// What is known of a parameter, in the order of the parameters.
#[derive(Debug)]
struct Entry {
    name: String,
    group: usize,
    /// None before its first step.
    state: Option<Slot>,
}

/// A parameter's state.
#[derive(Clone, Debug)]
struct Slot {
    /// Steps so far, also those that the device left out.
    steps: u64,
    /// How many it left out, where a gradient scaler let it decide. Parameters that began together
    /// share it.
    skipped: Option<Tensor>,
    master: Option<Tensor>,
    tensors: Vec<(&'static str, Tensor)>,
}

impl<R: Rule> Optim<R> {
    /// An optimizer of these parameters; one that is given twice is stepped once.
    pub fn new(parameters: impl Into<Parameters>, options: R) -> Optim<R> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut optimizer = Optim {
            parameters: Vec::new(),
            entries: Vec::new(),
            groups: Vec::new(),
            tables: Tables::new(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        optimizer.extend(parameters.into(), options);
        optimizer
    }

    /// Adds a group of parameters with options of their own.
    ///
    /// # Errors
    /// If a parameter is in another group already.
    pub fn add_group(&mut self, parameters: impl Into<Parameters>, options: R) -> Result<()> {
        let parameters = parameters.into();
        for (_, tensor) in &parameters.0 {
            if let Some(at) = self.parameters.iter().position(|known| known.is_same(tensor)) {
                let message = format!("{} is in another group already", self.entries[at].name);
                return Err(Error::op("add_group", message));
            }
        }
        self.extend(parameters, options);
        Ok(())
    }

    fn extend(&mut self, parameters: Parameters, options: R) {
        let group = self.groups.len();
        for (name, tensor) in parameters.0 {
            if self.parameters.iter().any(|known| known.is_same(&tensor)) {
                continue;
            }
            let name = name.unwrap_or_else(|| self.parameters.len().to_string());
            self.entries.push(Entry { name, group, state: None });
            self.parameters.push(tensor);
        }
        self.groups.push(options);
    }

    /// The options of each group.
    pub fn groups(&self) -> &[R] {
        &self.groups
    }

    /// The options of each group, to be changed from the next step on.
    pub fn groups_mut(&mut self) -> &mut [R] {
        &mut self.groups
    }

    /// Sets up the state of every parameter that has a gradient and none yet; gives their numbers and
    /// gradients.
    fn prepare(
        &mut self,
        found: Option<&Tensor>,
        of: Range<usize>,
    ) -> Result<Vec<(usize, Tensor)>> {
        let mut ready = Vec::new();
        let mut fresh: BTreeMap<Place, Tensor> = BTreeMap::new();
        let all = self.parameters.iter().zip(&mut self.entries).enumerate();
        for (index, (parameter, entry)) in all.take(of.end).skip(of.start) {
            let Some(gradient) = gradient(parameter, &entry.name)? else { continue };
            let rule = &self.groups[entry.group];
            let slot = match &mut entry.state {
                Some(slot) => slot,
                empty => empty.insert(Slot::new(rule, parameter)?),
            };
            if found.is_some() && slot.skipped.is_none() {
                slot.skipped = Some(shared_zero(&mut fresh, parameter.device())?);
            }
            slot.steps = slot.steps.saturating_add(1);
            ready.push((index, gradient));
        }
        Ok(ready)
    }

    /// Parameters that wait while others step no longer share their counter of steps left out.
    fn part_counters(&mut self, ready: &[(usize, Tensor)]) -> Result<()> {
        let mut next = ready.iter().map(|(index, _)| *index).peekable();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if next.next_if_eq(&index).is_none()
                && let Some(Slot { skipped: Some(counter), .. }) = &mut entry.state
            {
                *counter = counter.copy()?;
            }
        }
        Ok(())
    }

    /// Steps one parameter, whose gradient has just come.
    pub(super) fn step_one(&mut self, index: usize) -> Result<()> {
        no_grad(|| self.step_of(None, index..index + 1))
    }

    fn step_with(&mut self, found: Option<&Tensor>) -> Result<()> {
        self.step_of(found, 0..self.parameters.len())
    }

    fn step_of(&mut self, found: Option<&Tensor>, of: Range<usize>) -> Result<()> {
        let ready = self.prepare(found, of)?;
        if found.is_some() {
            self.part_counters(&ready)?;
        }
        let mut batches: Vec<(Key, Vec<(usize, Tensor)>)> = Vec::new();
        for (index, gradient) in ready {
            let key = self.key(index);
            match batches.iter_mut().find(|(known, _)| *known == key) {
                Some((_, members)) => members.push((index, gradient)),
                None => batches.push((key, vec![(index, gradient)])),
            }
        }
        let mut counters: Vec<Tensor> = Vec::new();
        for (_, members) in batches {
            let counter = self.step_batch(members, found)?;
            let is_new = |c: &Tensor| counters.iter().all(|known| !known.is_same(c));
            counters.extend(counter.filter(is_new));
        }
        if let Some(found) = found {
            for counter in counters {
                let on_device = found.reshape(&[1])?.to_device(counter.device())?;
                counter.add_(&on_device.to_dtype(DType::I64)?)?;
            }
        }
        Ok(())
    }

    /// What the members of a batch have in common.
    fn key(&self, index: usize) -> Key {
        let (parameter, entry) = (&self.parameters[index], &self.entries[index]);
        let slot = entry.state.as_ref();
        Key {
            group: entry.group,
            place: place(parameter.device()),
            dtype: parameter.dtype(),
            steps: slot.map_or(0, |slot| slot.steps),
            counter: slot.and_then(|slot| slot.skipped.as_ref()).map(Tensor::address),
        }
    }

    /// Steps parameters that have a key in common; gives their counter.
    fn step_batch(
        &mut self,
        members: Vec<(usize, Tensor)>,
        found: Option<&Tensor>,
    ) -> Result<Option<Tensor>> {
        let first = &self.entries[members[0].0];
        let rule = self.groups[first.group].clone();
        let slot = first.state.as_ref().expect("`prepare` made the state of all that step");
        let (step, counter) = (slot.steps, slot.skipped.clone());
        let device = self.parameters[members[0].0].device();
        let skip = match &counter {
            None => None,
            Some(skipped) => {
                let found = match found {
                    Some(found) => found.reshape(&[1])?.to_device(device)?,
                    None => Tensor::zeros(&[1], (DType::I32, device))?,
                };
                Some(Skip { found: found.to_dtype(DType::I32)?, skipped: skipped.clone() })
            }
        };
        let mut copies = Vec::new();
        let (tables, owner) = (&mut self.tables, self.id);
        let mut batch = Batch { members: Vec::new(), step, skip, tables, owner };
        for (index, gradient) in members {
            let parameter = &self.parameters[index];
            let slot = self.entries[index].state.as_ref().expect("`prepare` made it");
            let weight = parameter.detach().contiguous()?;
            if !parameter.is_contiguous() {
                copies.push((parameter.detach(), weight.clone()));
            }
            let states = slot.tensors.iter().map(|(_, tensor)| tensor.clone()).collect();
            let master = slot.master.clone();
            batch.members.push(Member { number: index, weight, master, gradient, states });
        }
        rule.step(&mut batch)?;
        copies.iter().try_for_each(|(parameter, weight)| parameter.copy_(weight))?;
        Ok(counter)
    }

    /// Replaces the state by what is saved; nothing changes where something does not fit.
    fn restored(&self, saved: &State) -> Result<(Vec<R>, Vec<Option<Slot>>)> {
        let mut known = BTreeSet::new();
        let mut groups = self.groups.clone();
        for (number, group) in groups.iter_mut().enumerate() {
            for (name, mut setting) in group.options() {
                let key = format!("group.{number}/{name}");
                match (saved.numbers.get(&key), &setting) {
                    (Some(&value), _) => setting.set(value),
                    // A state that was saved before there was such a choice is of one that was not made.
                    (None, Setting::Flag(_)) => setting.set(0.0),
                    (None, Setting::Number(_)) => setting.set(saved.number(&key)?),
                }
                known.insert(key);
            }
        }
        let mut slots = Vec::new();
        for ((parameter, entry), rule) in
            self.parameters.iter().zip(&self.entries).map(|(p, e)| ((p, e), &groups[e.group]))
        {
            let key = |state: &str| format!("{}/{state}", entry.name);
            let Some(&steps) = saved.numbers.get(&key("step")) else {
                slots.push(None);
                continue;
            };
            let mut slot = Slot::new(rule, parameter)?;
            slot.steps = steps as u64;
            known.insert(key("step"));
            let master = slot.master.iter().map(|master| ("master", master));
            for (name, tensor) in slot.tensors.iter().map(|(n, t)| (*n, t)).chain(master) {
                restore(tensor, saved, &key(name))?;
                known.insert(key(name));
            }
            slots.push(Some(slot));
        }
        let all = saved.tensors.keys().chain(saved.numbers.keys());
        let unknown: Vec<&str> =
            all.filter(|key| !known.contains(*key)).map(String::as_str).collect();
        if unknown.is_empty() {
            return Ok((groups, slots));
        }
        Err(Error::op("load_state_dict", format!("unknown {}", unknown.join(", "))))
    }
}

impl<R: Rule> Optimizer for Optim<R> {
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let _range = trace::range_at("Optimizer.step", Location::caller());
        no_grad(|| self.step_with(None))
    }

    #[track_caller]
    fn step_unless(&mut self, found: &Tensor) -> Result<()> {
        let _range = trace::range_at("Optimizer.step", Location::caller());
        no_grad(|| self.step_with(Some(&found.detach())))
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn lrs(&self) -> Vec<f64> {
        let lr = |group: &R| {
            let mut group = group.clone();
            let found = group.options().into_iter().find(|(name, _)| *name == "lr");
            found.map_or(0.0, |(_, setting)| setting.get())
        };
        self.groups.iter().map(lr).collect()
    }

    fn set_lrs(&mut self, lrs: &[f64]) {
        for (group, &lr) in self.groups.iter_mut().zip(lrs) {
            let settings = group.options().into_iter().filter(|(name, _)| *name == "lr");
            settings.for_each(|(_, mut setting)| setting.set(lr));
        }
    }

    fn set_momentum(&mut self, momentum: f64) {
        for group in &mut self.groups {
            let is_own = |name: &str| name == "momentum" || name == "beta1";
            let settings = group.options().into_iter().filter(|(name, _)| is_own(name));
            settings.for_each(|(_, mut setting)| setting.set(momentum));
        }
    }

    fn state_dict(&self) -> Result<State> {
        let mut state = State::default();
        for (number, group) in self.groups.iter().enumerate() {
            for (name, setting) in group.clone().options() {
                state.numbers.insert(format!("group.{number}/{name}"), setting.get());
            }
        }
        for entry in &self.entries {
            let Some(slot) = &entry.state else { continue };
            let key = |name: &str| format!("{}/{name}", entry.name);
            let skipped = slot.skipped.as_ref().map_or(Ok(0.0), Tensor::item)?;
            let steps = slot.steps as f64 - skipped;
            if state.numbers.insert(key("step"), steps).is_some() {
                let message = format!("two parameters have the name {}", entry.name);
                return Err(Error::op("state_dict", message));
            }
            let master = slot.master.iter().map(|master| ("master", master));
            for (name, tensor) in slot.tensors.iter().map(|(n, t)| (*n, t)).chain(master) {
                state.tensors.insert(key(name), tensor.clone());
            }
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let (groups, slots) = no_grad(|| self.restored(state))?;
        self.groups = groups;
        self.entries.iter_mut().zip(slots).for_each(|(entry, slot)| entry.state = slot);
        Ok(())
    }
}

impl<R: Rule> crate::graph::State for Optim<R> {
    fn advance(&mut self) -> Result<()> {
        self.step_with(None)
    }

    fn rewind(&mut self) {
        for (parameter, entry) in self.parameters.iter().zip(&mut self.entries) {
            if let Some(slot) = entry.state.as_mut().filter(|_| parameter.grad().is_some()) {
                slot.steps = slot.steps.saturating_sub(1);
            }
        }
    }

    fn tensors(&self) -> Vec<Tensor> {
        let slots = self.entries.iter().filter_map(|entry| entry.state.as_ref());
        let states = slots.flat_map(|slot| {
            let tensors = slot.tensors.iter().map(|(_, tensor)| tensor);
            tensors.chain(&slot.master).chain(&slot.skipped)
        });
        self.parameters.iter().chain(states).map(Tensor::detach).collect()
    }
}

impl Slot {
    /// The state of a parameter that made no step.
    fn new(rule: &impl Rule, parameter: &Tensor) -> Result<Slot> {
        let parameter = parameter.detach();
        let wide = accumulate_dtype(parameter.dtype());
        let is_narrow = wide != parameter.dtype();
        let master = (is_narrow && rule.has_master()).then(|| parameter.to_dtype(wide));
        let master = master.transpose()?.map(|copy| copy.contiguous()).transpose()?;
        Ok(Slot { steps: 0, skipped: None, master, tensors: rule.states(&parameter)? })
    }
}

/// A device as something with an order.
type Place = Option<u32>;

fn place(device: Device) -> Place {
    match device {
        Device::Cpu => None,
        Device::Cuda(number) => Some(number),
    }
}

/// What parameters that step together have in common.
#[derive(PartialEq)]
struct Key {
    group: usize,
    place: Place,
    dtype: DType,
    steps: u64,
    counter: Option<u64>,
}

/// The counter of all that begin in one step on one device.
fn shared_zero(fresh: &mut BTreeMap<Place, Tensor>, device: Device) -> Result<Tensor> {
    if let Some(zero) = fresh.get(&place(device)) {
        return Ok(zero.clone());
    }
    let zero = Tensor::zeros(&[1], (DType::I64, device))?;
    fresh.insert(place(device), zero.clone());
    Ok(zero)
}

/// Copies a saved tensor into the state.
fn restore(tensor: &Tensor, saved: &State, key: &str) -> Result<()> {
    let refuse = |message: String| Error::op("load_state_dict", message);
    let from = saved.tensors.get(key).ok_or_else(|| refuse(format!("missing {key}")))?;
    if from.shape() != tensor.shape() {
        let (is, needs) = (from.shape(), tensor.shape());
        return Err(refuse(format!("{key} has shape {is:?}, the parameter needs {needs:?}")));
    }
    tensor.copy_(from)
}

/// A parameter's gradient as its update reads it: of its dtype and dense.
fn gradient(parameter: &Tensor, name: &str) -> Result<Option<Tensor>> {
    let Some(grad) = parameter.grad() else { return Ok(None) };
    if grad.shape() != parameter.shape() || grad.device() != parameter.device() {
        let message = format!(
            "the gradient of {name} is {:?} on {:?}, the parameter {:?} on {:?}",
            grad.shape(),
            grad.device(),
            parameter.shape(),
            parameter.device()
        );
        return Err(Error::op("step", message));
    }
    Ok(Some(grad.detach().to_dtype(parameter.dtype())?.contiguous()?))
}
