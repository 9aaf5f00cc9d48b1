//! A trained model as a folder that `genesis chat`, transformers and others load.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::options::{Options, SaveDtype};
use super::start::Start;
use crate::error::{Error, Result};
use crate::io::{MODEL, SavedCheckpoint, verify_checkpoint};
use crate::models::{ModelConfig, save, save_by};
use crate::tensor::TensorType;

/// What a folder says of its tokenizer and chat template.
const TEXT_FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

/// Writes model, tokenizer and chat template to a folder. Adapters must be merged.
///
/// # Errors
/// If the model has adapters, or the folder can't be written.
pub fn export(folder: &Path, start: &Start, dtype: Option<SaveDtype>) -> Result<()> {
    save(folder, &*start.model, &config_of(start), dtype.map(SaveDtype::dtype))?;
    export_texts(folder, start)
}

/// [`export`] of a checkpoint of a run with these options, which may have ended before it was done: one tensor at a time is in
/// memory, whatever ranks wrote it. `path` is as of [`Start::open`].
///
/// # Errors
/// If only adapters were trained, a file is missing or damaged, or the folder can't be written.
pub fn export_checkpoint(
    folder: &Path,
    checkpoint: &Path,
    options: &Options,
    path: Option<&Path>,
) -> Result<()> {
    if options.lora_rank.is_some() {
        return Err(Error::op("train", "a checkpoint of adapters has no whole model"));
    }
    verify_checkpoint(checkpoint)?;
    let (start, saved) = (Start::outline(options, path)?, SavedCheckpoint::open(checkpoint)?);
    export_saved(folder, &start, options, &saved)
}

/// [`export`] of a model that lies in parts in the files of a checkpoint: one tensor at a time is whole.
pub(super) fn export_saved(
    folder: &Path,
    start: &Start,
    options: &Options,
    saved: &SavedCheckpoint,
) -> Result<()> {
    let names = Start::outline(options, start.path.as_deref())?.model.state_dict().into_iter();
    let types = names.map(|(name, outline)| {
        let ty = saved.tensors.type_of(&format!("{MODEL}{name}"))?;
        match ty.shape == outline.shape() {
            true => Ok((name, ty)),
            false => {
                Err(Error::op("train", format!("the checkpoint has {name} of {:?}", ty.shape)))
            }
        }
    });
    let types = types.collect::<Result<BTreeMap<String, TensorType>>>()?;
    let as_saved = (&config_of(start), options.save_dtype.map(SaveDtype::dtype));
    save_by(folder, types, as_saved, |name| saved.tensors.whole(&format!("{MODEL}{name}")))?;
    export_texts(folder, start)
}

/// The configuration of what is saved.
fn config_of(start: &Start) -> ModelConfig {
    let mut config = start.config.clone();
    // What ends an answer is part of the configuration of generation, which a GGUF file does not have.
    if config.generation.is_empty() && !start.text.stop_tokens.is_empty() {
        let ends = start.text.stop_tokens.clone();
        config.generation.insert("eos_token_id".to_owned(), ends.into());
    }
    config
}

/// Writes tokenizer and chat template.
fn export_texts(folder: &Path, start: &Start) -> Result<()> {
    let problem = |path: &Path, error: std::io::Error| {
        Error::io(format!("can't write {}: {error}", path.display()))
    };
    let Some(from) = &start.text_folder else { return start.text.save(folder) };
    for name in TEXT_FILES {
        let (source, to) = (from.join(name), folder.join(name));
        if source.is_file() && source != to {
            fs::copy(&source, &to).map_err(|error| problem(&to, error))?;
        }
    }
    // One that was named for the run comes before those of the folder.
    let named = start.text.template_files.get("default");
    let is_other = named.is_some_and(|file| !file.starts_with(from));
    if let (true, Some(source)) = (is_other, start.text.chat_templates.get("default")) {
        let to = folder.join("chat_template.jinja");
        fs::write(&to, source).map_err(|error| problem(&to, error))?;
    }
    Ok(())
}
