//! Data: samplers, loaders, pictures and their transforms, tables, and files of hostile tensors.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use genesis::data::{
    BatchSampler, Batches, CenterCrop, Compose, ConcatDataset, Csv, CsvOptions, DataLoader,
    Dataset, DistributedSampler, Image, LoaderOptions, LoaderState, Normalize, RandomCrop,
    RandomHorizontalFlip, RandomRotation, RandomSampler, RandomVerticalFlip, Resize, SampleRng,
    Sampler, SequentialSampler, SubsetRandomSampler, TensorDataset, TokenWindows, Tokens,
    Transform, WeightedRandomSampler, random_split, read_idx_with, shuffled,
};
use genesis::io::{
    self, Checkpoint, Checkpoints, GgmlType, GgufEntry, GgufField, GgufFile, Keep, ReadLimits,
};
use genesis::{Device, Result, Tensor};

use super::calls::{Row, done};
use super::generate::{Gen, Value, structures, values};

structures! {
    CsvOptions { delimiter, header }
    ReadLimits { max_alloc, max_ratio }
    LoaderState { epoch, samples, seed }
    Normalize { mean, std }
    CenterCrop { height, width }
    RandomCrop { height, width, padding }
    RandomHorizontalFlip { p }
    RandomVerticalFlip { p }
    RandomRotation { degrees }
    SequentialSampler { len }
    RandomSampler { len, seed, draws, replacement }
    SubsetRandomSampler { indices, seed }
}

values! {
    Resize: |g| if g.below(2) == 0 { Resize::To(g.v(), g.v()) } else { Resize::Shorter(g.v()) };
    Image: |g| {
        let [channels, height, width] = [1 + g.below(4), g.below(5), g.below(7)];
        let pixels = (0..channels * height * width).map(|_| g.v()).collect();
        Image::new(channels, height, width, pixels).expect("as many as there are")
    };
    LoaderOptions: |g| LoaderOptions {
        batch_size: g.v(),
        shuffle: g.v(),
        seed: g.v(),
        drop_last: g.v(),
        workers: g.below(3),
        prefetch: g.v(),
        device: g.v(),
        pin_memory: g.v(),
    };
}

/// Orders of an epoch: every index must be one of the samples.
fn order(g: &mut Gen, sampler: impl Sampler, len: usize) -> Result<Vec<Tensor>> {
    let order = sampler.indices(g.v())?;
    assert!(order.len() == sampler.len(), "{} draws, not {}", order.len(), sampler.len());
    let is_inside = order.iter().all(|&index| index < len || len == usize::MAX);
    assert!(is_inside, "an index beyond {len} samples");
    if g.below(2) == 0 {
        let batches = Batches::new(sampler, g.v(), g.v())?;
        let all = batches.batches(g.v())?;
        assert_eq!(all.len(), batches.count(0)?);
    }
    Ok(Vec::new())
}

pub(super) fn data(rows: &mut Vec<Row>) {
    samplers(rows);
    pictures(rows);
    sets(rows);
    tensor_files(rows);
    model_files(rows);
}

fn samplers(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("shuffled", |g| done(shuffled(g.v::<usize>(), g.v(), g.v())));
    row("SequentialSampler", |g| {
        let sampler: SequentialSampler = g.v();
        order(g, sampler, sampler.len)
    });
    row("RandomSampler", |g| {
        let sampler: RandomSampler = g.v();
        order(g, sampler, sampler.len)
    });
    row("SubsetRandomSampler", |g| {
        let sampler: SubsetRandomSampler = g.v();
        order(g, sampler, usize::MAX)
    });
    row("WeightedRandomSampler", |g| {
        let weights = g.list::<f64>();
        let sampler = WeightedRandomSampler::new(&weights, g.v(), g.v(), g.v())?;
        order(g, sampler, weights.len())
    });
    row("DistributedSampler", |g| {
        let len = g.v();
        let sampler = DistributedSampler::new(len, g.v(), g.v(), g.v(), g.v())?;
        order(g, sampler, len)
    });
}

