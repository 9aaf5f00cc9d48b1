//! Which name of a file is which name of a model.
//!
//! Names of a model are those that `transformers` publishes. Files differ: a model without its head has no
//! prefix, a part of a larger model has one more, and GGUF has names of its own.
//!
//! ```text
//! model                                 safetensors                     GGUF
//! model.layers.0.mlp.up_proj.weight     model.layers.0.mlp.up_proj..    blk.0.ffn_up.weight
//!                                       layers.0.mlp.up_proj.weight
//!                                       language_model.model.layers.0..
//! ```

use super::fix::Fix;
use super::gguf::GgufNames;

/// The names of a kind of file.
#[derive(Clone, Debug)]
pub(super) enum Naming {
    /// Those of `transformers`, with the prefix of the model without its head.
    Published {
        /// `model.`
        base: &'static str,
    },
    /// Those of GGUF.
    Gguf(GgufNames),
}

/// Ends of names that hold what follows from the configuration.
const COMPUTED: &[&str] =
    &["rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "embeddings.position_ids"];

/// Beginnings of names of parts that are not built: the eyes of Gemma 3, the other head of BERT.
const OTHERS: &[&str] = &[
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "cls.seq_relationship.",
];

impl Naming {
    /// The names that a tensor of the model may have, and how it is stored under each.
    pub(super) fn candidates(&self, name: &str) -> Vec<(String, Fix)> {
        match self {
            Naming::Gguf(names) => names.find(name).into_iter().collect(),
            Naming::Published { base } => {
                let rest = name.strip_prefix(base);
                let mut all = vec![name.to_owned(), format!("language_model.{name}")];
                all.extend(rest.map(str::to_owned));
                all.extend(rest.map(|rest| format!("{base}language_model.{rest}")));
                // Layer norms of the first files of BERT.
                let older =
                    [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")];
                for (new, old) in older {
                    all.extend(name.strip_suffix(new).map(|start| format!("{start}{old}")));
                }
                all.into_iter().map(|name| (name, Fix::Same)).collect()
            }
        }
    }

    /// Whether a model has no use for a tensor of the file.
    pub(super) fn ignores(&self, name: &str) -> bool {
        match self {
            Naming::Gguf(names) => names.ignores(name),
            Naming::Published { .. } => {
                COMPUTED.iter().any(|end| name.ends_with(end))
                    || OTHERS.iter().any(|start| name.starts_with(start))
            }
        }
    }
}
