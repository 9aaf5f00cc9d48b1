//! Checks of a `tokenizer.json` before the library reads it.
//!
//! The library trusts the file: a merge whose result is in no vocabulary ends the process, a decoder that is cut
//! off in the middle too, and decoders inside of decoders are tried in ways that double with each level. Files
//! come from strangers, so what it takes for granted is looked at here, in one pass over the file.

use serde_json::Value;

use crate::error::{Error, Result};

/// Levels of arrays and objects; published tokenizers have seven.
const MAX_DEPTH: usize = 16;

/// The JSON of a tokenizer that the library can be given.
pub(super) fn checked(bytes: &[u8]) -> Result<Value> {
    let depth = depth(bytes);
    if depth > MAX_DEPTH {
        let why = format!("is no tokenizer: nested {depth} levels deep, the most is {MAX_DEPTH}");
        return Err(Error::io(why));
    }
    let mut json: Value =
        serde_json::from_slice(bytes).map_err(|error| Error::io(format!("is no JSON: {error}")))?;
    let Some(object) = json.as_object_mut() else {
        return Err(Error::io("is no tokenizer: not a JSON object"));
    };
    // Both are of the file's last training run; a prompt is neither cut nor padded.
    object.insert("truncation".to_owned(), Value::Null);
    object.insert("padding".to_owned(), Value::Null);
    check(&json).map_err(|why| Error::io(format!("is no tokenizer: {why}")))?;
    // Merges that are left out by chance are for training.
    if let Some(model) = json["model"].as_object_mut().filter(|model| model.contains_key("dropout"))
    {
        model.insert("dropout".to_owned(), Value::Null);
    }
    Ok(json)
}

/// How deep arrays and objects are nested, at most one level more than is looked for.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut is_text = false;
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'"' => is_text = !is_text,
            b'\\' if is_text => drop(rest.next()),
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn check(json: &Value) -> Result<(), String> {
    let model = &json["model"];
    if !model.is_object() {
        return Err("there is no model".to_owned());
    }
    merges(model)?;
    unigram(model)?;
    let decoder = &json["decoder"];
    let steps =
        decoder["decoders"].as_array().map_or_else(|| vec![decoder], |s| s.iter().collect());
    for step in steps {
        // The library counts from the end of texts that may be empty.
        if step["type"] == "Strip" && step["stop"].as_u64() != Some(0) {
            return Err("decoder Strip takes characters off the end, which is not supported".into());
        }
    }
    each(&json["post_processor"], "processors", &mut post_processor)?;
    each(&json["normalizer"], "normalizers", &mut |step| {
        // Its table is walked without checks.
        let is_table = step["type"] == "Precompiled" || step.get("precompiled_charsmap").is_some();
        match is_table {
            true => Err("normalizer Precompiled is not supported".to_owned()),
            false => Ok(()),
        }
    })
}

/// Calls `visit` for a step and all steps inside of it.
fn each(
    step: &Value,
    key: &str,
    visit: &mut impl FnMut(&Value) -> Result<(), String>,
) -> Result<(), String> {
    visit(step)?;
    step[key].as_array().into_iter().flatten().try_for_each(|inner| each(inner, key, visit))
}

/// A template of one text names that text, and tokens that are listed.
fn post_processor(step: &Value) -> Result<(), String> {
    for piece in step["single"].as_array().into_iter().flatten() {
        let text = &piece["Sequence"]["id"];
        if !text.is_null() && text != "A" {
            return Err(format!("the post-processor's template of one text has a text {text}"));
        }
        let token = &piece["SpecialToken"]["id"];
        if let Some(name) = token.as_str()
            && step["special_tokens"].get(name).is_none()
        {
            return Err(format!("the post-processor has no special token {name:?}"));
        }
    }
    Ok(())
}

