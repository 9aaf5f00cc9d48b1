//! `{% generation %}`: marks what a model wrote, for training masks; when a prompt is rendered it does nothing.
//!
//! It is a tag of `transformers`' own, and the engine takes no tags of others. A block with a scope of its own is
//! what it amounts to, so the source says that before it is parsed: `with`, whose lines and spaces stay.
//!
//! ```text
//! {%- generation -%}x{% endgeneration %}      {%- with -%}x{% endwith %}
//! ```
//!
//! For a mask the block is a filter too, which puts a mark on both sides of what the block made; [`unmarked`] takes
//! the marks out again and says where they stood.
//!
//! ```text
//! {%- generation -%}x{% endgeneration %}      {%- with %}{% filter marked -%}x{% endfilter %}{% endwith %}
//! ```

use std::ops::Range;

/// The filter that marks what a block made.
pub(super) const FILTER: &str = "generation_marked";

/// Noncharacters, which no text holds that programs exchange.
const OPEN: char = '\u{FDD0}';
const CLOSE: char = '\u{FDD1}';

/// What `generation` becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tags {
    /// A scope that does nothing.
    Ignored,
    /// A scope whose text is marked.
    Marked,
}

/// What a block made, with marks.
pub(super) fn marked(text: &str) -> String {
    format!("{OPEN}{text}{CLOSE}")
}

/// Whether a text could be taken for one with marks.
pub(super) fn has_marks(text: &str) -> bool {
    text.contains([OPEN, CLOSE])
}

/// The text without marks, and the bytes of it that stood between two.
pub(super) fn unmarked(text: &str) -> (String, Vec<Range<usize>>) {
    let (mut out, mut ranges, mut open) = (String::with_capacity(text.len()), Vec::new(), None);
    for c in text.chars() {
        match c {
            OPEN => open = Some(out.len()),
            CLOSE => ranges.extend(open.take().map(|start| start..out.len())),
            other => out.push(other),
        }
    }
    (out, ranges)
}

/// The source with line ends as Jinja2 reads them, and with `generation` as what the engine knows; and whether it has
/// such a tag.
pub(super) fn replace(source: &str, tags: Tags) -> (String, bool) {
    let mut has_tags = false;
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match rest.as_bytes().get(1) {
            Some(b'#') => end_of(rest, "#}"),
            Some(b'{') => end_of_expression(rest, "}}"),
            Some(b'%') => {
                let len = end_of_expression(rest, "%}");
                let word = word(&rest[..len]);
                if word == "raw" {
                    let whole = end_of_raw(rest, len);
                    out.push_str(&rest[..whole]);
                    rest = &rest[whole..];
                    continue;
                }
                has_tags |= word == "generation";
                push_tag(&rest[..len], (word, tags), &mut out);
                rest = &rest[len..];
                continue;
            }
            _ => 1,
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out.push_str(rest);
    (out, has_tags)
}

/// Appends a tag. What strips spaces before it stays in front of the first of two, and what strips those behind it
/// behind the second.
fn push_tag(tag: &str, (word, tags): (&str, Tags), out: &mut String) {
    let replaced = match (word, tags) {
        ("generation", Tags::Ignored) => "with".to_owned(),
        ("endgeneration", Tags::Ignored) => "endwith".to_owned(),
        ("generation", Tags::Marked) => format!("with %}}{{% filter {FILTER}"),
        ("endgeneration", Tags::Marked) => "endfilter %}{% endwith".to_owned(),
        _ => return out.push_str(tag),
    };
    match tag.split_once(word) {
        Some((before, after)) => out.extend([before, &replaced, after]),
        None => out.push_str(tag),
    }
}

/// The first word of a tag `{%- word ..`.
fn word(tag: &str) -> &str {
    let inner = tag.strip_prefix("{%").unwrap_or(tag).trim_start_matches(['-', '+']).trim_start();
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    &inner[..end]
}

/// The length of what ends with `end`, or all of the text.
fn end_of(text: &str, end: &str) -> usize {
    text.get(2..).and_then(|inner| inner.find(end)).map_or(text.len(), |at| at + 2 + end.len())
}

/// As `end_of`, where an end within quotes is none.
fn end_of_expression(text: &str, end: &str) -> usize {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut at = 2;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(end.as_bytes()) => return at + end.len(),
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// The length of a raw block whose first tag has `from` bytes.
fn end_of_raw(text: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(next) = text[at..].find("{%") {
        let tag = at + next;
        // The end is looked for once only: a block may begin many tags that have none.
        if word(&text[tag..]) == "endraw" {
            return tag + end_of(&text[tag..], "%}");
        }
        at = tag + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tags_change() {
        for (source, result) in [
            ("{%- generation -%}x{% endgeneration %}", "{%- with -%}x{% endwith %}"),
            ("{%+generation%}", "{%+with%}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{# {% generation %} #}{% generation %}", "{# {% generation %} #}{% with %}"),
            ("{% raw %}{% generation %}{% endraw %}", "{% raw %}{% generation %}{% endraw %}"),
            ("{% set generation = 1 %}", "{% set generation = 1 %}"),
            ("{% generationx %}", "{% generationx %}"),
            ("a\r\nb\rc", "a\nb\nc"),
            ("{", "{"),
            ("é{%é", "é{%é"),
        ] {
            assert_eq!(replace(source, Tags::Ignored).0, result);
        }
    }

    #[test]
    fn marks_say_what_stood_in_blocks() {
        let (source, has_tags) = replace("{%- generation -%}x{%+ endgeneration%}", Tags::Marked);
        let filter = "{% filter generation_marked -%}x{%+ endfilter %}";
        assert_eq!(source, format!("{{%- with %}}{filter}{{% endwith%}}"));
        assert!(has_tags && !replace("{# {% generation %} #}", Tags::Marked).1);
        let text = format!("a{}b{}", marked("é"), marked(""));
        assert!(has_marks(&text));
        assert_eq!(unmarked(&text), ("aéb".to_owned(), vec![1..3, 4..4]));
    }
}
