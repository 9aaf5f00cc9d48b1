//! Pairs of answers as files hold them: lines of JSON with a prompt, the better answer and the other.
//!
//! | line | what it holds |
//! |---|---|
//! | `{"prompt": "..", "chosen": "..", "rejected": ".."}` | texts that go on with a text |
//! | `{"prompt": [..], "chosen": [..], "rejected": [..]}` | messages that go on with a conversation |
//! | `{"chosen": [..], "rejected": [..]}` | whole conversations; the prompt is what both begin with |
//!
//! A conversation may have `"tools"`. A `"prompt"` that is a text beside conversations is what their first messages say
//! already, as in published data.

use std::path::Path;

use serde_json::{Map, Value};

use super::document::{Document, fields, lines, messages, refuse_parquet, text, tools};
use crate::error::{Error, Result};

/// Two answers to one prompt, the first of which is the better.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// The prompt with the better answer.
    pub chosen: Document,
    /// The prompt with the other.
    pub rejected: Document,
    /// How many messages of conversations are the prompt.
    pub given: usize,
}

/// The fields of a line, for errors.
const FIELDS: &str = "prompt, chosen and rejected";

/// The pairs of files, in order.
///
/// # Errors
/// If a file can't be read, is not UTF-8, or a line is no pair; with the file, the line and the field.
pub fn read_pairs<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for path in paths {
        let path = path.as_ref();
        refuse_parquet(path)?;
        let found = lines(path, Pair::parse)?;
        if found.is_empty() {
            return Err(Error::io(format!("{}: holds nothing to train on", path.display())));
        }
        pairs.extend(found);
    }
    Ok(pairs)
}

impl Pair {
    /// Reads a line of JSON.
    fn parse(line: &str) -> Result<Pair, String> {
        let fields = fields(line, FIELDS)?;
        match fields.get("chosen") {
            None => {
                let names: Vec<&str> = fields.keys().take(8).map(String::as_str).collect();
                Err(format!("has no {FIELDS}, but {}", names.join(", ")))
            }
            Some(Value::Array(_)) => Pair::of_messages(&fields),
            Some(_) => Pair::of_texts(&fields),
        }
    }

    fn of_texts(fields: &Map<String, Value>) -> Result<Pair, String> {
        let prompt = text(fields, "prompt")?;
        let answer = |name| match text(fields, name)? {
            completion if completion.is_empty() => Err(format!("`{name}` is empty")),
            completion => Ok(Document::Completion { prompt: prompt.clone(), completion }),
        };
        Ok(Pair { chosen: answer("chosen")?, rejected: answer("rejected")?, given: 0 })
    }

    fn of_messages(fields: &Map<String, Value>) -> Result<Pair, String> {
        let (chosen, rejected) = (messages(fields, "chosen")?, messages(fields, "rejected")?);
        let tools = tools(fields)?;
        let prompt = match fields.get("prompt") {
            Some(Value::Array(_)) => messages(fields, "prompt")?,
            None | Some(Value::Null | Value::String(_)) => Vec::new(),
            Some(_) => return Err("`prompt` is neither a text nor a list".to_owned()),
        };
        let given = match prompt.len() {
            0 => {
                let alike = chosen.iter().zip(&rejected).take_while(|(a, b)| a == b).count();
                alike.min(chosen.len() - 1).min(rejected.len() - 1)
            }
            given => given,
        };
        let whole = |answer: Vec<Value>| Document::Conversation {
            messages: [prompt.clone(), answer].concat(),
            tools: tools.clone(),
        };
        Ok(Pair { chosen: whole(chosen), rejected: whole(rejected), given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = r#"{"role": "user", "content": "a"}"#;

    fn assistant(text: &str) -> String {
        format!(r#"{{"role": "assistant", "content": "{text}"}}"#)
    }

    fn refused(line: &str) -> String {
        Pair::parse(line).unwrap_err()
    }

    #[test]
    fn a_prompt_is_given_or_what_both_begin_with() {
        let (b, c) = (assistant("b"), assistant("c"));
        let apart = format!(r#"{{"prompt": [{USER}], "chosen": [{b}], "rejected": [{c}]}}"#);
        let whole =
            format!(r#"{{"prompt": "a", "chosen": [{USER}, {b}], "rejected": [{USER}, {c}]}}"#);
        let pair = Pair::parse(&apart).unwrap();
        assert_eq!(pair.given, 1);
        assert_eq!(Pair::parse(&whole).unwrap(), pair);
        // An answer stays where there is nothing else.
        let same = format!(r#"{{"chosen": [{USER}, {b}], "rejected": [{USER}, {b}]}}"#);
        assert_eq!(Pair::parse(&same).unwrap().given, 1);
        let texts = Pair::parse(r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#).unwrap();
        let document = |b: &str| Document::Completion { prompt: "a".into(), completion: b.into() };
        assert_eq!((texts.chosen, texts.rejected), (document("b"), document("c")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(refused("[]"), "is no object with prompt, chosen and rejected");
        let why = "has no prompt, chosen and rejected, but messages";
        assert_eq!(refused(r#"{"messages": []}"#), why);
        assert_eq!(refused(r#"{"chosen": "b", "rejected": "c"}"#), "`prompt` is missing");
        assert_eq!(refused(r#"{"prompt": "a", "chosen": "b"}"#), "`rejected` is missing");
        let why = "`chosen` is empty";
        assert_eq!(refused(r#"{"prompt": "a", "chosen": "", "rejected": "c"}"#), why);
        assert_eq!(refused(r#"{"prompt": "a", "chosen": [], "rejected": []}"#), why);
        let mixed = format!(r#"{{"chosen": [{USER}], "rejected": "c"}}"#);
        assert_eq!(refused(&mixed), "`rejected` is no list");
        let why = "`prompt` is neither a text nor a list";
        assert_eq!(
            refused(&format!(r#"{{"prompt": 1, "chosen": [{USER}], "rejected": [{USER}]}}"#)),
            why
        );
    }
}