fn pictures(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("Image::new", |g| done(Image::new(g.v(), g.v(), g.v(), vec![0.5; 12])?.to_tensor()));
    row("Image::from_bytes", |g| {
        done(Image::from_bytes(g.v(), g.v(), g.v(), &[7; 12])?.to_tensor())
    });
    row("Image::from_tensor", |g| {
        done(Image::from_tensor(&g.tensor())?.with_channels(g.v())?.to_tensor())
    });
    row("Image::at", |g| done(Ok(g.v::<Image>().at(g.v(), g.v(), g.v()).map(f64::from))));
    row("Image::grid", |g| done(Image::grid(&g.list::<Image>(), g.v())?.to_tensor()));
    row("Image::with_channels", |g| done(g.v::<Image>().with_channels(g.v())?.to_tensor()));
    row("Image::save_png", |g| {
        let path = path("x.png");
        g.v::<Image>().save_png(&path)?;
        done(Image::open(&path)?.to_tensor())
    });
    row("Transform", |g| {
        let step: Box<dyn Transform> = match g.below(8) {
            0 => Box::new(g.v::<Normalize>()),
            1 => Box::new(g.v::<CenterCrop>()),
            2 => Box::new(g.v::<RandomCrop>()),
            3 => Box::new(g.v::<RandomHorizontalFlip>()),
            4 => Box::new(g.v::<RandomVerticalFlip>()),
            5 => Box::new(g.v::<RandomRotation>()),
            6 => Box::new(g.v::<Resize>()),
            _ => Box::new(Compose::new().with(g.v::<RandomCrop>()).with(g.v::<Resize>())),
        };
        done(step.apply(g.v(), &mut SampleRng::new(g.v()))?.to_tensor())
    });
}

fn sets(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("Csv::parse", |g| {
        let parts = [
            "a",
            "b",
            ",",
            "\n",
            "\r\n",
            "\"",
            "1",
            "-2.5",
            "1e400",
            ";",
            "\u{1F600}",
            "\u{FEFF}",
            "\0",
        ];
        let text: String = (0..g.below(60)).map(|_| g.one(&parts)).collect();
        let csv = Csv::parse(&text, g.v())?;
        let _ = (csv.get(g.v(), g.v()), csv.column("a"), csv.rows().flatten().count());
        done(csv.to_tensor(&g.list::<usize>()))
    });
    row("TensorDataset::rows", |g| {
        done(TensorDataset::new((g.tensor(), g.tensor()))?.rows(&g.list::<usize>()))
    });
    row("TensorDataset::loader", |g| {
        let loader = TensorDataset::new((g.tensor(), g.tensor()))?.loader(g.v())?;
        if g.below(3) == 0 {
            loader.set_state(g.v())?;
        }
        let _ = (loader.len(), loader.is_empty());
        let mut tensors = Vec::new();
        for batch in loader.iter()?.take(3) {
            tensors.push(batch?);
        }
        done(Ok(tensors))
    });
    row("DataLoader", |g| {
        let len = g.v::<usize>();
        let fetch = move |indices: &[usize], _: u64| {
            assert!(indices.iter().all(|&index| index < len));
            Tensor::zeros(&[indices.len()], Device::Cpu)
        };
        let loader = DataLoader::with_fetch(len, g.v(), fetch)?;
        done(loader.iter()?.take(3).collect::<Result<Vec<_>>>())
    });
    row("random_split", |g| {
        let set = Arc::new(TensorDataset::new((g.tensor(), g.tensor()))?);
        let parts = random_split(set.clone(), &g.list::<usize>(), g.v())?;
        let whole = ConcatDataset::new(parts);
        let _ = whole.get(g.v());
        done(Ok(whole.len()))
    });
    row("TokenWindows", |g| {
        let tokens: Vec<u8> = (0..g.below(30)).map(|n| n as u8).collect();
        let _ = tokens.read(g.v(), g.v());
        let windows = TokenWindows::new(tokens, g.v())?;
        let _ = windows.len();
        done(windows.get(g.v()))
    });
    row("SampleRng", |g| {
        let mut rng = SampleRng::of_sample(g.v(), g.v(), g.v());
        let (below, _) = (rng.below(g.v::<usize>().max(1)), rng.happens(g.v()));
        done(Ok(below))
    });
}

