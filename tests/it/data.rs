//! Loaders: order, workers, errors, going on in the middle of an epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genesis::data::{
    Compose, DataLoader, Dataset, Image, IterableDataset, LoaderOptions, LoaderState, Normalize,
    RandomCrop, RandomHorizontalFlip, RandomRotation, RandomSampler, SampleRng, TensorDataset,
    Transform,
};
use genesis::{Device, Error, Result, Tensor};

/// Numbers with noise, which may fail or take their time.
struct Noisy {
    len: usize,
    fails_at: Option<usize>,
    panics_at: Option<usize>,
}

impl Noisy {
    fn new(len: usize) -> Noisy {
        Noisy { len, fails_at: None, panics_at: None }
    }
}

impl Dataset for Noisy {
    type Item = (i64, f64);

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<(i64, f64)> {
        self.get_with(index, &mut SampleRng::new(0))
    }

    fn get_with(&self, index: usize, rng: &mut SampleRng) -> Result<(i64, f64)> {
        if self.fails_at == Some(index) {
            return Err(Error::io("the disk is gone"));
        }
        assert_ne!(self.panics_at, Some(index), "out of luck");
        // Some samples take longer, so that workers finish out of order.
        if index.is_multiple_of(7) {
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok((index as i64, rng.uniform()))
    }
}

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions { batch_size: 4, shuffle: true, seed: 9, workers, ..LoaderOptions::default() }
}

type Seen = Vec<(Vec<i64>, Vec<f64>)>;

fn walk(loader: &DataLoader<(Tensor, Tensor)>, batches: usize) -> Result<Seen> {
    let one = |batch: Result<(Tensor, Tensor)>| {
        let (index, noise) = batch?;
        Ok((index.to_vec::<i64>()?, noise.to_vec::<f64>()?))
    };
    loader.iter()?.take(batches).map(one).collect()
}

#[test]
fn workers_change_nothing() -> Result<()> {
    let epochs = |workers| {
        let loader = DataLoader::new(Noisy::new(50), options(workers))?;
        assert_eq!(loader.len(), Some(13));
        Ok::<_, Error>([walk(&loader, usize::MAX)?, walk(&loader, usize::MAX)?])
    };
    let want = epochs(0)?;
    assert_eq!((want[0].len(), want[0][12].0.len()), (13, 2));
    // Another order and other noise in the second epoch.
    assert_ne!(want[0], want[1]);
    for workers in [1, 2, 5, 16] {
        assert_eq!(epochs(workers)?, want, "{workers} workers");
    }
    Ok(())
}

#[test]
fn it_goes_on_at_the_very_next_batch() -> Result<()> {
    for workers in [0, 3] {
        let whole = DataLoader::new(Noisy::new(22), options(workers))?;
        let want = [walk(&whole, usize::MAX)?, walk(&whole, usize::MAX)?].concat();
        for stop in 0..want.len() {
            let first = DataLoader::new(Noisy::new(22), options(workers))?;
            let mut seen = Vec::new();
            while seen.len() < stop {
                seen.extend(walk(&first, stop - seen.len())?);
            }
            let text = serde_json::to_string(&first.state()).expect("plain numbers");
            let state: LoaderState = serde_json::from_str(&text).expect("it was just written");
            let second = DataLoader::new(Noisy::new(22), options(4 - workers))?;
            second.set_state(state)?;
            while seen.len() < want.len() {
                seen.extend(walk(&second, usize::MAX)?);
            }
            assert_eq!(seen, want, "stopped after {stop}");
        }
    }
    Ok(())
}

#[test]
fn a_state_of_something_else_is_refused() -> Result<()> {
    let loader = DataLoader::new(Noisy::new(22), options(0))?;
    let other = LoaderState { epoch: 0, samples: 4, seed: 1 };
    let error = loader.set_state(other).expect_err("another order");
    assert_eq!(error.to_string(), "data loader: the state is of seed 1, this loader has 9");
    loader.set_state(LoaderState { samples: 3, seed: 9, epoch: 0 })?;
    let error = loader.iter().err().expect("no batch ends there").to_string();
    assert!(error.contains("stands at sample 3, where no batch ends"), "{error}");
    Ok(())
}

