//! A run on several ranks: of the batches of a step each learns from its own, of the model each may have a part.
//!
//! All ranks read the same data in the same order, so that the place of the loader, the learning rate and the
//! number of learned tokens are the same on all. A step takes `accumulate` batches of each rank that takes others; its
//! gradients are those of one rank that takes them all. The first rank writes what a run writes, but for what others alone have
//! of a checkpoint ([`saves`](super::saves)).

use genesis_kernel::ir::DType;

use super::batch::Sharing;
use super::mesh::{Axis, Layout, Mesh};
use super::options::Options;
use super::stages::Stages;
use super::start::Start;
use crate::autograd::{HookHandle, no_grad};
use crate::distributed::{
    DdpOptions, DistributedDataParallel, Parallel, PartGroups, ProcessGroup, ReduceOp, Sharding,
    sum_gradients, whole_of,
};
use crate::error::{Error, Result};
use crate::models::{CausalLm, SharedModel, Stage, TensorParallel};
use crate::nn::{Cut, Shard, handles};
use crate::optim::total_norm;
use crate::tensor::Tensor;

/// The ranks of a run.
pub(super) struct Ranks {
    pub(super) mesh: Mesh,
    pub(super) stages: Option<Stages>,
    /// None where parameters are in parts, whose gradients are reduced in the backward, or nobody shares the batches.
    reducer: Option<DistributedDataParallel<SharedModel>>,
    /// Over how many ranks gradients come as means.
    averaged: usize,
    _hooks: Vec<HookHandle>,
}

impl Ranks {
    /// Gives each rank of a group its part of a model; its values are those of the first rank.
    pub(super) fn new(
        mut start: Start,
        options: &Options,
        group: &ProcessGroup,
    ) -> Result<(Ranks, Start)> {
        let layout = Layout::of(options, group.size())?;
        let mesh = match options.ordered_reductions {
            true => Mesh::new(layout, &group.with_ordered_reductions())?,
            false => Mesh::new(layout, group)?,
        };
        let partial = cut_products(&mut start, options, &mesh)?;
        let stages = mesh.stages.as_ref().map(|group| cut_layers(&mut start, group)).transpose()?;
        start = placed(start, options, &mesh)?;
        let hooks = match &mesh.tensor {
            Some(group) => sum_gradients(&trained(&start, &partial), group)?,
            None => Vec::new(),
        };
        let reducer = match &mesh.reduce {
            Some(group) if mesh.shards.is_none() => {
                // The same learned tokens count on all ranks: no buffer changes in training.
                let options = DdpOptions { broadcast_buffers: false, ..DdpOptions::default() };
                let shared = SharedModel(start.model.clone());
                Some(DistributedDataParallel::new(shared, group, options)?)
            }
            _ => None,
        };
        let averaged = mesh.reduce.as_ref().map_or(1, ProcessGroup::size);
        Ok((Ranks { mesh, stages, reducer, averaged, _hooks: hooks }, start))
    }

    /// What batches are to be like.
    pub(super) fn sharing(&self) -> Sharing {
        Sharing {
            context: self.mesh.context.clone(),
            parts: self.mesh.tensor.as_ref().map_or(1, ProcessGroup::size),
            is_fixed: self.stages.is_some(),
        }
    }

    /// How many ranks take other batches.
    pub(super) fn size(&self) -> usize {
        self.mesh.layout.data()
    }

    /// A loss whose gradients are means over ranks, of one that is a part of a sum over them.
    pub(super) fn scaled(&self, loss: Tensor) -> Result<Tensor> {
        if self.averaged == 1 { Ok(loss) } else { loss.mul_scalar(self.averaged as f64) }
    }

    /// Goes backward from the losses that `of` gives for each of the `own`; gradients are then the sums over all
    /// ranks. What is reduced at the end is reduced in the backward of the last.
    pub(super) fn backward<T>(
        &self,
        own: &[T],
        mut of: impl FnMut(&T) -> Result<Tensor>,
    ) -> Result<()> {
        let mut step = |part: &T| self.scaled(of(part)?)?.backward();
        let Some(reducer) = &self.reducer else { return own.iter().try_for_each(step) };
        let Some((last, others)) = own.split_last() else { return reducer.reduce_gradients() };
        reducer.no_sync(|| others.iter().try_for_each(&mut step))?;
        step(last)
    }

