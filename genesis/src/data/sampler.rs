//! Samplers: in which order samples are drawn, and how they are cut into batches.
//!
//! An order is a pure function of the epoch. Nothing about it is kept while it is walked, so to go on
//! later it is enough to know the epoch and the place.

use super::rng::{SampleRng, room, shuffled, weighted};
use crate::error::{Error, Result};

/// An order of samples for each epoch.
pub trait Sampler: Send + Sync {
    /// The number of draws in an epoch.
    fn len(&self) -> usize;

    /// Whether nothing is drawn.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of an epoch, in order.
    ///
    /// # Errors
    /// If memory has no room for them.
    fn indices(&self, epoch: u64) -> Result<Vec<usize>>;
}

/// The batches of each epoch.
pub trait BatchSampler: Send + Sync {
    /// The samples of each batch, in order.
    ///
    /// # Errors
    /// If memory has no room for them.
    fn batches(&self, epoch: u64) -> Result<Vec<Vec<usize>>>;

    /// The number of batches.
    ///
    /// # Errors
    /// As [`BatchSampler::batches`].
    fn count(&self, epoch: u64) -> Result<usize> {
        Ok(self.batches(epoch)?.len())
    }
}

/// `0, 1, .. n - 1`
#[derive(Clone, Copy, Debug)]
pub struct SequentialSampler {
    /// The number of samples.
    pub len: usize,
}

impl Sampler for SequentialSampler {
    fn len(&self) -> usize {
        self.len
    }

    fn indices(&self, _: u64) -> Result<Vec<usize>> {
        in_order(self.len)
    }
}

/// Another permutation each epoch, or draws with replacement.
#[derive(Clone, Copy, Debug)]
pub struct RandomSampler {
    /// The number of samples.
    pub len: usize,
    /// What the order depends on, beside the epoch.
    pub seed: u64,
    /// The number of draws in an epoch; `len` without it.
    pub draws: Option<usize>,
    /// Whether a sample may come again before all others have come.
    pub replacement: bool,
}

impl RandomSampler {
    /// Permutations of `0..len`.
    pub fn new(len: usize, seed: u64) -> RandomSampler {
        RandomSampler { len, seed, draws: None, replacement: false }
    }
}

impl Sampler for RandomSampler {
    fn len(&self) -> usize {
        if self.len == 0 { 0 } else { self.draws.unwrap_or(self.len) }
    }

    fn indices(&self, epoch: u64) -> Result<Vec<usize>> {
        let draws = Sampler::len(self);
        if self.replacement {
            let mut rng = SampleRng::of_sample(self.seed, epoch, usize::MAX);
            let mut order = room(draws)?;
            order.extend((0..draws).map(|_| rng.below(self.len)));
            return Ok(order);
        }
        let mut order = shuffled(self.len, self.seed, epoch)?;
        // More draws than samples: whole permutations one after another, as PyTorch has it.
        if draws > order.len() {
            let mut all = room(draws)?;
            all.append(&mut order);
            order = all;
        }
        let mut round = 1u64;
        while order.len() < draws {
            let seed = self.seed ^ round.wrapping_mul(0xD1B5_4A32_D192_ED03);
            let left = draws - order.len();
            order.extend(shuffled(self.len, seed, epoch)?.into_iter().take(left));
            round += 1;
        }
        order.truncate(draws);
        Ok(order)
    }
}

/// Some samples in another order each epoch.
#[derive(Clone, Debug)]
pub struct SubsetRandomSampler {
    /// The samples.
    pub indices: Vec<usize>,
    /// What the order depends on, beside the epoch.
    pub seed: u64,
}

impl Sampler for SubsetRandomSampler {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn indices(&self, epoch: u64) -> Result<Vec<usize>> {
        let mut order = shuffled(self.indices.len(), self.seed, epoch)?;
        order.iter_mut().for_each(|place| *place = self.indices[*place]);
        Ok(order)
    }
}

/// Draws where the share of a sample is its weight.
#[derive(Clone, Debug)]
pub struct WeightedRandomSampler {
    weights: Vec<f64>,
    draws: usize,
    replacement: bool,
    seed: u64,
}

