//! The flat parts of the parameters of one unit of a fully sharded model: how they are gathered, and how gradients are
//! reduced.
//!
//! All parameters of a unit travel by one collective a dtype. A gather may begin ahead of its use, on the group's own
//! stream, while the unit before computes ([`Unit::begin`]); which units come before and behind is told once.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::nccl::ReduceOp;

use super::group::ProcessGroup;
use super::work::Work;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::nn::{Cut, Parameter, Shard};
use crate::tensor::Tensor;

const NAME: &str = "fully_shard";

/// What is gathered, and how it lies.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) groups: Groups,
    pub(super) wholes: Vec<Whole>,
    pub(super) reduce_dtype: Option<DType>,
    /// Gathers that began ahead of their use.
    ahead: Mutex<Vec<Ahead>>,
    pub(super) neighbours: Mutex<Neighbours>,
}

/// The ranks that have a part each, and those that have the same part.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pub(super) shards: ProcessGroup,
    pub(super) replicas: Option<ProcessGroup>,
    /// Of so many of `shards`, next to each other, the first one's gradients count.
    pub(super) alike: usize,
}

/// The units that compute before and after this one, and their parts.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    pub(super) before: Option<(Weak<Unit>, Vec<Tensor>)>,
    pub(super) behind: Option<(Weak<Unit>, Vec<Tensor>)>,
}

/// A parameter as it is used.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub(super) shape: Vec<usize>,
    /// In which it is used.
    pub(super) dtype: DType,
    /// In which its parts are kept.
    pub(super) stored: DType,
    /// Elements of it.
    pub(super) numel: usize,
    /// Elements of each rank.
    pub(super) chunk: usize,
}

/// A gather under way.
#[derive(Debug)]
struct Ahead {
    /// The parts that it reads, and their versions: what they become later is not in it.
    parts: Vec<(Tensor, u64)>,
    work: Work,
}

impl Ahead {
    /// Whether it is of these parts as they are.
    fn is_of(&self, parts: &[Tensor]) -> bool {
        let is_same = |((read, version), part): (&(Tensor, u64), &Tensor)| {
            Arc::ptr_eq(read.storage(), part.storage()) && *version == part.version()
        };
        self.parts.len() == parts.len() && self.parts.iter().zip(parts).all(is_same)
    }
}

impl Whole {
    /// A parameter that all ranks have, and this rank's part of it; values are those of the first ranks.
    pub(super) fn cut(
        parameter: &Parameter,
        groups: &Groups,
        dtype: Option<DType>,
    ) -> Result<(Whole, Parameter)> {
        let Groups { shards, replicas, .. } = groups;
        let shape = parameter.shape().to_vec();
        let (size, rank) = (shards.size(), shards.rank());
        let chunk = parameter.numel().div_ceil(size);
        let part = no_grad(|| {
            let values = parameter.detach().to_device(shards.device())?.contiguous()?;
            replicas.iter().try_for_each(|replicas| replicas.broadcast(&values, 0))?;
            shards.broadcast(&values, 0)?;
            let start = (rank * chunk).min(values.numel());
            let count = chunk.min(values.numel() - start);
            let own = values.reshape(&[values.numel()])?.narrow(0, start, count)?;
            padded(&own, chunk)?.copy()
        })?;
        let outer = parameter.shard().cloned();
        let shard = Shard { whole: shape.clone(), cut: Cut::Flat, index: rank, count: size, outer };
        let part = match parameter.requires_grad() {
            true => Parameter::new(part)?,
            false => Parameter::frozen(part),
        };
        let dtype = dtype.filter(|_| parameter.dtype().is_float()).unwrap_or(parameter.dtype());
        let (stored, numel) = (parameter.dtype(), parameter.numel());
        Ok((Whole { shape, dtype, stored, numel, chunk }, part.with_shard(shard)))
    }
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

impl Unit {
    pub(super) fn new(groups: Groups, wholes: Vec<Whole>, reduce_dtype: Option<DType>) -> Unit {
        let (ahead, neighbours) = (Mutex::default(), Mutex::default());
        Unit { groups, wholes, reduce_dtype, ahead, neighbours }
    }

    /// Lets the gather of `behind` begin while `before` computes, and the other way round in a backward.
    pub(super) fn follow(
        (before, parts_before): (&Arc<Unit>, Vec<Tensor>),
        (behind, parts_behind): (&Arc<Unit>, Vec<Tensor>),
    ) {
        lock(&before.neighbours).behind = Some((Arc::downgrade(behind), parts_behind));
        lock(&behind.neighbours).before = Some((Arc::downgrade(before), parts_before));
    }

