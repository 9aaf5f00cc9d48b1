//! The request of `/v1/chat/completions`: messages and tools as the chat template reads them.
//!
//! Templates were written for Python values, which is not quite what clients send. So texts in parts become
//! one string, `developer` becomes `system`, and a tool call's arguments, a string that holds JSON, become
//! the object that they stand for.

use serde_json::{Map, Value};

use super::fields::{Fields, kind};
use super::options::Options;
use crate::serve::backend::ModelInfo;
use crate::serve::refusal::ApiError;
use crate::text::Conversation;

/// The most alternatives that are listed beside a token.
const MAX_TOP_LOGPROBS: u64 = 20;

/// A request of a chat.
#[derive(Clone, Debug)]
pub(in crate::serve) struct ChatRequest {
    pub(in crate::serve) model: Option<String>,
    pub(in crate::serve) conversation: Conversation,
    /// The names of the tools that the answer may call.
    pub(in crate::serve) tools: Vec<String>,
    /// Whether one answer may call several tools.
    pub(in crate::serve) parallel_tool_calls: bool,
    /// Log-probabilities of the tokens, with those of so many others.
    pub(in crate::serve) logprobs: Option<usize>,
    pub(in crate::serve) options: Options,
    /// Fields that nothing was done with.
    pub(in crate::serve) ignored: Vec<String>,
}

impl ChatRequest {
    pub(in crate::serve) fn read(
        mut fields: Fields,
        info: &ModelInfo,
        seed: u64,
    ) -> Result<ChatRequest, ApiError> {
        let model = fields.string("model")?;
        let options = Options::read(&mut fields, info, seed)?;
        let messages = messages(&mut fields)?;
        let (tools, names) = tools(&mut fields)?;
        let top = fields.integer("top_logprobs", 0..=MAX_TOP_LOGPROBS)?;
        let wants_logprobs = fields.boolean("logprobs")?.unwrap_or(false);
        if top.is_some_and(|top| top > 0) && !wants_logprobs {
            return Err(fields.refuse("top_logprobs", "needs `logprobs` to be true"));
        }
        let parallel_tool_calls = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        let extra = match fields.take("chat_template_kwargs") {
            None => Map::new(),
            Some(Value::Object(extra)) => extra,
            Some(other) => {
                let why = format_args!("is {}, it must be an object", kind(&other));
                return Err(fields.refuse("chat_template_kwargs", why));
            }
        };
        let add_generation_prompt = fields.boolean("add_generation_prompt")?.unwrap_or(true);
        let conversation = Conversation {
            messages,
            tools,
            add_generation_prompt,
            extra,
            ..Conversation::default()
        };
        Ok(ChatRequest {
            model,
            conversation,
            tools: names,
            parallel_tool_calls,
            logprobs: wants_logprobs.then(|| top.unwrap_or(0)),
            options,
            ignored: fields.unread(),
        })
    }
}

fn messages(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    let missing = |fields: &Fields| fields.refuse("messages", "is missing");
    let list = fields.list("messages")?.ok_or_else(|| missing(fields))?;
    if list.is_empty() {
        return Err(fields.refuse("messages", "is empty"));
    }
    let read = |(at, value)| {
        message(value).map_err(|(name, why)| {
            let dot = if name.is_empty() { "" } else { "." };
            fields.refuse(&format!("messages[{at}]{dot}{name}"), why)
        })
    };
    list.into_iter().enumerate().map(read).collect()
}

/// A field and what is wrong with it.
type Fault = (String, String);

fn message(value: Value) -> Result<Value, Fault> {
    let fault = |name: &str, why: String| Err((name.to_owned(), why));
    let Value::Object(mut message) = value else {
        return fault("", format!("is {}, it must be an object", kind(&value)));
    };
    let role = match message.get("role") {
        Some(Value::String(role)) => role.clone(),
        Some(other) => return fault("role", format!("is {}, it must be a string", kind(other))),
        None => return fault("role", "is missing".to_owned()),
    };
    match role.as_str() {
        "system" | "user" | "assistant" | "tool" => {}
        // The newer name of the same role; templates know the older one.
        "developer" => drop(message.insert("role".to_owned(), Value::from("system"))),
        other => {
            let roles = "system, developer, user, assistant or tool";
            return fault("role", format!("is {other:?}, it must be {roles}"));
        }
    }
    if let Some(content) = message.get_mut("content") {
        let text = text_of(content.take())?;
        *content = text;
    } else if role != "assistant" {
        return fault("content", "is missing".to_owned());
    }
    if let Some(calls) = message.get_mut("tool_calls") {
        arguments_as_objects(calls)?;
    }
    Ok(Value::Object(message))
}

