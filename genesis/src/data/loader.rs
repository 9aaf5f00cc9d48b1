//! The loader: batches of a data set, made ahead by threads, in an order that no thread changes.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use genesis_kernel::runtime::{Device, Stream, with_stream};
use genesis_kernel::trace;
use serde::{Deserialize, Serialize};

use super::collate::{Batch, Sample};
use super::dataset::{Dataset, IterableDataset};
use super::prefetch::{Jobs, Results, guarded};
use super::rng::SampleRng;
use super::sampler::{BatchSampler, Batches, RandomSampler, Sampler, SequentialSampler};
use crate::error::{Error, Result};

/// How a loader draws and makes batches.
#[derive(Clone, Copy, Debug)]
pub struct LoaderOptions {
    /// Samples of a batch.
    pub batch_size: usize,
    /// Whether each epoch has another random order.
    pub shuffle: bool,
    /// What the order and the random choices of samples depend on.
    pub seed: u64,
    /// Whether a smaller batch at the end is left out.
    pub drop_last: bool,
    /// Threads that make batches, up to 1024; with 0 they are made when asked for.
    pub workers: usize,
    /// Batches that a worker may be ahead of their use.
    pub prefetch: usize,
    /// Where batches go; they stay where their samples are without it.
    pub device: Option<Device>,
    /// Whether batches go through pinned host memory: to a GPU by a stream of their own, beside the
    /// kernels of the training; without a device they stay there, for
    /// [`Tensor::to_device_non_blocking`](crate::Tensor::to_device_non_blocking). Without a GPU it changes
    /// nothing.
    pub pin_memory: bool,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions {
            batch_size: 1,
            shuffle: false,
            seed: 0,
            drop_last: false,
            workers: 0,
            prefetch: 2,
            device: None,
            pin_memory: false,
        }
    }
}

/// Where a loader stands: enough to go on with the next batch in another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LoaderState {
    /// Epochs that are over.
    pub epoch: u64,
    /// Samples of this epoch that were handed out.
    pub samples: usize,
    /// The seed of the order.
    pub seed: u64,
}

/// Batches of a data set, epoch after epoch.
///
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::data::{DataLoader, LoaderOptions, TensorDataset};
///
/// let x = Tensor::arange(0.0, 10.0, 1.0, ())?.reshape(&[5, 2])?;
/// let data = TensorDataset::new((x, Tensor::arange(0.0, 5.0, 1.0, ())?))?;
/// let options = LoaderOptions { batch_size: 2, workers: 2, ..LoaderOptions::default() };
/// let loader = DataLoader::new(data, options)?;
/// for batch in loader.iter()? {
///     let (x, y) = batch?;
///     assert_eq!(x.shape(), [y.numel(), 2]);
/// }
/// # Ok::<(), genesis::Error>(())
/// ```
pub struct DataLoader<B> {
    open: Open<B>,
    batches: Option<Arc<dyn BatchSampler>>,
    state: Mutex<LoaderState>,
}

/// Begins an epoch at a state.
type Open<B> = Box<dyn Fn(LoaderState) -> Result<Running<B>> + Send + Sync>;

/// An epoch that has begun: gives a batch and the number of its samples.
type Running<B> = Box<dyn FnMut() -> Option<Result<(B, usize)>> + Send>;

