//! The shape of a model: what its parameters, arithmetic and memory follow from.
//!
//! ```text
//!                V        C     I      layers  H   G  D    parameters
//! GPT-2 small    50,257    768   3,072  12     12  12   64  124,439,808
//! Qwen2.5-0.5B  151,936    896   4,864  24     14   2   64  494,032,768
//! Llama-3-8B    128,256  4,096  14,336  32     32   8  128  8,030,261,248
//! Llama-3-70B   128,256  8,192  28,672  80     64   8  128  70,553,706,496
//! ```
//!
//! Extents are at most 2^24, and layers 2^12, so that every product of three of them, and what is made of those, is a finite f64.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::files::{MOST_CONFIG, read_text_at_most};

/// The largest extent that a shape may have.
const MOST: u64 = 1 << 24;

/// The most layers that a shape may have.
const MOST_LAYERS: usize = 1 << 12;

/// Which products have biases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Biases {
    /// None.
    None,
    /// Those of queries, keys and values.
    Qkv,
    /// All but the head, and the norms too: those are layer norms then.
    All,
}

/// The shape of a decoder-only language model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelShape {
    /// What it is called.
    pub name: String,
    /// Tokens of the vocabulary, V.
    pub vocabulary: usize,
    /// Channels of the residual stream, C.
    pub channels: usize,
    /// Channels between the products of the feed-forward layer, I.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries, H.
    pub heads: usize,
    /// Heads of keys and values, G.
    pub kv_heads: usize,
    /// Channels of a head, D.
    pub head_dim: usize,
    /// Rows of a table of learned positions; none where positions are rotary.
    pub positions: Option<usize>,
    /// Whether the feed-forward layer has a gate: three products, not two.
    pub has_gate: bool,
    /// Whether heads of queries and keys are normed.
    pub has_head_norms: bool,
    /// Which products have biases.
    pub biases: Biases,
    /// Whether the head is the embedding.
    pub is_tied: bool,
}

/// The names that [`ModelShape::named`] knows.
pub const MODEL_NAMES: [&str; 4] = ["GPT-2", "Qwen2.5-0.5B", "Llama-3-8B", "Llama-3-70B"];

impl ModelShape {
    /// A published shape by its name, in upper or lower case, with or without its owner (`Qwen/Qwen2.5-0.5B`); none of
    /// another name.
    pub fn named(name: &str) -> Option<ModelShape> {
        let own = name.rsplit('/').next().unwrap_or(name);
        let known = MODEL_NAMES.iter().find(|known| known.eq_ignore_ascii_case(own))?;
        let llama = ModelShape {
            name: (*known).to_owned(),
            vocabulary: 128_256,
            channels: 4096,
            hidden: 14_336,
            layers: 32,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            positions: None,
            has_gate: true,
            has_head_norms: false,
            biases: Biases::None,
            is_tied: false,
        };
        Some(match *known {
            "Llama-3-8B" => llama,
            "Llama-3-70B" => {
                ModelShape { channels: 8192, hidden: 28_672, layers: 80, heads: 64, ..llama }
            }
            "Qwen2.5-0.5B" => ModelShape {
                vocabulary: 151_936,
                channels: 896,
                hidden: 4864,
                layers: 24,
                heads: 14,
                kv_heads: 2,
                head_dim: 64,
                biases: Biases::Qkv,
                is_tied: true,
                ..llama
            },
            _ => ModelShape {
                vocabulary: 50_257,
                channels: 768,
                hidden: 3072,
                layers: 12,
                heads: 12,
                kv_heads: 12,
                head_dim: 64,
                positions: Some(1024),
                has_gate: false,
                biases: Biases::All,
                is_tied: true,
                ..llama
            },
        })
    }

