//! Every route: what it gives, and how it refuses.

use genesis::serve::ServeOptions;
use serde_json::{Value, json};

use super::client::{data, get, post, post_text, request};
use super::toy::{CONTEXT, Toy, answer, rendered, serve, start};

fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

/// The text of a stream's pieces, of one answer.
fn streamed(pieces: &[Value], index: usize) -> String {
    let choices = pieces.iter().flat_map(|piece| piece["choices"].as_array().expect("a list"));
    let own = choices.filter(|choice| choice["index"] == index);
    own.filter_map(|choice| choice["delta"]["content"].as_str().or(choice["text"].as_str()))
        .collect()
}

#[test]
fn a_chat_is_answered() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"model": "org/toy", "messages": user("hé")});
    let response = post(&server, "/v1/chat/completions", &body);
    assert_eq!(response.status, 200, "{}", response.body);
    let reply = response.json();
    assert_eq!(reply["object"], "chat.completion");
    assert_eq!(reply["model"], "org/toy");
    assert!(reply["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")));
    assert!(reply["system_fingerprint"].as_str().is_some_and(|print| print.starts_with("fp_")));
    let prompt = rendered("hé");
    let choice = &reply["choices"][0];
    assert_eq!(choice["message"], json!({"role": "assistant", "content": answer(&prompt)}));
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["logprobs"], Value::Null);
    let usage = &reply["usage"];
    assert_eq!(usage["prompt_tokens"], prompt.len());
    assert_eq!(usage["completion_tokens"], prompt.len());
    assert_eq!(usage["total_tokens"], 2 * prompt.len());
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 2);
}

#[test]
fn a_stream_is_the_answer_in_pieces() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"messages": user("héllo"), "stream": true, "n": 2,
        "stream_options": {"include_usage": true}});
    let response = post(&server, "/v1/chat/completions", &body);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    let pieces = response.pieces();
    let expected = answer(&rendered("héllo"));
    assert_eq!([streamed(&pieces, 0), streamed(&pieces, 1)], [expected.clone(), expected]);
    assert_eq!(pieces[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(pieces[0]["object"], "chat.completion.chunk");
    assert_eq!(pieces[0]["usage"], Value::Null);
    assert!(pieces.iter().all(|piece| piece["id"] == pieces[0]["id"]));
    let (last, rest) = pieces.split_last().expect("pieces");
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 2 * rendered("héllo").len());
    let ends = rest.iter().filter(|piece| piece["choices"][0]["finish_reason"] == "stop");
    assert_eq!(ends.count(), 2);
}

#[test]
fn answers_end_as_they_are_told() {
    let (server, _) = start(ServeOptions::default());
    let ask = |settings: Value| {
        let mut body = json!({"messages": user("say one two three")});
        body.as_object_mut().expect("an object").extend(settings.as_object().cloned().unwrap());
        let reply = post(&server, "/v1/chat/completions", &body).json();
        let choice = &reply["choices"][0];
        (choice["message"]["content"].clone(), choice["finish_reason"].clone())
    };
    assert_eq!(ask(json!({})), (json!("one two three"), json!("stop")));
    assert_eq!(ask(json!({"stop": " two"})), (json!("one"), json!("stop")));
    assert_eq!(ask(json!({"stop": ["three", "two"]})), (json!("one "), json!("stop")));
    assert_eq!(ask(json!({"max_tokens": 3})), (json!("one"), json!("length")));
    assert_eq!(ask(json!({"max_completion_tokens": 2})), (json!("on"), json!("length")));
}

#[test]
fn tools_are_called() {
    let (server, _) = start(ServeOptions::default());
    let call = r#"say <tool_call>{"name": "sum", "arguments": {"a": 1}}</tool_call>"#;
    let tools = json!([{"type": "function", "function": {"name": "sum"}}]);
    let mut body = json!({"messages": user(call), "tools": tools});
    let reply = post(&server, "/v1/chat/completions", &body).json();
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let called = &choice["message"]["tool_calls"][0];
    assert_eq!(called["type"], "function");
    assert_eq!(called["function"], json!({"name": "sum", "arguments": "{\"a\":1}"}));
    assert_eq!(called.get("index"), None);
    body["stream"] = json!(true);
    let pieces = post(&server, "/v1/chat/completions", &body).pieces();
    let calls: Vec<&Value> =
        pieces.iter().map(|piece| &piece["choices"][0]["delta"]["tool_calls"]).collect();
    let called: Vec<&&Value> = calls.iter().filter(|calls| !calls.is_null()).collect();
    assert_eq!(called.len(), 1);
    assert_eq!(called[0][0]["index"], 0);
    assert_eq!(called[0][0]["function"]["arguments"], "{\"a\":1}");
    let last = pieces.last().expect("pieces");
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn what_a_template_refuses_is_the_clients_fault() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"messages": [{"role": "tool", "content": "42"}]});
    let response = post(&server, "/v1/chat/completions", &body);
    assert_eq!(response.status, 400);
    assert_eq!(response.message(), "chat template: there are no tools");
}

