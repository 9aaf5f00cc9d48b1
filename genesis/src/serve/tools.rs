//! Finds the calls of tools in the text of an answer, while it comes.
//!
//! Two forms are read. Qwen and Hermes put JSON between tags, with text before it if they like; Llama 3's
//! whole answer is JSON, and several calls have semicolons between:
//!
//! ```text
//! <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>
//! {"name": "weather", "parameters": {"city": "Paris"}}
//! ```
//!
//! Text that may become a call is held back: what ends like the beginning of a tag, and an answer that
//! begins with a brace. What turns out to be no call is text, unchanged.

use serde_json::{Map, Value};

use super::protocol::answers::Function;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// What Llama 3 may put before its JSON, where special tokens are shown.
const PYTHON_TAG: &str = "<|python_tag|>";

/// The most white space that is held back because a call may follow.
const MAX_SPACE: usize = 256;

/// A piece of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Text(String),
    Call(Function),
}

/// Reads an answer piece by piece.
#[derive(Debug)]
pub(super) struct ToolReader {
    /// Names that may be called; none for an answer that is text.
    names: Vec<String>,
    /// Text that was not given out yet.
    held: String,
    /// How much of `held` is known not to hold the tag that is looked for.
    searched: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing but white space came.
    Start,
    Text,
    /// Behind an opening tag.
    Call,
    /// Behind a call: white space between calls is no text.
    Between,
    /// The answer began with a brace.
    Json,
}

impl ToolReader {
    /// A reader of an answer that may call these functions.
    pub(super) fn new(names: Vec<String>) -> ToolReader {
        ToolReader { names, held: String::new(), searched: 0, state: State::Start }
    }

    /// Takes text, and gives what is certain by now.
    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if self.names.is_empty() {
            add_text(&mut pieces, text);
            return pieces;
        }
        self.held.push_str(text);
        while self.step(&mut pieces) {}
        pieces
    }

    /// What is left behind the last text.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Json => match self.bare_calls(&held) {
                Some(calls) => pieces.extend(calls.into_iter().map(Piece::Call)),
                None => add_text(&mut pieces, &held),
            },
            // Some models end the answer instead of the call.
            State::Call => match call(held.trim()) {
                Some(call) => pieces.push(Piece::Call(call)),
                None => add_text(&mut pieces, &format!("{OPEN}{held}")),
            },
            State::Between if held.trim().is_empty() => {}
            State::Start | State::Text | State::Between => add_text(&mut pieces, &held),
        }
        pieces
    }

    /// Takes one step; false where more text is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.state {
            State::Start | State::Between => self.begin(),
            State::Text => self.read_text(pieces),
            State::Call => self.read_call(pieces),
            State::Json => false,
        }
    }

    fn begin(&mut self) -> bool {
        let begun = self.held.trim_start();
        if begun.is_empty() || (begun.len() < PYTHON_TAG.len() && PYTHON_TAG.starts_with(begun)) {
            return self.held.len() > MAX_SPACE && self.become_state(State::Text);
        }
        let is_json = begun.starts_with('{') || begun.starts_with(PYTHON_TAG);
        match self.state {
            State::Start if is_json => self.become_state(State::Json),
            _ => self.become_state(State::Text),
        }
    }

    fn become_state(&mut self, state: State) -> bool {
        (self.state, self.searched) = (state, 0);
        true
    }

    fn read_text(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if let Some(at) = self.held.find(OPEN) {
            add_text(pieces, self.held[..at].trim_end());
            self.held.drain(..at + OPEN.len());
            return self.become_state(State::Call);
        }
        let tag = self.held.len() - overlap(&self.held, OPEN);
        let certain = self.held[..tag].trim_end().len();
        let certain = if tag - certain > MAX_SPACE { tag } else { certain };
        add_text(pieces, &self.held[..certain]);
        self.held.drain(..certain);
        false
    }

    fn read_call(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Some(at) = self.held[self.searched..].find(CLOSE) else {
            let searched = self.held.len().saturating_sub(CLOSE.len());
            self.searched = self.held.floor_char_boundary(searched);
            return false;
        };
        let end = self.searched + at;
        match call(self.held[..end].trim()) {
            Some(call) => pieces.push(Piece::Call(call)),
            None => add_text(pieces, &format!("{OPEN}{}{CLOSE}", &self.held[..end])),
        }
        self.held.drain(..end + CLOSE.len());
        self.become_state(State::Between)
    }

    /// The calls of an answer that is JSON and nothing else, if it names functions that there are.
    fn bare_calls(&self, text: &str) -> Option<Vec<Function>> {
        let text = text.trim_start();
        let text = text.strip_prefix(PYTHON_TAG).unwrap_or(text).trim();
        let (mut calls, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            let function = function(values.next()?.ok()?)?;
            if !self.names.contains(&function.name) {
                return None;
            }
            calls.push(function);
            let behind = rest[values.byte_offset()..].trim_start();
            rest = behind.strip_prefix(';').unwrap_or(behind).trim_start();
        }
        Some(calls)
    }
}

