//! Chat templates: how a conversation becomes the prompt that a model was trained on.
//!
//! A template is Jinja2 source that comes with the model, `chat_template.jinja`. It is rendered by `minijinja`,
//! with what `transformers` adds to Jinja2 and with Python's ways of printing, so that the prompt is the same to
//! the byte: a model answers worse to a prompt that is off by a newline.
//!
//! ```
//! use genesis::text::{ChatTemplate, Conversation};
//!
//! let template = ChatTemplate::new(
//!     "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}\
//!      {% if add_generation_prompt %}<|assistant|>{% endif %}",
//! )?;
//! let prompt = template.render(&Conversation {
//!     messages: vec![serde_json::json!({"role": "user", "content": "Hi"})],
//!     add_generation_prompt: true,
//!     ..Conversation::default()
//! })?;
//! assert_eq!(prompt, "<|user|>Hi\n<|assistant|>");
//! # Ok::<(), genesis::Error>(())
//! ```
//!
//! Templates come from strangers: steps, depth and the size of a prompt are bounded, and what goes beyond ends
//! with an error.

use std::io::{self, Write};
use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind};

use super::clock::strftime_now;
use super::generation_tags::{self, Tags};
use super::json::tojson;
use super::python;
use crate::error::{Error, Result};

/// Steps of a render. A step is an instruction or 64 bytes of text; a message takes some hundred.
const MAX_STEPS: u64 = 4_000_000;
/// Calls within calls; each takes stack.
const MAX_DEPTH: usize = 100;
/// Bytes of a template; published ones have up to 40,000.
const MAX_SOURCE: usize = 1 << 20;
/// Lines of a template, and bytes of a line: the engine counts both in 16 bits.
const MAX_LINES: usize = 60_000;
/// Bytes of a prompt.
const MAX_PROMPT: usize = 256 << 20;
/// The names of the templates of an environment: the one that prompts are of, and the one that marks what
/// `{% generation %}` holds.
const NAME: &str = "chat";
const MARKED: &str = "marked";

/// The template that turns conversations into prompts.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    has_generation_tags: bool,
}

/// What a template is rendered with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conversation {
    /// The messages in order: objects with `role`, `content` (a text or a list of parts) and what else the
    /// template knows, `tool_calls` for example.
    pub messages: Vec<serde_json::Value>,
    /// Tools that the model may call, as JSON schemas.
    pub tools: Vec<serde_json::Value>,
    /// Whether the prompt ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// The beginning-of-sequence token; empty where there is none.
    pub bos_token: String,
    /// The end-of-sequence token; empty where there is none.
    pub eos_token: String,
    /// Variables by name, `enable_thinking` for example; they come before all others.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl ChatTemplate {
    /// Reads the source of a template.
    ///
    /// # Errors
    /// If it is no Jinja2, or larger than a template may be; the error names the line.
    pub fn new(source: &str) -> Result<ChatTemplate> {
        let checked = |tags| checked(source, tags).map_err(|why| Error::op("chat template", why));
        let (plain, has_generation_tags) = checked(Tags::Ignored)?;
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failed(&error))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(MAX_STEPS));
        environment.set_recursion_limit(MAX_DEPTH);
        environment.set_formatter(python::print);
        environment.set_unknown_method_callback(python::method);
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", python::string);
        environment.add_filter("trim", python::trim);
        environment.add_filter("indent", python::indent);
        environment.add_test("iterable", python::is_iterable);
        environment.add_test("sequence", python::is_sequence);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", |format: &str| strftime_now(format));
        environment.add_filter(generation_tags::FILTER, generation_tags::marked);
        environment.add_template_owned(NAME, plain).map_err(|error| failed(&error))?;
        if has_generation_tags {
            let (marked, _) = checked(Tags::Marked)?;
            environment.add_template_owned(MARKED, marked).map_err(|error| failed(&error))?;
        }
        Ok(ChatTemplate { environment, has_generation_tags })
    }

    /// Whether the template says by `{% generation %}` what the model writes.
    pub fn has_generation_tags(&self) -> bool {
        self.has_generation_tags
    }

    /// The prompt of a conversation.
    ///
    /// # Errors
    /// If the template refuses the conversation, in its words, or takes more steps than a render may.
    pub fn render(&self, conversation: &Conversation) -> Result<String> {
        self.render_as(NAME, conversation)
    }

    /// The prompt of a conversation, and the bytes of it that stand in `{% generation %}`: what the model is to learn to
    /// write. There are none where the template has no such tag.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`], or if the conversation has the noncharacters U+FDD0 or U+FDD1, which mark the blocks.
    /// # Examples
    /// ```
    /// use genesis::text::{ChatTemplate, Conversation};
    ///
    /// let source = "{% for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
    /// let messages = vec![serde_json::json!({"role": "assistant", "content": "Hi"})];
    /// let conversation = Conversation { messages, ..Conversation::default() };
    /// let (prompt, written) = ChatTemplate::new(source)?.render_marked(&conversation)?;
    /// assert_eq!((prompt.as_str(), &prompt[written[0].clone()]), ("<assistant>Hi", "Hi"));
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn render_marked(
        &self,
        conversation: &Conversation,
    ) -> Result<(String, Vec<Range<usize>>)> {
        let prompt = self.render(conversation)?;
        if !self.has_generation_tags {
            return Ok((prompt, Vec::new()));
        }
        if generation_tags::has_marks(&prompt) {
            let why = "the conversation has U+FDD0 or U+FDD1, which mark what the model writes";
            return Err(Error::op("chat template", why));
        }
        let (text, written) = generation_tags::unmarked(&self.render_as(MARKED, conversation)?);
        match text == prompt {
            true => Ok((text, written)),
            // What is done with the text of a block after it, such as measuring it, saw the marks.
            false => {
                let why = "makes another prompt where the text in {% generation %} is marked";
                Err(Error::op("chat template", why))
            }
        }
    }

    fn render_as(&self, name: &str, conversation: &Conversation) -> Result<String> {
        let template = self.environment.get_template(name).map_err(|error| failed(&error))?;
        let mut prompt = Bounded::default();
        match template.render_captured_to(variables(conversation), &mut prompt) {
            Ok(_) => {}
            Err(_) if prompt.is_full => {
                let why = format!("makes a prompt of more than {MAX_PROMPT} bytes");
                return Err(Error::op("chat template", why));
            }
            Err(error) => return Err(failed(&error)),
        }
        String::from_utf8(prompt.bytes)
            .map_err(|error| Error::op("chat template", format!("makes no text: {error}")))
    }
}

