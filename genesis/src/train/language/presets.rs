//! Shapes of models that are trained from nothing: Llamas, which every tool loads.

use serde_json::{Map, Value, json};

/// A shape.
struct Preset {
    name: &'static str,
    channels: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
}

/// Named by about how many parameters their layers have; the embedding comes on top. The last three are those of
/// SmolLM2 and of Llama 3.2.
const PRESETS: [Preset; 7] = [
    Preset { name: "tiny", channels: 128, hidden: 384, layers: 4, heads: 4, kv_heads: 2 },
    Preset { name: "5m", channels: 256, hidden: 704, layers: 7, heads: 8, kv_heads: 4 },
    Preset { name: "20m", channels: 512, hidden: 1408, layers: 7, heads: 8, kv_heads: 4 },
    Preset { name: "60m", channels: 640, hidden: 1728, layers: 14, heads: 10, kv_heads: 5 },
    Preset { name: "135m", channels: 576, hidden: 1536, layers: 30, heads: 9, kv_heads: 3 },
    Preset { name: "360m", channels: 960, hidden: 2560, layers: 32, heads: 15, kv_heads: 5 },
    Preset { name: "1b", channels: 2048, hidden: 8192, layers: 16, heads: 32, kv_heads: 8 },
];

/// The names of all shapes.
pub fn preset_names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// The `config.json` of a shape, for a vocabulary and rows of so many tokens; none of an unknown name.
pub(super) fn preset(
    name: &str,
    vocabulary: usize,
    positions: usize,
) -> Option<Map<String, Value>> {
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    let config = json!({
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        // Products are fastest of multiples of 64.
        "vocab_size": vocabulary.next_multiple_of(64),
        "hidden_size": preset.channels,
        "intermediate_size": preset.hidden,
        "num_hidden_layers": preset.layers,
        "num_attention_heads": preset.heads,
        "num_key_value_heads": preset.kv_heads,
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5,
        "rope_parameters": { "rope_type": "default", "rope_theta": 10000.0 },
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "tie_word_embeddings": true,
        "dtype": "float32",
    });
    config.as_object().cloned()
}