#[test]
fn a_failure_is_one_error_that_names_the_sample() -> Result<()> {
    for workers in [0, 1, 4] {
        let failing = Noisy { fails_at: Some(17), ..Noisy::new(50) };
        let ordered = LoaderOptions { shuffle: false, ..options(workers) };
        let results: Vec<_> = DataLoader::new(failing, ordered)?.iter()?.collect();
        assert_eq!(results.len(), 5, "four batches and the error, with {workers} workers");
        let Err(error) = &results[4] else { panic!("sample 17 fails") };
        assert_eq!(error.to_string(), "data loader: sample 17: the disk is gone");
    }
    Ok(())
}

#[test]
fn a_panic_is_an_error_and_no_hang() -> Result<()> {
    for workers in [0, 1, 4] {
        let panicking = Noisy { panics_at: Some(9), ..Noisy::new(50) };
        let ordered = LoaderOptions { shuffle: false, ..options(workers) };
        let error = DataLoader::new(panicking, ordered)?
            .iter()?
            .find_map(Result::err)
            .expect("sample 9 panics")
            .to_string();
        let start = "data loader: sample 9: a worker panicked: ";
        assert!(error.starts_with(start) && error.contains("out of luck"), "{error}");
        let collate = |_: Vec<(i64, f64)>| -> Result<()> { panic!("can't put together") };
        let loader = DataLoader::with_collate(Noisy::new(8), options(workers), collate)?;
        let error = loader.iter()?.next().expect("a result").expect_err("collate panics");
        assert!(error.to_string().contains("panicked: can't put together"), "{error}");
    }
    Ok(())
}

#[test]
fn workers_stay_within_their_bound() -> Result<()> {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let options = LoaderOptions { batch_size: 1, workers: 3, prefetch: 2, ..options(3) };
    let loader = DataLoader::with_fetch(1000, options, move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })?;
    let mut batches = loader.iter()?;
    batches.next().expect("there are 1000")?;
    // Workers run ahead as far as they may, and no further.
    let start = Instant::now();
    while made.load(Ordering::SeqCst) < 7 && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(made.load(Ordering::SeqCst), 7, "one was read, six are ahead");
    drop(batches);
    assert_eq!(made.load(Ordering::SeqCst), 7, "dropping it ends the workers");
    Ok(())
}

/// A stream of numbers that ends, or fails.
struct Counting {
    end: i64,
    fails_at: i64,
}

impl IterableDataset for Counting {
    type Item = i64;

    fn iter_from(
        &self,
        epoch: u64,
        position: usize,
    ) -> Result<Box<dyn Iterator<Item = Result<i64>> + Send>> {
        let fails_at = self.fails_at;
        Ok(Box::new((position as i64..self.end).map(move |i| match i {
            i if i == fails_at => Err(Error::io("cut off")),
            i => Ok(i + 100 * epoch as i64),
        })))
    }
}

#[test]
fn streams_keep_their_order_and_place() -> Result<()> {
    let stream = |workers, drop_last| {
        let options = LoaderOptions { shuffle: false, drop_last, ..options(workers) };
        DataLoader::from_stream(Counting { end: 10, fails_at: -1 }, options)
    };
    for workers in [0, 3] {
        let loader = stream(workers, false)?;
        let all = |loader: &DataLoader<Tensor>| -> Result<Vec<i64>> {
            Ok(loader.iter()?.map(|b| b?.to_vec::<i64>()).collect::<Result<Vec<_>>>()?.concat())
        };
        assert_eq!(all(&loader)?, (0..10).collect::<Vec<_>>());
        assert_eq!(
            loader.iter()?.next().expect("an epoch")?.to_vec::<i64>()?,
            [100, 101, 102, 103]
        );
        let second = stream(3 - workers, false)?;
        second.set_state(loader.state())?;
        assert_eq!(all(&second)?, (104..110).collect::<Vec<_>>());
        assert_eq!(all(&stream(workers, true)?)?, (0..8).collect::<Vec<_>>());
        let options = LoaderOptions { shuffle: false, ..options(workers) };
        let failing = DataLoader::from_stream(Counting { end: 10, fails_at: 6 }, options)?;
        let results: Vec<_> = failing.iter()?.collect();
        let error = results.last().expect("two").as_ref().expect_err("it fails").to_string();
        assert_eq!((results.len(), error.as_str()), (2, "data loader: sample 6: cut off"));
        assert!(
            DataLoader::from_stream(Counting { end: 1, fails_at: 0 }, self::options(0)).is_err()
        );
    }
    Ok(())
}

