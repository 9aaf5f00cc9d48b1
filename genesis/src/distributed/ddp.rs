//! Data parallel training: each rank has the whole model and a part of the batch.
//!
//! A hook of each parameter says when its gradient is there. Gradients are packed into buckets in the
//! order in which a backward makes them; a bucket that is full is reduced on the group's own stream while
//! the backward goes on. All ranks reduce the buckets in the same order, and wait for them when their
//! backward has ended. `grad` of a parameter is then a part of its bucket.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::nccl::ReduceOp;

use super::buckets::{Bucket, Slot, deal};
use super::group::ProcessGroup;
use super::work::Work;
use crate::autograd::{HookHandle, after_backward, no_grad};
use crate::dispatch::capture;
use crate::error::{Error, Result};
use crate::nn::{Module, Visitor, VisitorMut};
use crate::tensor::Tensor;

const NAME: &str = "DistributedDataParallel";

/// Options of [`DistributedDataParallel`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DdpOptions {
    /// The most bytes of gradients that are reduced at once; 25 MiB as in PyTorch.
    pub bucket_bytes: usize,
    /// The same of the first bucket, which is small so that the first collective starts early.
    pub first_bucket_bytes: usize,
    /// Whether buffers, such as running statistics, are those of rank 0 after each backward.
    pub broadcast_buffers: bool,
    /// The dtype in which gradients travel, such as bf16 for f32 ones; their own where there is none.
    pub compress: Option<DType>,
}

impl Default for DdpOptions {
    fn default() -> DdpOptions {
        DdpOptions {
            bucket_bytes: 25 << 20,
            first_bucket_bytes: 1 << 20,
            broadcast_buffers: true,
            compress: None,
        }
    }
}

/// A module whose gradients are, after each backward, the means of those of all ranks.
///
/// It is the module in all else: its methods are called as before, and its names in a `state_dict` are
/// the module's. Parameters that no rank used keep no gradient; those that some rank did not use count
/// as 0 there. Nothing has to be said about them.
#[derive(Debug)]
pub struct DistributedDataParallel<M> {
    module: M,
    reducer: Arc<Mutex<Reducer>>,
    hooks: Vec<HookHandle>,
}

/// What the hooks of all parameters share.
#[derive(Debug)]
struct Reducer {
    group: ProcessGroup,
    options: DdpOptions,
    parameters: Vec<Tensor>,
    slots: Vec<Slot>,
    buffers: Vec<Tensor>,
    buckets: Vec<Bucket>,
    /// The bucket of each parameter.
    bucket_of: Vec<usize>,
    /// Whether a backward reduces.
    is_on: bool,
    /// Whether buckets follow the order of a backward yet.
    is_ordered: bool,
    /// Where rank 0 says that order.
    order_key: String,
    /// The backward under way.
    run: Run,
}

/// A backward under way.
#[derive(Debug, Default)]
struct Run {
    /// Parameters whose gradient is there, in the order in which they came.
    order: Vec<usize>,
    /// Parameters that each bucket still waits for.
    missing: Vec<usize>,
    /// Buckets that were given to the group.
    works: Vec<Packed>,
}

/// A bucket under way.
#[derive(Debug)]
struct Packed {
    work: Work,
    has: Vec<bool>,
}

impl<M: Module> DistributedDataParallel<M> {
    /// Takes over a module: its parameters and buffers are those of rank 0 from now on.
    ///
    /// # Errors
    /// If the module is not on the group's device, or is not the same on all ranks.
    pub fn new(module: M, group: &ProcessGroup, options: DdpOptions) -> Result<Self> {
        let named: Vec<(String, Tensor)> =
            module.named_parameters().into_iter().filter(|(_, p)| p.requires_grad()).collect();
        let mut all = named.clone();
        all.extend(module.named_buffers());
        let frozen = module.parameters().into_iter().filter(|p| !p.requires_grad());
        let key = check_alike(group, &all)?;
        for tensor in all.iter().map(|(_, t)| t.clone()).chain(frozen) {
            no_grad(|| group.broadcast(&tensor.detach(), 0))?;
        }
        let buffers = module.named_buffers().into_iter().map(|(_, buffer)| buffer).collect();
        let parameters: Vec<Tensor> = named.into_iter().map(|(_, parameter)| parameter).collect();
        let reducer =
            Arc::new(Mutex::new(Reducer::new(group, options, parameters.clone(), buffers, key)));
        let hooks = parameters
            .iter()
            .enumerate()
            .map(|(index, parameter)| {
                let reducer = Arc::downgrade(&reducer);
                parameter.register_post_accumulate_grad_hook(move |_| arrived(&reducer, index))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(DistributedDataParallel { module, reducer, hooks })
    }

    /// The module.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// Runs `f`, whose backwards add to this rank's own gradients; the next backward outside reduces the
    /// sums. For batches that are taken in parts.
    pub fn no_sync<T>(&self, f: impl FnOnce() -> T) -> T {
        struct On<'a>(&'a Mutex<Reducer>);
        impl Drop for On<'_> {
            fn drop(&mut self) {
                lock(self.0).is_on = true;
            }
        }
        lock(&self.reducer).is_on = false;
        let _on = On(&self.reducer);
        f()
    }