impl WeightedRandomSampler {
    /// `draws` samples an epoch. Weights need not add up to 1.
    ///
    /// # Errors
    /// If a weight is negative or no number, or too few are positive.
    pub fn new(
        weights: &[f64],
        draws: usize,
        replacement: bool,
        seed: u64,
    ) -> Result<WeightedRandomSampler> {
        weighted(weights, draws, replacement, &mut SampleRng::new(seed))?;
        Ok(WeightedRandomSampler { weights: weights.to_vec(), draws, replacement, seed })
    }
}

impl Sampler for WeightedRandomSampler {
    fn len(&self) -> usize {
        self.draws
    }

    fn indices(&self, epoch: u64) -> Result<Vec<usize>> {
        let mut rng = SampleRng::of_sample(self.seed, epoch, usize::MAX);
        weighted(&self.weights, self.draws, self.replacement, &mut rng)
    }
}

/// One rank's share of the samples: every `world`-th from `rank` on.
///
/// All ranks get the same number. What is missing for that comes again from the start, or with
/// `drop_last` the rest is left out.
///
/// # Source
/// The same shares as `torch.utils.data.DistributedSampler`.
#[derive(Clone, Copy, Debug)]
pub struct DistributedSampler {
    len: usize,
    world: usize,
    rank: usize,
    seed: Option<u64>,
    drop_last: bool,
}

impl DistributedSampler {
    /// The share of `rank` among `world`; shuffled where there is a seed.
    ///
    /// # Errors
    /// If there is no such rank.
    pub fn new(
        len: usize,
        world: usize,
        rank: usize,
        seed: Option<u64>,
        drop_last: bool,
    ) -> Result<DistributedSampler> {
        if rank >= world {
            let message = format!("there is no rank {rank} among {world}");
            return Err(Error::op("distributed sampler", message));
        }
        Ok(DistributedSampler { len, world, rank, seed, drop_last })
    }
}

impl Sampler for DistributedSampler {
    fn len(&self) -> usize {
        if self.drop_last { self.len / self.world } else { self.len.div_ceil(self.world) }
    }

    fn indices(&self, epoch: u64) -> Result<Vec<usize>> {
        let order = match self.seed {
            Some(seed) => shuffled(self.len, seed, epoch)?,
            None => in_order(self.len)?,
        };
        let share = Sampler::len(self);
        let mut own = room(share)?;
        own.extend((0..share).map(|i| order[(self.rank + i * self.world) % self.len]));
        Ok(own)
    }
}

/// The samples from the first to the last.
fn in_order(len: usize) -> Result<Vec<usize>> {
    let mut order = room(len)?;
    order.extend(0..len);
    Ok(order)
}

/// An order cut into batches of one size; the last may be smaller, or is left out.
#[derive(Clone, Debug)]
pub struct Batches<S> {
    sampler: S,
    size: usize,
    drop_last: bool,
}

impl<S: Sampler> Batches<S> {
    /// Batches of `size`.
    ///
    /// # Errors
    /// If `size` is 0.
    pub fn new(sampler: S, size: usize, drop_last: bool) -> Result<Batches<S>> {
        if size == 0 {
            return Err(Error::op("batch sampler", "a batch needs at least 1 sample"));
        }
        Ok(Batches { sampler, size, drop_last })
    }
}

impl<S: Sampler> BatchSampler for Batches<S> {
    fn batches(&self, epoch: u64) -> Result<Vec<Vec<usize>>> {
        let order = self.sampler.indices(epoch)?;
        let whole = if self.drop_last { order.len() / self.size * self.size } else { order.len() };
        let mut batches = room(whole.div_ceil(self.size))?;
        for batch in order[..whole].chunks(self.size) {
            let mut own = room(batch.len())?;
            own.extend_from_slice(batch);
            batches.push(own);
        }
        Ok(batches)
    }

