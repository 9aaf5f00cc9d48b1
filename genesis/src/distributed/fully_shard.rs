//! Fully sharded data parallel training: each rank holds a part of each parameter, gradient and state.
//!
//! A module in [`FullyShard`] keeps its parameters cut into flat parts of one length, one a rank. A call
//! gathers them by one collective a dtype, runs the module and gives them up; a backward that reads one has
//! all gathered again, and the gradients of the module are reduced by one reduce-scatter when the last is there.
//! So a rank holds whole parameters of the module at work only: wrap each block of a model, and then the model, which
//! takes what is in no block.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use genesis_kernel::ir::DType;

use super::group::ProcessGroup;
use super::parts::{PartGroups, whole_of};
use super::uncounted::is_uncounted;
use super::unit::{Groups, Unit, Whole};
use crate::autograd::{Context, Function, Rebuilt, giving_up, is_running_again, no_grad};
use crate::error::{Error, Result};
use crate::nn::{
    Buffer, Cut, Layer, Module, Parameter, Replacement, Shard, Training, Visitor, VisitorMut,
    buffers, handles, replace,
};
use crate::tensor::Tensor;

/// Options of [`FullyShard`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullyShardOptions {
    /// Whether whole parameters are given up after a forward and gathered again for the backward (ZeRO-3).
    /// Otherwise they stay until the backward has ended: one collective less, and the memory of ZeRO-2.
    pub reshard_after_forward: bool,
    /// The dtype in which parameters are gathered and used, such as bf16 for f32 ones.
    pub param_dtype: Option<DType>,
    /// The dtype in which gradients are summed; that in which they come where there is none.
    pub reduce_dtype: Option<DType>,
}

impl Default for FullyShardOptions {
    fn default() -> FullyShardOptions {
        FullyShardOptions { reshard_after_forward: true, param_dtype: None, reduce_dtype: None }
    }
}

/// Which ranks have the parts of a model's parameters.
#[derive(Clone, Debug)]
pub struct Sharding {
    /// The ranks that have a part each.
    pub group: ProcessGroup,
    /// The ranks that have the same part as this one, where there are several: hybrid sharding (HSDP). Gradients are
    /// means over them too.
    pub replicas: Option<ProcessGroup>,
    /// How many ranks of `group`, next to each other, take the same batch, of which one counts: 1, but in audits of runs that
    /// share products. More need [ordered reductions](ProcessGroup::with_ordered_reductions).
    pub alike: usize,
    /// The rest.
    pub options: FullyShardOptions,
}

/// A module whose parameters lie in parts on the ranks of a group.
///
/// Its parameters are the parts of this rank, flat tensors under the module's names: give those to an
/// optimizer that treats elements one by one (SGD, Adam, AdamW, Lion, ..). Gradients are means over all
/// ranks, as those of [`DistributedDataParallel`](super::DistributedDataParallel).
///
/// # Examples
/// ```
/// use genesis::distributed::{FullyShard, init};
/// use genesis::nn::{Layer, Linear, Module};
/// use genesis::optim::{AdamW, AdamWOptions, Optimizer};
/// use genesis::Tensor;
///
/// let group = init()?;
/// let model = FullyShard::new(Linear::new(8, 4, group.device())?, &group, Default::default())?;
/// let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default());
/// let x = Tensor::randn(&[2, 8], group.device())?;
/// model.forward(&x)?.square()?.mean()?.backward()?;
/// optimizer.step()?;
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct FullyShard<M> {
    /// Between calls its parameters are empty tensors.
    module: Mutex<M>,
    shards: Vec<(String, Parameter)>,
    /// The parts of a [`FullyShard`] inside, which gathers them itself.
    inner: Vec<(String, Parameter)>,
    /// The module's order: the next of `shards`, or of `inner`.
    is_own: Vec<bool>,
    buffers: Vec<(String, Buffer)>,
    empty: Vec<Tensor>,
    unit: Arc<Unit>,
    options: FullyShardOptions,
    training: Training,
    /// What the module's own flags say.
    trains: AtomicBool,
}

impl<M: Module> FullyShard<M> {
    /// Cuts the parameters of a module, whose values are those of rank 0; those that a [`FullyShard`] inside has cut
    /// stay its own.
    ///
    /// # Errors
    /// If ranks do not call this alike, or memory runs out.
    pub fn new(module: M, group: &ProcessGroup, options: FullyShardOptions) -> Result<Self> {
        let groups = Groups { shards: group.clone(), replicas: None, alike: 1 };
        FullyShard::over(module, groups, options)
    }