    /// The shape of the model in a folder, by its `config.json`.
    ///
    /// # Errors
    /// If the file can't be read, or as [`ModelShape::of_config`].
    pub fn read(folder: impl AsRef<Path>) -> Result<ModelShape> {
        let path = folder.as_ref().join("config.json");
        let text = read_text_at_most(&path, MOST_CONFIG)?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Error::io(format!("{}: is no JSON: {error}", path.display())))?;
        let Value::Object(config) = value else {
            return Err(Error::io(format!("{}: is no JSON object", path.display())));
        };
        let name = folder.as_ref().file_name().map(|name| name.to_string_lossy().into_owned());
        ModelShape::of_config(&config, &name.unwrap_or_else(|| "model".to_owned()))
    }

    /// The shape that a `config.json` says; windows of attention count as whole attention.
    ///
    /// # Errors
    /// If the kind of model is none of llama, mistral, qwen2, qwen3 and gpt2, or an extent is missing, 0 or too large.
    pub fn of_config(config: &Map<String, Value>, name: &str) -> Result<ModelShape> {
        let keys = Keys { config };
        let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        if kind == "gpt2" {
            return keys.gpt2(name);
        }
        if !["llama", "mistral", "qwen2", "qwen3"].contains(&kind) {
            let message = format!(
                "model_type `{kind}` is not planned; llama, mistral, qwen2, qwen3 and gpt2 are"
            );
            return Err(Error::op("plan", message));
        }
        if kind != "qwen2" && (keys.flag("attention_bias") || keys.flag("mlp_bias")) {
            return Err(Error::op("plan", "biases of a llama are not planned"));
        }
        let (channels, heads) = (keys.needed("hidden_size")?, keys.needed("num_attention_heads")?);
        let shape = ModelShape {
            name: name.to_owned(),
            vocabulary: keys.needed("vocab_size")?,
            channels,
            hidden: keys.needed("intermediate_size")?,
            layers: keys.needed("num_hidden_layers")?,
            heads,
            kv_heads: keys.size("num_key_value_heads")?.unwrap_or(heads),
            head_dim: keys.size("head_dim")?.unwrap_or(channels / heads),
            positions: None,
            has_gate: true,
            has_head_norms: kind == "qwen3",
            biases: if kind == "qwen2" { Biases::Qkv } else { Biases::None },
            is_tied: keys.flag("tie_word_embeddings"),
        };
        shape.checked()
    }

    /// Refuses heads that can't be.
    pub(super) fn checked(self) -> Result<ModelShape> {
        let ModelShape { heads, kv_heads, head_dim, .. } = self;
        if kv_heads == 0 || head_dim == 0 || !heads.is_multiple_of(kv_heads) {
            let message = format!("{heads} heads of {head_dim} can't share {kv_heads} of keys");
            return Err(Error::op("plan", message));
        }
        let extents = [self.vocabulary, self.channels, self.hidden, self.layers, heads, head_dim];
        let positions = self.positions.unwrap_or(1);
        if self.layers > MOST_LAYERS {
            let message = format!("{} layers are more than {MOST_LAYERS}", self.layers);
            return Err(Error::op("plan", message));
        }
        match extents.iter().chain([&positions]).find(|&&n| n == 0 || n as u64 > MOST) {
            None => Ok(self),
            Some(n) => {
                let message = format!("an extent of {} is {n}, not 1 to {MOST}", self.name);
                Err(Error::op("plan", message))
            }
        }
    }

    /// Parameters of a norm of the residual stream.
    fn norm(&self) -> f64 {
        let kinds = if self.biases == Biases::All { 2 } else { 1 };
        kinds as f64 * self.channels as f64
    }

    /// Columns of the products that make queries, keys and values.
    pub(super) fn qkv(&self) -> f64 {
        (self.heads + 2 * self.kv_heads) as f64 * self.head_dim as f64
    }

    /// Channels of all heads of queries.
    pub(super) fn queries(&self) -> f64 {
        self.heads as f64 * self.head_dim as f64
    }

    /// Channels of all heads of keys.
    pub(super) fn keys(&self) -> f64 {
        self.kv_heads as f64 * self.head_dim as f64
    }

    /// Matrices of a layer.
    pub(super) fn matrices(&self) -> f64 {
        if self.has_gate { 7.0 } else { 6.0 }
    }

    /// Elements of the matrices of a layer.
    pub(super) fn layer_matrices(&self) -> f64 {
        let (c, i) = (self.channels as f64, self.hidden as f64);
        let products = if self.has_gate { 3.0 } else { 2.0 };
        (self.qkv() + self.queries() + products * i) * c
    }

    /// Parameters of a layer that are whole on each rank of a tensor parallel group: norms, and biases of sums.
    pub(super) fn layer_vectors(&self) -> f64 {
        let biases = if self.biases == Biases::All { 2.0 * self.channels as f64 } else { 0.0 };
        let heads = if self.has_head_norms { 2.0 * self.head_dim as f64 } else { 0.0 };
        2.0 * self.norm() + biases + heads
    }

    /// Biases of a layer that tensor parallel ranks share.
    pub(super) fn layer_biases(&self) -> f64 {
        match self.biases {
            Biases::None => 0.0,
            Biases::Qkv => self.qkv(),
            Biases::All => self.qkv() + self.hidden as f64,
        }
    }

    /// Parameters of a layer.
    pub fn layer_parameters(&self) -> f64 {
        self.layer_matrices() + self.layer_biases() + self.layer_vectors()
    }

    /// Elements of the embedding, which are those of a head of its own too.
    pub(super) fn table(&self) -> f64 {
        self.vocabulary as f64 * self.channels as f64
    }

    /// Elements of learned positions.
    pub(super) fn position_table(&self) -> f64 {
        self.positions.unwrap_or(0) as f64 * self.channels as f64
    }

    /// All parameters; exact up to 2^53.
    pub fn parameters(&self) -> f64 {
        let tables = if self.is_tied { 1.0 } else { 2.0 } * self.table() + self.position_table();
        tables + self.layers as f64 * self.layer_parameters() + self.norm()
    }

    /// Floating-point operations of a token in a sequence, forward and backward: 6 of each weight of a product,
    /// `6 layers H D T` of causal attention. What is computed again is not counted.
    ///
    /// # Source
    /// arXiv:2204.02311, appendix B; the same count as in the `mfu` of `genesis sft`.
    pub fn flops_per_token(&self, sequence: usize) -> f64 {
        let layers = self.layers as f64;
        let weights = layers * self.layer_matrices() + self.table();
        6.0 * weights + 6.0 * layers * self.queries() * sequence as f64
    }
}

