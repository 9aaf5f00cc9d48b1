//! The requests of `/v1/completions` and `/v1/embeddings`: texts, or tokens as they are.

use serde_json::Value;

use super::fields::{Fields, kind};
use super::options::Options;
use crate::serve::backend::ModelInfo;
use crate::serve::refusal::ApiError;

/// The most alternatives that are listed beside a token.
const MAX_LOGPROBS: u64 = 20;

/// Tokens of an answer where the request does not say, as OpenAI has it.
const DEFAULT_MAX_TOKENS: usize = 16;

/// The most prompts of one request.
const MAX_PROMPTS: usize = 2048;

/// A prompt: text, or tokens that are taken as they are.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::serve) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// A request of texts that go on.
#[derive(Clone, Debug)]
pub(in crate::serve) struct CompletionRequest {
    pub(in crate::serve) model: Option<String>,
    pub(in crate::serve) prompts: Vec<Prompt>,
    /// Whether the prompt stands before the answer.
    pub(in crate::serve) echo: bool,
    pub(in crate::serve) logprobs: Option<usize>,
    pub(in crate::serve) options: Options,
    pub(in crate::serve) ignored: Vec<String>,
}

impl CompletionRequest {
    pub(in crate::serve) fn read(
        mut fields: Fields,
        info: &ModelInfo,
        seed: u64,
    ) -> Result<CompletionRequest, ApiError> {
        let model = fields.string("model")?;
        let mut options = Options::read(&mut fields, info, seed)?;
        options.max_tokens.get_or_insert(DEFAULT_MAX_TOKENS);
        let prompts = prompts(&mut fields, "prompt")?;
        let echo = fields.boolean("echo")?.unwrap_or(false);
        let logprobs = fields.integer("logprobs", 0..=MAX_LOGPROBS)?;
        if echo && logprobs.is_some() {
            return Err(fields.refuse("echo", "can't be combined with `logprobs`"));
        }
        if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
            return Err(fields.refuse("suffix", "is not supported, answers only go on"));
        }
        if fields.integer("best_of", 1..=u64::MAX)?.is_some_and(|best| best != options.samples) {
            return Err(fields.refuse("best_of", "must be `n`, answers are not ranked"));
        }
        let ignored = fields.unread();
        Ok(CompletionRequest { model, prompts, echo, logprobs, options, ignored })
    }
}

/// A request of embeddings.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::serve) struct EmbeddingRequest {
    pub(in crate::serve) model: Option<String>,
    pub(in crate::serve) inputs: Vec<Prompt>,
    /// Whether vectors are sent as the bytes of f32 in base64, which OpenAI's client asks for by itself.
    pub(in crate::serve) is_base64: bool,
    pub(in crate::serve) ignored: Vec<String>,
}

impl EmbeddingRequest {
    pub(in crate::serve) fn read(mut fields: Fields) -> Result<EmbeddingRequest, ApiError> {
        let model = fields.string("model")?;
        let inputs = prompts(&mut fields, "input")?;
        let is_base64 = match fields.string("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(other) => {
                let why = format!("is {other:?}, it must be float or base64");
                return Err(fields.refuse("encoding_format", why));
            }
        };
        if fields.take("dimensions").is_some() {
            return Err(fields.refuse("dimensions", "is not supported, vectors are the model's"));
        }
        Ok(EmbeddingRequest { model, inputs, is_base64, ignored: fields.unread() })
    }
}

/// A text, texts, tokens, or lists of tokens.
fn prompts(fields: &mut Fields, name: &str) -> Result<Vec<Prompt>, ApiError> {
    let list = match fields.take(name) {
        None => return Err(fields.refuse(name, "is missing")),
        Some(Value::String(text)) => return Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(list)) => list,
        Some(other) => {
            let why = format_args!("is {}, it must be a string or a list", kind(&other));
            return Err(fields.refuse(name, why));
        }
    };
    if list.is_empty() {
        return Err(fields.refuse(name, "is empty"));
    }
    let wrong = |value: &Value| {
        let why = format_args!("holds {}, it must hold texts or tokens", kind(value));
        fields.refuse(name, why)
    };
    if list[0].is_number() {
        return Ok(vec![Prompt::Tokens(tokens(&list).map_err(wrong)?)]);
    }
    if list.len() > MAX_PROMPTS {
        let why = format_args!("has {} entries, at most {MAX_PROMPTS} may be", list.len());
        return Err(fields.refuse(name, why));
    }
    let prompt = |value| match value {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(list) => Ok(Prompt::Tokens(tokens(&list).map_err(wrong)?)),
        other => Err(wrong(&other)),
    };
    list.into_iter().map(prompt).collect()
}

/// The numbers of a list, or what is none.
fn tokens(list: &[Value]) -> Result<Vec<u32>, &Value> {
    let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
    list.iter().map(|value| token(value).ok_or(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CompletionRequest, String> {
        let fields = Fields::of(text.as_bytes()).expect("an object");
        let read = CompletionRequest::read(fields, &ModelInfo::default(), 0);
        read.map_err(|error| error.message().to_owned())
    }

    #[test]
    fn prompts_come_in_four_forms() {
        let prompts = |text: &str| read(text).expect("valid").prompts;
        assert_eq!(prompts(r#"{"prompt": "a"}"#), [Prompt::Text("a".to_owned())]);
        assert_eq!(prompts(r#"{"prompt": ["a"]}"#), [Prompt::Text("a".to_owned())]);
        assert_eq!(prompts(r#"{"prompt": [1, 2]}"#), [Prompt::Tokens(vec![1, 2])]);
        let two = [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2])];
        assert_eq!(prompts(r#"{"prompt": [[1], [2]]}"#), two);
    }

    #[test]
    fn prompts_of_other_kinds_are_refused() {
        assert_eq!(read("{}").expect_err("none"), "`prompt` is missing");
        assert_eq!(read(r#"{"prompt": []}"#).expect_err("empty"), "`prompt` is empty");
        assert_eq!(
            read(r#"{"prompt": [1, -2]}"#).expect_err("negative"),
            "`prompt` holds a number, it must hold texts or tokens"
        );
        assert_eq!(
            read(r#"{"prompt": {"a": 1}}"#).expect_err("an object"),
            "`prompt` is an object, it must be a string or a list"
        );
    }

    #[test]
    fn what_can_not_be_done_is_refused() {
        assert!(read(r#"{"prompt": "a", "suffix": "b"}"#).is_err());
        assert!(read(r#"{"prompt": "a", "best_of": 3}"#).is_err());
        assert!(read(r#"{"prompt": "a", "echo": true, "logprobs": 1}"#).is_err());
        assert_eq!(read(r#"{"prompt": "a"}"#).expect("valid").options.max_tokens, Some(16));
    }
}