/// A source that the engine can be given, and whether it has tags of generation.
fn checked(source: &str, tags: Tags) -> Result<(String, bool), String> {
    if source.len() > MAX_SOURCE {
        return Err(format!("has {} bytes, the most is {MAX_SOURCE}", source.len()));
    }
    let (source, has_tags) = generation_tags::replace(source, tags);
    let lines = source.split('\n').count();
    if lines > MAX_LINES {
        return Err(format!("has {lines} lines, the most is {MAX_LINES}"));
    }
    match source.split('\n').position(|line| line.len() > MAX_LINES) {
        Some(line) => Err(format!("line {} has more than {MAX_LINES} bytes", line + 1)),
        None => Ok((source, has_tags)),
    }
}

/// The variables of a render.
fn variables(conversation: &Conversation) -> Value {
    let mut variables = serde_json::Map::new();
    let tools = &conversation.tools;
    let tools = (!tools.is_empty()).then(|| tools.clone());
    variables.insert("messages".to_owned(), conversation.messages.clone().into());
    variables.insert("tools".to_owned(), tools.into());
    variables.insert("documents".to_owned(), serde_json::Value::Null);
    let add = conversation.add_generation_prompt;
    variables.insert("add_generation_prompt".to_owned(), add.into());
    // A tokenizer without such a token leaves the variable undefined.
    let tokens = [("bos_token", &conversation.bos_token), ("eos_token", &conversation.eos_token)];
    for (name, token) in tokens.into_iter().filter(|(_, token)| !token.is_empty()) {
        variables.insert(name.to_owned(), token.clone().into());
    }
    variables.extend(conversation.extra.clone());
    Value::from(Serde(variables))
}

/// The function by which a template refuses.
fn raise_exception(message: &str) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// An error of the engine in one line.
fn failed(error: &minijinja::Error) -> Error {
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("takes more than {MAX_STEPS} steps"),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    Error::op("chat template", format!("{what}{line}"))
}

