//! The tokenizer of a GGUF file, as lists under its keys `tokenizer.ggml.*`.
//!
//! llama.cpp has its own code for each kind of vocabulary. Here the lists become the `tokenizer.json` that they
//! once came from, so that one path makes ids, and makes those of `transformers`.
//!
//! | `tokenizer.ggml.model` | kind | merges |
//! |---|---|---|
//! | `gpt2` | byte-level BPE, cut by `tokenizer.ggml.pre` | listed |
//! | `llama` | SentencePiece BPE with bytes to fall back on | by score: a piece is what two pieces make |

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::pre_tokenizer::pre_tokenizer;
use crate::error::{Error, Result};

/// Values of `tokenizer.ggml.token_type`.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// Longer pieces are not looked at for merges, which takes the square of their length; SentencePiece's own limit
/// is 16 characters.
const MAX_PIECE_BYTES: usize = 512;

/// What a GGUF file says about its tokenizer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `gpt2` or `llama`.
    pub model: String,
    /// `tokenizer.ggml.pre`, empty where it is absent.
    pub pre: String,
    /// `tokenizer.ggml.tokens`, by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.merges`, best first, two tokens with a space between.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.scores`, by id.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`, by id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.bos_token_id`
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`
    pub unk: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`
    pub pad: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`
    pub add_bos: bool,
    /// `tokenizer.ggml.add_eos_token`
    pub add_eos: bool,
    /// `tokenizer.ggml.add_space_prefix`
    pub add_space_prefix: bool,
}

impl Vocabulary {
    /// The token of an id that a key names.
    pub(super) fn named(&self, id: Option<u32>, key: &str) -> Result<Option<&str>> {
        let Some(id) = id else { return Ok(None) };
        let token = usize::try_from(id).ok().and_then(|id| self.tokens.get(id));
        let missing =
            || wrong(&format!("{key}_token_id is {id}, there are {} tokens", self.tokens.len()));
        token.map(|token| Some(token.as_str())).ok_or_else(missing)
    }

    /// The `tokenizer.json` that says the same.
    pub(super) fn to_json(&self) -> Result<Value> {
        self.check_lengths()?;
        let mut vocab = Map::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().enumerate() {
            // Of tokens that are there twice the first is used, as llama.cpp does.
            vocab.entry(token.as_str()).or_insert(json!(id));
        }
        let mut json = match &*self.model {
            "gpt2" => self.byte_level()?,
            "llama" => self.sentence_piece()?,
            other => return Err(wrong(&format!("model {other:?} is not supported"))),
        };
        if let Some(merge) = first_bad_merge(&json["model"]["merges"], &vocab) {
            return Err(wrong(&format!("merge {merge} makes no token")));
        }
        json["model"]["vocab"] = Value::Object(vocab);
        json["added_tokens"] = Value::Array(self.added());
        json["post_processor"] = self.post_processor()?;
        Ok(json)
    }

    fn check_lengths(&self) -> Result<()> {
        let lists = [("scores", self.scores.len()), ("token_type", self.token_types.len())];
        for (name, len) in lists {
            if len != 0 && len != self.tokens.len() {
                let tokens = self.tokens.len();
                return Err(wrong(&format!("{name} has {len} entries for {tokens} tokens")));
            }
        }
        Ok(())
    }

    fn token_type(&self, id: usize) -> i32 {
        self.token_types.get(id).copied().unwrap_or(1)
    }

    /// Tokens that are found before anything is cut or merged.
    fn added(&self) -> Vec<Value> {
        let added = |(id, token): (usize, &String)| {
            let ty = self.token_type(id);
            let is_added = matches!(ty, UNKNOWN | CONTROL | USER_DEFINED) && !token.is_empty();
            is_added.then(|| {
                json!({
                    "id": id,
                    "content": token,
                    "single_word": false,
                    "lstrip": false,
                    "rstrip": false,
                    "normalized": false,
                    "special": ty != USER_DEFINED,
                })
            })
        };
        self.tokens.iter().enumerate().filter_map(added).collect()
    }

    fn byte_level(&self) -> Result<Value> {
        let Some(pre) = pre_tokenizer(&self.pre) else {
            return Err(wrong(&format!("pre {:?} is not supported", self.pre)));
        };
        Ok(json!({
            "version": "1.0",
            "normalizer": pre.normalizer,
            "pre_tokenizer": pre.steps,
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": false,
                "trim_offsets": true,
                "use_regex": false,
            },
            "model": {
                "type": "BPE",
                "fuse_unk": false,
                "byte_fallback": false,
                "ignore_merges": pre.ignore_merges,
                "merges": self.merges,
            },
        }))
    }

    fn sentence_piece(&self) -> Result<Value> {
        let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let prefix = json!({"type": "Prepend", "prepend": "▁"});
        let normalizers = if self.add_space_prefix { vec![prefix, space] } else { vec![space] };
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self.add_space_prefix {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let merges = match self.merges.is_empty() {
            true => self.merges_by_score()?,
            false => json!(self.merges),
        };
        Ok(json!({
            "version": "1.0",
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": null,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "type": "BPE",
                "unk_token": self.named(self.unk, "unknown")?,
                "fuse_unk": true,
                "byte_fallback": true,
                "ignore_merges": false,
                "merges": merges,
            },
        }))
    }

    /// All pairs of pieces that make a piece, the best piece first.
    ///
    /// # Source
    /// The order is that of `transformers`' conversion: by score, then by the lengths of both in characters;
    /// pairs of one piece by their ids before that.
    fn merges_by_score(&self) -> Result<Value> {
        if self.scores.len() != self.tokens.len() {
            return Err(wrong("there are neither merges nor scores"));
        }
        let is_piece = |id: usize| !matches!(self.token_type(id), UNKNOWN | CONTROL | BYTE);
        let pieces = self.tokens.iter().enumerate().filter(|(id, _)| is_piece(*id));
        let ids: BTreeMap<&str, usize> =
            pieces.clone().map(|(id, token)| (token.as_str(), id)).collect();
        let mut merges: Vec<(f32, usize, usize, &str, &str)> = Vec::new();
        for (id, piece) in pieces.filter(|(_, piece)| piece.len() <= MAX_PIECE_BYTES) {
            let count = piece.chars().count();
            let mut pairs: Vec<_> = (piece.char_indices().enumerate().skip(1))
                .filter_map(|(index, (at, _))| {
                    let (left, right) = piece.split_at(at);
                    Some(((ids.get(left)?, ids.get(right)?), index, left, right))
                })
                .collect();
            pairs.sort_by_key(|(pair, ..)| *pair);
            let score = self.scores[id];
            let merge = |(_, index, left, right)| (score, index, count - index, left, right);
            merges.extend(pairs.into_iter().map(merge));
        }
        merges.sort_by(|a, b| {
            b.0.total_cmp(&a.0).then_with(|| Reverse((a.1, a.2)).cmp(&Reverse((b.1, b.2))))
        });
        Ok(merges.into_iter().map(|(.., left, right)| json!([left, right])).collect())
    }

    fn post_processor(&self) -> Result<Value> {
        let bos = self.named(self.bos.filter(|_| self.add_bos), "bos")?.zip(self.bos);
        let eos = self.named(self.eos.filter(|_| self.add_eos), "eos")?.zip(self.eos);
        let special = |token: &str, ty: u32| json!({"SpecialToken": {"id": token, "type_id": ty}});
        let around = |name: &str, ty: u32| {
            let text = json!({"Sequence": {"id": name, "type_id": ty}});
            let before = bos.map(|(token, _)| special(token, ty));
            let after = eos.map(|(token, _)| special(token, ty));
            [before, Some(text), after].into_iter().flatten().collect::<Vec<Value>>()
        };
        let tokens: Map<String, Value> = [bos, eos]
            .into_iter()
            .flatten()
            .map(|(t, id)| (t.to_owned(), json!({"id": t, "ids": [id], "tokens": [t]})))
            .collect();
        let pair = [around("A", 0), around("B", 1)].concat();
        Ok(json!({
            "type": "TemplateProcessing",
            "single": around("A", 0),
            "pair": pair,
            "special_tokens": tokens,
        }))
    }
}

/// The first merge that the library would not survive.
fn first_bad_merge(merges: &Value, vocab: &Map<String, Value>) -> Option<usize> {
    let mut joined = String::new();
    merges.as_array()?.iter().position(|merge| {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            pair => pair[0].as_str().zip(pair[1].as_str()),
        };
        let Some((left, right)) = pair else { return true };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        ![left, right, &joined].iter().all(|token| vocab.contains_key(*token))
    })
}

fn wrong(why: &str) -> Error {
    Error::op("vocabulary", format!("tokenizer.ggml: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Tokenizer;
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn llama() -> Vocabulary {
        Vocabulary {
            model: "llama".to_owned(),
            tokens: strings(&[
                "<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "a", "b", "ab", "▁ab",
            ]),
            scores: vec![0.0, 0.0, 0.0, 0.0, 0.0, -5.0, -6.0, -7.0, -1.0, -2.0],
            token_types: vec![2, 3, 3, 6, 6, 1, 1, 1, 1, 1],
            bos: Some(1),
            eos: Some(2),
            unk: Some(0),
            add_bos: true,
            add_space_prefix: true,
            ..Vocabulary::default()
        }
    }

    #[test]
    fn pieces_merge_by_score_and_bytes_are_the_fallback() {
        let tokenizer = Tokenizer::from_vocabulary(&llama()).unwrap();
        assert_eq!(tokenizer.encode("ab", true).unwrap(), [1, 9]);
        let ids = tokenizer.encode("abé ab</s>", false).unwrap();
        assert_eq!(ids, [9, 3, 4, 9, 2]);
        assert_eq!(tokenizer.decode(&ids, true).unwrap(), "abé ab");
        assert_eq!(tokenizer.token_bytes(3), Some(vec![0xC3]));
        assert_eq!(tokenizer.token_bytes(9), Some(b" ab".to_vec()));
    }

    #[test]
    fn lists_that_don_t_fit_are_named() {
        let refused = |change: &dyn Fn(&mut Vocabulary)| {
            let mut vocabulary = llama();
            change(&mut vocabulary);
            Tokenizer::from_vocabulary(&vocabulary).unwrap_err().to_string()
        };
        let why = refused(&|v| v.token_types.truncate(3));
        assert_eq!(why, "vocabulary: tokenizer.ggml: token_type has 3 entries for 10 tokens");
        let why = refused(&|v| v.bos = Some(10));
        assert_eq!(why, "vocabulary: tokenizer.ggml: bos_token_id is 10, there are 10 tokens");
        let why = refused(&|v| v.merges = strings(&["a a"]));
        assert_eq!(why, "vocabulary: tokenizer.ggml: merge 0 makes no token");
        let why = refused(&|v| v.model = "t5".to_owned());
        assert_eq!(why, "vocabulary: tokenizer.ggml: model \"t5\" is not supported");
        let why = refused(&|v| (v.model, v.pre) = ("gpt2".to_owned(), "new".to_owned()));
        assert_eq!(why, "vocabulary: tokenizer.ggml: pre \"new\" is not supported");
    }

    #[test]
    fn digits_are_cut_as_the_name_says() {
        let alphabet: Vec<String> = ('0'..='9').map(|c| c.to_string()).collect();
        let mut vocabulary = Vocabulary {
            model: "gpt2".to_owned(),
            tokens: alphabet,
            merges: strings(&["1 2", "12 3", "4 5"]),
            ..Vocabulary::default()
        };
        vocabulary.tokens.extend(strings(&["12", "123", "45"]));
        for (pre, ids) in [
            ("gpt-2", vec![11, 12]),
            ("smollm", vec![1, 2, 3, 4, 5]),
            ("qwen2", vec![1, 2, 3, 4, 5]),
            ("llama-bpe", vec![11, 12]),
            ("default", vec![11, 12]),
        ] {
            vocabulary.pre = pre.to_owned();
            let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
            assert_eq!(tokenizer.encode("12345", false).unwrap(), ids, "{pre}");
        }
    }
}
