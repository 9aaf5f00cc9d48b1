//! A model as a GGUF file, under the names that llama.cpp's converter gives keys and tensors.
//!
//! ```text
//! hidden_size 576                           llama.embedding_length = 576
//! rope_parameters {"rope_theta": 100000}    llama.rope.freq_base = 100000
//! rope_type llama3                          rope_freqs.weight: the divisor of each frequency
//! model.layers.0.self_attn.q_proj.weight    blk.0.attn_q.weight, rows of pairs side by side
//! tie_word_embeddings                       no output.weight
//! ```
//!
//! Matrices are stored in the type that is asked for, vectors in F32. A setting that GGUF has no key for is refused: a
//! file that is read to another model would be worse than none.
//!
//! # Source
//! llama.cpp's `convert_hf_to_gguf.py` and the names of the `gguf` package.

use std::path::Path;

use genesis_kernel::ir::DType;

use super::gguf::GgufNames;
use super::rope::{RopeKind, RopeSettings, Yarn};
use super::settings::Settings;
use super::{CausalLm, ModelConfig};
use crate::error::{Error, Result};
use crate::io::{GgmlType, GgufEntry, GgufField, write_gguf};
use crate::nn::{adapters, quantized_numbers};
use crate::tensor::Tensor;

/// What is told of a type in `general.file_type`.
const FILE_TYPES: [(GgmlType, u32); 4] =
    [(GgmlType::F32, 0), (GgmlType::F16, 1), (GgmlType::Q8_0, 7), (GgmlType::BF16, 32)];

/// Writes a Llama, Mistral, Qwen2 or Qwen3 to a GGUF file, with matrices in F32, F16, BF16 or Q8_0.
///
/// `text` are fields about its tokenizer: [`Pretrained::gguf_fields`](crate::text::Pretrained::gguf_fields).
///
/// # Numerics
/// Matrices whose rows are no multiple of a block of Q8_0 are stored in F16, as llama.cpp's converter does.
/// # Errors
/// If the model is of another kind, has adapters that are not merged, quantized weights or a setting that GGUF has no key
/// for, or the file can't be written.
pub fn save_gguf(
    path: impl AsRef<Path>,
    model: &dyn CausalLm,
    config: &ModelConfig,
    ty: GgmlType,
    text: Vec<(String, GgufField)>,
) -> Result<()> {
    if !adapters(model.as_module()).is_empty() {
        return Err(refused("the model has adapters; merge them first"));
    }
    if quantized_numbers(model.as_module()) > 0 {
        return Err(refused("the model has quantized weights; load it with whole ones"));
    }
    let file_type = FILE_TYPES.iter().find(|(own, _)| *own == ty).map(|(_, number)| *number);
    let file_type = file_type
        .ok_or_else(|| refused(format!("{ty} is not written; F32, F16, BF16 and Q8_0 are")))?;
    let Described { mut fields, names, divisors } = described(model, config)?;
    fields.push(("general.file_type".to_owned(), file_type.into()));
    if ty.is_quantized() {
        fields.push(("general.quantization_version".to_owned(), 2u32.into()));
    }
    fields.extend(text);
    let (mut entries, mut tensors) = (Vec::new(), Vec::new());
    for (name, tensor) in model.state_dict() {
        let found = names.find(&name);
        let (name, fix) =
            found.ok_or_else(|| refused(format!("GGUF has no name for the tensor {name}")))?;
        entries.push(GgufEntry { name, shape: tensor.shape().to_vec(), ty: stored(&tensor, ty) });
        tensors.push((tensor.detach(), fix));
    }
    if let Some(divisors) = &divisors {
        let (name, shape) = ("rope_freqs.weight".to_owned(), vec![divisors.len()]);
        entries.push(GgufEntry { name, shape, ty: GgmlType::F32 });
    }
    write_gguf(path, &fields, &entries, |index| match tensors.get(index) {
        Some((tensor, fix)) => fix.undo(tensor)?.to_dtype(DType::F32)?.contiguous()?.to_vec(),
        None => Ok(divisors.clone().unwrap_or_default()),
    })
}

/// How a tensor is stored where matrices are of a type.
fn stored(tensor: &Tensor, ty: GgmlType) -> GgmlType {
    match tensor.shape() {
        [_, channels] if channels.is_multiple_of(ty.block_size()) => ty,
        [_, _] => GgmlType::F16,
        _ => GgmlType::F32,
    }
}

/// What a file says of a model before its tensors.
struct Described {
    fields: Vec<(String, GgufField)>,
    names: GgufNames,
    /// What each frequency of rotary positions is divided by, where GGUF has it as a tensor.
    divisors: Option<Vec<f32>>,
}