/// Memory that text is written to, up to a limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_PROMPT {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(source: &str, extra: serde_json::Value) -> String {
        let extra = extra.as_object().cloned().unwrap_or_default();
        let conversation = Conversation { extra, ..Conversation::default() };
        let template = ChatTemplate::new(source);
        template.and_then(|t| t.render(&conversation)).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn values_print_as_python_prints_them() {
        let values = json!({"v": [null, true, 1.0, "it's", {"k": [1e16]}, "\n"]});
        assert_eq!(
            render("{{ v }}{{ none }}{{ false }}{{ undefined_name }}", values),
            r#"[None, True, 1.0, "it's", {'k': [1e+16]}, '\n']NoneFalse"#
        );
    }

    #[test]
    fn json_is_that_of_python() {
        let values =
            json!({"v": {"b": [1, 2.50, "é\"\u{1}\u{7f}</a>"], "a": {}, "c": [], "n": null}});
        assert_eq!(
            render("{{ v | tojson }}", values.clone()),
            "{\"b\": [1, 2.5, \"é\\\"\\u0001\u{7f}</a>\"], \"a\": {}, \"c\": [], \"n\": null}"
        );
        assert_eq!(
            render("{{ v | tojson(indent=1, sort_keys=true, ensure_ascii=true) }}", values),
            "{\n \"a\": {},\n \"b\": [\n  1,\n  2.5,\n  \"\\u00e9\\\"\\u0001\\u007f</a>\"\n ],\n \
             \"c\": [],\n \"n\": null\n}"
        );
        assert_eq!(
            render("{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}", json!({})),
            "[1,{\"a\":2}]"
        );
    }

    #[test]
    fn spaces_are_python_s() {
        let text = json!({"t": "\u{1c} x \u{a0}\n"});
        assert_eq!(render("[{{ t.strip() }}|{{ t | trim }}]", text.clone()), "[x|x]");
        assert_eq!(render("{{ t.lstrip() | tojson }}", text), "\"x \u{a0}\\n\"");
        assert_eq!(
            render("{{ 'xxabx'.strip('x') }} {{ ' a  b '.split() }}", json!({})),
            "ab ['a', 'b']"
        );
    }

    #[test]
    fn lines_are_indented_as_jinja2_indents_them() {
        let source = "{{ 'a\\n\\nb\\n'|indent(2) }}|{{ 'a\\n'|indent('>', first=true) }}|{{ '\\na'|indent(1, true, blank=true) }}";
        assert_eq!(render(source, json!({})), "a\n\n  b\n|>a\n| \n a");
    }

    #[test]
    fn tests_answer_as_those_of_jinja2() {
        let source = "{{ none is iterable }} {{ 1 is iterable }} {{ 'a' is iterable }} \
                      {{ 'a' is sequence }} {{ {} is sequence }} {{ none is sequence }} {{ true is number }}";
        assert_eq!(render(source, json!({})), "False False True True True False True");
    }

    #[test]
    fn a_template_refuses_in_its_own_words() {
        let why = render("\n{{ raise_exception('roles must alternate') }}", json!({}));
        assert_eq!(why, "chat template: roles must alternate (line 2)");
        assert!(render("{% if %}", json!({})).starts_with("chat template: syntax error: "));
    }

    #[test]
    fn hostile_templates_end() {
        for source in [
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
            "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
            "{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}\
             {% endfor %}{{ ns.a | tojson }}",
            "{% set ns = namespace(a=[1]) %}{% for i in range(50) %}{% set ns.a = [ns.a, ns.a] %}\
             {% endfor %}{{ ns.a }}",
            "{% set ns = namespace(a='x') %}{% for i in range(50) %}{% set ns.a = ns.a ~ ns.a %}\
             {% endfor %}{{ ns.a }}",
            "{{ 'x' * 100000000000 }}",
        ] {
            assert!(render(source, json!({})).starts_with("chat template: "), "{source}");
        }
        for piece in ["{%", "{{", "{#", "{% raw %}{% ", "{% raw ", "{{ '", "{% x"] {
            // In one line, in as many as a template may have, and in more.
            for (end, count) in [("", 1 << 18), ("", 14_000), ("\n", 59_000), ("\n", 70_000)] {
                let long = format!("{piece}{end}").repeat(count);
                for source in [format!("{long}%}}"), format!("{{% raw %}}{long}%}}")] {
                    let _ = ChatTemplate::new(&source);
                }
            }
        }
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(render(&format!("{{{{ {deep} }}}}"), json!({})).starts_with("chat template: "));
    }

    #[test]
    fn names_of_entries_hide_no_methods() {
        let schema = json!({"p": {"items": 1, "keys": 2}});
        assert_eq!(
            render("{% for k, v in p.items() %}{{ k }}={{ v }};{% endfor %}", schema),
            "items=1;keys=2;"
        );
    }
}