/// Every merge makes a token of the vocabulary.
fn merges(model: &Value) -> Result<(), String> {
    let (Some(merges), Some(vocab)) = (model["merges"].as_array(), model["vocab"].as_object())
    else {
        return Ok(());
    };
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    let mut joined = String::new();
    for (index, merge) in merges.iter().enumerate() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [left, right] => left.as_str().zip(right.as_str()),
                _ => None,
            },
            _ => None,
        };
        let Some((left, right)) = pair else {
            return Err(format!("merge {index} is no pair of tokens"));
        };
        joined.clear();
        joined.push_str(left);
        let Some(right) = right.strip_prefix(prefix) else {
            return Err(format!("merge {index} has a second token without {prefix:?}"));
        };
        joined.push_str(right);
        if !vocab.contains_key(&joined) {
            return Err(format!("merge {index} makes {joined:?}, which is not in the vocabulary"));
        }
    }
    Ok(())
}

/// Pieces of a Unigram model are not empty, and one of them is unknown.
fn unigram(model: &Value) -> Result<(), String> {
    let Some(pieces) = model["vocab"].as_array() else { return Ok(()) };
    if pieces.iter().any(|piece| piece[0].as_str().is_some_and(str::is_empty)) {
        return Err("a piece of the vocabulary is empty".to_owned());
    }
    let finite = |piece: &Value| piece[1].as_f64().is_some_and(f64::is_finite);
    match pieces.iter().position(|piece| !finite(piece)) {
        Some(index) => Err(format!("piece {index} of the vocabulary has no score")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Tokenizer;

    fn refused(json: &str) -> String {
        Tokenizer::from_bytes(json.as_bytes())
            .map_or_else(|e| e.to_string(), |_| "taken".to_owned())
    }

    fn model(vocab: &str, merges: &str) -> String {
        format!(r#"{{"model": {{"type": "BPE", "vocab": {vocab}, "merges": {merges}}}}}"#)
    }

    #[test]
    fn a_small_vocabulary_is_taken() {
        let json = model(r#"{"a": 0, "b": 1, "ab": 2}"#, r#"[["a", "b"]]"#);
        let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
        assert_eq!(tokenizer.encode("aab", false).unwrap(), [0, 2]);
    }

    #[test]
    fn merges_that_make_no_token_are_named() {
        let why = refused(&model(r#"{"a": 0, "b": 1}"#, r#"["a b"]"#));
        assert_eq!(why, r#"is no tokenizer: merge 0 makes "ab", which is not in the vocabulary"#);
        let why = refused(&model(r#"{"a": 0}"#, r#"["a"]"#));
        assert_eq!(why, "is no tokenizer: merge 0 is no pair of tokens");
    }

    #[test]
    fn nesting_is_bounded_before_anything_is_read() {
        let deep = "[".repeat(1 << 20);
        assert!(refused(&deep).contains("nested 1048576 levels deep"));
        // Brackets in text are no levels.
        assert!(refused(&format!("\"{deep}\\\"[\"")).contains("not a JSON object"));
    }

    #[test]
    fn a_decoder_that_is_cut_off_is_an_error() {
        let whole =
            r#"{"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {}, "merges": []}}"#;
        assert_eq!(refused(whole), "taken");
        for len in 0..whole.len() {
            assert!(refused(&whole[..len]).starts_with("is no JSON"), "{len}");
        }
    }

    #[test]
    fn templates_of_post_processors_are_checked() {
        let with = |single: &str| {
            refused(&format!(
                r#"{{"post_processor": {{"type": "TemplateProcessing", "single": [{single}], "pair": [],
                "special_tokens": {{}}}}, "model": {{"type": "BPE", "vocab": {{}}, "merges": []}}}}"#
            ))
        };
        let why = with(r#"{"SpecialToken": {"id": "<s>", "type_id": 0}}"#);
        assert_eq!(why, "is no tokenizer: the post-processor has no special token \"<s>\"");
        assert!(with(r#"{"Sequence": {"id": "B", "type_id": 0}}"#).ends_with("a text \"B\""));
        assert_eq!(with(r#"{"Sequence": {"id": "A", "type_id": 0}}"#), "taken");
    }

    #[test]
    fn prompts_are_neither_cut_nor_padded() {
        let json = r#"{"truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0,
            "direction": "Right"}, "padding": {"strategy": {"Fixed": 4294967295}, "direction": "Right",
            "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"},
            "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
        let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
        assert_eq!(tokenizer.encode("aaa", true).unwrap(), [0, 0, 0]);
    }
}
