//! From a name to a model that answers: found, loaded, and run by an engine.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use genesis::generate::{EngineOptions, Speculation};
use genesis::hub::{HubOptions, ModelFiles, Progress, resolve};
use genesis::io::GgufFile;
use genesis::models::{self, LoadOptions, WeightForm, load};
use genesis::nn::quantized_numbers;
use genesis::serve::{Backend, EngineBackend, ModelInfo};
use genesis::text::Pretrained;
use genesis::{DType, Device};
use indicatif::{ProgressBar, ProgressStyle};

use super::Failure;
use super::values::positive;

/// Which model, and where it runs.
#[derive(clap::Args, Clone)]
pub(super) struct ModelArgs {
    /// A folder as Hugging Face publishes it, a GGUF file, or a name such as Qwen/Qwen2.5-0.5B-Instruct.
    model: String,
    /// `cpu`, `cuda` or `cuda:1`; a GPU where there is one.
    #[arg(long)]
    device: Option<String>,
    /// What is computed in: bf16, f16 or f32; as the files are without it.
    #[arg(long, value_parser = dtype)]
    dtype: Option<DType>,
    /// What products are computed from: `stored` as the files have it, `whole`, `int8` or `int4`.
    #[arg(long, default_value = "stored", value_parser = weight_form)]
    weights: WeightForm,
    /// The most tokens of prompt and answer; as many as the model was made for without it.
    #[arg(long, value_parser = positive)]
    context: Option<usize>,
    /// Memory for keys and values, in MiB.
    #[arg(long, default_value_t = 1024, value_parser = positive)]
    pub(super) cache_mib: usize,
    /// What keys and values are kept as: bf16, f16, f32, f8e4m3 or f8e5m2; what is computed in without it. 8 bits hold
    /// twice as many tokens, and change answers.
    #[arg(long, value_parser = cache_dtype)]
    cache_dtype: Option<DType>,
    /// Guess so many tokens at a time from what was said before, which changes no answer.
    #[arg(long, value_parser = positive)]
    guess: Option<usize>,
    /// Sequences that run at a time, which each command says.
    #[arg(skip = 1usize)]
    pub(super) sequences: usize,
    /// Whether kernels are compiled before somebody asks, which each command says.
    #[arg(skip)]
    pub(super) warm_up: bool,
}

/// A model that answers, and what a roofline needs of it.
pub(super) struct Loaded {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) device: Device,
    pub(super) work: Work,
}

/// What a token takes.
pub(super) struct Work {
    /// Parameters that take part in each token.
    pub(super) parameters: u64,
    /// Their bytes.
    pub(super) weight_bytes: u64,
    /// Bytes of the keys and values of a token.
    pub(super) cache_bytes_per_token: u64,
    /// Whether products are of 16-bit floats.
    pub(super) is_half: bool,
}

/// The longest run of tokens that `--guess` looks for.
const LONGEST_RUN: usize = 4;

/// Finds a model, loads it and starts its engine.
pub(super) fn open(args: &ModelArgs) -> Result<Loaded, Failure> {
    open_found(args, &find(args)?)
}

/// Finds the files of a model, and downloads what is not there.
pub(super) fn find(args: &ModelArgs) -> Result<ModelFiles, Failure> {
    find_named(&args.model)
}

/// [`find`] by a name.
pub(super) fn find_named(name: &str) -> Result<ModelFiles, Failure> {
    Ok(resolve(name, &hub())?)
}

/// Loads a model that was found, and starts its engine.
pub(super) fn open_found(args: &ModelArgs, files: &ModelFiles) -> Result<Loaded, Failure> {
    let device = super::values::device(args.device.as_deref())?;
    let (path, text) = match (files.folder(), files.gguf()) {
        (Some(folder), _) => (folder, Pretrained::load(folder)?),
        (None, Some(file)) => (file, Pretrained::from_gguf(&GgufFile::open(file)?)?),
        (None, None) => return Err(Failure::Message(format!("{}: no model", args.model))),
    };
    let loaded = load(
        path,
        &LoadOptions { dtype: args.dtype, device, weights: args.weights, ..LoadOptions::default() },
    )?;
    let work = Work::of(&loaded, args.cache_dtype);
    let speculation = args.guess.map_or(Speculation::None, |drafts| Speculation::PromptLookup {
        longest: LONGEST_RUN,
        drafts,
    });
    let options = EngineOptions {
        cache_bytes: args.cache_mib.saturating_mul(1 << 20),
        dtype: args.cache_dtype,
        max_sequences: args.sequences,
        context: args.context,
        speculation,
        warm_up: args.warm_up,
        ..EngineOptions::default()
    };
    let info = info(files, path, &format!("{device} {} {:?}", loaded.config.dtype, args.weights))?;
    let backend = Arc::new(EngineBackend::start(&loaded, text, info, options)?);
    Ok(Loaded { backend, device, work })
}

