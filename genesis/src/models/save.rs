//! A model as a folder that other tools load: `config.json`, `generation_config.json` and weights.
//!
//! Names of parameters are those of published weights, so that what is written is what was read, trained. Weights of
//! two modules that are one are written once, as `tie_word_embeddings` says. Tensors are converted and written one at a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use genesis_kernel::ir::DType;
use serde_json::{Map, Value, json};

use super::{CausalLm, ModelConfig};
use crate::error::{Error, Result};
use crate::io::save_sharded_by;
use crate::nn::{adapters, quantized_numbers};
use crate::tensor::{Tensor, TensorType};

/// The most bytes of a file of weights, as in transformers.
const SHARD_BYTES: u64 = 5_000_000_000;

/// Writes a model to a folder, in a dtype or as it is.
///
/// Tokenizer and chat template are not part of a model: [`Pretrained::save`](crate::text::Pretrained::save) writes them.
///
/// # Errors
/// If the model has adapters that are not merged, or quantized weights, or the folder can't be written.
pub fn save(
    folder: impl AsRef<Path>,
    model: &dyn CausalLm,
    config: &ModelConfig,
    dtype: Option<DType>,
) -> Result<()> {
    let refuse = |what: &str| Err(Error::op("save", what.to_owned()));
    if !adapters(model.as_module()).is_empty() {
        return refuse("the model has adapters; merge them first");
    }
    if quantized_numbers(model.as_module()) > 0 {
        return refuse("the model has quantized weights; load it with whole ones to save it");
    }
    let state: BTreeMap<String, Tensor> = model.state_dict();
    let types = state.iter().map(|(name, tensor)| (name.clone(), tensor.tensor_type())).collect();
    save_by(folder.as_ref(), types, (config, dtype), |name| Ok(state[name].clone()))
}

/// [`save`] of a model by its tensors, which are asked for one at a time, so that one of them is in memory.
pub(crate) fn save_by(
    folder: &Path,
    mut types: BTreeMap<String, TensorType>,
    (config, dtype): (&ModelConfig, Option<DType>),
    mut tensor: impl FnMut(&str) -> Result<Tensor>,
) -> Result<()> {
    let own = types.values().next().map_or(config.dtype, |ty| ty.dtype);
    let dtype = dtype.unwrap_or(own);
    types.values_mut().for_each(|ty| ty.dtype = dtype);
    save_sharded_by(folder, &types, SHARD_BYTES, |name| tensor(name)?.detach().to_dtype(dtype))?;
    write_json(&folder.join("config.json"), &described(config, dtype))?;
    match config.generation.is_empty() {
        true => Ok(()),
        false => write_json(&folder.join("generation_config.json"), &config.generation),
    }
}

/// Writes an object as a file that people read too.
fn write_json(path: &Path, object: &Map<String, Value>) -> Result<()> {
    let text = format!("{:#}\n", Value::Object(object.clone()));
    let problem = |error| Error::io(format!("can't write {}: {error}", path.display()));
    fs::write(path, text).map_err(problem)
}

/// The configuration of what is saved.
fn described(config: &ModelConfig, dtype: DType) -> Map<String, Value> {
    let mut keys = config.config.clone();
    // What sees in Gemma 3 was not loaded: the text is a model of its own.
    if keys.get("model_type").and_then(Value::as_str) == Some("gemma3") {
        let text = keys.get("text_config").and_then(Value::as_object).cloned();
        keys = text.unwrap_or_default();
        keys.insert("model_type".to_owned(), "gemma3_text".into());
        keys.remove("architectures");
    }
    let name = match dtype {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        DType::F64 => "float64",
        _ => "float32",
    };
    let is_older = keys.contains_key("torch_dtype");
    keys.insert(if is_older { "torch_dtype" } else { "dtype" }.to_owned(), name.into());
    if let Some(class) = class(&config.model_type)
        && !keys.contains_key("architectures")
    {
        keys.insert("architectures".to_owned(), json!([class]));
    }
    keys
}

/// The class of transformers.
fn class(model_type: &str) -> Option<&'static str> {
    Some(match model_type {
        "llama" => "LlamaForCausalLM",
        "mistral" => "MistralForCausalLM",
        "qwen2" => "Qwen2ForCausalLM",
        "qwen3" => "Qwen3ForCausalLM",
        "qwen3_moe" => "Qwen3MoeForCausalLM",
        "gemma2" => "Gemma2ForCausalLM",
        "gemma3_text" => "Gemma3ForCausalLM",
        "gpt2" => "GPT2LMHeadModel",
        _ => return None,
    })
}