#[test]
fn logprobs_stand_beside_tokens() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"messages": user("say ab"), "logprobs": true, "top_logprobs": 2});
    let reply = post(&server, "/v1/chat/completions", &body).json();
    let content = &reply["choices"][0]["logprobs"]["content"];
    assert_eq!(content.as_array().map(Vec::len), Some(2));
    assert_eq!(content[0]["token"], "a");
    assert_eq!(content[0]["logprob"], -0.5);
    assert_eq!(content[0]["bytes"], json!([97]));
    assert_eq!(content[0]["top_logprobs"][1]["token"], "b");
    let body = json!({"prompt": "say é", "logprobs": 1});
    let columns = post(&server, "/v1/completions", &body).json();
    let columns = &columns["choices"][0]["logprobs"];
    assert_eq!(columns["tokens"].as_array().map(Vec::len), Some(2));
    assert_eq!(columns["token_logprobs"], json!([-0.5, -0.5]));
    assert_eq!(columns["text_offset"], json!([0, 1]));
}

#[test]
fn texts_go_on() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"prompt": ["say a", [115, 97, 121, 32, 98]], "n": 2, "echo": true});
    let reply = post(&server, "/v1/completions", &body).json();
    assert_eq!(reply["object"], "text_completion");
    let texts: Vec<&Value> =
        reply["choices"].as_array().expect("a list").iter().map(|choice| &choice["text"]).collect();
    assert_eq!(texts, ["say aa", "say aa", "say bb", "say bb"]);
    assert_eq!(reply["usage"]["prompt_tokens"], 10);
    let body = json!({"prompt": "say abc", "stream": true, "max_tokens": 2});
    let pieces = post(&server, "/v1/completions", &body).pieces();
    assert_eq!(streamed(&pieces, 0), "ab");
    assert_eq!(pieces.last().expect("pieces")["choices"][0]["finish_reason"], "length");
}

#[test]
fn texts_have_vectors() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"input": ["ab", "c"]});
    let reply = post(&server, "/v1/embeddings", &body).json();
    assert_eq!(reply["data"][0]["embedding"], json!([2.0, 195.0]));
    assert_eq!(reply["data"][1]["embedding"], json!([1.0, 99.0]));
    assert_eq!(reply["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    let body = json!({"input": "ab", "encoding_format": "base64"});
    let reply = post(&server, "/v1/embeddings", &body).json();
    assert_eq!(reply["data"][0]["embedding"], "AAAAQAAAQ0M=");
    let server = serve(Toy::new().without_embeddings(), ServeOptions::default());
    let response = post(&server, "/v1/embeddings", &json!({"input": "ab"}));
    assert_eq!(response.status, 501);
    assert_eq!(response.message(), "this model offers no embeddings");
}

#[test]
fn models_are_listed() {
    let (server, _) = start(ServeOptions::default());
    let list = get(&server, "/v1/models").json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "org/toy");
    assert_eq!(list["data"][0]["max_model_len"], CONTEXT);
    assert_eq!(get(&server, "/v1/models/org/toy").json()["id"], "org/toy");
    assert_eq!(get(&server, "/v1/models/other").status, 404);
    let body = json!({"model": "other", "messages": user("a")});
    let response = post(&server, "/v1/chat/completions", &body);
    assert_eq!(
        (response.status, response.json()["error"]["code"].as_str()),
        (404, Some("model_not_found"))
    );
}

#[test]
fn the_page_asks_nothing_of_others() {
    let (server, _) = start(ServeOptions::default());
    let page = get(&server, "/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").is_some_and(|ty| ty.starts_with("text/html")));
    assert!(page.header("content-security-policy").is_some_and(|p| p.contains("'none'")));
    assert!(!page.body.contains("http://") && !page.body.contains("https://"));
    assert!(!page.body.contains("innerHTML"), "what is shown must be text");
}

#[test]
fn health_is_told() {
    let (server, _) = start(ServeOptions::default());
    assert_eq!(get(&server, "/health").json(), json!({"status": "ok"}));
}

/// The value of a sample of the metrics page.
fn sample(page: &str, name: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().expect("a number"))
}

