//! A tokenizer as the keys `tokenizer.*` of a GGUF file: the inverse of [`Pretrained::from_gguf`].
//!
//! ```text
//! model.vocab, added_tokens      tokenizer.ggml.tokens, tokenizer.ggml.token_type
//! model.merges                   tokenizer.ggml.merges
//! pre_tokenizer, normalizer      tokenizer.ggml.pre, by a name that llama.cpp has for them
//! post_processor                 tokenizer.ggml.add_bos_token, add_eos_token
//! ```
//!
//! # Source
//! llama.cpp's `convert_hf_to_gguf.py`.

use serde_json::Value;

use super::pre_tokenizer::name_of;
use super::pretrained::Pretrained;
use super::tokenizer::failed;
use crate::error::{Error, Result};
use crate::io::GgufField;

/// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

impl Pretrained {
    /// The fields of a GGUF file about this tokenizer and its chat template, of a model that knows `known` tokens.
    ///
    /// # Errors
    /// If the tokenizer is no byte-level BPE, cuts texts in a way that GGUF has no name for, or has more tokens than the
    /// model.
    pub fn gguf_fields(&self, known: usize) -> Result<Vec<(String, GgufField)>> {
        let text = self.tokenizer.inner().to_string(false);
        let text = text.map_err(|error| failed("save", &*error))?;
        let json: Value = serde_json::from_str(&text)
            .map_err(|error| refused(format!("the tokenizer is no JSON: {error}")))?;
        let model = &json["model"];
        if model["type"] != "BPE" || model["byte_fallback"] == true {
            return Err(refused("only byte-level BPE is written"));
        }
        let pre = name_of(&json)
            .ok_or_else(|| refused("GGUF has no name for how the tokenizer cuts texts"))?;
        let (tokens, types) = tokens(&json, known)?;
        let mut fields = vec![
            ("model".to_owned(), "gpt2".into()),
            ("pre".to_owned(), pre.into()),
            ("tokens".to_owned(), GgufField::Strings(tokens)),
            ("token_type".to_owned(), GgufField::I32s(types)),
            ("merges".to_owned(), GgufField::Strings(merges(&model["merges"])?)),
        ];
        fields.extend(self.special_fields()?);
        fields.iter_mut().for_each(|(key, _)| key.insert_str(0, "tokenizer.ggml."));
        let template = self.chat_templates.get("default");
        fields.extend(
            template.map(|source| ("tokenizer.chat_template".to_owned(), source.as_str().into())),
        );
        Ok(fields)
    }

    /// Special tokens by their numbers, and which of them stand around a text.
    fn special_fields(&self) -> Result<Vec<(String, GgufField)>> {
        let id = |name: &str| self.tokenizer.token_to_id(self.special_tokens.get(name)?);
        let mut fields: Vec<(String, GgufField)> = Vec::new();
        for (name, key) in [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")]
        {
            let id = id(&format!("{name}_token"));
            fields.extend(id.map(|id| (format!("{key}_token_id"), id.into())));
        }
        // Chats end a turn by another token than a text.
        let other = self.stop_tokens.iter().find(|&&token| Some(token) != id("eos_token"));
        fields.extend(other.map(|&token| ("eot_token_id".to_owned(), token.into())));
        let whole = self.tokenizer.encode("a", true)?;
        let ends = |token: Option<&u32>, name: &str| token.copied() == id(name) && token.is_some();
        let (bos, eos) = (ends(whole.first(), "bos_token"), ends(whole.last(), "eos_token"));
        fields.push(("add_bos_token".to_owned(), bos.into()));
        fields.push(("add_eos_token".to_owned(), eos.into()));
        Ok(fields)
    }
}

/// Tokens by their ids and what each is; ids without a token are padding of the model.
fn tokens(json: &Value, known: usize) -> Result<(Vec<String>, Vec<i32>)> {
    let mut tokens: Vec<String> = (0..known).map(|id| format!("[PAD{id}]")).collect();
    let mut types = vec![UNUSED; known];
    let vocabulary = json["model"]["vocab"].as_object().into_iter().flatten();
    let ordinary = vocabulary.map(|(token, id)| (token.as_str(), id, NORMAL));
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let added = added.map(|token| {
        let ty = if token["special"] == true { CONTROL } else { USER_DEFINED };
        (token["content"].as_str().unwrap_or_default(), &token["id"], ty)
    });
    for (token, id, ty) in ordinary.chain(added) {
        let place = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let Some(place) = place.filter(|&place| place < known) else {
            return Err(refused(format!("token {id} is one too many: the model knows {known}")));
        };
        (tokens[place], types[place]) = (token.to_owned(), ty);
    }
    Ok((tokens, types))
}

/// Merges as two tokens with a space between.
fn merges(list: &Value) -> Result<Vec<String>> {
    let merge = |merge: &Value| match merge {
        Value::String(text) => Some(text.clone()),
        pair => Some(format!("{} {}", pair[0].as_str()?, pair[1].as_str()?)),
    };
    let merges: Option<Vec<String>> = list.as_array().into_iter().flatten().map(merge).collect();
    merges.ok_or_else(|| refused("a merge is no pair of tokens"))
}

fn refused(what: impl Into<String>) -> Error {
    Error::op("gguf tokenizer", what.into())
}
