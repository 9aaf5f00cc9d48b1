//! GGUF in the words of `config.json`: the same settings and the same models, from other names.
//!
//! ```text
//! general.architecture = "llama"          model_type            "llama"
//! llama.embedding_length = 576            hidden_size           576
//! llama.rope.freq_base = 100000           rope_parameters       {"rope_theta": 100000}
//! no tensor output.weight                 tie_word_embeddings   true
//! blk.0.attn_q.weight                     model.layers.0.self_attn.q_proj.weight
//! ```
//!
//! Values differ too. Llama's rows of queries and keys stand in pairs that are turned together, as its authors
//! had them, where `transformers` has first halves and second halves; Gemma's weights of norms have their 1
//! added; GPT-2's products are transposed; experts of a layer are one tensor.
//!
//! # Source
//! The GGUF specification of ggml and the names of the `gguf` package; where a file says nothing, what
//! llama.cpp assumes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fix::Fix;
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::io::GgufValue;

/// The metadata of a file.
type Metadata = BTreeMap<String, GgufValue>;

/// The shapes of a file's tensors, by name.
type Shapes = BTreeMap<String, Vec<usize>>;

/// Keys of an architecture that leave the result as it is, or that tensors say already.
const HARMLESS: &[&str] =
    &["vocab_size", "tensor_data_layout", "attention.causal", "rope.scaling.finetuned"];

/// The keys of the file's architecture that were not read yet.
struct Keys<'m> {
    origin: &'m str,
    architecture: &'m str,
    left: BTreeMap<&'m str, &'m GgufValue>,
}

impl<'m> Keys<'m> {
    fn wrong(&self, key: &str, what: &str) -> Error {
        let Keys { origin, architecture, .. } = self;
        Error::io(format!("{origin}: {architecture}.{key} {what}"))
    }

    fn take(&mut self, key: &str) -> Option<&'m GgufValue> {
        self.left.remove(key)
    }

    /// A count, where it is given. Counts that differ between layers are lists, which no model here has.
    fn count(&mut self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_u64().map(Some).ok_or_else(|| self.wrong(key, "is not a count"))
    }

    fn needed(&mut self, key: &str) -> Result<u64> {
        self.count(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    fn number(&mut self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        // Stored in f32: 1e-6 is meant, not what it became.
        let meant = |value: &GgufValue| match *value {
            GgufValue::F32(number) => number.to_string().parse().ok(),
            _ => value.as_f64(),
        };
        let number = meant(value).filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| self.wrong(key, "is not a number"))
    }

    fn finish(self) -> Result<()> {
        let unread = self.left.keys().find(|key| !HARMLESS.contains(key));
        match unread {
            Some(key) => Err(self.wrong(key, "is not supported")),
            None => Ok(()),
        }
    }
}

/// What a file says of its model, in the words of `config.json`, and the names of its tensors.
///
/// `factors` are the values of the tensor `rope_freqs.weight`, where the file has it.
pub(super) fn settings(
    metadata: &Metadata,
    shapes: &Shapes,
    factors: Option<Vec<f32>>,
    origin: &str,
) -> Result<(Settings, GgufNames)> {
    let architecture = metadata.get("general.architecture").and_then(GgufValue::as_str);
    let missing = || Error::io(format!("{origin}: general.architecture is missing"));
    let architecture = architecture.ok_or_else(missing)?;
    let kind = Kind::of(architecture).ok_or_else(|| {
        Error::io(format!("{origin}: architecture {architecture} is not supported"))
    })?;
    let own = |(key, value): (&'_ String, _)| {
        // Names of one file: a slice of the key without its first part.
        let rest = key.strip_prefix(architecture)?.strip_prefix('.')?;
        Some((rest.to_owned(), value))
    };
    let owned: Vec<(String, &GgufValue)> = metadata.iter().filter_map(own).collect();
    let left = owned.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let mut keys = Keys { origin, architecture, left };
    let mut config = Map::new();
    config.insert("model_type".to_owned(), kind.model_type().into());
    let sizes = kind.sizes(&mut keys, shapes, &mut config)?;
    if kind != Kind::Gpt2 {
        kind.rope(&mut keys, &sizes, factors, &mut config)?;
    }
    kind.extras(&mut keys, &sizes, shapes, &mut config)?;
    keys.finish()?;
    let names = GgufNames { kind, heads: sizes.heads as usize, kv_heads: sizes.kv_heads as usize };
    Ok((Settings::of(config, origin), names))
}

/// The architectures that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Gemma2,
    Gemma3,
    Gpt2,
}

/// Sizes that others follow from.
struct GgufSizes {
    channels: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    context: u64,
}

impl Kind {
    fn of(architecture: &str) -> Option<Kind> {
        match architecture {
            "llama" => Some(Kind::Llama),
            "qwen2" => Some(Kind::Qwen2),
            "qwen3" => Some(Kind::Qwen3),
            "qwen3moe" => Some(Kind::Qwen3Moe),
            "gemma2" => Some(Kind::Gemma2),
            "gemma3" => Some(Kind::Gemma3),
            "gpt2" => Some(Kind::Gpt2),
            _ => None,
        }
    }

