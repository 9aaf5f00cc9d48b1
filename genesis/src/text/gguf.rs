//! What a GGUF file says of its text side: its keys `tokenizer.*` as a [`Vocabulary`] and a chat template.
//!
//! Lists may be as long as the file allows; they are read once, and what has another type than the format
//! gives it is an error that names the key.

use super::pretrained::Pretrained;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::io::{GgufArray, GgufFile, GgufValue};

impl Pretrained {
    /// The tokenizer and the chat template of a GGUF file.
    ///
    /// # Errors
    /// If the file has no tokenizer, a key has the wrong type, or the vocabulary is not supported; with the
    /// file and the key.
    pub fn from_gguf(file: &GgufFile) -> Result<Pretrained> {
        let at = |error: Error| Error::io(format!("{}: {error}", file.path().display()));
        let keys = Keys(file);
        let vocabulary = keys.vocabulary().map_err(at)?;
        let template = keys.text("tokenizer.chat_template").map_err(at)?;
        let mut pretrained =
            Pretrained::from_vocabulary(&vocabulary, template.as_deref()).map_err(at)?;
        // Models of chats end a turn by another token than a text.
        for key in ["eot", "eom"] {
            pretrained.stop_tokens.extend(keys.id(key).map_err(at)?);
        }
        pretrained.stop_tokens.sort_unstable();
        pretrained.stop_tokens.dedup();
        Ok(pretrained)
    }
}

struct Keys<'a>(&'a GgufFile);

impl Keys<'_> {
    fn vocabulary(&self) -> Result<Vocabulary> {
        let model = self.text("tokenizer.ggml.model")?;
        let model = model.ok_or_else(|| Error::io("tokenizer.ggml.model is missing"))?;
        // What llama.cpp takes where a file does not say.
        let is_spm = model == "llama";
        Ok(Vocabulary {
            pre: self.text("tokenizer.ggml.pre")?.unwrap_or_default(),
            tokens: self.texts("tokens")?,
            merges: self.texts("merges")?,
            scores: self.floats("scores")?,
            token_types: self.integers("token_type")?,
            bos: self.id("bos")?,
            eos: self.id("eos")?,
            unk: self.id("unknown")?,
            pad: self.id("padding")?,
            add_bos: self.flag("add_bos_token")?.unwrap_or(is_spm),
            add_eos: self.flag("add_eos_token")?.unwrap_or(false),
            add_space_prefix: self.flag("add_space_prefix")?.unwrap_or(is_spm),
            model,
        })
    }

    /// A key's value as something, or an error that says what it is not.
    fn read<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&GgufValue) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.0.metadata().get(key) else { return Ok(None) };
        let wrong = || Error::io(format!("{key} is no {what}"));
        read(value).map(Some).ok_or_else(wrong)
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        self.read(key, "string", |value| value.as_str().map(str::to_owned))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.read(&format!("tokenizer.ggml.{name}"), "bool", GgufValue::as_bool)
    }

    fn id(&self, name: &str) -> Result<Option<u32>> {
        let id = |value: &GgufValue| value.as_u64().and_then(|id| u32::try_from(id).ok());
        self.read(&format!("tokenizer.ggml.{name}_token_id"), "token", id)
    }

    fn list<T>(
        &self,
        name: &str,
        what: &str,
        read: impl FnOnce(&GgufArray) -> Option<Vec<T>>,
    ) -> Result<Vec<T>> {
        let key = format!("tokenizer.ggml.{name}");
        let list = self.read(&key, what, |value| value.as_array().and_then(read))?;
        Ok(list.unwrap_or_default())
    }

    fn texts(&self, name: &str) -> Result<Vec<String>> {
        self.list(name, "list of strings", |list| {
            Some(list.strings()?.map(str::to_owned).collect())
        })
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>> {
        self.list(name, "list of numbers", |list| Some(list.floats()?.map(|x| x as f32).collect()))
    }

    fn integers(&self, name: &str) -> Result<Vec<i32>> {
        self.list(name, "list of integers", |list| {
            list.integers()?.map(|n| i32::try_from(n).ok()).collect()
        })
    }
}
