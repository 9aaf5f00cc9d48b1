//! Fully sharded data parallel training: each rank holds a part of each parameter, gradient and state.
//!
//! A module in [`FullyShard`] keeps its parameters cut into flat parts of one length, one a rank. A call
//! gathers them by one collective a dtype, runs the module and gives them up; a backward that reads one has
//! all gathered again, and the gradients of the module are reduced by one reduce-scatter when the last is there.
//! So a rank holds whole parameters of the module at work only: wrap each block of a model.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::nccl::ReduceOp;

use super::group::ProcessGroup;
use crate::autograd::{Context, Function, Rebuilt, giving_up, no_grad};
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
    buffers: Vec<(String, Buffer)>,
    empty: Vec<Tensor>,
    plan: Arc<Plan>,
    options: FullyShardOptions,
    training: Training,
    /// What the module's own flags say.
    trains: AtomicBool,
}

/// What is gathered, and how it lies.
#[derive(Debug)]
struct Plan {
    group: ProcessGroup,
    wholes: Vec<Whole>,
    reduce_dtype: Option<DType>,
}

/// A parameter as it is used.
#[derive(Clone, Debug)]
struct Whole {
    shape: Vec<usize>,
    /// In which it is used.
    dtype: DType,
    /// In which its parts are kept.
    stored: DType,
    /// Elements of it.
    numel: usize,
    /// Elements of each rank.
    chunk: usize,
}

impl<M: Module> FullyShard<M> {
    /// Cuts the parameters of a module, whose values are those of rank 0.
    ///
    /// # Errors
    /// If the module is not on the group's device, holds a [`FullyShard`] itself, or ranks do not call this
    /// alike.
    pub fn new(module: M, group: &ProcessGroup, options: FullyShardOptions) -> Result<Self> {
        let mut module = module;
        let all = handles(&module);
        if let Some((name, _)) = all.iter().find(|(_, parameter)| is_flat(parameter)) {
            let message = format!("`{name}` is sharded already: shard modules side by side");
            return Err(Error::op("fully_shard", message));
        }
        let (mut shards, mut wholes, mut empty, mut out) = (vec![], vec![], vec![], vec![]);
        for (name, parameter) in &all {
            let (whole, shard) = cut(parameter, group, options.param_dtype)?;
            let placeholder =
                Tensor::empty(&[0], (parameter.dtype(), group.device()))?.requires_grad_(false)?;
            let old = parameter.tensor().clone();
            out.push(Replacement { old, whole: Some(placeholder.clone()), quantized: None });
            shards.push((name.clone(), shard));
            wholes.push(whole);
            empty.push(placeholder);
        }
        replace(&mut module, &out);
        for (_, buffer) in module.named_buffers() {
            group.broadcast(&buffer, 0)?;
        }
        let buffers = buffers(&module);
        let plan = Plan { group: group.clone(), wholes, reduce_dtype: options.reduce_dtype };
        let (training, trains) = (Training::default(), AtomicBool::new(true));
        let (module, plan) = (Mutex::new(module), Arc::new(plan));
        Ok(FullyShard { module, shards, buffers, empty, plan, options, training, trains })
    }

    /// Runs `f` with the module as it was before it was cut: for modules whose forward is no
    /// [`Layer::forward`].
    ///
    /// # Errors
    /// If `f` refuses, or a collective can't be made.
    pub fn call<T>(&self, f: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        let shards: Vec<Tensor> = self.shards.iter().map(|(_, s)| s.tensor().clone()).collect();
        let source: Vec<Tensor> = shards.iter().map(Tensor::detach).collect();
        let plan = self.plan.clone();
        let rebuilt = Rebuilt::new(Box::new(move || no_grad(|| plan.gather(&source))));
        let gather = Gather { plan: self.plan.clone(), rebuilt: rebuilt.clone() };
        let wholes = match shards.is_empty() {
            true => Vec::new(),
            false => gather.apply_many(&shards.iter().collect::<Vec<_>>())?,
        };
        let run = || self.with(&wholes, f);
        if self.options.reshard_after_forward { giving_up(&wholes, &rebuilt, run) } else { run() }
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
        let shards: Vec<Tensor> = self.shards.iter().map(|(_, s)| s.detach()).collect();
        let keep =
            |(whole, shard): (&Whole, &Tensor)| Whole { dtype: shard.dtype(), ..whole.clone() };
        let wholes = self.plan.wholes.iter().zip(&shards).map(keep).collect();
        let plan = Plan { group: self.plan.group.clone(), wholes, reduce_dtype: None };
        let names = self.shards.iter().map(|(name, _)| name.clone());
        Ok(names.zip(no_grad(|| plan.gather(&shards))?).collect())
    }
}

/// Whether a parameter was cut by a [`FullyShard`] inside.
fn is_flat(parameter: &Parameter) -> bool {
    parameter.shard().is_some_and(|shard| shard.cut == Cut::Flat)
}

/// This rank's part of a parameter that all ranks have.
fn cut(
    parameter: &Parameter,
    group: &ProcessGroup,
    dtype: Option<DType>,
) -> Result<(Whole, Parameter)> {
    let shape = parameter.shape().to_vec();
    let (size, rank) = (group.size(), group.rank());
    let chunk = parameter.numel().div_ceil(size);
    let part = no_grad(|| {
        let values = parameter.detach().contiguous()?;
        group.broadcast(&values, 0)?;
        let start = (rank * chunk).min(values.numel());
        let own = values.reshape(&[values.numel()])?.narrow(
            0,
            start,
            chunk.min(values.numel() - start),
        )?;
        padded(&own, chunk)?.copy()
    })?;
    let shard = Shard {
        whole: shape.clone(),
        cut: Cut::Flat,
        index: rank,
        count: size,
        outer: parameter.shard().cloned(),
    };
    let is_trained = parameter.requires_grad();
    let part = match is_trained {
        true => Parameter::new(part)?,
        false => Parameter::frozen(part),
    };
    let dtype = dtype.filter(|_| parameter.dtype().is_float()).unwrap_or(parameter.dtype());
    let (stored, numel) = (parameter.dtype(), parameter.numel());
    Ok((Whole { shape, dtype, stored, numel, chunk }, part.with_shard(shard)))
}

