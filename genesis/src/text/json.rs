//! `tojson` as templates of `transformers` know it: Python's `json.dumps`.
//!
//! Tools go into prompts as JSON, and a model has seen them with Python's spaces: `{"name": "f", "n": 1.0}`. So
//! the separators, the escapes, the order of keys and the digits of floats are Python's.
//!
//! | argument | default | |
//! |---|---|---|
//! | `ensure_ascii` | false | true writes `é` as `\u00e9` |
//! | `indent` | none | a number of spaces, or what stands in their place |
//! | `separators` | `(", ", ": ")`, with an indent `(",", ": ")` | |
//! | `sort_keys` | false | |

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::python::{number, pay};

/// Levels of lists and dictionaries; Python's own limit is near 1,000.
const MAX_DEPTH: usize = 200;

/// How JSON is written.
#[derive(Debug)]
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter `tojson`.
pub(super) fn tojson(state: &State, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let style = Style::new(&kwargs)?;
    kwargs.assert_all_used()?;
    let mut writer = Writer { state, style, out: String::new() };
    writer.write(value, 0)?;
    Ok(Value::from(writer.out))
}

impl Style {
    fn new(kwargs: &Kwargs) -> Result<Style, Error> {
        let indent = match kwargs.get::<Option<Value>>("indent")? {
            Some(value) if value.is_integer() => {
                let count = value.as_i64().unwrap_or_default().clamp(0, 1 << 10);
                Some(" ".repeat(usize::try_from(count).unwrap_or_default()))
            }
            Some(value) => match value.as_str() {
                Some(text) => Some(text.to_owned()),
                None if value.is_none() => None,
                None => return Err(invalid("indent is neither a number nor a text")),
            },
            None => None,
        };
        let separators = kwargs.get::<Option<Value>>("separators")?.filter(|v| !v.is_none());
        let (item_separator, key_separator) = match separators {
            Some(pair) => {
                let at = |index| pair.get_item_by_index(index).ok()?.as_str().map(str::to_owned);
                at(0).zip(at(1)).ok_or_else(|| invalid("separators are no two texts"))?
            }
            None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        };
        Ok(Style {
            ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
            indent,
            item_separator,
            key_separator,
            sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        })
    }

    /// A line break and its indent.
    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }
}

/// Text that grows, and what pays for it.
struct Writer<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    style: Style,
    out: String,
}

impl Writer<'_, '_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("the value is nested too deep for JSON"));
        }
        pay(self.state, value)?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&json_number(value)),
            ValueKind::String => {
                quote(value.as_str().unwrap_or_default(), self.style.ensure_ascii, &mut self.out);
            }
            ValueKind::Seq | ValueKind::Iterable => self.array(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            kind => return Err(invalid(&format!("a value that is {kind} has no JSON"))),
        }
        Ok(())
    }

    fn array(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            if !is_empty {
                self.out.push_str(&self.style.item_separator);
            }
            is_empty = false;
            self.style.new_line(depth + 1, &mut self.out);
            self.write(&item, depth + 1)?;
        }
        if !is_empty {
            self.style.new_line(depth, &mut self.out);
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            entries.push((key_text(&key)?, value.get_item(&key)?));
        }
        if self.style.sort_keys {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.out.push('{');
        let is_empty = entries.is_empty();
        for (index, (key, item)) in entries.into_iter().enumerate() {
            if index > 0 {
                self.out.push_str(&self.style.item_separator);
            }
            self.style.new_line(depth + 1, &mut self.out);
            quote(&key, self.style.ensure_ascii, &mut self.out);
            self.out.push_str(&self.style.key_separator);
            self.write(&item, depth + 1)?;
        }
        if !is_empty {
            self.style.new_line(depth, &mut self.out);
        }
        self.out.push('}');
        Ok(())
    }
}

/// Keys are texts in JSON; Python writes those that aren't as it writes values.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => Ok(json_number(key)),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        kind => Err(invalid(&format!("a key that is {kind} has no JSON"))),
    }
}

fn json_number(value: &Value) -> String {
    match &*number(value) {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        finite => finite.to_owned(),
    }
}

/// A text in quotes.
fn quote(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || ensure_ascii && c > '~' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string can't fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.to_owned())
}