fn dtype(name: &str) -> Result<DType, String> {
    match DType::from_name(name) {
        Some(dtype @ (DType::BF16 | DType::F16 | DType::F32)) => Ok(dtype),
        _ => Err("must be bf16, f16 or f32".to_owned()),
    }
}

fn cache_dtype(name: &str) -> Result<DType, String> {
    match DType::from_name(name) {
        Some(narrow @ (DType::F8E4M3 | DType::F8E5M2)) => Ok(narrow),
        _ => dtype(name).map_err(|_| "must be bf16, f16, f32, f8e4m3 or f8e5m2".to_owned()),
    }
}

fn weight_form(name: &str) -> Result<WeightForm, String> {
    match name {
        "stored" => Ok(WeightForm::Stored),
        "whole" => Ok(WeightForm::Whole),
        "int8" => Ok(WeightForm::Int8),
        "int4" => Ok(WeightForm::Int4),
        _ => Err("must be stored, whole, int8 or int4".to_owned()),
    }
}

/// Downloads with a bar on a terminal.
fn hub() -> HubOptions {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let progress = move |Progress { file, done, total }: Progress<'_>| {
        if bar.message() != file {
            bar.set_message(file.to_owned());
        }
        bar.set_length(total.unwrap_or(done));
        bar.set_position(done);
        if total == Some(done) {
            bar.finish_and_clear();
            bar.reset();
        }
    };
    HubOptions { progress: Some(Arc::new(progress)), ..HubOptions::default() }
}

impl Work {
    fn of(loaded: &models::Loaded, cache: Option<DType>) -> Work {
        let parameters = loaded.model.named_parameters();
        let buffers = loaded.model.named_buffers();
        // Of a table of embeddings a token reads a row, unless it is the last product too.
        let has_head = parameters.iter().chain(&buffers).any(|(name, _)| name.contains("lm_head"));
        let is_read = |name: &str| !(has_head && name.contains("embed_tokens"));
        let read = parameters.iter().filter(|(name, _)| is_read(name));
        let whole: u64 = read.clone().map(|(_, tensor)| tensor.numel() as u64).sum();
        let bytes = read
            .chain(&buffers)
            .map(|(_, tensor)| tensor.numel() as u64 * tensor.dtype().bytes() as u64);
        let shape = loaded.model.kv_shape();
        let dtype = loaded.config.dtype;
        let channels = (2 * shape.layers * shape.heads * shape.head_dim) as u64;
        Work {
            parameters: whole + quantized_numbers(&*loaded.model),
            weight_bytes: bytes.sum(),
            cache_bytes_per_token: channels * cache.unwrap_or(dtype).bytes() as u64,
            is_half: matches!(dtype, DType::BF16 | DType::F16),
        }
    }
}

/// What is known of the model without its weights. `place` is where and in what it computes: other devices
/// and dtypes round otherwise.
fn info(files: &ModelFiles, path: &Path, place: &str) -> Result<ModelInfo, Failure> {
    let weights = weight_files(path)?;
    let newest = weights.iter().filter_map(|file| file.metadata().ok()?.modified().ok()).max();
    let since = newest.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let mut hasher = blake3::Hasher::new();
    hasher.update(place.as_bytes());
    for file in &weights {
        sample(file, &mut hasher)?;
    }
    Ok(ModelInfo {
        name: name(files, path),
        created: since.unwrap_or_default().as_secs(),
        identity: hasher.finalize().to_hex().to_string(),
        ..ModelInfo::default()
    })
}

/// What clients call the model: its name on the hub, or that of its folder or file.
fn name(files: &ModelFiles, path: &Path) -> String {
    if !Path::new(files.name()).exists() {
        return files.name().to_owned();
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| files.name().to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The files that answers depend on.
fn weight_files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "safetensors" || ext == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Bytes that are hashed at both ends of a file: all of a small one, headers and some weights of a large one.
const SAMPLE: u64 = 256 << 10;

fn sample(path: &Path, hasher: &mut blake3::Hasher) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    hasher.update(&length.to_le_bytes());
    let mut bytes = Vec::new();
    file.by_ref().take(SAMPLE).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(length.saturating_sub(SAMPLE)))?;
    file.take(SAMPLE).read_to_end(&mut bytes)?;
    hasher.update(&bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_weights_are_another_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("model.safetensors");
        let identity = |bytes: &[u8]| {
            std::fs::write(&file, bytes).expect("writable");
            let mut hasher = blake3::Hasher::new();
            for file in weight_files(folder.path()).expect("readable") {
                sample(&file, &mut hasher).expect("readable");
            }
            hasher.finalize()
        };
        assert_ne!(identity(b"a"), identity(b"b"));
        let long = vec![0u8; 1 << 20];
        let mut other = long.clone();
        other[(1 << 20) - 1] = 1;
        assert_ne!(identity(&long), identity(&other));
    }

    #[test]
    fn integers_are_no_dtype_of_a_model() {
        assert_eq!(dtype("bf16"), Ok(DType::BF16));
        assert!(dtype("i32").is_err() && dtype("q4").is_err());
    }
}