impl<B: Send + 'static> DataLoader<B> {
    /// Batches as the type of the samples makes them, on the device of the options.
    ///
    /// # Errors
    /// If the batch size is 0.
    pub fn new<D>(dataset: D, options: LoaderOptions) -> Result<DataLoader<B>>
    where
        D: Dataset + 'static,
        D::Item: Sample<Batch = B>,
        B: Batch,
    {
        let place = Place::new(&options);
        DataLoader::with_collate(dataset, options, move |samples| {
            place.put(D::Item::collate(samples)?)
        })
    }

    /// Batches as a function makes them of samples.
    ///
    /// # Errors
    /// If the batch size is 0.
    pub fn with_collate<D, F>(
        dataset: D,
        options: LoaderOptions,
        collate: F,
    ) -> Result<DataLoader<B>>
    where
        D: Dataset + 'static,
        F: Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
    {
        let seed = options.seed;
        DataLoader::with_fetch(dataset.len(), options, move |indices, epoch| {
            let sample = |&index: &usize| {
                let mut rng = SampleRng::of_sample(seed, epoch, index);
                guarded(|| dataset.get_with(index, &mut rng))
                    .map_err(|error| named(&error, &format!("sample {index}")))
            };
            let samples = indices.iter().map(sample).collect::<Result<Vec<_>>>()?;
            guarded(|| collate(samples))
        })
    }

    /// Batches as a function makes them of the numbers of samples and the epoch: for data that gives
    /// many samples faster at once than one by one.
    ///
    /// # Errors
    /// If the batch size is 0.
    pub fn with_fetch<F>(len: usize, options: LoaderOptions, fetch: F) -> Result<DataLoader<B>>
    where
        F: Fn(&[usize], u64) -> Result<B> + Send + Sync + 'static,
    {
        if options.shuffle {
            let sampler = RandomSampler::new(len, options.seed);
            DataLoader::with_sampler(sampler, options, fetch)
        } else {
            DataLoader::with_sampler(SequentialSampler { len }, options, fetch)
        }
    }

    /// Batches along a sampler's order; `shuffle` of the options is not used.
    ///
    /// # Errors
    /// If the batch size is 0.
    pub fn with_sampler<S, F>(sampler: S, options: LoaderOptions, fetch: F) -> Result<DataLoader<B>>
    where
        S: Sampler + 'static,
        F: Fn(&[usize], u64) -> Result<B> + Send + Sync + 'static,
    {
        let batches = Batches::new(sampler, options.batch_size, options.drop_last)?;
        Ok(DataLoader::with_batches(batches, options, fetch))
    }

    /// Batches that a batch sampler chooses; of the options only seed, workers and prefetch are used.
    pub fn with_batches<S, F>(batches: S, options: LoaderOptions, fetch: F) -> DataLoader<B>
    where
        S: BatchSampler + 'static,
        F: Fn(&[usize], u64) -> Result<B> + Send + Sync + 'static,
    {
        let (batches, fetch) = (Arc::new(batches), Arc::new(fetch));
        let sampler: Arc<dyn BatchSampler> = batches.clone();
        let open = move |at: LoaderState| {
            let rest = rest_of(guarded(|| batches.batches(at.epoch))?, at.samples)?;
            let fetch = fetch.clone();
            let work = move |indices: Vec<usize>| {
                let made = guarded(|| fetch(&indices, at.epoch));
                let batch = made.map_err(|error| named(&error, &batch_name(&indices)))?;
                Ok((batch, indices.len()))
            };
            running(Box::new(rest.into_iter().map(Ok)), work, &options)
        };
        DataLoader { open: Box::new(open), batches: Some(sampler), state: fresh(&options) }
    }

    /// Batches of a stream, on the device of the options. Its samples are read in order by one thread
    /// at a time; batches are put together by all of them.
    ///
    /// # Errors
    /// If the batch size is 0, or `shuffle` is set: a stream has the order that it has.
    pub fn from_stream<D>(dataset: D, options: LoaderOptions) -> Result<DataLoader<B>>
    where
        D: IterableDataset + 'static,
        D::Item: Sample<Batch = B>,
        B: Batch,
    {
        if options.batch_size == 0 || options.shuffle {
            let message = "a stream is read in order, in batches of at least 1 sample";
            return Err(Error::op(NAME, message));
        }
        let place = Arc::new(Place::new(&options));
        let open = move |at: LoaderState| {
            let samples = dataset.iter_from(at.epoch, at.samples)?;
            let (size, drop_last) = (options.batch_size, options.drop_last);
            let jobs = Chunks { samples, size, drop_last, position: at.samples };
            let place = place.clone();
            let work = move |samples: Vec<D::Item>| {
                let count = samples.len();
                Ok((place.put(D::Item::collate(samples)?)?, count))
            };
            running(Box::new(jobs), work, &options)
        };
        Ok(DataLoader { open: Box::new(open), batches: None, state: fresh(&options) })
    }

    /// What is left of the current epoch; at its end the next epoch becomes the current one.
    ///
    /// Walk one at a time: each of them moves the loader's state.
    ///
    /// # Errors
    /// If threads can't be started or are over 1024, memory has no room for the order, or the state stands
    /// inside a batch.
    pub fn iter(&self) -> Result<Epoch<'_, B>> {
        let running = (self.open)(self.state())?;
        Ok(Epoch { loader: self, running: Some(running) })
    }

    /// The number of batches in the current epoch; `None` for a stream, and where the sampler fails.
    pub fn len(&self) -> Option<usize> {
        self.batches.as_ref()?.count(self.state().epoch).ok()
    }

    /// Whether the current epoch has no batch; a stream is not asked.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Where it stands, after the last batch that was handed out. What workers made ahead does not
    /// count.
    pub fn state(&self) -> LoaderState {
        *self.lock()
    }

    /// Goes on from a state.
    ///
    /// # Errors
    /// If the state is of another seed, so of another order.
    pub fn set_state(&self, state: LoaderState) -> Result<()> {
        let mut own = self.lock();
        if own.seed != state.seed {
            let message =
                format!("the state is of seed {}, this loader has {}", state.seed, own.seed);
            return Err(Error::op(NAME, message));
        }
        *own = state;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, LoaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NAME: &str = "data loader";

fn fresh(options: &LoaderOptions) -> Mutex<LoaderState> {
    Mutex::new(LoaderState { seed: options.seed, ..LoaderState::default() })
}

/// Where batches go, and how.
struct Place {
    device: Option<Device>,
    pin_memory: bool,
    /// Where copies are queued, beside the work of the training.
    copies: OnceLock<Stream>,
}

impl Place {
    fn new(options: &LoaderOptions) -> Place {
        let pin_memory = options.pin_memory && Device::cuda_count() > 0;
        Place { device: options.device, pin_memory, copies: OnceLock::new() }
    }

    fn put<B: Batch>(&self, batch: B) -> Result<B> {
        match self.device {
            Some(device) if self.pin_memory && device.is_cuda() => {
                let batch = batch.pin_memory()?;
                let stream = match self.copies.get() {
                    Some(stream) => stream,
                    None => {
                        let fresh = Stream::new(device)?;
                        self.copies.get_or_init(|| fresh)
                    }
                };
                let there = with_stream(stream, || batch.to_device(device))?;
                // The worker waits, so that whoever gets the batch need not.
                stream.synchronize()?;
                Ok(there)
            }
            Some(device) => batch.to_device(device),
            None if self.pin_memory => batch.pin_memory(),
            None => Ok(batch),
        }
    }
}

/// An error with what it was about; what a caller can react to stays as it is.
fn named(error: &Error, what: &str) -> Error {
    let text = error.to_string();
    if error.is_out_of_memory() || error.is_device_lost() || text.starts_with("data loader: sample")
    {
        return error.clone();
    }
    Error::op(NAME, format!("{what}: {}", text.strip_prefix("data loader: ").unwrap_or(&text)))
}

fn batch_name(indices: &[usize]) -> String {
    match indices {
        [] => "an empty batch".to_owned(),
        [one] => format!("the batch of sample {one}"),
        [first, .., last] => format!("the batch of samples {first} .. {last}"),
    }
}

/// The batches after the first `samples` samples.
fn rest_of(batches: Vec<Vec<usize>>, samples: usize) -> Result<Vec<Vec<usize>>> {
    let (mut seen, mut skipped) = (0, 0);
    while seen < samples && skipped < batches.len() {
        seen += batches[skipped].len();
        skipped += 1;
    }
    if seen != samples {
        let message = format!(
            "the state stands at sample {samples}, where no batch ends; it was taken with another \
             batch size or another data set"
        );
        return Err(Error::op(NAME, message));
    }
    Ok(batches.into_iter().skip(skipped).collect())
}

fn running<J, B>(
    jobs: Jobs<J>,
    work: impl Fn(J) -> Result<(B, usize)> + Send + Sync + 'static,
    options: &LoaderOptions,
) -> Result<Running<B>>
where
    J: Send + 'static,
    B: Send + 'static,
{
    let limit = options.prefetch.max(1).saturating_mul(options.workers.max(1));
    let mut results = Results::new(jobs, Arc::new(work), options.workers, limit)?;
    Ok(Box::new(move || results.next()))
}

/// A stream in pieces of one size.
struct Chunks<T> {
    samples: Box<dyn Iterator<Item = Result<T>> + Send>,
    size: usize,
    drop_last: bool,
    position: usize,
}

impl<T> Iterator for Chunks<T> {
    type Item = Result<Vec<T>>;

    fn next(&mut self) -> Option<Result<Vec<T>>> {
        let mut chunk = Vec::with_capacity(self.size.min(4096));
        while chunk.len() < self.size {
            match self.samples.next() {
                None => break,
                Some(Ok(sample)) => chunk.push(sample),
                Some(Err(error)) => {
                    return Some(Err(named(
                        &error,
                        &format!("sample {}", self.position.saturating_add(chunk.len())),
                    )));
                }
            }
        }
        self.position = self.position.saturating_add(chunk.len());
        let whole = chunk.len() == self.size || !(chunk.is_empty() || self.drop_last);
        whole.then_some(Ok(chunk))
    }
}

/// The batches of one epoch; see [`DataLoader::iter`].
pub struct Epoch<'a, B> {
    loader: &'a DataLoader<B>,
    running: Option<Running<B>>,
}

impl<B: Send + 'static> Iterator for Epoch<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let _range = trace::range("DataLoader.next");
        match self.running.as_mut()?() {
            Some(Ok((batch, samples))) => {
                let mut state = self.loader.lock();
                state.samples = state.samples.saturating_add(samples);
                drop(state);
                Some(Ok(batch))
            }
            Some(Err(error)) => {
                self.running = None;
                Some(Err(error))
            }
            None => {
                self.running = None;
                let mut state = self.loader.lock();
                *state = LoaderState { epoch: state.epoch.saturating_add(1), samples: 0, ..*state };
                None
            }
        }
    }
}
