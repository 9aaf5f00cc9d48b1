//! Where byte-level BPE cuts a text before it merges: by `tokenizer.ggml.pre`, GGUF's name for it.
//!
//! Merges never cross a cut, so the cut decides ids. Hugging Face writes it into `tokenizer.json` as steps; a
//! GGUF file has only a name, which llama.cpp gave to a hash of what the original did. Behind each name here
//! stands what the original `tokenizer.json` says.
//!
//! ```text
//! "12345 it's"   gpt-2    12345| it|'s
//!                smollm   1|2|3|4|5| it|'s
//!                llama3   123|45| it|'s
//! ```

use serde_json::{Value, json};

/// Contractions of any case, words with one character before them, up to three digits, the rest.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// As Llama 3, digit by digit.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// As Qwen2, marks belong to words.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words begin anew at capitals; contractions belong to words.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's: as GPT-4o without contractions, digit by digit.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// DeepSeek V3's three cuts.
const DEEPSEEK3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
/// Falcon's, in front of GPT-2's.
const FALCON: &str = r"[\p{P}\$\+<=>\^~\|`]+";
/// What llama.cpp does where a file names nothing, in front of GPT-2's.
const UNNAMED: [&str; 2] = [r"[\p{P}\$\+<=>\^~\|]+", r"\p{N}+"];

/// How a byte-level vocabulary cuts texts, as parts of a `tokenizer.json`.
pub(super) struct PreTokenizer {
    /// The normalizer, `null` for none.
    pub(super) normalizer: Value,
    /// The pre-tokenizer.
    pub(super) steps: Value,
    /// Whether a word that is a token is not merged together.
    pub(super) ignore_merges: bool,
}

/// What stands behind a name; none where it is not known.
pub(super) fn pre_tokenizer(name: &str) -> Option<PreTokenizer> {
    let digits = json!({"type": "Digits", "individual_digits": true});
    let plain = |steps: Vec<Value>| (Value::Null, steps, false);
    let (normalizer, steps, ignore_merges) =
        match name {
            "" | "default" => {
                let [marks, numbers] = UNNAMED.map(split);
                let threes = split("[0-9][0-9][0-9]");
                plain(vec![marks, numbers, threes, byte_level(true)])
            }
            "gpt-2" | "phi-2" | "mpt" | "olmo" | "jais" | "exaone4" | "trillion"
            | "granite-docling" | "modern-bert" | "roberta-bpe" | "gigachat" | "a.x-4.0"
            | "mellum" => plain(vec![byte_level(true)]),
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone"
            | "minerva-7b" => plain(vec![digits, byte_level(true)]),
            "falcon" => plain(vec![split(FALCON), byte_level(true), split("[0-9][0-9][0-9]")]),
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral"
            | "midm-2.0" | "lfm2" => (Value::Null, vec![split(LLAMA3), byte_level(false)], true),
            "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => {
                plain(vec![split(LLAMA3), byte_level(false)])
            }
            "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "megrez" | "hunyuan" | "grok-2" => {
                (json!({"type": "NFC"}), vec![split(QWEN2), byte_level(false)], false)
            }
            "qwen35" => (json!({"type": "NFC"}), vec![split(QWEN35), byte_level(false)], false),
            "gpt-4o" | "llama4" | "minimax-m2" => plain(vec![split(GPT4O), byte_level(false)]),
            "tekken" => (Value::Null, vec![split(TEKKEN), byte_level(false)], true),
            "deepseek-v3" | "hunyuan-dense" => {
                let [numbers, ideographs, words] = DEEPSEEK3.map(split);
                plain(vec![numbers, ideographs, words, byte_level(false)])
            }
            _ => return None,
        };
    let steps = json!({"type": "Sequence", "pretokenizers": steps});
    Some(PreTokenizer { normalizer, steps, ignore_merges })
}

/// Names that files are written with: of those that stand for the same, the one of the best known model.
const WRITTEN: [&str; 11] = [
    "gpt-2",
    "smollm",
    "llama-bpe",
    "dbrx",
    "qwen2",
    "qwen35",
    "gpt-4o",
    "tekken",
    "deepseek-v3",
    "falcon",
    "default",
];

/// GGUF's name for how a `tokenizer.json` cuts texts; none where there is none.
pub(super) fn name_of(json: &Value) -> Option<&'static str> {
    let normalizer = &json["normalizer"];
    let ignores = json["model"]["ignore_merges"].as_bool().unwrap_or(false);
    let steps = cuts(&json["pre_tokenizer"]);
    let is_same = |name: &&&str| {
        pre_tokenizer(name).is_some_and(|own| {
            own.normalizer == *normalizer
                && own.ignore_merges == ignores
                && cuts(&own.steps) == steps
        })
    };
    WRITTEN.iter().find(is_same).copied()
}

/// The steps of a pre-tokenizer, without what changes no cut.
fn cuts(steps: &Value) -> Vec<Value> {
    match steps["pretokenizers"].as_array() {
        Some(list) => list.iter().flat_map(cuts).collect(),
        None => {
            let mut step = steps.clone();
            if let Some(keys) = step.as_object_mut() {
                keys.remove("trim_offsets");
                // Its own cut is made where it does not say.
                let is_bytes = keys.get("type").is_some_and(|ty| ty == "ByteLevel");
                if is_bytes && !keys.contains_key("use_regex") {
                    keys.insert("use_regex".to_owned(), true.into());
                }
            }
            vec![step]
        }
    }
}

/// A cut around every match.
fn split(pattern: &str) -> Value {
    let pattern = json!({"Regex": pattern});
    json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false})
}

/// Bytes to characters, with GPT-2's own cut or without.
fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": use_regex,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_stands_for_has_that_name() {
        for name in WRITTEN {
            let own = pre_tokenizer(name).unwrap();
            let mut json = json!({
                "normalizer": own.normalizer,
                "pre_tokenizer": own.steps,
                "model": {"ignore_merges": own.ignore_merges},
            });
            assert_eq!(name_of(&json), Some(name));
            json["pre_tokenizer"] = json!({"type": "Whitespace"});
            assert_eq!(name_of(&json), None);
        }
        let bare =
            json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {}});
        assert_eq!(name_of(&bare), Some("gpt-2"));
    }
}
