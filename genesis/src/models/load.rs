//! A model from the files that are published: a folder with `config.json` and weights, or one GGUF file.
//!
//! The configuration comes first and is read to its last key, then the model is built of parameters without
//! memory, then each gets its tensor. A wrong configuration costs nothing so, and wrong weights are named
//! before the first is read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use serde_json::{Map, Value};

use super::bert::{Bert, bert};
use super::blueprint::Blueprint;
use super::loading::{fill, shapes};
use super::naming::Naming;
use super::settings::Settings;
use super::vit::{Vit, vit};
use super::weight_form::WeightForm;
use super::{CausalLm, gemma2, gemma3, gguf, gpt2, llama, qwen2, qwen3, qwen3_moe};
use crate::error::{Error, Result};
use crate::files::{MOST_CONFIG, read_text_at_most};
use crate::io::{GgufValue, Weights};
use crate::nn::Module;
use crate::tensor::{Creation, Tensor};

/// How a model is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadOptions {
    /// The dtype of weights and what is computed in; that of the files where absent.
    pub dtype: Option<DType>,
    /// Where the model lives.
    pub device: Device,
    /// Whether parameters ask for gradients; weights are whole then.
    pub trainable: bool,
    /// What products are computed from.
    pub weights: WeightForm,
    /// Whether products of the same inputs stay apart, as those of a model are whose parameters are cut into parts: their
    /// gradients have other bits than those of one product.
    pub apart: bool,
}

/// A language model, and what its files say besides.
#[derive(Clone)]
pub struct Loaded {
    /// The model.
    pub model: Arc<dyn CausalLm>,
    /// Its configuration.
    pub config: ModelConfig,
}

/// What the files of a model say that is of interest outside of it.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelConfig {
    /// The kind of model, `qwen2`.
    pub model_type: String,
    /// What it is computed in.
    pub dtype: DType,
    /// The token that a text begins with.
    pub bos_token: Option<u32>,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<u32>,
    /// The token that fills rows.
    pub pad_token: Option<u32>,
    /// `config.json` as it is; of a GGUF file what was made of its metadata.
    pub config: Map<String, Value>,
    /// `generation_config.json` as it is: how its authors sample; empty where there is none.
    pub generation: Map<String, Value>,
}

/// Builds a model by its settings.
pub(super) type Build<M> = fn(&mut Settings, &Blueprint) -> Result<M>;

/// Loads a language model from a folder or a GGUF file.
///
/// # Errors
/// If a file is missing or damaged, a setting is not supported, weights do not fit the configuration, or
/// memory runs out; with the file, and the key or the tensor.
/// # Examples
/// ```no_run
/// use genesis::models::{CausalLm, LoadOptions, Pass, load};
/// use genesis::{Device, Tensor};
///
/// let loaded = load("Qwen2.5-0.5B-Instruct", &LoadOptions { device: Device::Cpu, ..LoadOptions::default() })?;
/// let tokens = Tensor::from_slice(&[785i64, 6722, 315, 9625, 374], &[1, 5])?;
/// let hidden = loaded.model.hidden(&tokens, &Pass::Whole)?;
/// let next = loaded.model.logits(&hidden.select(1, 4)?)?.argmax(-1)?;
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Loaded> {
    let files = Files::open(path.as_ref())?;
    let (build, base) = architecture(&files.settings)?;
    let (mut model, config) = files.model(base, options, build, |model| &mut **model)?;
    if !options.apart {
        model.pack()?;
    }
    if !options.trainable {
        keep(&*model)?;
    }
    Ok(Loaded { model: model.into(), config })
}

/// A language model without memory: every parameter has its shape and none has values, so that it can be asked what it
/// would take.
///
/// # Errors
/// As of [`load`], as far as files are read: the configuration and the names of tensors.
pub fn outline(path: impl AsRef<Path>) -> Result<Loaded> {
    let mut files = Files::open(path.as_ref())?;
    let (build, _) = architecture(&files.settings)?;
    let dtype = dtype_of(&mut files.settings)?;
    let at = Creation { dtype, device: Device::Cpu };
    let plan = Blueprint::new(files.settings.source(), &shapes(&files.weights)?, at)?;
    let model_type = files.settings.text("model_type")?.unwrap_or_default();
    let model = build(&mut files.settings, &plan)?;
    files.settings.finish()?;
    let config = ModelConfig::of(model_type, dtype, files.config, files.generation);
    Ok(Loaded { model: model.into(), config })
}

