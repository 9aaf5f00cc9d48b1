//! A `config.json` as published, read key by key.
//!
//! A key is taken out when it is read, so that what is left at the end was not understood. Of that, keys on a
//! short list are known not to change what a model computes; any other is refused with its value: a setting
//! that nobody looked at is how a model answers nonsense without an error.
//!
//! ```text
//! {"model_type": "llama", "hidden_size": 64, "attn_temperature": 2.0}
//! config.json: attn_temperature is 2.0, which is not supported
//! ```

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::ops::Activation;
use crate::tensor::Tensor;

/// The largest extent that a file may ask for; products of extents are checked where shapes are made.
const MOST: u64 = 1 << 31;

/// Keys that leave the result as it is: about training, storing, other heads or how text is generated.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "tokenizer_class",
    "transformers.js_config", "is_llama_config", "unsloth_fixed", "unsloth_version",
    "pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id",
    "use_cache", "cache_implementation", "attn_implementation", "_attn_implementation",
    "_attn_implementation_autoset", "pretraining_tp", "chunk_size_feed_forward", "torchscript",
    "use_bfloat16", "gradient_checkpointing", "return_dict", "output_attentions", "output_hidden_states",
    "output_router_logits", "output_past", "use_return_dict",
    "initializer_range", "router_aux_loss_coef", "attention_dropout", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "classifier_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
    "summary_first_dropout", "id2label", "label2id", "num_labels", "problem_type", "finetuning_task",
    "task_specific_params", "encoder_stride", "reorder_and_upcast_attn",
    "max_length", "min_length", "do_sample", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "num_beams", "num_beam_groups", "diversity_penalty", "early_stopping",
    "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "prefix",
];

/// The keys of a configuration that were not read yet.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Where they are from, for errors.
    source: String,
    keys: Map<String, Value>,
}

impl Settings {
    /// Reads a JSON object; `source` is named in errors.
    pub(super) fn parse(text: &str, source: &str) -> Result<Settings> {
        match serde_json::from_str(text) {
            Ok(Value::Object(keys)) => Ok(Settings::of(keys, source)),
            Ok(_) => Err(Error::io(format!("{source}: is no JSON object"))),
            Err(error) => Err(Error::io(format!("{source}: is no JSON: {error}"))),
        }
    }

    pub(super) fn of(keys: Map<String, Value>, source: &str) -> Settings {
        Settings { source: source.to_owned(), keys }
    }

    /// Where they are from.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The keys that were not read.
    pub(super) fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// An error about a key.
    pub(super) fn refusal(&self, what: impl std::fmt::Display) -> Error {
        Error::io(format!("{}: {what}", self.source))
    }

