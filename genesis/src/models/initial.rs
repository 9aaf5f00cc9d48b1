//! Models that are to be trained from the start: a configuration, and weights that are drawn.
//!
//! | parameter | begins as |
//! |---|---|
//! | products, embeddings | normal, mean 0, deviation `initializer_range` (0.02) |
//! | `c_proj` of GPT-2, which adds to the residual stream | that over the root of the number of additions |
//! | norms | what leaves their input as it is: 1, in Gemma 0 |
//! | biases | 0 |
//!
//! # Source
//! `_init_weights` of transformers; Radford et al., 2019, 2.3 for GPT-2.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use serde_json::{Map, Value};

use super::blueprint::Blueprint;
use super::load::{LoadOptions, Loaded, ModelConfig, architecture, dtype_of};
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::nn::{Named, Replacement, named, replace};
use crate::tensor::{Creation, Tensor};

/// A model by its configuration, with weights from the default generator.
///
/// Of the options `weights` is not used: weights are whole.
///
/// # Errors
/// If a setting is missing, out of range or not supported, with its key, or memory runs out.
/// # Examples
/// ```
/// use genesis::models::{LoadOptions, initialize};
/// use genesis::{Device, manual_seed};
///
/// let json = r#"{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
///     "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128}"#;
/// let config = serde_json::from_str(json).expect("an object");
/// manual_seed(0);
/// let options = LoadOptions { device: Device::Cpu, trainable: true, ..LoadOptions::default() };
/// let loaded = initialize(&config, &options)?;
/// assert_eq!(loaded.model.vocab_size(), 64);
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn initialize(config: &Map<String, Value>, options: &LoadOptions) -> Result<Loaded> {
    let mut settings = Settings::of(config.clone(), "config.json");
    let (build, _) = architecture(&settings)?;
    let dtype = match options.dtype {
        Some(dtype) if dtype.is_arithmetic_float() => dtype,
        Some(dtype) => return Err(crate::ops::wrong_dtype("initialize", "a float", dtype)),
        None => dtype_of(&mut settings)?,
    };
    let at = Creation { dtype, device: options.device };
    let plan = Blueprint::without_weights(settings.source(), at)?;
    let model_type = settings.text("model_type")?.unwrap_or_default();
    let start = Start::read(&settings, &model_type)?;
    let mut model = build(&mut settings, &plan)?;
    settings.finish()?;
    let mut all = Vec::new();
    for own in named(model.as_module()) {
        let whole = start.draw(&own, at)?.requires_grad_(options.trainable)?;
        all.push(Replacement { old: own.tensor, whole: Some(whole), quantized: None });
    }
    replace(&mut *model, &all);
    model.requires_grad_(options.trainable)?;
    if !options.apart {
        model.pack()?;
    }
    let config = ModelConfig::of(model_type, dtype, config.clone(), Map::new());
    Ok(Loaded { model: model.into(), config })
}

/// [`initialize`] without memory for parameters, see [`outline`](super::outline).
///
/// # Errors
/// If a setting is missing, out of range or not supported, with its key.
pub fn outline_of(config: &Map<String, Value>) -> Result<Loaded> {
    let mut settings = Settings::of(config.clone(), "config.json");
    let (build, _) = architecture(&settings)?;
    let dtype = dtype_of(&mut settings)?;
    let plan =
        Blueprint::without_weights(settings.source(), Creation { dtype, device: Device::Cpu })?;
    let model_type = settings.text("model_type")?.unwrap_or_default();
    let model = build(&mut settings, &plan)?;
    settings.finish()?;
    let config = ModelConfig::of(model_type, dtype, config.clone(), Map::new());
    Ok(Loaded { model: model.into(), config })
}

/// What parameters begin as.
struct Start {
    deviation: f64,
    /// The deviation of products that add to the residual stream, where that is another.
    onto_residual: f64,
    norm: f64,
}

impl Start {
    fn read(settings: &Settings, model_type: &str) -> Result<Start> {
        let number = |key: &str, usual: f64| match settings.peek(key) {
            None | Some(Value::Null) => Ok(usual),
            Some(value) => match value.as_f64().filter(|n| n.is_finite() && *n >= 0.0) {
                Some(n) => Ok(n),
                None => Err(Error::io(format!("config.json: {key} is {value}, not a number"))),
            },
        };
        let deviation = number("initializer_range", 0.02)?;
        let additions = match model_type {
            "gpt2" => 2.0 * number("n_layer", 12.0)?,
            _ => 1.0,
        };
        let norm = if model_type.starts_with("gemma") { 0.0 } else { 1.0 };
        Ok(Start { deviation, onto_residual: deviation / additions.max(1.0).sqrt(), norm })
    }

    fn draw(&self, own: &Named, at: Creation) -> Result<Tensor> {
        let (name, shape) = (own.names[0].as_str(), own.tensor.shape());
        let normal = |deviation: f64| {
            // Drawn in f32, so that the dtype only rounds.
            let wide = if at.dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let drawn = Tensor::randn(shape, Creation { dtype: wide, ..at })?;
            drawn.mul_scalar(deviation)?.to_dtype(at.dtype)
        };
        match shape.len() {
            1 if name.ends_with("bias") => Tensor::zeros(shape, at),
            1 => Tensor::full(shape, self.norm, at),
            _ if name.ends_with("c_proj.weight") => normal(self.onto_residual),
            _ => normal(self.deviation),
        }
    }
}