    /// Reduces the gradients as they are: what a backward does, for those that were made under
    /// [`DistributedDataParallel::no_sync`].
    ///
    /// # Errors
    /// If a collective can't be made.
    pub fn reduce_gradients(&self) -> Result<()> {
        let mut reducer = lock(&self.reducer);
        reducer.begin();
        reducer.finish()
    }

    /// The module without this.
    pub fn into_module(self) -> M {
        self.hooks.iter().for_each(HookHandle::remove);
        self.module
    }
}

impl<M> Deref for DistributedDataParallel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<M: Module> Module for DistributedDataParallel<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.module.visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.module.visit_mut(visitor);
    }

    fn as_module(&self) -> &dyn Module {
        self.module.as_module()
    }

    fn kind(&self) -> String {
        self.module.kind()
    }
}

/// The gradient of a parameter is there.
fn arrived(reducer: &Weak<Mutex<Reducer>>, index: usize) -> Result<()> {
    let Some(shared) = reducer.upgrade() else { return Ok(()) };
    let mut reducer = lock(&shared);
    if !reducer.is_on {
        return Ok(());
    }
    if reducer.run.order.is_empty() {
        reducer.begin();
        let shared = shared.clone();
        after_backward(move || lock(&shared).finish());
    }
    reducer.arrived(index)
}

impl Reducer {
    fn new(
        group: &ProcessGroup,
        options: DdpOptions,
        parameters: Vec<Tensor>,
        buffers: Vec<Tensor>,
        order_key: String,
    ) -> Reducer {
        let slot = |p: &Tensor| Slot { elements: p.numel(), dtype: p.dtype() };
        let slots: Vec<Slot> = parameters.iter().map(slot).collect();
        let mut reducer = Reducer {
            group: group.clone(),
            options,
            bucket_of: vec![0; parameters.len()],
            parameters,
            slots,
            buffers,
            buckets: Vec::new(),
            is_on: true,
            is_ordered: false,
            order_key,
            run: Run::default(),
        };
        // Until one has been seen, a backward is expected to go from the last parameter to the first.
        let order: Vec<usize> = (0..reducer.slots.len()).rev().collect();
        reducer.deal(&order);
        reducer
    }

    fn deal(&mut self, order: &[usize]) {
        let DdpOptions { bucket_bytes, first_bucket_bytes, .. } = self.options;
        self.buckets = deal(order, &self.slots, bucket_bytes, first_bucket_bytes);
        for (number, bucket) in self.buckets.iter().enumerate() {
            bucket.members.iter().for_each(|&member| self.bucket_of[member] = number);
        }
    }

    fn begin(&mut self) {
        let missing = self.buckets.iter().map(|bucket| bucket.members.len()).collect();
        self.run = Run { missing, ..Run::default() };
    }

    fn arrived(&mut self, index: usize) -> Result<()> {
        let bucket = self.bucket_of[index];
        if bucket < self.run.works.len() {
            let message = "a parameter got a gradient after its bucket was reduced, as one that two \
                           checkpoints use does: run the backward in `no_sync`, then `reduce_gradients`";
            return Err(Error::op(NAME, message));
        }
        if self.run.order.contains(&index) {
            return Ok(());
        }
        self.run.order.push(index);
        self.run.missing[bucket] -= 1;
        while self.run.missing.get(self.run.works.len()) == Some(&0) {
            self.reduce_next()?;
        }
        Ok(())
    }

    /// Gives the next bucket to the group.
    fn reduce_next(&mut self) -> Result<()> {
        let bucket = &self.buckets[self.run.works.len()];
        let grads: Vec<Option<Tensor>> =
            bucket.members.iter().map(|&member| self.parameters[member].grad()).collect();
        let has = grads.iter().map(Option::is_some).collect();
        let packed = no_grad(|| {
            let flat = bucket.pack(&grads, &self.parameters)?;
            self.options.compress.map_or(Ok(flat.clone()), |dtype| flat.to_dtype(dtype))
        })?;
        // The pack is a copy: the gradients' own memory goes to the rest of the backward.
        drop(grads);
        bucket.members.iter().for_each(|&member| self.parameters[member].zero_grad());
        let work = self.group.all_reduce_async(&packed, ReduceOp::Avg)?;
        self.run.works.push(Packed { work, has });
        Ok(())
    }

