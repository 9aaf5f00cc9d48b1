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
        let of_file = |name: &String| (name.clone(), file.path().to_owned());
        pretrained.template_files = pretrained.chat_templates.keys().map(of_file).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    /// A value with the number of its type before it.
    fn value(ty: u32, bytes: &[u8]) -> Vec<u8> {
        [&ty.to_le_bytes(), bytes].concat()
    }

    fn texts(list: &[&str]) -> Vec<u8> {
        let items: Vec<u8> = list.iter().flat_map(|item| text(item)).collect();
        value(9, &[&8u32.to_le_bytes(), &(list.len() as u64).to_le_bytes()[..], &items].concat())
    }

    /// A file of nothing but keys.
    fn open(keys: &[(&str, Vec<u8>)]) -> Result<Pretrained> {
        let mut bytes = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &0u64.to_le_bytes()].concat();
        bytes.extend((keys.len() as u64).to_le_bytes());
        for (key, value) in keys {
            bytes.extend(text(key));
            bytes.extend(value);
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        let file = tempfile::Builder::new().suffix(".gguf").tempfile().expect("a file");
        std::fs::write(file.path(), bytes).expect("writable");
        Pretrained::from_gguf(&GgufFile::open(file.path())?)
    }

    fn gpt2() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("tokenizer.ggml.model", value(8, &text("gpt2"))),
            ("tokenizer.ggml.tokens", texts(&["a", "b", "ab", "<end>", "<turn>"])),
            ("tokenizer.ggml.merges", texts(&["a b"])),
            ("tokenizer.ggml.eos_token_id", value(4, &3u32.to_le_bytes())),
            ("tokenizer.ggml.eot_token_id", value(4, &4u32.to_le_bytes())),
            ("tokenizer.chat_template", value(8, &text("{{ messages[0].content }}"))),
        ]
    }

    #[test]
    fn keys_become_a_tokenizer_and_a_template() {
        let text = open(&gpt2()).expect("a tokenizer");
        assert_eq!(text.tokenizer.encode("ab", false).expect("known"), [2]);
        assert_eq!(text.stop_tokens, [3, 4]);
        let messages = vec![serde_json::json!({"role": "user", "content": "hi"})];
        let template = text.chat_template(false).expect("there is one");
        assert_eq!(template.render(&text.conversation(messages)).expect("valid"), "hi");
    }

    #[test]
    fn keys_of_wrong_types_are_named() {
        let refusal = |at: usize, wrong: Vec<u8>| {
            let mut keys = gpt2();
            keys[at].1 = wrong;
            open(&keys).expect_err("refused").to_string()
        };
        let number = || value(4, &1u32.to_le_bytes());
        assert!(refusal(0, number()).ends_with(": tokenizer.ggml.model is no string"));
        assert!(refusal(1, number()).ends_with(": tokenizer.ggml.tokens is no list of strings"));
        let text = value(8, &text("3"));
        assert!(refusal(3, text).ends_with(": tokenizer.ggml.eos_token_id is no token"));
        let error = open(&gpt2()[1..]).expect_err("refused").to_string();
        assert!(error.ends_with(": tokenizer.ggml.model is missing"), "{error}");
    }
}
