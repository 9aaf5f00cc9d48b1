//! Training data as files hold it: texts, and lines of JSON.
//!
//! | file | what it holds |
//! |---|---|
//! | `.jsonl` | `{"messages": [..]}`, a conversation, with `"tools"` where it has some |
//! | | `{"prompt": "..", "completion": ".."}` |
//! | | `{"text": ".."}` |
//! | any other | a text; Debian's `bible.data` is unpacked |
//!
//! A line that is none of these is an error with file, line and field: data that is skipped in silence is data that
//! somebody believes was trained on.

use std::path::Path;

use serde_json::{Map, Value};

use crate::data::bible_text;
use crate::error::{Error, Result};
use crate::files::read_regular_text;

/// Something to learn from.
#[derive(Clone, PartialEq, Debug)]
pub enum Document {
    /// What people and the model said, as a chat template takes it.
    Conversation {
        /// Objects with `role` and `content`.
        messages: Vec<Value>,
        /// Tools that could be called, as JSON schemas.
        tools: Vec<Value>,
    },
    /// A text, and what follows on it.
    Completion {
        /// What is given.
        prompt: String,
        /// What is to be learned.
        completion: String,
    },
    /// A text, all of which is to be learned.
    Text(String),
}

/// The kinds of lines, for errors.
const KINDS: &str = "messages, prompt and completion, or text";

/// The documents of files, in order.
///
/// # Errors
/// If a file can't be read, is not UTF-8, or a line is no document; with the file, the line and the field.
pub fn read_documents<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let before = documents.len();
        refuse_parquet(path)?;
        if path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json") {
            documents.extend(lines(path, Document::parse)?);
        } else {
            let text = String::from_utf8(bible_text(Some(path))?);
            let text = text
                .map_err(|_| Error::io(format!("can't read {}: is not UTF-8", path.display())))?;
            documents.extend((!text.trim().is_empty()).then_some(Document::Text(text)));
        }
        if documents.len() == before {
            return Err(Error::io(format!("{}: holds nothing to train on", path.display())));
        }
    }
    Ok(documents)
}

/// Refuses a file whose bytes would be taken for a text that is none.
pub(super) fn refuse_parquet(path: &Path) -> Result<()> {
    match path.extension().is_some_and(|extension| extension == "parquet") {
        true => {
            let what = "Parquet is not read; write its rows as lines of JSON (.jsonl)";
            Err(Error::io(format!("{}: {what}", path.display())))
        }
        false => Ok(()),
    }
}

/// What a file has on each of its lines; empty ones are left out. Errors of `parse` are about a line.
pub(super) fn lines<T>(path: &Path, parse: fn(&str) -> Result<T, String>) -> Result<Vec<T>> {
    let text = read_regular_text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = |(index, line)| {
        parse(line).map_err(|why| Error::io(format!("{}:{}: {why}", path.display(), index + 1)))
    };
    lines.map(parsed).collect()
}

/// The fields of a line; `kinds` are those that it may have.
pub(super) fn fields(line: &str, kinds: &str) -> Result<Map<String, Value>, String> {
    let value: Value =
        serde_json::from_str(line).map_err(|error| format!("is no JSON: {error}"))?;
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(format!("is no object with {kinds}")),
    }
}

impl Document {
    /// Reads a line of JSON.
    fn parse(line: &str) -> Result<Document, String> {
        let fields = fields(line, KINDS)?;
        if fields.contains_key("messages") {
            return Document::conversation(&fields);
        }
        if fields.contains_key("prompt") || fields.contains_key("completion") {
            let (prompt, completion) = (text(&fields, "prompt")?, text(&fields, "completion")?);
            if completion.is_empty() {
                return Err("`completion` is empty".to_owned());
            }
            return Ok(Document::Completion { prompt, completion });
        }
        match fields.contains_key("text") {
            true => Ok(Document::Text(text(&fields, "text")?)),
            false => {
                let names: Vec<&str> = fields.keys().take(8).map(String::as_str).collect();
                Err(format!("has neither {KINDS}, but {}", names.join(", ")))
            }
        }
    }

    fn conversation(fields: &Map<String, Value>) -> Result<Document, String> {
        let messages = messages(fields, "messages")?;
        Ok(Document::Conversation { messages, tools: tools(fields)? })
    }
}

/// A list of messages, of which there is one at least.
pub(super) fn messages(fields: &Map<String, Value>, name: &str) -> Result<Vec<Value>, String> {
    let Some(Value::Array(messages)) = fields.get(name) else {
        return Err(format!("`{name}` is no list"));
    };
    if messages.is_empty() {
        return Err(format!("`{name}` is empty"));
    }
    for (index, message) in messages.iter().enumerate() {
        let Value::Object(message) = message else {
            return Err(format!("`{name}[{index}]` is no object"));
        };
        if !message.get("role").is_some_and(Value::is_string) {
            return Err(format!("`{name}[{index}].role` is missing or no text"));
        }
        let is_content = |value: &Value| value.is_string() || value.is_array();
        let has_calls = message.get("tool_calls").is_some_and(Value::is_array);
        if !message.get("content").is_some_and(is_content) && !has_calls {
            return Err(format!("`{name}[{index}].content` is missing or no text"));
        }
    }
    Ok(messages.clone())
}

/// The tools of a conversation, where it has some.
pub(super) fn tools(fields: &Map<String, Value>) -> Result<Vec<Value>, String> {
    match fields.get("tools") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(tools)) => Ok(tools.clone()),
        Some(_) => Err("`tools` is no list".to_owned()),
    }
}

pub(super) fn text(fields: &Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("`{name}` is no text")),
        None => Err(format!("`{name}` is missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        Document::parse(line).unwrap_err()
    }

    #[test]
    fn lines_are_what_their_fields_say() {
        let text = Document::parse(r#"{"text": "a", "id": 7}"#);
        assert_eq!(text, Ok(Document::Text("a".to_owned())));
        let chat = r#"{"messages": [{"role": "user", "content": "a"}], "tools": null}"#;
        assert!(matches!(Document::parse(chat), Ok(Document::Conversation { .. })));
        let call = r#"{"messages": [{"role": "assistant", "content": null, "tool_calls": []}]}"#;
        assert!(Document::parse(call).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(refused("{").starts_with("is no JSON: "));
        assert_eq!(refused("[]"), "is no object with messages, prompt and completion, or text");
        let other = "has neither messages, prompt and completion, or text, but question";
        assert_eq!(refused(r#"{"question": "a"}"#), other);
        assert_eq!(refused(r#"{"messages": 7}"#), "`messages` is no list");
        assert_eq!(refused(r#"{"messages": []}"#), "`messages` is empty");
        assert_eq!(refused(r#"{"messages": [7]}"#), "`messages[0]` is no object");
        let role = "`messages[0].role` is missing or no text";
        assert_eq!(refused(r#"{"messages": [{"content": "a"}]}"#), role);
        let content = "`messages[0].content` is missing or no text";
        assert_eq!(refused(r#"{"messages": [{"role": "user"}]}"#), content);
        assert_eq!(refused(r#"{"prompt": "a"}"#), "`completion` is missing");
        assert_eq!(refused(r#"{"prompt": 1, "completion": "b"}"#), "`prompt` is no text");
        assert_eq!(refused(r#"{"prompt": "", "completion": ""}"#), "`completion` is empty");
        assert_eq!(refused(r#"{"text": null}"#), "`text` is no text");
    }
}
