//! Settings that chats and completions share: sampling, ends, streaming, the answer's format.
//!
//! What a request does not say is as the model's `generation_config.json` says, which the backend hands over
//! as [`ModelInfo::sampling`].

use serde_json::Value;

use super::fields::{Fields, kind};
use crate::generate::Sampling;
use crate::serve::backend::{Format, ModelInfo};
use crate::serve::refusal::ApiError;

/// The most answers to one prompt.
const MAX_SAMPLES: u64 = 128;

/// The most bits that a request may lay on single tokens, either way.
const MAX_BIAS: f64 = 100.0;

/// How answers are made and sent.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Options {
    pub(in crate::serve) sampling: Sampling,
    /// Answers to each prompt.
    pub(in crate::serve) samples: usize,
    /// The most tokens of an answer, where the request says.
    pub(in crate::serve) max_tokens: Option<usize>,
    /// Strings that end an answer.
    pub(in crate::serve) stop: Vec<String>,
    /// Whether the answer is sent as it comes.
    pub(in crate::serve) stream: bool,
    /// Whether a stream ends with what it took.
    pub(in crate::serve) include_usage: bool,
    pub(in crate::serve) format: Option<Format>,
}

impl Options {
    /// Reads the settings; `seed` is that of a request that gives none.
    pub(in crate::serve) fn read(
        fields: &mut Fields,
        model: &ModelInfo,
        seed: u64,
    ) -> Result<Options, ApiError> {
        let sampling = sampling(fields, model, seed)?;
        let max_tokens = fields.integer("max_tokens", 1..=u64::MAX)?;
        let newer = fields.integer("max_completion_tokens", 1..=u64::MAX)?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        Ok(Options {
            sampling,
            samples: fields.integer("n", 1..=MAX_SAMPLES)?.unwrap_or(1),
            max_tokens: newer.or(max_tokens),
            stop: stop(fields)?,
            stream,
            include_usage: include_usage(fields)? && stream,
            format: format(fields)?,
        })
    }
}

fn sampling(fields: &mut Fields, model: &ModelInfo, seed: u64) -> Result<Sampling, ApiError> {
    let usual = &model.sampling;
    let most = f32::MAX;
    let top_k = match fields.take("top_k") {
        None => usual.top_k,
        // Both are used for "all tokens".
        Some(Value::Number(n)) if n.as_i64().is_some_and(|n| n == 0 || n == -1) => None,
        Some(Value::Number(n)) => match n.as_u64() {
            Some(n) => usize::try_from(n).ok(),
            None => return Err(fields.refuse("top_k", "must be a whole number from -1")),
        },
        Some(other) => {
            let why = format_args!("is {}, it must be a whole number", kind(&other));
            return Err(fields.refuse("top_k", why));
        }
    };
    let top_p = fields.number("top_p", 0.0..=1.0)?.unwrap_or(usual.top_p);
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0..=100.0)?.unwrap_or(usual.temperature),
        top_k,
        // Nothing but the most likely token is what 0 asks for.
        top_p: top_p.max(f32::MIN_POSITIVE),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(usual.min_p),
        repetition_penalty: fields
            .number("repetition_penalty", f32::MIN_POSITIVE..=most)?
            .unwrap_or(usual.repetition_penalty),
        presence_penalty: fields
            .number("presence_penalty", -most..=most)?
            .unwrap_or(usual.presence_penalty),
        frequency_penalty: fields
            .number("frequency_penalty", -most..=most)?
            .unwrap_or(usual.frequency_penalty),
        logit_bias: logit_bias(fields, model.vocab_size)?,
        seed: self::seed(fields)?.unwrap_or(seed),
    })
}

/// Any whole number; negative ones too, as they are in two's complement.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    let seed = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
    let wrong = || fields.refuse("seed", "must be a whole number of 64 bits");
    seed.ok_or_else(wrong).map(Some)
}

/// Token ids as names, what is added to their logits as values.
fn logit_bias(
    fields: &mut Fields,
    vocab_size: usize,
) -> Result<std::collections::BTreeMap<u32, f32>, ApiError> {
    let given = match fields.take("logit_bias") {
        None => return Ok(Default::default()),
        Some(Value::Object(given)) => given,
        Some(other) => {
            let why = format_args!("is {}, it must be an object", kind(&other));
            return Err(fields.refuse("logit_bias", why));
        }
    };
    let read = |(name, bias): (&String, &Value)| {
        let token = name.parse::<u32>().ok().filter(|&token| (token as usize) < vocab_size);
        let token = token.ok_or_else(|| {
            let why = format_args!("names token {name:?}, the vocabulary has {vocab_size}");
            fields.refuse("logit_bias", why)
        })?;
        let bias = bias.as_f64().filter(|bias| bias.abs() <= MAX_BIAS).ok_or_else(|| {
            let why = format_args!("of token {name} must be a number from -100 to 100");
            fields.refuse("logit_bias", why)
        })?;
        Ok((token, bias as f32))
    };
    given.iter().map(read).collect()
}