/// Joins text to the text before it.
fn add_text(pieces: &mut Vec<Piece>, text: &str) {
    if text.is_empty() {
        return;
    }
    match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ => pieces.push(Piece::Text(text.to_owned())),
    }
}

/// How many bytes at the end of a text may be the beginning of a tag.
fn overlap(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|&n| text.ends_with(&tag[..n])).unwrap_or(0)
}

fn call(text: &str) -> Option<Function> {
    function(serde_json::from_str(text).ok()?)
}

/// A call as models write it.
fn function(value: Value) -> Option<Function> {
    let Value::Object(mut object) = value else { return None };
    let Value::String(name) = object.remove("name")? else { return None };
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"));
    let arguments = match arguments.unwrap_or_else(|| Value::Object(Map::new())) {
        Value::String(text) => text,
        object @ Value::Object(_) => object.to_string(),
        _ => return None,
    };
    Some(Function { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a text that comes in pieces of so many characters.
    fn read(text: &str, step: usize) -> Vec<Piece> {
        let mut reader = ToolReader::new(vec!["f".to_owned(), "g".to_owned()]);
        let characters: Vec<char> = text.chars().collect();
        let mut pieces = Vec::new();
        let mut add = |more: Vec<Piece>| {
            for piece in more {
                match piece {
                    Piece::Text(text) => add_text(&mut pieces, &text),
                    call => pieces.push(call),
                }
            }
        };
        for chunk in characters.chunks(step) {
            add(reader.push(&chunk.iter().collect::<String>()));
        }
        add(reader.finish());
        pieces
    }

    fn check(text: &str, expected: &[Piece]) {
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(read(text, step), expected, "{text:?} in pieces of {step}");
        }
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    fn call(name: &str, arguments: &str) -> Piece {
        Piece::Call(Function { name: name.to_owned(), arguments: arguments.to_owned() })
    }

    #[test]
    fn calls_stand_between_tags() {
        check(
            "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"é\": 1}}\n</tool_call>",
            &[text("I look."), call("f", "{\"é\":1}")],
        );
        check(
            "<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\", \
             \"arguments\": {}}</tool_call>",
            &[call("f", "{}"), call("g", "{}")],
        );
    }

    #[test]
    fn an_answer_may_be_a_call() {
        check(r#"{"name": "f", "parameters": {"a": "b"}}"#, &[call("f", r#"{"a":"b"}"#)]);
        check(
            r#"<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}"#,
            &[call("f", "{}"), call("g", "{}")],
        );
    }

    #[test]
    fn what_is_no_call_stays_as_it_is() {
        for plain in [
            "a < b, <tool and </tool_call> ",
            "<tool_call>not JSON</tool_call>",
            "<tool_call>{\"name\": 3}</tool_call> and so on",
            r#"{"name": "unknown", "parameters": {}}"#,
            r#"{"answer": 42}"#,
            "  {\"name\": \"f\"} or not",
            "<|python",
            " \n ",
        ] {
            check(plain, &[text(plain)]);
        }
    }

    #[test]
    fn a_call_that_the_answer_ends_is_one() {
        check("<tool_call>{\"name\": \"f\"}", &[call("f", "{}")]);
        check("<tool_call>{\"name\": \"f\"", &[text("<tool_call>{\"name\": \"f\"")]);
    }

    #[test]
    fn without_tools_nothing_is_held_back() {
        let mut reader = ToolReader::new(Vec::new());
        assert_eq!(reader.push("<tool_call>"), [text("<tool_call>")]);
        assert_eq!(reader.push("{"), [text("{")]);
    }
}