    /// The value of a key, null included; the key counts as read.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        // Order is of no interest here, and keeping it would be linear in the number of keys.
        self.keys.swap_remove(key)
    }

    /// The value of a key that is there and not null.
    pub(super) fn given(&mut self, key: &str) -> Option<Value> {
        self.take(key).filter(|value| !value.is_null())
    }

    /// Whether a key is there, read or not read later.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Looks at a value that others will read.
    pub(super) fn peek(&self, key: &str) -> Option<&Value> {
        self.keys.get(key)
    }

    /// Settings without keys, under a name in errors.
    pub(super) fn empty(&self, key: &str) -> Settings {
        Settings { source: format!("{}: {key}", self.source), keys: Map::new() }
    }

    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.keys.insert(key.to_owned(), value.into());
    }

    pub(super) fn put_if_absent(&mut self, key: &str, value: impl Into<Value>) {
        if self.peek(key).is_none_or(Value::is_null) {
            self.put(key, value);
        }
    }

    /// An object inside of this one, under its own name in errors.
    pub(super) fn nested(&mut self, key: &str) -> Result<Option<Settings>> {
        match self.given(key) {
            None => Ok(None),
            Some(Value::Object(keys)) => {
                Ok(Some(Settings { source: format!("{}: {key}", self.source), keys }))
            }
            Some(value) => Err(self.wrong(key, &value, "an object")),
        }
    }

    /// A count of at least 0 and less than 2^31.
    pub(super) fn count(&mut self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.given(key) else { return Ok(None) };
        match value.as_u64().filter(|&n| n <= MOST).and_then(|n| usize::try_from(n).ok()) {
            Some(n) => Ok(Some(n)),
            None => Err(self.wrong(key, &value, "a count")),
        }
    }

    /// A count of at least 1, where it is given.
    pub(super) fn size_if(&mut self, key: &str) -> Result<Option<usize>> {
        match self.count(key)? {
            Some(0) => Err(self.refusal(format!("{key} is 0, there must be at least 1"))),
            size => Ok(size),
        }
    }

    /// A count of at least 1, with what holds where it is not given.
    pub(super) fn size(&mut self, key: &str, default: usize) -> Result<usize> {
        Ok(self.size_if(key)?.unwrap_or(default))
    }

    /// A finite number, where it is given.
    pub(super) fn number_if(&mut self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.given(key) else { return Ok(None) };
        match value.as_f64().filter(|n| n.is_finite()) {
            Some(n) => Ok(Some(n)),
            None => Err(self.wrong(key, &value, "a number")),
        }
    }

    /// A finite number above 0, where it is given.
    pub(super) fn positive_if(&mut self, key: &str) -> Result<Option<f64>> {
        match self.number_if(key)? {
            Some(n) if n <= 0.0 => Err(self.refusal(format!("{key} is {n}, it must be above 0"))),
            number => Ok(number),
        }
    }

    /// A finite number above 0 that must be given.
    pub(super) fn needed(&mut self, key: &str) -> Result<f64> {
        self.positive_if(key)?.ok_or_else(|| self.refusal(format!("{key} is missing")))
    }

    /// A finite number of at least 0, with what holds where it is not given.
    pub(super) fn epsilon(&mut self, key: &str, default: f64) -> Result<f64> {
        match self.number_if(key)? {
            Some(n) if n < 0.0 => Err(self.refusal(format!("{key} is {n}, it must be at least 0"))),
            number => Ok(number.unwrap_or(default)),
        }
    }

    /// A list of finite numbers, where it is given.
    pub(super) fn numbers_if(&mut self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.given(key) else { return Ok(None) };
        let finite = |value: &Value| value.as_f64().filter(|n| n.is_finite());
        let numbers = value.as_array().and_then(|list| list.iter().map(finite).collect());
        numbers.map(Some).ok_or_else(|| self.wrong(key, &value, "a list of numbers"))
    }

    pub(super) fn flag(&mut self, key: &str, default: bool) -> Result<bool> {
        match self.given(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(value) => Err(self.wrong(key, &value, "true or false")),
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>> {
        match self.given(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.wrong(key, &value, "a text")),
        }
    }

    /// The names of kinds of layers, one a layer, where they are given.
    pub(super) fn texts_if(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.given(key) else { return Ok(None) };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let texts = value.as_array().and_then(|list| list.iter().map(text).collect());
        texts.map(Some).ok_or_else(|| self.wrong(key, &value, "a list of texts"))
    }

    /// A key that may only be absent, null, or have one value, because no other is implemented.
    pub(super) fn only(&mut self, key: &str, value: impl Into<Value>) -> Result<()> {
        match self.given(key) {
            Some(given) if given != value.into() => Err(self.unsupported(key, &given)),
            _ => Ok(()),
        }
    }

    /// An activation by the name that `transformers` gives it.
    pub(super) fn activation(&mut self, key: &str, default: &str) -> Result<Activation> {
        let name = self.text(key)?.unwrap_or_else(|| default.to_owned());
        match name.as_str() {
            "silu" | "swish" => Ok(Activation::Silu),
            "gelu" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Activation::GeluTanh),
            "relu" => Ok(Activation::Relu),
            "tanh" => Ok(Activation::Other(Tensor::tanh)),
            _ => Err(self.unsupported(key, &Value::String(name))),
        }
    }

    /// Refuses what nobody has read and that is not known to be harmless.
    pub(super) fn finish(self) -> Result<()> {
        let unread = |(key, value): &(&String, &Value)| {
            !value.is_null() && !HARMLESS.contains(&key.as_str())
        };
        match self.keys.iter().find(unread) {
            Some((key, value)) => Err(self.unsupported(key, value)),
            None => Ok(()),
        }
    }

    fn wrong(&self, key: &str, value: &Value, wanted: &str) -> Error {
        self.refusal(format!("{key} is {}, not {wanted}", shown(value)))
    }

    pub(super) fn unsupported(&self, key: &str, value: &Value) -> Error {
        self.refusal(format!("{key} is {}, which is not supported", shown(value)))
    }
}

/// A value as an error shows it, of a length that a person reads.
fn shown(value: &Value) -> String {
    const SHOWN: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        Settings::parse(text, "config.json").unwrap()
    }

    fn said<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_nobody_read_is_refused_by_name_and_value() {
        let mut keys = settings(r#"{"a": 1, "use_cache": true, "b": {"c": 2}, "d": null}"#);
        assert_eq!(keys.size("a", 7).unwrap(), 1);
        assert_eq!(keys.size("missing", 7).unwrap(), 7);
        let unread = "config.json: b is {\"c\":2}, which is not supported";
        assert_eq!(said(keys.clone().finish()), unread);
        keys.nested("b").unwrap().unwrap().count("c").unwrap();
        keys.finish().unwrap();
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for (text, what) in [
            ("-1", "x is -1, not a count"),
            ("1.5", "x is 1.5, not a count"),
            ("1e300", "x is 1e+300, not a count"),
            ("99999999999", "x is 99999999999, not a count"),
            ("\"8\"", "x is \"8\", not a count"),
            ("0", "x is 0, there must be at least 1"),
        ] {
            let mut keys = settings(&format!("{{\"x\": {text}}}"));
            assert_eq!(said(keys.size("x", 1)), format!("config.json: {what}"));
        }
        assert!(Settings::parse("[1]", "config.json").is_err());
        assert!(Settings::parse("{\"x\": ", "config.json").is_err());
        let deep = "[".repeat(100_000);
        assert!(Settings::parse(&format!("{{\"x\": {deep}"), "config.json").is_err());
    }

    #[test]
    fn long_values_are_cut_in_errors() {
        let keys = settings(&format!("{{\"x\": \"{}\"}}", "é".repeat(1000)));
        assert!(said(keys.finish()).chars().count() < 150);
    }
}
