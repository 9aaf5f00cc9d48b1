//! Files of prompts.

use std::io::Read;
use std::path::Path;

use genesis::serve::Backend;
use genesis::text::Conversation;
use serde_json::{Value, json};

use crate::cli::Failure;

/// A prompt of a file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Prompt {
    pub(super) source: Source,
    /// What the file calls it.
    pub(super) id: Option<Value>,
    /// The most tokens of its answer, where the file says.
    pub(super) max_tokens: Option<usize>,
}

/// What is answered.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Source {
    Text(String),
    Messages(Vec<Value>),
}

impl Prompt {
    /// The tokens that the model reads.
    pub(super) fn tokens(
        &self,
        backend: &dyn Backend,
        is_chat: bool,
        system: Option<&str>,
    ) -> Result<Vec<u32>, Failure> {
        let messages = match &self.source {
            Source::Text(text) if !is_chat => return Ok(backend.encode(text, true)?),
            Source::Text(text) => vec![json!({"role": "user", "content": text})],
            Source::Messages(messages) => messages.clone(),
        };
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let conversation = Conversation {
            messages: system.into_iter().chain(messages).collect(),
            add_generation_prompt: true,
            ..Conversation::default()
        };
        Ok(backend.encode(&backend.render(&conversation)?, false)?)
    }
}

/// Reads a file of prompts; `-` is stdin.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, Failure> {
    let name = path.display();
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Failure::Message(format!("can't read {name}: {error}")))?;
    let is_json = path.extension().is_some_and(|extension| extension == "jsonl");
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts: Vec<Prompt> = lines
        .map(|(number, line)| match is_json {
            false => Ok(plain(line)),
            true => parse(line)
                .map_err(|why| Failure::Message(format!("{name}, line {}: {why}", number + 1))),
        })
        .collect::<Result<_, _>>()?;
    if prompts.is_empty() {
        return Err(Failure::Message(format!("{name} has no prompts")));
    }
    Ok(prompts)
}

fn plain(text: &str) -> Prompt {
    Prompt { source: Source::Text(text.to_owned()), id: None, max_tokens: None }
}

/// A line of JSON.
fn parse(line: &str) -> Result<Prompt, String> {
    let mut object = match serde_json::from_str(line).map_err(|error| error.to_string())? {
        Value::String(text) => return Ok(plain(&text)),
        Value::Object(object) => object,
        _ => return Err("a prompt is a string or an object".to_owned()),
    };
    let source = match (object.remove("prompt"), object.remove("messages")) {
        (Some(Value::String(text)), None) => Source::Text(text),
        (None, Some(Value::Array(messages))) => Source::Messages(messages),
        (Some(_), Some(_)) => return Err("has both a prompt and messages".to_owned()),
        (None, None) => return Err("has neither a prompt nor messages".to_owned()),
        (Some(_), None) => return Err("its prompt is no string".to_owned()),
        (None, Some(_)) => return Err("its messages are no list".to_owned()),
    };
    let max_tokens = match object.remove("max_tokens") {
        None | Some(Value::Null) => None,
        Some(value) => match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n > 0 => Some(n),
            _ => return Err("its max_tokens is no whole number from 1".to_owned()),
        },
    };
    Ok(Prompt { source, id: object.remove("id"), max_tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_text_or_a_conversation() {
        assert_eq!(parse("\"a\"").expect("valid"), plain("a"));
        let prompt = parse(r#"{"prompt": "a", "id": "x", "max_tokens": 3}"#).expect("valid");
        assert_eq!((prompt.id, prompt.max_tokens), (Some(json!("x")), Some(3)));
        let prompt = parse(r#"{"messages": [{"role": "user"}]}"#).expect("valid");
        assert_eq!(prompt.source, Source::Messages(vec![json!({"role": "user"})]));
    }

    #[test]
    fn faults_of_a_line_are_named() {
        let fault = |line: &str| parse(line).expect_err("refused");
        assert_eq!(fault("3"), "a prompt is a string or an object");
        assert_eq!(fault("{}"), "has neither a prompt nor messages");
        assert_eq!(fault(r#"{"prompt": 3}"#), "its prompt is no string");
        assert_eq!(
            fault(r#"{"prompt": "a", "max_tokens": 0}"#),
            "its max_tokens is no whole number from 1"
        );
    }

    #[test]
    fn a_fault_of_a_file_names_the_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("prompts.jsonl");
        std::fs::write(&file, "\"a\"\n\n{}\n").expect("writable");
        let Err(Failure::Message(why)) = read(&file) else { panic!("it is refused") };
        assert!(why.ends_with("prompts.jsonl, line 3: has neither a prompt nor messages"), "{why}");
        std::fs::write(&file, "\n").expect("writable");
        assert!(read(&file).is_err());
    }
}