/// A vector with zeros up to a length.
fn padded(x: &Tensor, length: usize) -> Result<Tensor> {
    match length - x.numel() {
        0 => Ok(x.clone()),
        missing => {
            let zeros = Tensor::zeros(&[missing], (x.dtype(), x.device()))?;
            Tensor::cat(&[x, &zeros], 0)
        }
    }
}

impl Plan {
    /// Parameters of each dtype, which travel together.
    fn by_dtype(&self) -> Vec<Vec<usize>> {
        let mut packs: Vec<Vec<usize>> = Vec::new();
        for (index, whole) in self.wholes.iter().enumerate() {
            let is_kin = |pack: &&mut Vec<usize>| self.wholes[pack[0]].dtype == whole.dtype;
            match packs.iter_mut().find(is_kin) {
                Some(pack) => pack.push(index),
                None => packs.push(vec![index]),
            }
        }
        packs
    }

    /// Where each of a pack lies among the elements of a rank.
    fn places(&self, pack: &[usize]) -> Vec<Range<usize>> {
        let mut start = 0;
        let place = |&index: &usize| {
            let place = start..start + self.wholes[index].chunk;
            start = place.end;
            place
        };
        pack.iter().map(place).collect()
    }

    /// The whole parameters of the parts of all ranks.
    fn gather(&self, shards: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut wholes: Vec<Option<Tensor>> = vec![None; shards.len()];
        for pack in self.by_dtype() {
            let dtype = self.wholes[pack[0]].dtype;
            let parts = pack.iter().map(|&index| shards[index].to_dtype(dtype));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            let own = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
            let all = self.group.all_gather(&own.reshape(&[1, own.numel()])?)?; // [ranks, elements]
            for (&index, place) in pack.iter().zip(self.places(&pack)) {
                let whole = &self.wholes[index];
                let rows = all.narrow(1, place.start, place.len())?.copy()?.contiguous()?;
                let flat = rows.reshape(&[rows.numel()])?.narrow(0, 0, whole.numel)?;
                wholes[index] = Some(flat.reshape(&whole.shape)?);
            }
        }
        let missing = || Error::op("fully_shard", "a parameter is in no pack, which is a bug");
        wholes.into_iter().map(|whole| whole.ok_or_else(missing)).collect()
    }

    /// This rank's part of the mean over all ranks of each gradient; none where none is wanted.
    fn scatter(&self, grads: &[Tensor], needed: &[bool]) -> Result<Vec<Option<Tensor>>> {
        let mut parts = vec![None; grads.len()];
        for mut pack in self.by_dtype() {
            pack.retain(|&index| needed[index]);
            if pack.is_empty() {
                continue;
            }
            let dtype = self.reduce_dtype.unwrap_or(self.wholes[pack[0]].dtype);
            let rows = pack.iter().map(|&index| self.rows(&grads[index], index, dtype));
            let rows = rows.collect::<Result<Vec<_>>>()?;
            let all = Tensor::cat(&rows.iter().collect::<Vec<_>>(), 1)?; // [ranks, elements]
            let own = self.group.reduce_scatter(&all, ReduceOp::Avg)?;
            let own = own.reshape(&[own.numel()])?;
            for (&index, place) in pack.iter().zip(self.places(&pack)) {
                let part =
                    own.narrow(0, place.start, place.len())?.to_dtype(self.wholes[index].stored)?;
                // Of its own, so that the others' memory goes with them.
                parts[index] = Some(if pack.len() > 1 { part.copy()? } else { part });
            }
        }
        Ok(parts)
    }

    /// A gradient as the parts of all ranks, one a row.
    fn rows(&self, grad: &Tensor, index: usize, dtype: DType) -> Result<Tensor> {
        let (size, chunk) = (self.group.size(), self.wholes[index].chunk);
        let flat = grad.detach().to_dtype(dtype)?.contiguous()?.reshape(&[grad.numel()])?;
        padded(&flat, size * chunk)?.reshape(&[size, chunk])
    }
}

/// Whole parameters of parts; the gradient of the parts is a mean over ranks.
struct Gather {
    plan: Arc<Plan>,
    rebuilt: Arc<Rebuilt>,
}

impl Function for Gather {
    const ONCE_DIFFERENTIABLE: bool = true;

    fn name(&self) -> &str {
        "fully_shard"
    }

    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let parts: Vec<Tensor> = inputs.iter().map(|part| part.detach()).collect();
        let wholes = self.plan.gather(&parts)?;
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
        self.plan.scatter(grads, ctx.needs_input_grad())
    }
}

impl<M: Layer> Layer for FullyShard<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.call(|module| module.forward(x))
    }
}

impl<M: Module> Module for FullyShard<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.shards.iter().for_each(|(name, shard)| visitor.part(name, shard));
        self.buffers.iter().for_each(|(name, buffer)| visitor.part(name, buffer));
        visitor.part("", &self.training);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        // Buffers keep their dtype, and their device is the group's.
        self.shards.iter_mut().for_each(|(name, shard)| visitor.part(name, shard));
    }

    fn as_module(&self) -> &dyn Module {
        self
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