    fn model_type(self) -> &'static str {
        match self {
            Kind::Llama => "llama",
            Kind::Qwen2 => "qwen2",
            Kind::Qwen3 => "qwen3",
            Kind::Qwen3Moe => "qwen3_moe",
            Kind::Gemma2 => "gemma2",
            Kind::Gemma3 => "gemma3_text",
            Kind::Gpt2 => "gpt2",
        }
    }

    fn is_gemma(self) -> bool {
        matches!(self, Kind::Gemma2 | Kind::Gemma3)
    }

    /// What all architectures have.
    fn sizes(
        self,
        keys: &mut Keys<'_>,
        shapes: &Shapes,
        config: &mut Map<String, Value>,
    ) -> Result<GgufSizes> {
        let channels = keys.needed("embedding_length")?;
        let heads = keys.needed("attention.head_count")?;
        let kv_heads = keys.count("attention.head_count_kv")?.unwrap_or(heads);
        let usual = channels.checked_div(heads).unwrap_or(0);
        let head_dim = keys.count("attention.key_length")?.unwrap_or(usual);
        if keys.count("attention.value_length")?.is_some_and(|values| values != head_dim) {
            return Err(keys.wrong("attention.value_length", "is not attention.key_length"));
        }
        let layers = keys.needed("block_count")?;
        let context = keys.needed("context_length")?;
        let embedding = shapes.get("token_embd.weight").and_then(|shape| shape.first());
        let missing = || Error::io(format!("{}: token_embd.weight is missing", keys.origin));
        let vocabulary = *embedding.ok_or_else(missing)?;
        let hidden = keys.count("feed_forward_length")?;
        let is_tied = !shapes.contains_key("output.weight");
        let values = match self {
            Kind::Gpt2 => json!({
                "n_embd": channels, "n_head": heads, "n_layer": layers, "n_positions": context,
                "n_inner": hidden,
                "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon")?,
            }),
            _ => json!({
                "hidden_size": channels, "num_attention_heads": heads,
                "num_key_value_heads": kv_heads, "head_dim": head_dim,
                "num_hidden_layers": layers, "max_position_embeddings": context,
                "intermediate_size": hidden,
                "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon")?,
            }),
        };
        if let Value::Object(values) = values {
            config.extend(values);
        }
        config.insert("vocab_size".to_owned(), vocabulary.into());
        config.insert("tie_word_embeddings".to_owned(), is_tied.into());
        Ok(GgufSizes { channels, layers, heads, kv_heads, head_dim, context })
    }

    /// Rotary positions.
    fn rope(
        self,
        keys: &mut Keys<'_>,
        sizes: &GgufSizes,
        factors: Option<Vec<f32>>,
        config: &mut Map<String, Value>,
    ) -> Result<()> {
        let base = if self == Kind::Gemma3 { 1e6 } else { 1e4 };
        let theta = keys.number("rope.freq_base")?.unwrap_or(base);
        let mut rope = rope_kind(keys, sizes.context)?;
        if let Some(factors) = factors {
            // Llama 3: the divisor of each frequency, computed when the file was made.
            rope = json!({
                "rope_type": "longrope", "short_factor": factors, "long_factor": factors,
                "original_max_position_embeddings": sizes.context, "attention_factor": 1.0,
            });
        }
        rope["rope_theta"] = theta.into();
        if let Some(turned) = keys.count("rope.dimension_count")?
            && turned != sizes.head_dim
        {
            rope["partial_rotary_factor"] = (turned as f64 / sizes.head_dim.max(1) as f64).into();
        }
        if self == Kind::Gemma3 {
            let local = keys.number("rope.freq_base_swa")?.unwrap_or(1e4);
            keys.take("rope.dimension_count_swa");
            rope = json!({ "full_attention": rope, "sliding_attention": { "rope_theta": local } });
        }
        config.insert("rope_parameters".to_owned(), rope);
        Ok(())
    }

    /// What only some architectures have.
    fn extras(
        self,
        keys: &mut Keys<'_>,
        sizes: &GgufSizes,
        shapes: &Shapes,
        config: &mut Map<String, Value>,
    ) -> Result<()> {
        let mut put = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
        let has_bias = |name: &str| shapes.contains_key(&format!("blk.0.{name}.bias"));
        match self {
            Kind::Llama => {
                put("attention_bias", has_bias("attn_q").into());
                put("mlp_bias", has_bias("ffn_up").into());
            }
            Kind::Qwen3 => put("attention_bias", has_bias("attn_q").into()),
            Kind::Qwen3Moe => {
                put("num_experts", keys.needed("expert_count")?.into());
                put("num_experts_per_tok", keys.needed("expert_used_count")?.into());
                put("moe_intermediate_size", keys.needed("expert_feed_forward_length")?.into());
                put("norm_topk_prob", true.into());
            }
            Kind::Gemma2 | Kind::Gemma3 => {
                put("sliding_window", keys.count("attention.sliding_window")?.into());
                put("final_logit_softcapping", keys.number("final_logit_softcapping")?.into());
                if self == Kind::Gemma2 {
                    put("attn_logit_softcapping", keys.number("attn_logit_softcapping")?.into());
                }
                // The largest of each divides by the share of the channels, the others by the head.
                let is_largest = [46, 62].contains(&sizes.layers);
                let share = sizes.channels.checked_div(sizes.heads).unwrap_or(0);
                put(
                    "query_pre_attn_scalar",
                    if is_largest { share } else { sizes.head_dim }.into(),
                );
            }
            Kind::Qwen2 | Kind::Gpt2 => {}
        }
        Ok(())
    }
}