    fn count(&self, _: u64) -> Result<usize> {
        let draws = self.sampler.len();
        Ok(if self.drop_last { draws / self.size } else { draws.div_ceil(self.size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_is_smaller_or_left_out() {
        let of = |drop_last| Batches::new(SequentialSampler { len: 5 }, 2, drop_last).unwrap();
        assert_eq!(of(false).batches(0).unwrap(), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(of(true).batches(0).unwrap(), [vec![0, 1], vec![2, 3]]);
        assert!(Batches::new(SequentialSampler { len: 5 }, 0, true).is_err());
    }

    #[test]
    fn ranks_share_all_samples() {
        let share = |rank, drop_last| {
            DistributedSampler::new(10, 4, rank, None, drop_last).unwrap().indices(0).unwrap()
        };
        assert_eq!(share(1, false), [1, 5, 9]);
        assert_eq!(share(3, false), [3, 7, 1]);
        assert_eq!(share(3, true), [3, 7]);
        let tiny = DistributedSampler::new(1, 4, 3, Some(1), false).unwrap();
        assert_eq!(tiny.indices(5).unwrap(), [0]);
        assert!(
            DistributedSampler::new(0, 4, 3, None, false).unwrap().indices(0).unwrap().is_empty()
        );
        assert!(DistributedSampler::new(10, 4, 4, None, false).is_err());
    }

    #[test]
    fn shuffled_ranks_meet_in_no_sample() {
        let mut all: Vec<usize> = (0..3)
            .flat_map(|rank| {
                DistributedSampler::new(9, 3, rank, Some(7), false).unwrap().indices(2).unwrap()
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn random_draws_follow_the_epoch() {
        let sampler = RandomSampler { draws: Some(25), ..RandomSampler::new(10, 3) };
        let order = sampler.indices(1).unwrap();
        assert_eq!(order.len(), 25);
        let mut first = order[..10].to_vec();
        first.sort_unstable();
        assert_eq!(first, (0..10).collect::<Vec<_>>());
        assert_ne!(order[..10], order[10..20]);
        assert_ne!(order, sampler.indices(2).unwrap());
        let repeated = RandomSampler { replacement: true, ..sampler };
        assert_eq!(repeated.indices(1).unwrap(), repeated.indices(1).unwrap());
        assert!(repeated.indices(1).unwrap().iter().all(|&i| i < 10));
    }

    #[test]
    fn more_samples_than_memory_holds_are_an_error() {
        let many = usize::MAX;
        let refused = |order: Result<Vec<usize>>| {
            let error = order.unwrap_err().to_string();
            assert_eq!(error, format!("sampler: {many} samples are more than memory holds"));
        };
        refused(SequentialSampler { len: many }.indices(0));
        refused(RandomSampler::new(many, 0).indices(0));
        for replacement in [false, true] {
            let draws =
                RandomSampler { draws: Some(many), replacement, ..RandomSampler::new(2, 0) };
            refused(draws.indices(0));
        }
        refused(DistributedSampler::new(many, 1, 0, None, false).unwrap().indices(0));
        let few = DistributedSampler::new(2, many, many - 1, None, false).unwrap();
        assert_eq!(few.indices(0).unwrap(), [(many - 1) % 2]);
        let error = WeightedRandomSampler::new(&[1.0], many, true, 0).unwrap_err().to_string();
        assert_eq!(error, format!("sampler: {many} samples are more than memory holds"));
        let batches = Batches::new(SequentialSampler { len: many }, 3, false).unwrap();
        assert_eq!(batches.count(0).unwrap(), many.div_ceil(3));
        assert!(batches.batches(0).is_err());
    }

    #[test]
    fn a_subset_stays_a_subset() {
        let sampler = SubsetRandomSampler { indices: vec![4, 8, 15, 16], seed: 0 };
        let mut order = sampler.indices(3).unwrap();
        order.sort_unstable();
        assert_eq!(order, [4, 8, 15, 16]);
        let weighted = WeightedRandomSampler::new(&[0.0, 1.0], 3, true, 0).unwrap();
        assert_eq!(weighted.indices(0).unwrap(), [1, 1, 1]);
    }
}