/// A string or a list of strings.
fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let strings = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => {
            let text = |value| match value {
                Value::String(text) => Ok(text),
                other => {
                    let why = format_args!("holds {}, it must hold strings", kind(&other));
                    Err(fields.refuse("stop", why))
                }
            };
            list.into_iter().map(text).collect::<Result<_, _>>()?
        }
        Some(other) => {
            let why = format_args!("is {}, it must be a string or a list of strings", kind(&other));
            return Err(fields.refuse("stop", why));
        }
    };
    if strings.iter().any(String::is_empty) {
        return Err(fields.refuse("stop", "holds an empty string"));
    }
    Ok(strings)
}

fn include_usage(fields: &mut Fields) -> Result<bool, ApiError> {
    match fields.object("stream_options")? {
        None => Ok(false),
        Some(mut options) => Ok(options.boolean("include_usage")?.unwrap_or(false)),
    }
}

fn format(fields: &mut Fields) -> Result<Option<Format>, ApiError> {
    let Some(mut format) = fields.object("response_format")? else { return Ok(None) };
    match format.string("type")?.as_deref() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Format::JsonObject)),
        Some("json_schema") => {
            let schema = format.object("json_schema")?.and_then(|mut part| part.take("schema"));
            let missing = || format.refuse("json_schema.schema", "is missing");
            schema.map(|schema| Some(Format::JsonSchema(schema))).ok_or_else(missing)
        }
        Some(other) => {
            let why = format!("is {other:?}, it must be text, json_object or json_schema");
            Err(format.refuse("type", why))
        }
        None => Err(format.refuse("type", "is missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options, String> {
        let mut fields = Fields::of(text.as_bytes()).expect("an object");
        let model = ModelInfo { vocab_size: 10, ..ModelInfo::default() };
        Options::read(&mut fields, &model, 7).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn settings_that_are_not_given_are_the_models() {
        let mut fields = Fields::of(b"{\"top_p\": 0.5}").expect("an object");
        let usual = Sampling { temperature: 0.6, top_k: Some(20), ..Sampling::default() };
        let model = ModelInfo { sampling: usual, ..ModelInfo::default() };
        let options = Options::read(&mut fields, &model, 7).expect("valid");
        let Sampling { temperature, top_k, top_p, seed, .. } = options.sampling;
        assert_eq!((temperature, top_k, top_p, seed), (0.6, Some(20), 0.5, 7));
    }

    #[test]
    fn stop_is_a_string_or_a_list() {
        assert_eq!(read(r#"{"stop": "a"}"#).expect("valid").stop, ["a"]);
        assert_eq!(read(r#"{"stop": ["a", "b"]}"#).expect("valid").stop, ["a", "b"]);
        let error = read(r#"{"stop": ["a", 1]}"#).expect_err("a number");
        assert_eq!(error, "`stop` holds a number, it must hold strings");
    }

    #[test]
    fn the_newer_name_of_max_tokens_wins() {
        let text = r#"{"max_tokens": 4, "max_completion_tokens": 5}"#;
        assert_eq!(read(text).expect("valid").max_tokens, Some(5));
    }

    #[test]
    fn biases_name_tokens_of_the_vocabulary() {
        let options = read(r#"{"logit_bias": {"3": -100}}"#).expect("valid");
        assert_eq!(options.sampling.logit_bias.get(&3), Some(&-100.0));
        let error = read(r#"{"logit_bias": {"10": 1}}"#).expect_err("no token");
        assert_eq!(error, "`logit_bias` names token \"10\", the vocabulary has 10");
        assert!(read(r#"{"logit_bias": {"3": 101}}"#).is_err());
    }

    #[test]
    fn negative_seeds_are_seeds() {
        assert_eq!(read(r#"{"seed": -1}"#).expect("valid").sampling.seed, u64::MAX);
        assert!(read(r#"{"seed": 1.5}"#).is_err());
    }

    #[test]
    fn formats_are_read() {
        let text = r#"{"response_format": {"type": "json_schema", "json_schema":
            {"name": "x", "schema": {"type": "object"}}}}"#;
        let schema = serde_json::json!({"type": "object"});
        assert_eq!(read(text).expect("valid").format, Some(Format::JsonSchema(schema)));
        let error = read(r#"{"response_format": {"type": "xml"}}"#).expect_err("unknown");
        assert!(error.starts_with("`response_format.type` is \"xml\""), "{error}");
    }
}
