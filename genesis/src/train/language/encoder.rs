//! From documents to tokens, and which of them the model is to learn.
//!
//! ```text
//! conversation   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n
//! learned                                                               ^^^^^^^^^^^^^^^^
//! ```
//!
//! What the assistant wrote is what stands in the template's `{% generation %}`. Most published templates have no such
//! tag; then it is found by rendering the conversation up to each answer: an answer begins where the prompt for it ends.

use std::ops::Range;

use serde_json::Value;

use super::document::Document;
use crate::error::{Error, Result};
use crate::text::{ChatTemplate, Conversation, Pretrained};

const NAME: &str = "training data";

/// The tokens of a document.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoded {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Whether the model is to learn to write the token; as many as there are tokens.
    pub is_learned: Vec<bool>,
    /// Whether it may be cut into pieces that are learned one by one: a text may, a conversation may not.
    pub is_divisible: bool,
}

/// Which messages of a conversation are learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossOn {
    /// Those of the assistant.
    #[default]
    Assistant,
    /// All of them, with what the template puts around.
    All,
}

/// Turns documents into tokens.
#[derive(Clone, Debug)]
pub struct Encoder {
    text: Pretrained,
    /// Without and with tools; the error of a template that is not there is told when it is needed.
    templates: [Result<ChatTemplate>; 2],
    loss_on: LossOn,
    /// What ends a text.
    end: Option<u32>,
}

impl Encoder {
    /// An encoder with a model's tokenizer and chat template.
    pub fn new(text: Pretrained, loss_on: LossOn) -> Encoder {
        let templates = [text.chat_template(false), text.chat_template(true)];
        let eos = text.special_tokens.get("eos_token");
        let end = eos.and_then(|token| text.tokenizer.token_to_id(token));
        Encoder { text, templates, loss_on, end }
    }

    /// The tokens of a document.
    ///
    /// # Errors
    /// If a conversation has no template, its template refuses it or hides what the assistant wrote, or the tokenizer
    /// has no token for a part.
    pub fn encode(&self, document: &Document) -> Result<Encoded> {
        match document {
            Document::Text(text) => self.text(text),
            Document::Completion { prompt, completion } => self.completion(prompt, completion),
            Document::Conversation { messages, tools } => self.conversation(messages, tools, 0),
        }
    }

    /// [`Encoder::encode`], of a conversation whose first `from` messages are given and not learned.
    ///
    /// # Errors
    /// As [`Encoder::encode`], and if the template writes the given messages otherwise once others follow.
    pub fn encode_from(&self, document: &Document, from: usize) -> Result<Encoded> {
        match document {
            Document::Conversation { messages, tools } => self.conversation(messages, tools, from),
            _ => self.encode(document),
        }
    }

    fn text(&self, text: &str) -> Result<Encoded> {
        let mut tokens = self.text.tokenizer.encode(text, true)?;
        tokens.extend(self.end.filter(|end| tokens.last() != Some(end)));
        let is_learned = vec![true; tokens.len()];
        Ok(Encoded { tokens, is_learned, is_divisible: true })
    }

    /// Both are encoded as one text, as generation would see them continue.
    fn completion(&self, prompt: &str, completion: &str) -> Result<Encoded> {
        let whole = format!("{prompt}{completion}");
        let learned = prompt.len()..whole.len();
        let mut encoded = self.marked(&whole, &[learned], true)?;
        if let Some(end) = self.end.filter(|end| encoded.tokens.last() != Some(end)) {
            encoded.tokens.push(end);
            encoded.is_learned.push(true);
        }
        Ok(encoded)
    }

    fn conversation(&self, messages: &[Value], tools: &[Value], from: usize) -> Result<Encoded> {
        let template = &self.templates[usize::from(!tools.is_empty())];
        let template = template.as_ref().map_err(Error::clone)?;
        let render = |messages: &[Value], add_generation_prompt| {
            let mut conversation = self.text.conversation(messages.to_vec());
            conversation.tools = tools.to_vec();
            conversation.add_generation_prompt = add_generation_prompt;
            conversation
        };
        let whole = render(messages, false);
        let (prompt, mut learned) = match (self.loss_on, template.has_generation_tags()) {
            (LossOn::All, _) => {
                let prompt = template.render(&whole)?;
                let all = 0..prompt.len();
                (prompt, vec![all])
            }
            (LossOn::Assistant, true) => template.render_marked(&whole)?,
            (LossOn::Assistant, false) => answers(template, messages, &render)?,
        };
        if from > 0 {
            let given = template.render(&render(&messages[..from.min(messages.len())], false))?;
            if !prompt.starts_with(&given) {
                return Err(hidden(from - 1));
            }
            learned.iter_mut().for_each(|range| range.start = range.start.max(given.len()));
        }
        self.marked(&prompt, &learned, false)
    }

    /// The tokens of a text, of which those are learned that stand for bytes of the ranges.
    fn marked(&self, text: &str, learned: &[Range<usize>], add_special: bool) -> Result<Encoded> {
        let pairs = self.text.tokenizer.encode_with_offsets(text, add_special)?;
        let mut is_learned = vec![false; pairs.len()];
        for range in learned.iter().filter(|range| !range.is_empty()) {
            let overlaps = |(_, bytes): &(u32, Range<usize>)| {
                bytes.start < range.end && bytes.end > range.start
            };
            // Spaces may belong to no token, so that it is the first and the last that count.
            let (first, last) = (pairs.iter().position(overlaps), pairs.iter().rposition(overlaps));
            if let Some((first, last)) = first.zip(last) {
                is_learned[first..=last].fill(true);
            }
        }
        let tokens = pairs.into_iter().map(|(token, _)| token).collect();
        Ok(Encoded { tokens, is_learned, is_divisible: false })
    }
}

/// The prompt of a conversation and the bytes of it that the assistant wrote, of a template that does not say.
fn answers(
    template: &ChatTemplate,
    messages: &[Value],
    render: &dyn Fn(&[Value], bool) -> Conversation,
) -> Result<(String, Vec<Range<usize>>)> {
    let whole = template.render(&render(messages, false))?;
    let mut learned = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        if message["role"] != "assistant" {
            continue;
        }
        let before = template.render(&render(&messages[..index], true))?;
        let upto = template.render(&render(&messages[..=index], false))?;
        let Some(rest) = whole.strip_prefix(&before) else { return Err(hidden(index)) };
        let length = match whole.starts_with(&upto) && upto.len() >= before.len() {
            true => upto.len() - before.len(),
            // Some templates write older answers otherwise than the last, without thoughts for example.
            false => written(message, rest, &upto).ok_or_else(|| hidden(index))?,
        };
        // Spaces behind the token that ends a turn are the template's.
        let answer = rest[..length].trim_end();
        learned.push(before.len()..before.len() + answer.len());
    }
    Ok((whole, learned))
}

/// How many bytes of `rest`, where an answer begins, are the answer: its content, and what ends it in `upto`, where it
/// is the last.
fn written(message: &Value, rest: &str, upto: &str) -> Option<usize> {
    let content = message["content"].as_str()?.trim();
    let end = &upto[upto.rfind(content)? + content.len()..];
    let at = rest.find(content)? + content.len();
    rest[at..].starts_with(end).then_some(at + end.len())
}

fn hidden(index: usize) -> Error {
    let why = format!(
        "can't tell which part of the prompt messages[{index}] is: the chat template has no \
         {{% generation %}} and writes earlier turns otherwise; mark the answers in it, or learn all (loss_on)"
    );
    Error::op(NAME, why)
}
