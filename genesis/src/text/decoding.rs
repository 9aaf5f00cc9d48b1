//! How tokens become text, as far as it can be done token by token.
//!
//! The `decoder` of a `tokenizer.json` is a function of all tokens at once. Those that language models have are
//! automata in disguise: a token's text depends on what came before it through a few bytes of state. Told apart
//! here are four kinds; whatever is none of them is decoded at the end, which is always right.
//!
//! ```text
//! decoder                                        kind        state
//! ByteLevel                                      ByteLevel   bytes of an unfinished character, 3 at most
//! Replace*, ByteFallback, Fuse, Strip            Chain       the current run of `<0x..>` tokens
//! Metaspace, WordPiece, none                     PerToken    whether a token came before
//! CTC, BPEDecoder, other sequences               Whole       all tokens
//! ```

use serde_json::Value;

/// What a tokenizer's decoder does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decoding {
    /// Characters stand for bytes, which are UTF-8 if all goes well.
    ByteLevel,
    /// Replacements, then bytes by name, then characters off the start.
    Chain(Chain),
    /// Each token by itself, the first in its own way.
    PerToken,
    /// Only all tokens together.
    Whole,
}

/// SentencePiece's decoder as `tokenizers` writes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Chain {
    /// What is replaced in each token by what, in order.
    pub(super) replacements: Vec<(String, String)>,
    /// Whether `<0x0A>` is a byte.
    pub(super) byte_fallback: bool,
    /// Characters that are taken off the start of the text, and how many at most.
    pub(super) strip: Option<(char, usize)>,
}

impl Decoding {
    /// The kind of a decoder as `tokenizer.json` has it; `null` is none.
    pub(super) fn of(decoder: &Value) -> Decoding {
        let steps = match decoder.get("decoders").and_then(Value::as_array) {
            Some(steps) => steps.as_slice(),
            None => std::slice::from_ref(decoder),
        };
        let kind = |step: &Value| step["type"].as_str().unwrap_or_default().to_owned();
        match steps {
            [Value::Null] => Decoding::PerToken,
            [one] if kind(one) == "ByteLevel" => Decoding::ByteLevel,
            [one] if matches!(&*kind(one), "Metaspace" | "WordPiece") => Decoding::PerToken,
            _ => chain(steps).map_or(Decoding::Whole, Decoding::Chain),
        }
    }
}

/// The steps as a chain, if they are one and come in its order.
fn chain(steps: &[Value]) -> Option<Chain> {
    let mut chain = Chain::default();
    let mut stage = 0;
    let mut is_fused = false;
    for step in steps {
        let kind = step["type"].as_str()?;
        let rank = ["Replace", "ByteFallback", "Fuse", "Strip"].iter().position(|k| *k == kind)?;
        // Each but the replacements comes once.
        if rank < stage {
            return None;
        }
        stage = if rank == 0 { 0 } else { rank + 1 };
        match rank {
            0 => {
                let pattern = step["pattern"]["String"].as_str().filter(|text| !text.is_empty())?;
                let content = step["content"].as_str()?.to_owned();
                chain.replacements.push((pattern.to_owned(), content));
            }
            1 => chain.byte_fallback = true,
            2 => is_fused = true,
            _ => {
                let mut content = step["content"].as_str()?.chars();
                let start = usize::try_from(step["start"].as_u64()?).ok()?;
                let is_simple = is_fused && step["stop"].as_u64() == Some(0);
                chain.strip = Some((content.next().filter(|_| is_simple)?, start));
            }
        }
    }
    Some(chain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decoders_of_language_models_are_known() {
        let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        let fallback = json!({"type": "ByteFallback"});
        let fuse = json!({"type": "Fuse"});
        let sequence = |steps: &[&Value]| Decoding::of(&json!({"decoders": steps}));
        let llama = Chain {
            replacements: vec![("▁".to_owned(), " ".to_owned())],
            byte_fallback: true,
            strip: Some((' ', 1)),
        };
        assert_eq!(sequence(&[&replace, &fallback, &fuse, &strip]), Decoding::Chain(llama.clone()));
        let gemma = Chain { strip: None, ..llama };
        assert_eq!(sequence(&[&replace, &fallback, &fuse]), Decoding::Chain(gemma));
        assert_eq!(Decoding::of(&json!({"type": "ByteLevel"})), Decoding::ByteLevel);
        assert_eq!(Decoding::of(&Value::Null), Decoding::PerToken);
        // Another order is another function.
        assert_eq!(sequence(&[&fallback, &replace, &fuse]), Decoding::Whole);
        assert_eq!(sequence(&[&replace, &strip]), Decoding::Whole);
        assert_eq!(Decoding::of(&json!({"type": "CTC"})), Decoding::Whole);
    }
}