    /// [`FullyShard::new`] by all that a [`Sharding`] says.
    ///
    /// # Errors
    /// As [`FullyShard::new`], and if several ranks are said to take the same batch without ordered reductions, or as
    /// many as do not divide the group.
    pub fn of(module: M, by: &Sharding) -> Result<Self> {
        let replicas = by.replicas.clone().filter(|replicas| replicas.size() > 1);
        let (group, alike) = (&by.group, by.alike);
        let fits = alike == 1 || group.has_ordered_reductions() && alike > 0;
        if !fits || !group.size().is_multiple_of(alike) {
            let message =
                format!("{alike} ranks of {} can't take the same batch here", group.size());
            return Err(Error::op("fully_shard", message));
        }
        FullyShard::over(module, Groups { shards: group.clone(), replicas, alike }, by.options)
    }

    fn over(module: M, groups: Groups, options: FullyShardOptions) -> Result<Self> {
        let mut module = module;
        // A parameter without elements stands for one that another rank has.
        let mut there = handles(&module);
        there.retain(|(_, parameter)| parameter.numel() > 0);
        let is_own = there.iter().map(|(_, parameter)| !is_flat(parameter)).collect();
        let (inner, all): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|(_, parameter)| is_flat(parameter));
        let (mut shards, mut wholes, mut empty, mut out) = (vec![], vec![], vec![], vec![]);
        for (name, parameter) in &all {
            let (whole, shard) = Whole::cut(parameter, &groups, options.param_dtype)?;
            let at = (parameter.dtype(), groups.shards.device());
            let placeholder = Tensor::empty(&[0], at)?.requires_grad_(false)?;
            let old = parameter.tensor().clone();
            out.push(Replacement { old, whole: Some(placeholder.clone()), quantized: None });
            shards.push((name.clone(), shard));
            wholes.push(whole);
            empty.push(placeholder);
        }
        let device = groups.shards.device();
        for (_, buffer) in module.named_buffers() {
            if buffer.device() != device {
                let whole = Some(buffer.to_device(device)?);
                out.push(Replacement { old: buffer, whole, quantized: None });
            }
        }
        replace(&mut module, &out);
        for (_, buffer) in module.named_buffers() {
            groups.shards.broadcast(&buffer, 0)?;
        }
        let buffers = buffers(&module);
        let unit = Arc::new(Unit::new(groups, wholes, options.reduce_dtype));
        let (training, trains) = (Training::default(), AtomicBool::new(true));
        let module = Mutex::new(module);
        Ok(FullyShard {
            module,
            shards,
            inner,
            is_own,
            buffers,
            empty,
            unit,
            options,
            training,
            trains,
        })
    }

    /// Lets the parameters of the next module, which is called right after this one, be gathered while this one
    /// computes; in a backward the other way round.
    ///
    /// # Examples
    /// ```
    /// use genesis::distributed::{FullyShard, init};
    /// use genesis::nn::Linear;
    ///
    /// let group = init()?;
    /// let block = || FullyShard::new(Linear::new(8, 8, group.device())?, &group, Default::default());
    /// let blocks = [block()?, block()?, block()?];
    /// blocks.windows(2).for_each(|pair| pair[0].prefetch(&pair[1]));
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn prefetch<N: Module>(&self, next: &FullyShard<N>) {
        Unit::follow((&self.unit, self.parts()), (&next.unit, next.parts()));
    }

    /// The parts of this rank, without history.
    fn parts(&self) -> Vec<Tensor> {
        self.shards.iter().map(|(_, shard)| shard.detach()).collect()
    }

    /// Runs `f` with the module as it was before it was cut: for modules whose forward is no
    /// [`Layer::forward`].
    ///
    /// # Errors
    /// If `f` refuses, or a collective can't be made.
    pub fn call<T>(&self, f: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        if self.shards.is_empty() {
            return self.with(&[], f);
        }
        let shards: Vec<Tensor> = self.shards.iter().map(|(_, s)| s.tensor().clone()).collect();
        let (source, unit) = (self.parts(), self.unit.clone());
        let again = move || {
            // A backward goes from the last unit to the first.
            unit.begin_with_neighbour(&source, false)?;
            no_grad(|| unit.gather(&source))
        };
        let rebuilt = Rebuilt::new(Box::new(again));
        let counts = !is_uncounted();
        // What runs again does so in a backward, from the last unit to the first.
        self.unit.begin_with_neighbour(&self.parts(), !is_running_again())?;
        let gather = Gather { unit: self.unit.clone(), rebuilt: rebuilt.clone(), counts };
        let wholes = gather.apply_many(&shards.iter().collect::<Vec<_>>())?;
        let run = || self.with(&wholes, f);
        if self.options.reshard_after_forward { giving_up(&wholes, &rebuilt, run) } else { run() }
    }

    /// What `f` says of the module, without its parameters.
    pub(crate) fn inspect<T>(&self, f: impl FnOnce(&M) -> T) -> T {
        f(&lock(&self.module))
    }

    /// Runs `f` with whole parameters in the module.
    fn with<T>(&self, wholes: &[Tensor], f: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        /// Takes the parameters out again, also where `f` panics.
        struct Out<'a, M: Module> {
            module: MutexGuard<'a, M>,
            out: Vec<Replacement>,
        }
        impl<M: Module> Drop for Out<'_, M> {
            fn drop(&mut self) {
                replace(&mut *self.module, &self.out);
            }
        }
        let exchange = |old: &[Tensor], new: &[Tensor]| -> Vec<Replacement> {
            let of = |(old, new): (&Tensor, &Tensor)| {
                let (old, whole) = (old.clone(), Some(new.clone()));
                Replacement { old, whole, quantized: None }
            };
            old.iter().zip(new).map(of).collect()
        };
        let mut module = lock(&self.module);
        let trains = self.training.is_on();
        if self.trains.swap(trains, Ordering::Relaxed) != trains {
            module.train(trains);
        }
        replace(&mut *module, &exchange(&self.empty, wholes));
        let inside = Out { module, out: exchange(wholes, &self.empty) };
        f(&inside.module)
    }

    /// The whole parameters by name, on every rank: for export. All ranks call it.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn full_parameters(&self) -> Result<Vec<(String, Tensor)>> {
        let all = self.shards.iter().chain(&self.inner);
        let flat = Some(&self.unit.groups.shards);
        let whole = |(name, part): &(String, Parameter)| {
            // What was cut before stays a part.
            let own = part.shard().map(|shard| Shard { outer: None, ..(**shard).clone() });
            let groups = PartGroups { flat, axis: None };
            Ok((name.clone(), whole_of(part, own.as_ref(), groups)?))
        };
        all.map(whole).collect()
    }
}

