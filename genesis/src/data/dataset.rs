//! Data sets: samples by number, or one after another.

use std::ops::Range;
use std::sync::Arc;

use super::rng::{SampleRng, shuffled};
use crate::error::{Error, Result};

/// Samples by number.
///
/// A loader's workers call it from several threads at once. What is random about a sample must come
/// from the `rng` of [`get_with`](Dataset::get_with), never from the default generator: only then do
/// order and workers not matter.
pub trait Dataset: Send + Sync {
    /// One sample.
    type Item;

    /// The number of samples.
    fn len(&self) -> usize;

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at `index`.
    ///
    /// # Errors
    /// If there is none or it can't be read.
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// The sample at `index`, where random choices come from `rng`.
    ///
    /// # Errors
    /// As [`Dataset::get`].
    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Item> {
        let _ = rng;
        self.get(index)
    }

    /// The data set with `change` applied to each sample.
    fn map<T, F>(self, change: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Item, &mut SampleRng) -> Result<T> + Send + Sync,
    {
        Map { dataset: self, change }
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        (**self).get(index)
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        (**self).get_with(index, rng)
    }
}

/// Samples one after another: a stream that can begin again at any place.
pub trait IterableDataset: Send + Sync {
    /// One sample.
    type Item;

    /// The samples of an epoch from number `position` on. A stream that can't jump reads and drops.
    ///
    /// # Errors
    /// If it can't be opened.
    fn iter_from(
        &self,
        epoch: u64,
        position: usize,
    ) -> Result<Box<dyn Iterator<Item = Result<Self::Item>> + Send>>;
}

/// A data set whose samples are changed as they are read; see [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct Map<D, F> {
    dataset: D,
    change: F,
}

impl<D, T, F> Dataset for Map<D, F>
where
    D: Dataset,
    F: Fn(D::Item, &mut SampleRng) -> Result<T> + Send + Sync,
{
    type Item = T;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get(&self, index: usize) -> Result<T> {
        self.get_with(index, &mut SampleRng::of_sample(0, 0, index))
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<T> {
        (self.change)(self.dataset.get_with(index, rng)?, rng)
    }
}

/// Some samples of a data set, in a given order.
#[derive(Clone, Debug)]
pub struct Subset<D> {
    dataset: Arc<D>,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The samples at `indices`.
    ///
    /// # Errors
    /// If one is not there.
    pub fn new(dataset: Arc<D>, indices: Vec<usize>) -> Result<Subset<D>> {
        if let Some(index) = indices.iter().find(|&&index| index >= dataset.len()) {
            return Err(no_sample("subset", *index, dataset.len()));
        }
        Ok(Subset { dataset, indices })
    }

    /// Where the samples stand in the whole data set.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        let &at = self.indices.get(index).ok_or_else(|| no_sample("subset", index, self.len()))?;
        self.dataset.get(at)
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        let &at = self.indices.get(index).ok_or_else(|| no_sample("subset", index, self.len()))?;
        self.dataset.get_with(at, rng)
    }
}

/// Data sets one after another.
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    parts: Vec<D>,
}

impl<D: Dataset> ConcatDataset<D> {
    /// The samples of all parts, in order.
    pub fn new(parts: Vec<D>) -> ConcatDataset<D> {
        ConcatDataset { parts }
    }

    /// The part that holds a sample, and its number there.
    fn locate(&self, index: usize) -> Result<(&D, usize)> {
        let mut rest = index;
        for part in &self.parts {
            match rest.checked_sub(part.len()) {
                None => return Ok((part, rest)),
                Some(left) => rest = left,
            }
        }
        Err(no_sample("concat", index, self.len()))
    }
}

impl<D: Dataset> Dataset for ConcatDataset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.len()))
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        let (part, index) = self.locate(index)?;
        part.get(index)
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<D::Item> {
        let (part, index) = self.locate(index)?;
        part.get_with(index, rng)
    }
}

/// Cuts a data set at random into parts of these lengths.
///
/// # Errors
/// If the lengths do not add up to that of the data set.
pub fn random_split<D: Dataset>(
    dataset: D,
    lengths: &[usize],
    seed: u64,
) -> Result<Vec<Subset<D>>> {
    let whole = dataset.len();
    if lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(whole) {
        let message = format!("lengths {lengths:?} do not add up to {whole} samples");
        return Err(Error::op("random_split", message));
    }
    let order = shuffled(whole, seed, 0)?;
    let dataset = Arc::new(dataset);
    let mut start = 0;
    let mut cut = |&length: &usize| {
        let range: Range<usize> = start..start + length;
        start = range.end;
        Subset { dataset: dataset.clone(), indices: order[range].to_vec() }
    };
    Ok(lengths.iter().map(&mut cut).collect())
}

/// Says that a sample is not there.
pub(super) fn no_sample(what: &str, index: usize, len: usize) -> Error {
    Error::op(what, format!("there is no sample {index} among {len}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Squares(usize);

    impl Dataset for Squares {
        type Item = i64;

        fn len(&self) -> usize {
            self.0
        }

        fn get(&self, index: usize) -> Result<i64> {
            if index < self.0 {
                Ok((index * index) as i64)
            } else {
                Err(no_sample("squares", index, self.0))
            }
        }
    }

    #[test]
    fn parts_follow_one_another() {
        let both = ConcatDataset::new(vec![Squares(2), Squares(0), Squares(3)]);
        let all: Vec<i64> = (0..both.len()).map(|i| both.get(i).unwrap()).collect();
        assert_eq!(all, [0, 1, 0, 1, 4]);
        assert_eq!(both.get(5).unwrap_err().to_string(), "concat: there is no sample 5 among 5");
    }

    #[test]
    fn a_split_holds_each_sample_once() {
        let parts = random_split(Squares(10), &[7, 0, 3], 1).unwrap();
        let mut all: Vec<usize> = parts.iter().flat_map(|p| p.indices().to_vec()).collect();
        assert_eq!(parts[2].get(1).unwrap(), (parts[2].indices()[1] as i64).pow(2));
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        let error = random_split(Squares(10), &[7], 1).unwrap_err().to_string();
        assert_eq!(error, "random_split: lengths [7] do not add up to 10 samples");
        assert!(Subset::new(Arc::new(Squares(2)), vec![2]).is_err());
    }

    #[test]
    fn a_change_sees_the_numbers_of_its_sample() {
        let noisy = Squares(4).map(|x, rng| Ok((x, rng.below(1000))));
        assert_eq!(noisy.get(3).unwrap(), noisy.get(3).unwrap());
        let of = |epoch| noisy.get_with(3, &mut SampleRng::of_sample(1, epoch, 3)).unwrap();
        assert_ne!(of(0), of(1));
        assert_eq!(of(1), of(1));
    }
}
