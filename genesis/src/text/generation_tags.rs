//! `{% generation %}`: marks what a model wrote, for training masks; when a prompt is rendered it does nothing.
//!
//! It is a tag of `transformers`' own, and the engine takes no tags of others. A block with a scope of its own is
//! what it amounts to, so the source says that before it is parsed: `with`, whose lines and spaces stay.
//!
//! ```text
//! {%- generation -%}x{% endgeneration %}      {%- with -%}x{% endwith %}
//! ```

/// The source with line ends as Jinja2 reads them, and with `generation` as `with`.
pub(super) fn replace(source: &str) -> String {
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
                push_tag(&rest[..len], word, &mut out);
                rest = &rest[len..];
                continue;
            }
            _ => 1,
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out.push_str(rest);
    out
}

/// Appends a tag.
fn push_tag(tag: &str, word: &str, out: &mut String) {
    let replaced = match word {
        "generation" => "with",
        "endgeneration" => "endwith",
        _ => return out.push_str(tag),
    };
    match tag.split_once(word) {
        Some((before, after)) => out.extend([before, replaced, after]),
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
    use super::replace;

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
            assert_eq!(replace(source), result);
        }
    }
}
