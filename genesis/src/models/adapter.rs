//! Adapters as the `peft` library writes them: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! ```text
//! model.layers.0.self_attn.q_proj     base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight   [r, in]
//!                                     base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight   [out, r]
//!                            DoRA:    base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector   [out]
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::CausalLm;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::files::{MOST_CONFIG, read_at_most};
use crate::io::{load_safetensors, save_safetensors_with};
use crate::nn::{Adapted, LoraOptions, Parameter, adapt, adapters};
use crate::tensor::Tensor;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// Writes the adapters of a model to a folder; `base` is the name or the path of the model without them.
///
/// # Errors
/// If the model has none, or the folder can't be written.
pub fn save_adapter(
    folder: impl AsRef<Path>,
    model: &dyn CausalLm,
    options: &LoraOptions,
    base: &str,
) -> Result<()> {
    let folder = folder.as_ref();
    let found = adapters(model.as_module());
    if found.is_empty() {
        return Err(Error::op("save_adapter", "the model has no adapters"));
    }
    let problem = |error| Error::io(format!("can't write {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(problem)?;
    let mut tensors: BTreeMap<String, Tensor> = BTreeMap::new();
    let mut targets: Vec<&str> = Vec::new();
    for (name, adapted) in &found {
        for (part, tensor) in parts(adapted) {
            tensors.insert(key(name, part), tensor.tensor().detach());
        }
        targets.extend(name.rsplit('.').next());
    }
    targets.sort_unstable();
    targets.dedup();
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": options.rank,
        "lora_alpha": options.alpha,
        "lora_dropout": options.dropout,
        "use_dora": options.dora,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": false,
        "init_lora_weights": true,
        "inference_mode": true,
        "modules_to_save": null,
    });
    let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    save_safetensors_with(folder.join(WEIGHTS), &tensors, &texts)?;
    fs::write(folder.join(CONFIG), format!("{config:#}\n")).map_err(problem)
}

/// Puts the adapters of a folder beside the weights of a model, which are frozen; gives their options.
///
/// # Errors
/// If a file is missing or damaged, the adapters are of another kind than LoRA or DoRA, or do not fit the model.
pub fn load_adapter(folder: impl AsRef<Path>, model: &mut dyn CausalLm) -> Result<LoraOptions> {
    let path = folder.as_ref().join(CONFIG);
    let problem = |what: &str| Error::io(format!("{}: {what}", path.display()));
    let config: Value = serde_json::from_slice(&read_at_most(&path, MOST_CONFIG)?)
        .map_err(|error| problem(&error.to_string()))?;
    if config["peft_type"] != "LORA" {
        return Err(problem(&format!(
            "peft_type is {}, which is not supported",
            config["peft_type"]
        )));
    }
    for key in ["use_rslora", "fan_in_fan_out"] {
        if config[key] == true {
            return Err(problem(&format!("{key} is true, which is not supported")));
        }
    }
    let targets = match &config["target_modules"] {
        Value::String(target) => vec![target.clone()],
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let rank = config["r"].as_u64().and_then(|rank| usize::try_from(rank).ok());
    let options = LoraOptions {
        rank: rank.ok_or_else(|| problem("r is no rank"))?,
        alpha: config["lora_alpha"].as_f64().ok_or_else(|| problem("lora_alpha is no number"))?,
        dropout: config["lora_dropout"].as_f64().unwrap_or(0.0),
        targets,
        dora: config["use_dora"] == true,
    };
    adapt(model, &options)?;
    let weights = folder.as_ref().join(WEIGHTS);
    let device = model.parameters().first().map(Tensor::device).unwrap_or_default();
    fill(model, &load_safetensors(&weights, device)?)
        .map_err(|error| Error::io(format!("{}: {error}", weights.display())))?;
    Ok(options)
}

/// Copies values into adapters; every tensor must have its place.
fn fill(model: &dyn CausalLm, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    let found = adapters(model.as_module());
    let places: Vec<(String, &Parameter)> = found
        .iter()
        .flat_map(|(name, adapted)| parts(adapted).map(move |(part, own)| (key(name, part), own)))
        .collect();
    if tensors.len() != places.len() {
        let message = format!(
            "{} tensors are not the {} of {} adapters",
            tensors.len(),
            places.len(),
            found.len()
        );
        return Err(Error::io(message));
    }
    for (key, own) in places {
        let tensor = tensors.get(&key).ok_or_else(|| Error::io(format!("{key} is missing")))?;
        if tensor.shape() != own.shape() {
            let (found, needed) = (tensor.shape(), own.shape());
            return Err(Error::io(format!("{key} is {found:?}, not {needed:?}")));
        }
        no_grad(|| own.detach().copy_(tensor))?;
    }
    Ok(())
}

/// What is trained of an adapter, by the ends of its names.
fn parts(adapted: &Adapted) -> impl Iterator<Item = (&'static str, &Parameter)> {
    let low_rank = [("lora_A.weight", &adapted.lora_a), ("lora_B.weight", &adapted.lora_b)];
    let magnitude = adapted.magnitude.as_ref().map(|own| ("lora_magnitude_vector", own));
    low_rank.into_iter().chain(magnitude)
}

fn key(name: &str, part: &str) -> String {
    format!("base_model.model.{name}.{part}")
}