fn described(model: &dyn CausalLm, config: &ModelConfig) -> Result<Described> {
    let model_type = config.model_type.as_str();
    let (state, kv) = (model.state_dict(), model.kv_shape());
    let rows = |name: &str, axis: usize| {
        let shape = state.get(name).map(Tensor::shape);
        let extent = shape.and_then(|shape| shape.get(axis).copied());
        extent.ok_or_else(|| refused(format!("a {model_type} without {name} is not written")))
    };
    let channels = rows("model.embed_tokens.weight", 1)?;
    let hidden = rows("model.layers.0.mlp.up_proj.weight", 0)?;
    let heads = rows("model.layers.0.self_attn.q_proj.weight", 0)? / kv.head_dim.max(1);
    let (architecture, names) = GgufNames::written(model_type, (heads, kv.heads))
        .ok_or_else(|| refused(format!("files of {model_type} are not written")))?;
    let mut settings = Settings::of(config.config.clone(), "config.json");
    no_window(&mut settings, model_type, model.max_positions())?;
    let eps = settings.epsilon("rms_norm_eps", 1e-6)?;
    let rope = RopeSettings::read(&mut settings, (kv.head_dim, model.max_positions()), 10_000.0)?;
    let mut fields: Vec<(String, GgufField)> = vec![
        ("general.architecture".to_owned(), architecture.into()),
        ("general.type".to_owned(), "model".into()),
    ];
    let mut own =
        |key: &str, field: GgufField| fields.push((format!("{architecture}.{key}"), field));
    for (key, count) in [
        ("vocab_size", model.vocab_size()),
        ("context_length", rope.max_positions),
        ("embedding_length", channels),
        ("block_count", kv.layers),
        ("feed_forward_length", hidden),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv.heads),
        ("attention.key_length", kv.head_dim),
        ("attention.value_length", kv.head_dim),
        ("rope.dimension_count", rope.channels),
    ] {
        let number = u32::try_from(count).map_err(|_| refused(format!("{key} is {count}")))?;
        own(key, number.into());
    }
    own("attention.layer_norm_rms_epsilon", (eps as f32).into());
    own("rope.freq_base", (rope.theta as f32).into());
    let divisors = scaling(&rope, &mut own)?;
    Ok(Described { fields, names, divisors })
}

/// Refuses windows of attention, for which these architectures have no key.
fn no_window(settings: &mut Settings, model_type: &str, positions: usize) -> Result<()> {
    let is_used = match model_type {
        "llama" => false,
        "mistral" => true,
        _ => settings.flag("use_sliding_window", false)?,
    };
    let window = match settings.has("sliding_window") {
        true => settings.size_if("sliding_window")?,
        false => Some(4096),
    };
    match window.filter(|&window| is_used && window < positions) {
        None => Ok(()),
        Some(window) => Err(refused(format!("attention has a window of {window}"))),
    }
}

/// Writes the variant of rotary positions; gives the divisors of frequencies, where it is told by them.
fn scaling(rope: &RopeSettings, own: &mut dyn FnMut(&str, GgufField)) -> Result<Option<Vec<f32>>> {
    match &rope.kind {
        RopeKind::Default => Ok(None),
        RopeKind::Linear { factor } => {
            own("rope.scaling.type", "linear".into());
            own("rope.scaling.factor", (*factor as f32).into());
            Ok(None)
        }
        RopeKind::Yarn(yarn) => {
            let Yarn { factor, original, beta_fast, beta_slow, truncate, attention_factor } = *yarn;
            let usual = if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 };
            if !truncate || (attention_factor - usual).abs() > 1e-9 {
                return Err(refused("YaRN has an attention_factor or truncate of its own"));
            }
            own("rope.scaling.type", "yarn".into());
            own("rope.scaling.factor", (factor as f32).into());
            own("rope.scaling.original_context_length", (original as u32).into());
            if (beta_fast, beta_slow) != (32.0, 1.0) {
                own("rope.scaling.yarn_beta_fast", (beta_fast as f32).into());
                own("rope.scaling.yarn_beta_slow", (beta_slow as f32).into());
            }
            Ok(None)
        }
        RopeKind::Llama3 { .. } => {
            let plain = RopeSettings { kind: RopeKind::Default, ..rope.clone() }.frequencies(0).0;
            let scaled = rope.frequencies(0).0;
            Ok(Some(plain.iter().zip(scaled).map(|(f, scaled)| (f / scaled) as f32).collect()))
        }
        RopeKind::LongRope { short, long, attention_factor, .. }
            if short == long && *attention_factor == 1.0 =>
        {
            Ok(Some(short.iter().map(|&divisor| divisor as f32).collect()))
        }
        RopeKind::LongRope { .. } => Err(refused("rotary positions are longrope")),
        RopeKind::Dynamic { .. } => Err(refused("rotary positions are dynamic")),
    }
}

fn refused(what: impl Into<String>) -> Error {
    Error::op("save_gguf", what.into())
}