#[test]
fn metrics_are_well_formed() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"messages": user("say hello")});
    post(&server, "/v1/chat/completions", &body);
    get(&server, "/made/up");
    let page = get(&server, "/metrics").body;
    let mut kinds = Vec::new();
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            kinds.push(kind.split(' ').next().expect("a name"));
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            let name = name.split('{').next().expect("a name");
            let kind = kinds.last().expect("its type stands before it");
            assert!(name.starts_with(kind), "{name} below {kind}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    let unique: std::collections::BTreeSet<&&str> = kinds.iter().collect();
    assert_eq!(unique.len(), kinds.len(), "a name has one type");
    let chats = "genesis_requests_total{route=\"/v1/chat/completions\",status=\"200\"}";
    assert_eq!(sample(&page, chats), Some(1.0));
    assert_eq!(sample(&page, "genesis_requests_total{route=\"other\",status=\"404\"}"), Some(1.0));
    assert_eq!(sample(&page, "genesis_generation_tokens_total"), Some(6.0));
    let prompt = rendered("say hello").len() as f64;
    assert_eq!(sample(&page, "genesis_prompt_tokens_total"), Some(prompt));
    assert_eq!(sample(&page, "genesis_time_to_first_token_seconds_count"), Some(1.0));
    let count = sample(&page, "genesis_inter_token_latency_seconds_count");
    assert_eq!(count, sample(&page, "genesis_inter_token_latency_seconds_bucket{le=\"+Inf\"}"));
    assert_eq!(count, Some(5.0));
    assert_eq!(sample(&page, "genesis_toy_answers"), Some(0.0));
    assert_eq!(sample(&page, "genesis_requests_running"), Some(0.0));
}

#[test]
fn fields_that_nobody_reads_are_named() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"messages": user("a"), "user": "x", "store": true, "seed": 3});
    let response = post(&server, "/v1/chat/completions", &body);
    assert_eq!(response.header("x-genesis-ignored"), Some("user, store"));
    let response = post(&server, "/v1/chat/completions", &json!({"messages": user("a")}));
    assert_eq!(response.header("x-genesis-ignored"), None);
}

#[test]
fn wrong_types_are_refused_by_name() {
    let (server, _) = start(ServeOptions::default());
    for (field, value) in [
        ("messages", json!("hi")),
        ("stream", json!("yes")),
        ("n", json!(0)),
        ("temperature", json!("hot")),
        ("top_p", json!(1.5)),
        ("max_tokens", json!(-1)),
        ("stop", json!(3)),
        ("seed", json!("a")),
        ("logit_bias", json!([])),
        ("tools", json!({})),
        ("model", json!(1)),
        ("stream_options", json!(true)),
        ("response_format", json!("json")),
        ("logprobs", json!(3)),
    ] {
        let mut body = json!({"messages": user("a")});
        body[field] = value;
        let response = post(&server, "/v1/chat/completions", &body);
        let error = &response.json()["error"];
        assert_eq!(response.status, 400, "{field}");
        assert_eq!(error["param"], field);
        assert_eq!(error["type"], "invalid_request_error");
        assert!(response.message().contains(&format!("`{field}`")), "{}", response.message());
    }
}

#[test]
fn bodies_that_are_no_requests_are_refused() {
    let (server, _) = start(ServeOptions::default());
    let deep = "[".repeat(200_000);
    for body in
        ["", "{", "[]", "null", "{\"messages\": [", "\u{0}", &deep, "{\"prompt\": \"\\ud800\"}"]
    {
        for path in ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"] {
            let response = post_text(&server, path, body);
            assert_eq!(response.status, 400, "{path} {:.20}", body);
            assert!(!response.message().is_empty());
        }
    }
    let plain =
        request(&server, "POST", "/v1/completions", &[("content-type", "text/plain")], "{}");
    assert_eq!(plain.status, 415);
    assert_eq!(get(&server, "/v1/completions").status, 405);
    assert_eq!(get(&server, "/v2").status, 404);
    assert_eq!(get(&server, "/health").status, 200);
}

#[test]
fn a_format_that_can_not_be_kept_is_refused() {
    let (server, _) = start(ServeOptions::default());
    let body = json!({"messages": user("a"), "response_format": {"type": "json_object"}});
    let response = post(&server, "/v1/chat/completions", &body);
    assert_eq!(response.status, 400);
    assert!(response.message().contains("can't hold answers to JSON"), "{}", response.message());
}

#[test]
fn failures_of_the_model_reach_the_client() {
    let (server, _) = start(ServeOptions::default());
    let mut body = json!({"messages": user("fail")});
    let response = post(&server, "/v1/chat/completions", &body);
    assert_eq!(response.status, 500);
    assert_eq!(response.message(), "matmul: the device is lost");
    body["stream"] = json!(true);
    let response = post(&server, "/v1/chat/completions", &body);
    let last = data(&response.body).last().expect("an event").to_owned();
    let last: Value = serde_json::from_str(&last).expect("JSON, and not [DONE]");
    assert_eq!(last["error"]["message"], "matmul: the device is lost");
}