/// What builds the decoder of a configuration, and the prefix of its names without the head.
pub(super) fn architecture(
    settings: &Settings,
) -> Result<(Build<Box<dyn CausalLm>>, &'static str)> {
    let model_type = settings.peek("model_type").cloned().unwrap_or_default();
    let (build, base): (Build<Box<dyn CausalLm>>, _) = match model_type.as_str().unwrap_or_default()
    {
        "llama" => (|s, p| Ok(Box::new(llama::llama(s, p)?)), "model."),
        "mistral" => (|s, p| Ok(Box::new(llama::mistral(s, p)?)), "model."),
        "qwen2" => (|s, p| Ok(Box::new(qwen2::qwen2(s, p)?)), "model."),
        "qwen3" => (|s, p| Ok(Box::new(qwen3::qwen3(s, p)?)), "model."),
        "qwen3_moe" => (|s, p| Ok(Box::new(qwen3_moe::qwen3_moe(s, p)?)), "model."),
        "gemma2" => (|s, p| Ok(Box::new(gemma2::gemma2(s, p)?)), "model."),
        "gemma3_text" => (|s, p| Ok(Box::new(gemma3::gemma3(s, p)?)), "model."),
        "gpt2" => (|s, p| Ok(Box::new(gpt2::gpt2(s, p)?)), "transformer."),
        _ => return Err(settings.unsupported("model_type", &model_type)),
    };
    Ok((build, base))
}

/// Says that the weights of a model, codes and tables among them, have arrived and stay as they are, so that kernels
/// ask for them ahead.
fn keep(model: &dyn CausalLm) -> Result<()> {
    let mut weights = model.parameters();
    weights.extend(model.named_buffers().into_iter().map(|(_, buffer)| buffer));
    let devices: BTreeSet<Device> = weights.iter().map(Tensor::device).collect();
    for device in devices {
        device.stream().synchronize()?;
    }
    weights.iter().for_each(|weight| weight.storage().set_constant());
    Ok(())
}