#[test]
fn a_sampler_decides_what_is_drawn() -> Result<()> {
    let x = Tensor::arange(0.0, 6.0, 1.0, Device::Cpu)?;
    let data = TensorDataset::new((x.clone(), x))?;
    let sampler = RandomSampler { draws: Some(5), ..RandomSampler::new(6, 1) };
    let rows = data.clone();
    let loader = DataLoader::with_sampler(sampler, options(2), move |at, _| rows.rows(at))?;
    let sizes: Vec<usize> =
        loader.iter()?.map(|batch| Ok(batch?.0.numel())).collect::<Result<_>>()?;
    assert_eq!(sizes, [4, 1]);
    // The loader of a data set of tensors gives what the loader of its samples gives.
    let (fast, slow) = (data.clone().loader(options(2))?, DataLoader::new(data, options(2))?);
    for (fast, slow) in fast.iter()?.zip(slow.iter()?) {
        let (fast, slow) = (fast?, slow?);
        assert_eq!(fast.0.to_vec::<f32>()?, slow.0.to_vec::<f32>()?);
        assert_eq!(fast.1.shape(), slow.1.shape());
    }
    assert!(
        DataLoader::<(Tensor, Tensor)>::new(
            TensorDataset::new((Tensor::zeros(&[1], ())?, Tensor::zeros(&[1], ())?))?,
            LoaderOptions { batch_size: 0, ..LoaderOptions::default() }
        )
        .is_err()
    );
    Ok(())
}

struct Pictures;

impl Dataset for Pictures {
    type Item = Image;

    fn len(&self) -> usize {
        12
    }

    fn get(&self, index: usize) -> Result<Image> {
        Image::new(1, 8, 8, (0..64).map(|i| ((i * 7 + index * 13) % 64) as f32 / 63.0).collect())
    }
}

#[test]
fn pictures_are_changed_alike_by_any_worker() -> Result<()> {
    let pictures = |workers| {
        let change = Compose::new()
            .with(RandomCrop { height: 6, width: 6, padding: 1 })
            .with(RandomHorizontalFlip { p: 0.5 })
            .with(RandomRotation { degrees: 20.0 })
            .with(Normalize { mean: vec![0.5], std: vec![0.25] });
        let data = Pictures.map(move |image, rng| change.apply(image, rng)?.to_tensor());
        let loader = DataLoader::new(data, options(workers))?;
        let epoch = || -> Result<Vec<Vec<f32>>> {
            loader.iter()?.map(|batch| batch?.to_vec::<f32>()).collect()
        };
        Ok::<_, Error>([epoch()?, epoch()?])
    };
    let want = pictures(0)?;
    assert_ne!(want[0], want[1]);
    assert_eq!(pictures(3)?, want);
    Ok(())
}

#[test]
fn options_of_any_size_end() -> Result<()> {
    let data = || Arc::new(Noisy::new(7));
    let options = LoaderOptions { workers: 2, prefetch: usize::MAX, ..LoaderOptions::default() };
    let loader = DataLoader::new(data(), LoaderOptions { batch_size: 2, ..options })?;
    assert_eq!(loader.iter()?.collect::<Result<Vec<_>>>()?.len(), 4);
    let whole = DataLoader::new(data(), LoaderOptions { batch_size: usize::MAX, ..options })?;
    assert_eq!(whole.iter()?.collect::<Result<Vec<_>>>()?.len(), 1);
    let many = DataLoader::new(data(), LoaderOptions { workers: usize::MAX, ..options })?;
    let error = many.iter().err().expect("so many threads are not started").to_string();
    assert!(error.starts_with("data loader: 18446744073709551615 workers, the most"), "{error}");
    let endless =
        DataLoader::new(Noisy::new(usize::MAX), LoaderOptions { shuffle: true, ..options })?;
    assert_eq!(endless.len(), Some(usize::MAX));
    let error = endless.iter().err().expect("memory has no room for the order").to_string();
    assert!(error.contains("18446744073709551615 samples are more than memory holds"), "{error}");
    let state = LoaderState { epoch: u64::MAX, samples: usize::MAX, seed: 0 };
    loader.set_state(state)?;
    assert!(loader.iter().is_err());
    loader.set_state(LoaderState { samples: 0, ..state })?;
    assert_eq!(loader.iter()?.count(), 4);
    Ok(())
}