    /// Runs `f`, which goes backward from all losses of a step, and then reduces what is left to reduce.
    pub(super) fn reduced<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(reducer) = &self.reducer else { return f() };
        let result = reducer.no_sync(f)?;
        reducer.reduce_gradients()?;
        Ok(result)
    }

    /// The joint norm of all gradients, those of parameters in parts included.
    pub(super) fn grad_norm(&self, model: &dyn CausalLm, parameters: &[Tensor]) -> Result<Tensor> {
        let grads = |of: &[Tensor]| of.iter().filter_map(Tensor::grad).collect::<Vec<_>>();
        if !self.mesh.has_parts() {
            return total_norm(&grads(parameters), 2.0);
        }
        if self.mesh.world.has_ordered_reductions() && self.mesh.tensor.is_none() {
            return self.norm_in_order(model, parameters);
        }
        let counts = handles(model.as_module()).into_iter();
        let counts = counts.filter(|(name, p)| self.counts(name, p.shard().map(|s| &**s)));
        let counted: Vec<Tensor> = counts.map(|(_, p)| p.tensor().clone()).collect();
        let grads = grads(&counted);
        no_grad(|| {
            let device = self.mesh.world.device();
            let square = match grads.is_empty() {
                true => Tensor::zeros(&[1], (DType::F32, device))?,
                false => total_norm(&grads, 2.0)?.square()?.reshape(&[1])?,
            };
            let groups = [&self.mesh.shards, &self.mesh.tensor, &self.mesh.stages];
            for group in groups.into_iter().flatten() {
                group.all_reduce(&square, ReduceOp::Sum)?;
            }
            square.sqrt()?.reshape(&[])
        })
    }

    /// Whether this rank's part of a parameter is one that no other rank with the same batches counts.
    fn counts(&self, name: &str, shard: Option<&Shard>) -> bool {
        let (mut is_flat, mut is_cut, mut part) = (false, false, shard);
        while let Some(shard) = part {
            match shard.cut {
                Cut::Flat => is_flat = true,
                Cut::Axis(_) => is_cut = true,
            }
            part = shard.outer.as_deref();
        }
        // With ordered reductions flat parts lie along the axis of tensor parallel ranks too.
        let is_cut = is_cut || is_flat && self.mesh.tensor.is_none();
        let is_again = self.stages.as_ref().is_some_and(|stages| stages.has_again(name));
        (is_flat || self.mesh.at(Axis::Shard) == 0)
            && (is_cut || self.mesh.at(Axis::Tensor) == 0)
            && !is_again
    }

    /// Whether this rank is the one, of those that have the same part of a parameter, that saves it.
    pub(super) fn saves(&self, name: &str, shard: Option<&Shard>) -> bool {
        let is_replica = self.mesh.at(Axis::Data) > 0 || self.mesh.at(Axis::Context) > 0;
        !is_replica && self.counts(name, shard)
    }

    /// Whether this rank saves the optimizer's state that it alone has, where that is shared out.
    pub(super) fn saves_shared_state(&self) -> bool {
        // With ordered reductions the ranks of a sequence share nothing out.
        self.mesh.context.is_some() || self.mesh.at(Axis::Context) == 0
    }

    /// The whole tensor of a rank's part; all ranks call it.
    fn whole(&self, part: &Tensor, shard: Option<&Shard>) -> Result<Tensor> {
        let (flat, axis) = (self.mesh.shards.as_ref(), self.mesh.tensor.as_ref());
        whole_of(part, shard, PartGroups { flat, axis })
    }

    /// The norm as one rank computes it, bit for bit: over whole gradients, in its order.
    fn norm_in_order(&self, model: &dyn CausalLm, parameters: &[Tensor]) -> Result<Tensor> {
        let all = handles(model.as_module());
        let mut wholes: [Vec<(String, Tensor)>; 2] = Default::default();
        for parameter in parameters {
            let own = all.iter().find(|(_, own)| own.is_same(parameter));
            let (Some((name, own)), Some(grad)) = (own, parameter.grad()) else { continue };
            let whole = self.whole(&grad, own.shard().map(|shard| &**shard))?;
            wholes[usize::from(whole.rank() < 2)].push((name.clone(), whole));
        }
        let Some(stages) = &self.stages else {
            return total_norm(
                &wholes.concat().into_iter().map(|(_, t)| t).collect::<Vec<_>>(),
                2.0,
            );
        };
        let device = self.mesh.world.device();
        let mut ordered = Vec::new();
        for part in wholes {
            let (part, _) = stages.collect(part, Default::default(), device)?;
            ordered.extend(part.into_iter().map(|(_, whole)| whole));
        }
        let norm = match ordered.is_empty() {
            true => Tensor::zeros(&[], (DType::F32, device))?,
            false => total_norm(&ordered, 2.0)?.to_dtype(DType::F32)?.copy()?,
        };
        stages.tell(&norm)?;
        Ok(norm)
    }

    /// Numbers added up over all ranks that have other parts of the batches; waits for them. Of stages the last one's
    /// count.
    pub(super) fn sum<const N: usize>(&self, numbers: [f64; N]) -> Result<[f64; N]> {
        let numbers = match &self.mesh.reduce {
            Some(group) => sum_over(group, numbers)?,
            None => numbers,
        };
        let Some(group) = &self.mesh.stages else { return Ok(numbers) };
        let is_last = group.rank() + 1 == group.size();
        sum_over(group, if is_last { numbers } else { [0.0; N] })
    }

    /// How many ranks of all say each of these; waits for them.
    pub(super) fn count<const N: usize>(&self, says: [bool; N]) -> Result<[usize; N]> {
        let counts = sum_over(&self.mesh.world, says.map(|says| f64::from(u8::from(says))))?;
        Ok(counts.map(|count| count as usize))
    }

    /// The bytes of all ranks, as many of each, in their order; waits for them.
    pub(super) fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let world = &self.mesh.world;
        let all = world.all_gather(&Tensor::from_slice_on(own, &[own.len()], world.device())?)?;
        Ok(all.to_vec::<u8>()?.chunks(own.len().max(1)).map(<[u8]>::to_vec).collect())
    }

    /// The text of the first rank; waits for it.
    pub(super) fn of_first(&self, text: String) -> Result<String> {
        let (world, bytes) = (&self.mesh.world, text.into_bytes());
        let length = Tensor::from_slice_on(&[bytes.len() as i64], &[1], world.device())?;
        world.broadcast(&length, 0)?;
        let length = length.item()? as usize;
        let bytes = if world.rank() == 0 { bytes } else { vec![0; length] };
        let told = Tensor::from_slice_on(&bytes, &[length], world.device())?;
        if length > 0 {
            world.broadcast(&told, 0)?;
        }
        let told = String::from_utf8(told.to_vec::<u8>()?);
        told.map_err(|_| Error::op("train", "the first rank said what is no text"))
    }
}