/// Whether a parameter was cut by a [`FullyShard`] inside.
fn is_flat(parameter: &Parameter) -> bool {
    parameter.shard().is_some_and(|shard| shard.cut == Cut::Flat)
}

/// Whole parameters of parts; the gradient of the parts is a mean over ranks.
struct Gather {
    unit: Arc<Unit>,
    rebuilt: Arc<Rebuilt>,
    /// Whether this rank's gradients are added to those of the others.
    counts: bool,
}

impl Function for Gather {
    const ONCE_DIFFERENTIABLE: bool = true;

    fn name(&self) -> &str {
        "fully_shard"
    }

    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let parts: Vec<Tensor> = inputs.iter().map(|part| part.detach()).collect();
        let wholes = self.unit.gather(&parts)?;
        let needed = ctx.needs_input_grad().to_vec();
        let frozen: Vec<&Tensor> = wholes
            .iter()
            .zip(needed)
            .filter(|(_, needed)| !needed)
            .map(|(whole, _)| whole)
            .collect();
        ctx.mark_non_differentiable(&frozen);
        Ok(wholes)
    }

    fn backward(&self, ctx: &Context, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        // All that reads whole parameters has run: it gave these gradients.
        self.rebuilt.forget();
        if self.counts {
            return self.unit.scatter(grads, ctx.needs_input_grad());
        }
        let nothing = grads.iter().map(Tensor::zeros_like).collect::<Result<Vec<_>>>()?;
        self.unit.scatter(&nothing, ctx.needs_input_grad())
    }
}

impl<M: Layer> Layer for FullyShard<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.call(|module| module.forward(x))
    }
}

impl<M: Module> Module for FullyShard<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        let (mut own, mut inner) = (self.shards.iter(), self.inner.iter());
        for &is_own in &self.is_own {
            if let Some((name, shard)) = if is_own { own.next() } else { inner.next() } {
                visitor.part(name, shard);
            }
        }
        self.buffers.iter().for_each(|(name, buffer)| visitor.part(name, buffer));
        visitor.part("", &self.training);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        // Buffers keep their dtype, and their device is the group's.
        self.shards.iter_mut().for_each(|(name, shard)| visitor.part(name, shard));
        let old: Vec<Tensor> = self.inner.iter().map(|(_, shard)| shard.tensor().clone()).collect();
        self.inner.iter_mut().for_each(|(name, shard)| visitor.part(name, shard));
        let changed = old.into_iter().zip(&self.inner).filter(|(old, (_, new))| !new.is_same(old));
        let of = |(old, (_, new)): (Tensor, &(String, Parameter))| Replacement {
            old,
            whole: Some(new.tensor().clone()),
            quantized: None,
        };
        // The module inside has them too.
        let changed: Vec<Replacement> = changed.map(of).collect();
        let module = self.module.get_mut().unwrap_or_else(PoisonError::into_inner);
        replace(module, &changed);
    }

    fn as_module(&self) -> &dyn Module {
        self
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