/// The variant of rotary positions.
fn rope_kind(keys: &mut Keys<'_>, context: u64) -> Result<Value> {
    let kind = keys.take("rope.scaling.type").and_then(GgufValue::as_str).unwrap_or("none");
    let old = keys.number("rope.scale_linear")?;
    let factor = keys.number("rope.scaling.factor")?.or(old);
    let original = keys.count("rope.scaling.original_context_length")?.unwrap_or(context);
    let attention = keys.number("rope.scaling.attn_factor")?;
    match (kind, factor) {
        ("none", None) => Ok(json!({ "rope_type": "default" })),
        ("none" | "linear", Some(factor)) => Ok(json!({ "rope_type": "linear", "factor": factor })),
        ("yarn", factor) => Ok(json!({
            "rope_type": "yarn", "factor": factor, "attention_factor": attention,
            "original_max_position_embeddings": original,
            "beta_fast": keys.number("rope.scaling.yarn_beta_fast")?,
            "beta_slow": keys.number("rope.scaling.yarn_beta_slow")?,
        })),
        _ => Err(keys.wrong("rope.scaling.type", &format!("is {kind}, which is not supported"))),
    }
}

/// The names of the tensors of a GGUF file.
#[derive(Clone, Debug)]
pub(super) struct GgufNames {
    kind: Kind,
    heads: usize,
    kv_heads: usize,
}

/// Parts of names of layers, `transformers`' and GGUF's.
const LAYER: &[(&str, &str)] = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
    ("input_layernorm", "attn_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// Names outside of layers.
const OUTSIDE: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
];

impl GgufNames {
    /// The architecture that GGUF has for a model type that files are written of, and its names.
    pub(super) fn written(
        model_type: &str,
        (heads, kv_heads): (usize, usize),
    ) -> Option<(&'static str, GgufNames)> {
        let (architecture, kind) = match model_type {
            "llama" | "mistral" => ("llama", Kind::Llama),
            "qwen2" => ("qwen2", Kind::Qwen2),
            "qwen3" => ("qwen3", Kind::Qwen3),
            _ => return None,
        };
        Some((architecture, GgufNames { kind, heads, kv_heads }))
    }

    /// The name of a tensor of the model in the file, and how it is stored there.
    pub(super) fn find(&self, name: &str) -> Option<(String, Fix)> {
        let (part, end) = name.rsplit_once('.')?;
        let of = |list: &[(&str, &'static str)], part: &str| {
            list.iter().find(|(own, _)| *own == part).map(|(_, theirs)| *theirs)
        };
        let layer = part.strip_prefix("model.layers.").or(part.strip_prefix("transformer.h."));
        let Some((number, part)) = layer.and_then(|layer| layer.split_once('.')) else {
            let theirs = of(OUTSIDE, part)?;
            let is_norm = self.kind.is_gemma() && theirs == "output_norm";
            return Some((
                format!("{theirs}.{end}"),
                if is_norm { Fix::PlusOne } else { Fix::Same },
            ));
        };
        if let Some(expert) = part.strip_prefix("mlp.experts.") {
            let (expert, part) = expert.split_once('.')?;
            let theirs = of(LAYER, &format!("mlp.{part}"))?;
            return Some((
                format!("blk.{number}.{theirs}_exps.{end}"),
                Fix::Row(expert.parse().ok()?),
            ));
        }
        let theirs = match part {
            // The second norm of a layer stands before the feed-forward layer, but behind attention in Gemma.
            "post_attention_layernorm" if self.kind.is_gemma() => "post_attention_norm",
            "post_attention_layernorm" => "ffn_norm",
            part => of(LAYER, part)?,
        };
        Some((format!("blk.{number}.{theirs}.{end}"), self.fix(theirs, end)))
    }

    fn fix(&self, theirs: &str, end: &str) -> Fix {
        match (self.kind, theirs) {
            (Kind::Llama, "attn_q") => Fix::PairedRows { heads: self.heads },
            (Kind::Llama, "attn_k") => Fix::PairedRows { heads: self.kv_heads },
            (Kind::Gemma2 | Kind::Gemma3, theirs) if theirs.ends_with("norm") => Fix::PlusOne,
            (Kind::Gpt2, "attn_qkv" | "attn_output" | "ffn_up" | "ffn_down") if end == "weight" => {
                Fix::Transposed
            }
            _ => Fix::Same,
        }
    }

    /// Whether a model has no use for a tensor of the file.
    pub(super) fn ignores(&self, name: &str) -> bool {
        name == "rope_freqs.weight"
    }
}