/// Loads a BERT with its head for masked tokens.
///
/// # Errors
/// As of [`load`].
pub fn load_bert(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Bert> {
    let files = Files::open_as(path.as_ref(), "bert")?;
    Ok(files.model("bert.", options, bert, |model| model)?.0)
}

/// Loads a ViT with its classifier.
///
/// # Errors
/// As of [`load`].
pub fn load_vit(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Vit> {
    let files = Files::open_as(path.as_ref(), "vit")?;
    Ok(files.model("vit.", options, vit, |model| model)?.0)
}

/// The files of a model, opened.
struct Files {
    settings: Settings,
    config: Map<String, Value>,
    generation: Map<String, Value>,
    weights: Weights,
    /// Where the names of tensors are GGUF's.
    names: Option<gguf::GgufNames>,
}

impl Files {
    fn open(path: &Path) -> Result<Files> {
        match path.is_dir() && path.join("config.json").exists() {
            true => Files::folder(path),
            false => Files::gguf(path),
        }
    }

    /// [`Files::open`] for a model that must be of a type.
    fn open_as(path: &Path, model_type: &str) -> Result<Files> {
        let mut files = Files::open(path)?;
        files.settings.only("model_type", model_type)?;
        Ok(files)
    }

    fn folder(folder: &Path) -> Result<Files> {
        let path = folder.join("config.json");
        let text = read_text_at_most(&path, MOST_CONFIG)?;
        let mut settings = Settings::parse(&text, &path.display().to_string())?;
        let config = settings.keys().clone();
        settings.only("is_encoder_decoder", false)?;
        if settings.peek("model_type").and_then(Value::as_str) == Some("gemma3") {
            settings = text_of_gemma3(settings)?;
        }
        let generation = folder.join("generation_config.json");
        let generation = match generation.is_file() {
            true => {
                let text = read_text_at_most(&generation, MOST_CONFIG)?;
                Settings::parse(&text, &generation.display().to_string())?.keys().clone()
            }
            false => Map::new(),
        };
        let weights = Weights::open(folder)?;
        Ok(Files { settings, config, generation, weights, names: None })
    }

    fn gguf(path: &Path) -> Result<Files> {
        let weights = Weights::open(path)?;
        let origin = path.display().to_string();
        let not = || Error::io(format!("{origin}: is neither a folder of a model nor a GGUF file"));
        let (file, shapes) = (weights.gguf().ok_or_else(not)?, shapes(&weights)?);
        let factors = "rope_freqs.weight";
        let factors =
            file.tensors().contains_key(factors).then(|| file.dequantized(factors)).transpose()?;
        let (mut settings, names) = gguf::settings(file.metadata(), &shapes, factors, &origin)?;
        let token = |key| file.metadata().get(key).and_then(GgufValue::as_u64);
        for (theirs, own) in [
            ("tokenizer.ggml.bos_token_id", "bos_token_id"),
            ("tokenizer.ggml.eos_token_id", "eos_token_id"),
            ("tokenizer.ggml.padding_token_id", "pad_token_id"),
        ] {
            token(theirs).into_iter().for_each(|id| settings.put(own, id));
        }
        let config = settings.keys().clone();
        Ok(Files { settings, config, generation: Map::new(), weights, names: Some(names) })
    }

    /// Builds the model and gives it its weights.
    fn model<M>(
        mut self,
        base: &'static str,
        options: &LoadOptions,
        build: Build<M>,
        as_module: impl for<'m> Fn(&'m mut M) -> &'m mut dyn Module,
    ) -> Result<(M, ModelConfig)> {
        let shapes = shapes(&self.weights)?;
        let dtype = match options.dtype {
            Some(dtype) if dtype.is_arithmetic_float() => dtype,
            Some(dtype) => return Err(crate::ops::wrong_dtype("load", "a float", dtype)),
            None => dtype_of(&mut self.settings)?,
        };
        let at = Creation { dtype, device: options.device };
        let plan = Blueprint::new(self.settings.source(), &shapes, at)?;
        let model_type = self.settings.text("model_type")?.unwrap_or_default();
        let mut model = build(&mut self.settings, &plan)?;
        self.settings.finish()?;
        let naming = match self.names {
            Some(names) => Naming::Gguf(names),
            None => Naming::Published { base },
        };
        let module = as_module(&mut model);
        module.requires_grad_(options.trainable)?;
        let form = match options.trainable {
            true => WeightForm::Whole,
            false => options.weights.computed_in(dtype)?,
        };
        fill(module, &self.weights, &naming, form, at)?;
        Ok((model, ModelConfig::of(model_type, dtype, self.config, self.generation)))
    }
}

/// The dtype that a configuration names, or f32.
pub(super) fn dtype_of(settings: &mut Settings) -> Result<DType> {
    let old = settings.text("torch_dtype")?;
    match settings.text("dtype")?.or(old).as_deref() {
        Some("bfloat16") => Ok(DType::BF16),
        Some("float16") => Ok(DType::F16),
        Some("float32") | None => Ok(DType::F32),
        Some(other) => Err(settings.unsupported("dtype", &other.into())),
    }
}

impl ModelConfig {
    /// What the two objects say.
    pub(super) fn of(
        model_type: String,
        dtype: DType,
        config: Map<String, Value>,
        generation: Map<String, Value>,
    ) -> ModelConfig {
        let token = |key| tokens(&generation, key).or_else(|| tokens(&config, key));
        let first = |key| token(key).and_then(|tokens| tokens.first().copied());
        ModelConfig {
            model_type,
            dtype,
            bos_token: first("bos_token_id"),
            eos_tokens: token("eos_token_id").unwrap_or_default(),
            pad_token: first("pad_token_id"),
            config,
            generation,
        }
    }
}

/// One token or a list of them.
fn tokens(keys: &Map<String, Value>, key: &str) -> Option<Vec<u32>> {
    let token = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match keys.get(key)? {
        Value::Array(list) => Some(list.iter().filter_map(token).collect()),
        value => token(value).map(|token| vec![token]),
    }
}

/// The settings of the text of a Gemma 3 that also sees.
fn text_of_gemma3(mut settings: Settings) -> Result<Settings> {
    let mut text = settings.nested("text_config")?.unwrap_or_else(|| settings.empty("text_config"));
    for dtype in ["dtype", "torch_dtype"] {
        if let Some(value) = settings.given(dtype) {
            text.put_if_absent(dtype, value);
        }
    }
    for key in ["vision_config", "mm_tokens_per_image", "model_type", "tie_word_embeddings"] {
        settings.take(key);
    }
    for token in ["boi_token_index", "eoi_token_index", "image_token_index"] {
        settings.take(token);
    }
    settings.finish()?;
    text.put("model_type", "gemma3_text");
    Ok(text)
}