/// A configuration, asked by key.
struct Keys<'c> {
    config: &'c Map<String, Value>,
}

impl Keys<'_> {
    fn size(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.config.get(key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        match value.as_u64().filter(|n| (1..=MOST).contains(n)) {
            Some(n) => Ok(Some(n as usize)),
            None => {
                let text: String = value.to_string().chars().take(40).collect();
                let message = format!("config.json: {key} is {text}, not 1 to {MOST}");
                Err(Error::op("plan", message))
            }
        }
    }

    fn needed(&self, key: &str) -> Result<usize> {
        let missing = || Error::op("plan", format!("config.json: {key} is missing"));
        self.size(key)?.ok_or_else(missing)
    }

    fn flag(&self, key: &str) -> bool {
        self.config.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn gpt2(&self, name: &str) -> Result<ModelShape> {
        let (channels, heads) = (self.needed("n_embd")?, self.needed("n_head")?);
        let shape = ModelShape {
            name: name.to_owned(),
            vocabulary: self.needed("vocab_size")?,
            channels,
            hidden: self.size("n_inner")?.unwrap_or(4 * channels),
            layers: self.needed("n_layer")?,
            heads,
            kv_heads: heads,
            head_dim: channels / heads,
            positions: Some(self.needed("n_positions")?),
            has_gate: false,
            has_head_norms: false,
            biases: Biases::All,
            is_tied: true,
        };
        shape.checked()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::models::outline_of;

    /// Parameters of the model that a configuration builds.
    fn built(config: &Value) -> f64 {
        let config = config.as_object().expect("an object");
        let model = outline_of(config).expect("a model").model;
        model.parameters().iter().map(|p| p.numel() as f64).sum()
    }

    fn config(shape: &ModelShape) -> Value {
        match shape.biases {
            Biases::All => json!({
                "model_type": "gpt2", "vocab_size": shape.vocabulary, "n_embd": shape.channels,
                "n_layer": shape.layers, "n_head": shape.heads, "n_positions": shape.positions,
            }),
            _ => json!({
                "model_type": if shape.biases == Biases::Qkv { "qwen2" } else { "llama" },
                "vocab_size": shape.vocabulary, "hidden_size": shape.channels,
                "intermediate_size": shape.hidden, "num_hidden_layers": shape.layers,
                "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
                "tie_word_embeddings": shape.is_tied,
            }),
        }
    }

    #[test]
    fn named_shapes_have_the_parameters_of_the_models() {
        let exact = [124_439_808.0, 494_032_768.0, 8_030_261_248.0, 70_553_706_496.0];
        for (name, count) in MODEL_NAMES.iter().zip(exact) {
            let shape = ModelShape::named(name).expect("a name of the list");
            assert_eq!(shape.parameters(), count, "{name}");
            let config = config(&shape);
            assert_eq!(built(&config), count, "{name}");
            let read = ModelShape::of_config(config.as_object().unwrap(), name).unwrap();
            assert_eq!(read, shape, "{name}");
        }
        assert!(ModelShape::named("qwen/qwen2.5-0.5b").is_some());
        assert_eq!(ModelShape::named("Llama-9"), None);
    }

    #[test]
    fn norms_of_heads_are_counted() {
        let config = json!({
            "model_type": "qwen3", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 64,
        });
        let shape = ModelShape::of_config(config.as_object().unwrap(), "q").unwrap();
        assert_eq!(shape.parameters(), built(&config));
    }

    #[test]
    fn configurations_that_are_not_planned_say_why() {
        let said = |config: Value| {
            ModelShape::of_config(config.as_object().unwrap(), "m").unwrap_err().to_string()
        };
        let good = config(&ModelShape::named("Llama-3-8B").unwrap());
        let with = |key: &str, value: Value| {
            let mut config = good.clone();
            config[key] = value;
            config
        };
        assert_eq!(
            said(with("model_type", json!("bert"))),
            "plan: model_type `bert` is not planned; llama, mistral, qwen2, qwen3 and gpt2 are"
        );
        for value in [json!(0), json!(-1), json!(1.5), json!(1u64 << 40), json!("8")] {
            let said = said(with("hidden_size", value.clone()));
            assert_eq!(
                said,
                format!("plan: config.json: hidden_size is {value}, not 1 to 16777216")
            );
        }
        let odd = said(with("num_key_value_heads", json!(7)));
        assert_eq!(odd, "plan: 32 heads of 128 can't share 7 of keys");
        assert!(said(with("vocab_size", Value::Null)).ends_with("vocab_size is missing"));
    }
}