    /// Reduces what is left, waits for all buckets and hands their parts out.
    fn finish(&mut self) -> Result<()> {
        while self.run.works.len() < self.buckets.len() {
            self.reduce_next()?;
        }
        let run = std::mem::take(&mut self.run);
        for (bucket, packed) in self.buckets.iter().zip(run.works) {
            self.hand_out(bucket, packed)?;
        }
        if self.options.broadcast_buffers {
            let write = |buffer: &Tensor| self.group.broadcast(buffer, 0);
            no_grad(|| self.buffers.iter().try_for_each(write))?;
        }
        self.follow(&run.order)
    }

    fn hand_out(&self, bucket: &Bucket, Packed { work, has }: Packed) -> Result<()> {
        let flat = work.wait()?;
        let flat = no_grad(|| flat.to_dtype(self.slots[bucket.members[0]].dtype))?;
        let used = match has.iter().all(|&has| has) || capture::has_cells() {
            true => vec![true; has.len()],
            // The host waits: only where this rank lacks gradients that others may have.
            false => {
                let flags = bucket.flags(&flat)?.to_dtype(DType::F32)?.to_vec::<f32>()?;
                flags.iter().map(|&flag| flag > 0.0).collect()
            }
        };
        for ((&member, place), used) in
            bucket.members.iter().zip(bucket.places(&self.slots)).zip(used)
        {
            if used {
                let parameter = &self.parameters[member];
                let part = flat.narrow(0, place.start, place.len())?;
                parameter.set_grad(Some(part.reshape(parameter.shape())?));
            }
        }
        Ok(())
    }

    /// Deals the buckets anew by the order in which the first backward made gradients, as rank 0 saw it.
    fn follow(&mut self, seen: &[usize]) -> Result<()> {
        if self.is_ordered || capture::is_recording() || seen.is_empty() {
            return Ok(());
        }
        self.is_ordered = true;
        let rest = (0..self.slots.len()).rev().filter(|index| !seen.contains(index));
        let mut order: Vec<usize> = seen.iter().copied().chain(rest).collect();
        if let Some(store) = self.group.store() {
            // By the store: a step that is about to be captured reads nothing of the device.
            let text: Vec<String> = order.iter().map(ToString::to_string).collect();
            if self.group.rank() == 0 {
                store.set(&self.order_key, text.join(" ").as_bytes())?;
            }
            let told = String::from_utf8_lossy(&store.get(&self.order_key)?).into_owned();
            order = told.split(' ').filter_map(|index| index.parse().ok()).collect();
        }
        self.deal(&order);
        Ok(())
    }
}

/// Whether all ranks have a module of the same names, shapes and dtypes; gives a key of the store for what
/// else they tell each other of it.
fn check_alike(group: &ProcessGroup, named: &[(String, Tensor)]) -> Result<String> {
    let Some(store) = group.store() else { return Ok(String::new()) };
    let describe = |(name, t): &(String, Tensor)| format!("{name} {:?} {}", t.shape(), t.dtype());
    let own: Vec<String> = named.iter().map(describe).collect();
    let number = store.add(&group.shared.key(&format!("ddp/{}", group.rank())), 1)?;
    let key = |what: &str| group.shared.key(&format!("ddp/module/{number}/{what}"));
    // Rank 0 compares, and says the same to all: otherwise those that are alike would wait for the others.
    let verdict = if group.rank() == 0 {
        let mut verdict = String::new();
        for rank in 1..group.size() {
            let other = String::from_utf8_lossy(&store.get(&key(&rank.to_string()))?).into_owned();
            if let Some(difference) = difference(&own, &other) {
                verdict = format!("rank {rank} has {difference}");
                break;
            }
        }
        store.set(&key("verdict"), verdict.as_bytes())?;
        verdict
    } else {
        store.set(&key(&group.rank().to_string()), own.join("\n").as_bytes())?;
        String::from_utf8_lossy(&store.get(&key("verdict"))?).into_owned()
    };
    if verdict.is_empty() {
        return Ok(key("order"));
    }
    group.let_others_read(store, &format!("ddp/module/{number}"));
    Err(Error::op(NAME, verdict))
}

/// Where a rank's lines differ from those of rank 0.
fn difference(first: &[String], other: &str) -> Option<String> {
    let other: Vec<&str> = other.lines().collect();
    let of = |at: usize| (first.get(at).map(String::as_str), other.get(at).copied());
    let at = (0..first.len().max(other.len())).find(|&at| of(at).0 != of(at).1)?;
    let (first, other) = of(at);
    Some(format!("{} where rank 0 has {}", other.unwrap_or("nothing"), first.unwrap_or("nothing")))
}

fn lock(reducer: &Mutex<Reducer>) -> MutexGuard<'_, Reducer> {
    reducer.lock().unwrap_or_else(PoisonError::into_inner)
}
