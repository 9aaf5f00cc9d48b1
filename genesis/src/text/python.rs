//! What a template expects of Python: how values print, and methods of strings.
//!
//! Templates are written for Jinja2, where `{{ true }}` prints `True` and `"x\x1c".strip()` is `"x"`. Most of
//! Python's methods are in `minijinja-contrib`; here is what differs from it.
//!
//! ```text
//! {{ none }} {{ 1e16 }} {{ ["a", true] }}      None 1e+16 ['a', True]
//! ```

use minijinja::value::{Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat;

/// Levels of lists and dictionaries; Python's own limit is near 1,000.
const MAX_DEPTH: usize = 200;

/// Writes what `{{ value }}` prints.
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let text = match value.as_str() {
        Some(text) => return Ok(out.write_str(text)?),
        None => str(state, value)?,
    };
    Ok(out.write_str(&text)?)
}

/// The filter `string`.
pub(super) fn string(state: &State, value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.clone()),
        _ => Ok(Value::from(str(state, value)?)),
    }
}

/// The filter `trim`.
pub(super) fn trim(state: &State, value: &Value, chars: Option<&str>) -> Result<Value, Error> {
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => str(state, value)?,
    };
    Ok(Value::from(text.trim_matches(stripped(chars))))
}

/// The filter `indent`, which keeps the newline at the end.
pub(super) fn indent(
    state: &State,
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let width = width.or(named.get("width")?);
    let first = first.or(named.get("first")?);
    let blank: Option<bool> = named.get("blank")?;
    named.assert_all_used()?;
    let indent = match width {
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(width.as_usize().unwrap_or_default().min(1 << 10)),
        },
        None => "    ".to_owned(),
    };
    let ended = format!("{text}\n");
    let mut out = String::new();
    for (index, line) in lines(&ended, false).into_iter().enumerate() {
        out.push_str(if index > 0 { "\n" } else { "" });
        let is_indented = match index {
            0 => first.unwrap_or(false),
            _ => blank.unwrap_or(false) || !line.is_empty(),
        };
        if is_indented {
            state.consume_fuel(1 + indent.len() as u64 / 64)?;
            out.push_str(&indent);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// The test `iterable`: nothing is none.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// The test `sequence`: what has a length and entries, texts and dictionaries too.
pub(super) fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Map, Seq, String, Undefined};
    matches!(value.kind(), Seq | String | Map | Undefined)
}

/// Takes the steps that a value in a text costs. Lists that hold one list many times are small in memory only.
pub(super) fn pay(state: &State, value: &Value) -> Result<(), Error> {
    let bytes = value.as_str().map_or(0, str::len);
    state.consume_fuel(1 + bytes as u64 / 64)
}

/// Python's `str(value)`.
fn str(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        _ => repr(state, value, 0, &mut out)?,
    }
    Ok(out)
}

/// Python's `repr(value)`.
fn repr(state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        let why = "the value is nested too deep to be printed";
        return Err(Error::new(ErrorKind::InvalidOperation, why));
    }
    pay(state, value)?;
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let is_tuple = value.is_tuple();
            out.push(if is_tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                out.push_str(if count > 0 { ", " } else { "" });
                repr(state, &item, depth + 1, out)?;
                count += 1;
            }
            out.push_str(if is_tuple && count == 1 { "," } else { "" });
            out.push(if is_tuple { ')' } else { ']' });
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                repr(state, &key, depth + 1, out)?;
                out.push_str(": ");
                repr(state, &value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A text in quotes as Python prints it within a list.
fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c < ' ' || ('\u{7f}'..'\u{a1}').contains(&c) || c == '\u{ad}' => {
                out.push_str(&format!("\\x{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// A number as Python prints it: a float always shows that it is one.
pub(super) fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) => self::float(float),
        Err(_) => value.to_string(),
    }
}

/// The shortest digits that give the float back, with an exponent below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return if value.is_nan() { "nan".to_owned() } else { format!("{sign}inf") };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// What Python's `str.isspace` says: more than Unicode's property, by four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The characters that `strip` takes off: those given, or spaces.
fn stripped(chars: Option<&str>) -> impl Fn(char) -> bool + '_ {
    move |c| chars.map_or_else(|| is_space(c), |chars| chars.contains(c))
}

/// Methods of values that the engine itself doesn't have.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = string_method(text, name, args)
    {
        return result;
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

/// A method of strings that is not in the library, or is Python's with other spaces or lines only.
fn string_method(text: &str, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    let chars = || from_args::<(Option<&str>,)>(args).map(|(chars,)| chars);
    let one = || from_args::<(String,)>(args).map(|(other,)| other);
    let list = |parts: &[&str]| parts.iter().copied().map(Value::from).collect::<Value>();
    Some(match name {
        "strip" => chars().map(|chars| Value::from(text.trim_matches(stripped(chars)))),
        "lstrip" => chars().map(|chars| Value::from(text.trim_start_matches(stripped(chars)))),
        "rstrip" => {
            let end = |chars| Value::from(text.trim_end_matches(|c| stripped(chars)(c)));
            chars().map(end)
        }
        "isspace" => from_args::<()>(args)
            .map(|()| Value::from(!text.is_empty() && text.chars().all(is_space))),
        "removeprefix" => one().map(|p| Value::from(text.strip_prefix(&*p).unwrap_or(text))),
        "removesuffix" => one().map(|s| Value::from(text.strip_suffix(&*s).unwrap_or(text))),
        "partition" => one().map(|at| {
            let (head, tail) = text.split_once(&*at).map_or((text, None), |(h, t)| (h, Some(t)));
            let middle = if tail.is_some() { &*at } else { "" };
            list(&[head, middle, tail.unwrap_or_default()])
        }),
        "rpartition" => one().map(|at| {
            let (head, tail) = text.rsplit_once(&*at).map_or((None, text), |(h, t)| (Some(h), t));
            let middle = if head.is_some() { &*at } else { "" };
            list(&[head.unwrap_or_default(), middle, tail])
        }),
        "splitlines" => from_args::<(Option<bool>,)>(args)
            .map(|(keep,)| list(&lines(text, keep.unwrap_or(false)))),
        // Without a separator: at any spaces, none of them kept.
        "split" | "rsplit" if args.is_empty() => {
            Ok(text.split(is_space).filter(|part| !part.is_empty()).map(Value::from).collect())
        }
        "rsplit" => rsplit(text, args),
        _ => return None,
    })
}

/// `rsplit` at a separator.
fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (at, rest): (&str, Rest<Value>) = from_args(args)?;
    if at.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "rsplit at an empty separator"));
    }
    let limit = rest.first().and_then(Value::as_i64).and_then(|n| usize::try_from(n).ok());
    let mut parts: Vec<&str> = match limit {
        Some(limit) => text.rsplitn(limit.saturating_add(1), at).collect(),
        None => text.rsplit(at).collect(),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Lines as Python cuts them, which knows more ends than `\n`.
fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    const ENDS: [char; 10] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ENDS) {
        let tail = &rest[at..];
        let width = match tail.strip_prefix("\r\n") {
            Some(_) => 2,
            None => tail.chars().next().map_or(1, char::len_utf8),
        };
        lines.push(&rest[..if keep_ends { at + width } else { at }]);
        rest = &tail[width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_python_s() {
        for (value, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1.2345e300, "1.2345e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn lines_end_where_python_ends_them() {
        assert_eq!(lines("a\r\nb\rc\u{2028}d\n", false), ["a", "b", "c", "d"]);
        assert_eq!(lines("a\r\n\nb", true), ["a\r\n", "\n", "b"]);
        assert!(lines("", false).is_empty());
    }
}