/// Leaves each rank its part of products, where these are cut. The names of the parameters that stay whole on each rank, of
/// whose gradients each has a part.
fn cut_products(start: &mut Start, options: &Options, mesh: &Mesh) -> Result<Vec<String>> {
    let Some(group) = &mesh.tensor else { return Ok(Vec::new()) };
    let between = match options.sequence_parallel {
        true => Parallel::Sequence(-2),
        false => Parallel::Tensor,
    };
    start.unique_model()?.tensor_parallel(&TensorParallel { group: group.clone(), between })
}

/// Leaves each rank of a group its stage of the layers.
fn cut_layers(start: &mut Start, group: &ProcessGroup) -> Result<Stages> {
    let stage = Stage { index: group.rank(), count: group.size() };
    let shared = start.unique_model()?.take_stage(stage)?;
    Stages::new(group, shared)
}

/// The model on this rank's device, its parameters in flat parts where the mesh has them so.
fn placed(mut start: Start, options: &Options, mesh: &Mesh) -> Result<Start> {
    if let Some(shards) = &mesh.shards {
        // Each parameter goes there as it is cut.
        let (group, replicas, alike) = (shards.clone(), mesh.replicas.clone(), mesh.alike);
        let by = Sharding { group, replicas, alike, options: options.sharding() };
        return Ok(Start { model: start.model.fully_shard(&by)?, ..start });
    }
    let device = mesh.world.device();
    if !start.model.parameters().iter().all(|p| p.device() == device) {
        start.unique_model()?.to_device(device)?;
    }
    Ok(start)
}

/// The parameters of these names that are trained.
fn trained(start: &Start, names: &[String]) -> Vec<Tensor> {
    let named = start.model.named_parameters().into_iter();
    let is_one = |(name, p): &(String, Tensor)| p.requires_grad() && names.contains(name);
    named.filter(is_one).map(|(_, p)| p).collect()
}

fn sum_over<const N: usize>(group: &ProcessGroup, mut numbers: [f64; N]) -> Result<[f64; N]> {
    let sums = Tensor::from_slice_on(&numbers, &[N], group.device())?.to_dtype(DType::F64)?;
    group.all_reduce(&sums, ReduceOp::Sum)?;
    let found = sums.to_vec::<f64>()?;
    if found.len() != N {
        return Err(Error::op("train", "a sum over ranks lost numbers, which is a bug"));
    }
    numbers.copy_from_slice(&found);
    Ok(numbers)
}
