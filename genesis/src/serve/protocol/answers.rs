//! Responses, in the order and with the names that OpenAI's documents give them.

use serde::Serialize;
use serde_json::{Map, Value};

/// What stands at the head of every response and every chunk.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct Head {
    pub(in crate::serve) id: String,
    pub(in crate::serve) object: &'static str,
    /// Seconds since 1970.
    pub(in crate::serve) created: u64,
    pub(in crate::serve) model: String,
    pub(in crate::serve) system_fingerprint: String,
}

/// A whole response, or a chunk of one.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct Reply<Choice> {
    #[serde(flatten)]
    pub(in crate::serve) head: Head,
    pub(in crate::serve) choices: Vec<Choice>,
    /// Chunks have none, or null until the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) usage: Option<Option<Usage>>,
}

/// What a response took.
#[derive(Clone, Copy, Default, Serialize, Debug)]
pub(in crate::serve) struct Usage {
    pub(in crate::serve) prompt_tokens: usize,
    pub(in crate::serve) completion_tokens: usize,
    pub(in crate::serve) total_tokens: usize,
    pub(in crate::serve) prompt_tokens_details: PromptDetails,
}

#[derive(Clone, Copy, Default, Serialize, Debug)]
pub(in crate::serve) struct PromptDetails {
    /// Tokens whose keys and values were there already.
    pub(in crate::serve) cached_tokens: usize,
}

/// One answer of a chat.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct ChatChoice {
    pub(in crate::serve) index: usize,
    pub(in crate::serve) message: Message,
    pub(in crate::serve) logprobs: Option<ChatLogprobs>,
    pub(in crate::serve) finish_reason: &'static str,
}

/// A piece of an answer of a chat.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct ChatDelta {
    pub(in crate::serve) index: usize,
    pub(in crate::serve) delta: Message,
    pub(in crate::serve) logprobs: Option<ChatLogprobs>,
    pub(in crate::serve) finish_reason: Option<&'static str>,
}

/// What an assistant says, whole or in part.
#[derive(Clone, Default, Serialize, Debug)]
pub(in crate::serve) struct Message {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) role: Option<&'static str>,
    /// Null in a message that only calls tools; not there in a delta without text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) content: Option<Option<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::serve) tool_calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(in crate::serve) struct ToolCall {
    /// Its place among the calls of the answer, in a delta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) index: Option<usize>,
    pub(in crate::serve) id: String,
    #[serde(rename = "type")]
    pub(in crate::serve) kind: &'static str,
    pub(in crate::serve) function: Function,
}

/// The name of a function and its arguments, JSON in a string.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub(in crate::serve) struct Function {
    pub(in crate::serve) name: String,
    pub(in crate::serve) arguments: String,
}

/// Log-probabilities of the tokens of an answer of a chat.
#[derive(Clone, Default, Serialize, Debug)]
pub(in crate::serve) struct ChatLogprobs {
    pub(in crate::serve) content: Vec<TokenEntry>,
}

/// A token and the most likely ones in its place.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct TokenEntry {
    #[serde(flatten)]
    pub(in crate::serve) chosen: Likely,
    pub(in crate::serve) top_logprobs: Vec<Likely>,
}

/// A token and its log-probability.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct Likely {
    pub(in crate::serve) token: String,
    pub(in crate::serve) logprob: f32,
    /// Null where the token is a part of a character, which its text does not show.
    pub(in crate::serve) bytes: Option<Vec<u8>>,
}

/// One text that goes on, or a piece of it.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct TextChoice {
    pub(in crate::serve) index: usize,
    pub(in crate::serve) text: String,
    pub(in crate::serve) logprobs: Option<TextLogprobs>,
    pub(in crate::serve) finish_reason: Option<&'static str>,
}

/// Log-probabilities in columns, as completions have them.
#[derive(Clone, Default, Serialize, Debug)]
pub(in crate::serve) struct TextLogprobs {
    pub(in crate::serve) tokens: Vec<String>,
    pub(in crate::serve) token_logprobs: Vec<f32>,
    /// The most likely tokens by their text.
    pub(in crate::serve) top_logprobs: Vec<Map<String, Value>>,
    /// Where each token's text begins, in characters.
    pub(in crate::serve) text_offset: Vec<usize>,
}

/// Vectors of texts.
#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct Embeddings {
    pub(in crate::serve) object: &'static str,
    pub(in crate::serve) data: Vec<Embedding>,
    pub(in crate::serve) model: String,
    pub(in crate::serve) usage: EmbeddingUsage,
}

#[derive(Clone, Serialize, Debug)]
pub(in crate::serve) struct Embedding {
    pub(in crate::serve) object: &'static str,
    pub(in crate::serve) index: usize,
    /// Numbers, or their bytes in base64.
    pub(in crate::serve) embedding: Value,
}

#[derive(Clone, Copy, Serialize, Debug)]
pub(in crate::serve) struct EmbeddingUsage {
    pub(in crate::serve) prompt_tokens: usize,
    pub(in crate::serve) total_tokens: usize,
}