    /// Begins the gather of this unit's parts, and behind it that of the unit behind, or of the one before: ahead of the
    /// wait for the first, so that the second follows it while its parameters are copied and used.
    pub(super) fn begin_with_neighbour(&self, parts: &[Tensor], is_behind: bool) -> Result<()> {
        let neighbours = lock(&self.neighbours);
        let next = if is_behind { &neighbours.behind } else { &neighbours.before };
        let Some((unit, next)) =
            next.as_ref().and_then(|(unit, next)| Some((unit.upgrade()?, next)))
        else {
            return Ok(());
        };
        self.begin(parts)?;
        unit.begin(next)
    }

    /// Begins to gather, unless that is under way.
    fn begin(&self, parts: &[Tensor]) -> Result<()> {
        let mut ahead = lock(&self.ahead);
        if ahead.first().is_some_and(|first| first.is_of(parts)) {
            return Ok(());
        }
        let work = |pack: Vec<usize>| {
            let own = self.joined(&pack, parts)?;
            let work = self.groups.shards.all_gather_async(&own)?;
            let parts = parts.iter().map(|part| (part.clone(), part.version())).collect();
            Ok(Ahead { parts, work })
        };
        *ahead = no_grad(|| self.by_dtype().into_iter().map(work).collect::<Result<_>>())?;
        Ok(())
    }

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

    /// This rank's parts of a pack, as they travel: `[1, elements]`
    fn joined(&self, pack: &[usize], parts: &[Tensor]) -> Result<Tensor> {
        let dtype = self.wholes[pack[0]].dtype;
        let parts = pack.iter().map(|&index| parts[index].detach().to_dtype(dtype));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let own = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
        own.reshape(&[1, own.numel()])
    }

    /// The whole parameters of the parts of all ranks.
    pub(super) fn gather(&self, parts: &[Tensor]) -> Result<Vec<Tensor>> {
        let ahead = std::mem::take(&mut *lock(&self.ahead));
        let mut ahead = ahead.into_iter().filter(|ahead| ahead.is_of(parts));
        let mut wholes: Vec<Option<Tensor>> = vec![None; parts.len()];
        for pack in self.by_dtype() {
            let all = match ahead.next() {
                Some(ahead) => ahead.work.wait()?,
                None => self.groups.shards.all_gather(&self.joined(&pack, parts)?)?,
            }; // [ranks, elements]
            for (&index, place) in pack.iter().zip(self.places(&pack)) {
                let whole = &self.wholes[index];
                let rows = all.narrow(1, place.start, place.len())?.copy()?.contiguous()?;
                let flat = rows.reshape(&[rows.numel()])?.narrow(0, 0, whole.numel)?;
                wholes[index] = Some(flat.reshape(&whole.shape)?);
            }
        }
        let missing = || Error::op(NAME, "a parameter is in no pack, which is a bug");
        wholes.into_iter().map(|whole| whole.ok_or_else(missing)).collect()
    }

    /// This rank's part of the mean over all ranks of each gradient; none where none is wanted.
    pub(super) fn scatter(&self, grads: &[Tensor], needed: &[bool]) -> Result<Vec<Option<Tensor>>> {
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
            let own = self.mean(&all)?;
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

    /// This rank's row of the mean over all ranks of `all: [ranks, elements]`.
    fn mean(&self, all: &Tensor) -> Result<Tensor> {
        let Groups { shards, replicas, alike } = &self.groups;
        if shards.has_ordered_reductions() {
            return shards.mean_in_order(replicas.as_ref(), *alike, all);
        }
        let own = shards.reduce_scatter(all, ReduceOp::Avg)?;
        replicas.iter().try_for_each(|replicas| replicas.all_reduce(&own, ReduceOp::Avg))?;
        Ok(own)
    }

    /// A gradient as the parts of all ranks, one a row.
    fn rows(&self, grad: &Tensor, index: usize, dtype: DType) -> Result<Tensor> {
        let (size, chunk) = (self.groups.shards.size(), self.wholes[index].chunk);
        let flat = grad.detach().to_dtype(dtype)?.contiguous()?.reshape(&[grad.numel()])?;
        padded(&flat, size * chunk)?.reshape(&[size, chunk])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