/// Text in parts becomes one string.
fn text_of(content: Value) -> Result<Value, Fault> {
    let fault = |name: String, why: String| Err((name, why));
    let parts = match content {
        Value::Null | Value::String(_) => return Ok(content),
        Value::Array(parts) => parts,
        other => {
            let why = format!("is {}, it must be a string or a list of parts", kind(&other));
            return fault("content".to_owned(), why);
        }
    };
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        let name = format!("content[{at}]");
        match (part.get("type").and_then(Value::as_str), part.get("text")) {
            (Some("text"), Some(Value::String(part))) => text.push_str(part),
            (Some("text"), _) => return fault(name, "has no text".to_owned()),
            (Some(other), _) => {
                return fault(name, format!("is of type {other:?}, the model reads text only"));
            }
            (None, _) => return fault(name, "has no type".to_owned()),
        }
    }
    Ok(Value::String(text))
}

/// The arguments of calls in a conversation: JSON in a string becomes what it stands for.
fn arguments_as_objects(calls: &mut Value) -> Result<(), Fault> {
    let fault = |why: &str| Err(("tool_calls".to_owned(), why.to_owned()));
    let list = match calls {
        Value::Null => return Ok(()),
        Value::Array(list) => list,
        _ => return fault("must be a list"),
    };
    for call in list {
        let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else {
            return fault("holds a call without a function");
        };
        if !function.get("name").is_some_and(Value::is_string) {
            return fault("holds a function without a name");
        }
        if let Some(Value::String(text)) = function.get("arguments")
            && let Ok(object @ Value::Object(_)) = serde_json::from_str(text)
        {
            function.insert("arguments".to_owned(), object);
        }
    }
    Ok(())
}

/// The tools that an answer may call, and their names.
fn tools(fields: &mut Fields) -> Result<(Vec<Value>, Vec<String>), ApiError> {
    let tools = fields.list("tools")?.unwrap_or_default();
    let mut names = Vec::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        let name = tool.get("function").and_then(|function| function.get("name"));
        match name {
            Some(Value::String(name)) => names.push(name.clone()),
            _ => {
                let field = format!("tools[{at}].function.name");
                return Err(fields.refuse(&field, "must be a string"));
            }
        }
    }
    match fields.take("tool_choice") {
        None => Ok((tools, names)),
        Some(Value::String(choice)) if choice == "auto" => Ok((tools, names)),
        Some(Value::String(choice)) if choice == "none" => Ok((Vec::new(), Vec::new())),
        Some(_) => {
            let why = "must be auto or none, answers can't be forced to call a tool";
            Err(fields.refuse("tool_choice", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: Value) -> Result<ChatRequest, String> {
        let fields = Fields::of(body.to_string().as_bytes()).expect("an object");
        let read = ChatRequest::read(fields, &ModelInfo::default(), 0);
        read.map_err(|error| error.message().to_owned())
    }

    #[test]
    fn parts_become_one_text() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let body = json!({"messages": [{"role": "developer", "content": parts}]});
        let messages = read(body).expect("valid").conversation.messages;
        assert_eq!(messages, [json!({"role": "system", "content": "ab"})]);
    }

    #[test]
    fn arguments_become_objects() {
        let call = json!({"id": "1", "type": "function",
            "function": {"name": "f", "arguments": "{\"x\": 1}"}});
        let body = json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
        let messages = read(body).expect("valid").conversation.messages;
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], json!({"x": 1}));
    }

    #[test]
    fn faults_of_messages_name_the_place() {
        let refusal = |messages: Value| read(json!({"messages": messages})).expect_err("refused");
        assert_eq!(refusal(json!([])), "`messages` is empty");
        assert_eq!(
            refusal(json!([{"role": "user", "content": "a"}, 3])),
            "`messages[1]` is a number, it must be an object"
        );
        assert_eq!(
            refusal(json!([{"role": "robot", "content": "a"}])),
            "`messages[0].role` is \"robot\", it must be system, developer, user, assistant or tool"
        );
        assert_eq!(refusal(json!([{"role": "user"}])), "`messages[0].content` is missing");
        let image = json!([{"role": "user", "content": [{"type": "image_url"}]}]);
        assert_eq!(
            refusal(image),
            "`messages[0].content[0]` is of type \"image_url\", the model reads text only"
        );
        assert_eq!(read(json!({})).expect_err("refused"), "`messages` is missing");
    }

    #[test]
    fn what_nobody_reads_is_named() {
        let body = json!({"messages": [{"role": "user", "content": "a"}], "store": true, "x": 1});
        assert_eq!(read(body).expect("valid").ignored, ["store", "x"]);
    }

    #[test]
    fn tools_are_not_shown_where_none_may_be_called() {
        let tool = json!({"type": "function", "function": {"name": "f"}});
        let mut body = json!({"messages": [{"role": "user", "content": "a"}], "tools": [tool]});
        assert_eq!(read(body.clone()).expect("valid").tools, ["f"]);
        body["tool_choice"] = json!("none");
        assert!(read(body.clone()).expect("valid").conversation.tools.is_empty());
        body["tool_choice"] = json!("required");
        assert!(read(body).is_err());
    }
}
