//! What a run begins with: a model that is loaded or new, and its tokenizer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use serde_json::{Map, Value};

use super::options::{BaseWeights, Options, Precision};
use super::presets::{preset, preset_names};
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};
use crate::files::{MOST_CONFIG, read_text_at_most};
use crate::io::GgufFile;
use crate::models::{CausalLm, LoadOptions, ModelConfig, initialize, load, outline, outline_of};
use crate::nn::{LoraOptions, adapt};
use crate::random::manual_seed;
use crate::text::Pretrained;

/// A model to train, and what its texts are made of.
pub struct Start {
    /// The model.
    pub model: Arc<dyn CausalLm>,
    /// Its configuration.
    pub config: ModelConfig,
    /// Its tokenizer and chat template.
    pub text: Pretrained,
    /// The adapters, where only those are trained.
    pub lora: Option<LoraOptions>,
    /// The ranks that train it together; none where there is one.
    pub(super) group: Option<ProcessGroup>,
    /// Where the model is from; none of a new one.
    pub(super) path: Option<PathBuf>,
    /// Where the weights are from, where those in memory are quantized.
    pub(super) base: Option<PathBuf>,
    /// The folder whose tokenizer is copied as it is; none where it is not from a folder.
    pub(super) text_folder: Option<PathBuf>,
}

/// Whether a run begins from nothing: its model is a preset or a `config.json`.
pub fn is_new(model: &str) -> bool {
    let path = Path::new(model);
    let is_preset = preset_names().contains(&model) && !path.is_dir();
    is_preset || (model.ends_with(".json") && path.is_file())
}

impl Start {
    /// Loads a model from a folder or a GGUF file at `path`, or makes a new one of a preset or a `config.json` where there
    /// is no path. Its parameters ask for gradients.
    ///
    /// # Errors
    /// If files are missing or damaged, options contradict each other, or memory runs out.
    pub fn open(options: &Options, path: Option<&Path>, device: Device) -> Result<Start> {
        options.check()?;
        manual_seed(options.seed);
        let lora = options.lora();
        let (text, text_folder) = text_of(options, path)?;
        let is_half = lora.is_some() && options.dtype == Precision::Bf16;
        let dtype = Some(if is_half { DType::BF16 } else { DType::F32 });
        let is_quantized = options.lora_base != BaseWeights::Whole;
        let weights = options.lora_base.form();
        let (trainable, apart) = (!is_quantized, options.ordered_reductions);
        let of = LoadOptions { dtype, device, trainable, weights, apart };
        let mut loaded = match path {
            Some(path) => load(path, &of)?,
            None => initialize(&new_config(options, &text)?, &of)?,
        };
        if let Some(lora) = &lora {
            let model = Arc::get_mut(&mut loaded.model);
            let model = model.ok_or_else(|| Error::op("train", "the model is shared already"))?;
            adapt(model, lora)?;
        }
        check_length(options, &*loaded.model)?;
        let base = path.filter(|_| is_quantized).map(Path::to_owned);
        let (model, config) = (loaded.model, loaded.config);
        let path = path.map(Path::to_owned);
        Ok(Start { model, config, text, lora, group: None, path, base, text_folder })
    }

    /// The same, to be trained by the ranks of a group together, each on its device. The model is the first
    /// rank's, and so is what the run writes.
    pub fn on_ranks(self, group: &ProcessGroup) -> Start {
        Start { group: (group.size() > 1).then(|| group.clone()), ..self }
    }

    /// The model, to be changed.
    pub(super) fn unique_model(&mut self) -> Result<&mut dyn CausalLm> {
        let unique = Arc::get_mut(&mut self.model);
        unique.ok_or_else(|| Error::op("train", "the model is in use elsewhere"))
    }

    /// Whether this process writes what the run writes.
    pub(super) fn is_writer(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.rank() == 0)
    }
}

impl Start {
    /// [`Start::open`] of a model without memory and without adapters.
    pub(super) fn outline(options: &Options, path: Option<&Path>) -> Result<Start> {
        options.check()?;
        let (text, text_folder) = text_of(options, path)?;
        let loaded = match path {
            Some(path) => outline(path)?,
            None => outline_of(&new_config(options, &text)?)?,
        };
        check_length(options, &*loaded.model)?;
        let (model, config) = (loaded.model, loaded.config);
        let path = path.map(Path::to_owned);
        Ok(Start { model, config, text, lora: None, group: None, path, base: None, text_folder })
    }
}

/// Refuses rows that are longer than the model's positions.
fn check_length(options: &Options, model: &dyn CausalLm) -> Result<()> {
    let (length, most) = (options.sequence_length, model.max_positions());
    match length > most {
        true => {
            let what = format!("sequence_length is {length}, the model has {most} positions");
            Err(Error::op("train", what))
        }
        false => Ok(()),
    }
}

/// The tokenizer, and the folder that it is from.
fn text_of(options: &Options, path: Option<&Path>) -> Result<(Pretrained, Option<PathBuf>)> {
    let folder = options.tokenizer.as_deref().or(path);
    let Some(folder) = folder else {
        let what = format!(
            "a new model ({}) needs a tokenizer: name its folder; `genesis tokenizer train` makes one",
            options.model
        );
        return Err(Error::op("train", what));
    };
    let (mut text, folder) = match folder.is_dir() {
        true => (Pretrained::load(folder)?, Some(folder.to_owned())),
        false => (Pretrained::from_gguf(&GgufFile::open(folder)?)?, None),
    };
    if let Some(file) = &options.chat_template {
        text.chat_templates =
            [("default".to_owned(), read_text_at_most(file, MOST_CONFIG)?)].into();
        text.template_files = [("default".to_owned(), file.clone())].into();
    }
    Ok((text, folder))
}

/// The configuration of a new model.
fn new_config(options: &Options, text: &Pretrained) -> Result<Map<String, Value>> {
    let vocabulary = text.tokenizer.vocab_size();
    let mut config = match preset(&options.model, vocabulary, options.sequence_length) {
        Some(config) => config,
        None => {
            let path = Path::new(&options.model);
            let json = serde_json::from_str(&read_text_at_most(path, MOST_CONFIG)?);
            match json.map_err(|error| Error::io(format!("{}: {error}", path.display())))? {
                Value::Object(config) => config,
                _ => return Err(Error::io(format!("{}: is no JSON object", path.display()))),
            }
        }
    };
    for (key, name) in [
        ("bos_token_id", "bos_token"),
        ("eos_token_id", "eos_token"),
        ("pad_token_id", "pad_token"),
    ] {
        let token = text.special_tokens.get(name);
        let id = token.and_then(|token| text.tokenizer.token_to_id(token));
        if config.get(key).is_none_or(Value::is_null) {
            config.insert(key.to_owned(), id.into());
        }
    }
    Ok(config)
}