/// Where files of this process go; its parent removes them.
fn path(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("genesis-abuse-{}", std::process::id()));
    // Where it can't be made, what is written there is refused.
    let _ = std::fs::create_dir_all(&folder);
    folder.join(name)
}

fn named(g: &mut Gen) -> BTreeMap<String, Tensor> {
    let names = ["", "a", "a/b", "..", "\u{1F600}", "__metadata__", "a\0b", "x.npy"];
    (0..g.below(4)).map(|_| (g.one(&names).to_owned(), g.tensor())).collect()
}

/// The tensors that were read, without their names.
fn tensors(read: Result<BTreeMap<String, Tensor>>) -> Result<Vec<Tensor>> {
    Ok(read?.into_values().collect())
}

/// Tensors in files, written and read again.
fn tensor_files(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("save_npy", |g| {
        let path = path("x.npy");
        io::save_npy(&path, &g.tensor())?;
        done(io::load_npy(&path, g.at()))
    });
    row("save_npz", |g| {
        let path = path("x.npz");
        io::save_npz(&path, &named(g))?;
        done(tensors(io::load_npz(&path, g.at())))
    });
    row("save_safetensors", |g| {
        let path = path("x.safetensors");
        io::save_safetensors(&path, &named(g))?;
        done(tensors(io::load_safetensors(&path, g.at())))
    });
    row("ReadLimits", |g| {
        let (path, limits): (_, ReadLimits) = (path("x.npz"), g.v());
        io::save_npz(&path, &named(g))?;
        let _ = (Image::open_with(&path, &limits), read_idx_with(&path, &limits));
        done(tensors(io::load_npz_with(&path, g.at(), &limits)))
    });
    row("save_safetensors_with", |g| {
        let path = path("x.safetensors");
        let names = ["", "a", "\u{1F600}", "__metadata__", "\0"];
        let metadata =
            (0..g.below(3)).map(|_| (g.one(&names).to_owned(), g.one(&names).to_owned()));
        let metadata = metadata.collect();
        io::save_safetensors_with(&path, &named(g), &metadata)?;
        let file = io::SafeTensorsFile::open(&path)?;
        assert_eq!(file.metadata(), &metadata);
        done(file.tensor(g.one(&names), g.at()))
    });
}

/// Models and checkpoints in files, written and read again.
fn model_files(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("write_gguf", |g| {
        let path = path("x.gguf");
        let types: Vec<GgmlType> = GgmlType::all().collect();
        let entry = GgufEntry { name: "w".to_owned(), shape: g.sizes(), ty: g.one(&types) };
        let field = match g.v() {
            true => GgufField::Bool(g.v()),
            false => GgufField::Strings(vec!["a".to_owned(); g.below(3)]),
        };
        let values = match g.v::<bool>() {
            true => entry.shape.iter().try_fold(1, |n: usize, &extent| n.checked_mul(extent)),
            false => None,
        };
        let values = vec![0.5; values.filter(|&n| n < 4096).unwrap_or(7)];
        io::write_gguf(&path, &[("key".to_owned(), field)], &[entry], |_| Ok(values.clone()))?;
        let read = GgufFile::open(&path)?.dequantized("w")?;
        done(Tensor::from_slice_on(&read, &[read.len()], Device::Cpu))
    });
    row("Checkpoint", |g| {
        let whole = Checkpoint {
            step: g.v(),
            model: named(g),
            states: (0..g.below(2)).map(|_| ("optimizer".to_owned(), g.v())).collect(),
            rng: Some(genesis::random::get_rng_state()),
            data: g.v(),
            metric: g.v(),
            ..Checkpoint::default()
        };
        let folder = path("checkpoints");
        let saved = Checkpoints::open(&folder, Keep::default())
            .and_then(|all| all.save(&whole))
            .and_then(|at| io::verify_checkpoint(&at).map(|_| at))
            .and_then(|at| Checkpoint::load(at, Device::Cpu));
        let _ = std::fs::remove_dir_all(&folder);
        done(saved.map(|read| read.model.into_values().collect::<Vec<_>>()))
    });
}
