//! Damaged tokenizers, chat templates and their configurations.
//!
//! A tokenizer that is read is used too: what a file gets wrong may show when a text comes.

use std::fs;
use std::path::Path;

use genesis::data::SampleRng;
use genesis::text::{Conversation, Pretrained, Tokenizer, Vocabulary};
use serde_json::{Value, json};

use crate::mutate::told;

/// Files by name, and what reads them; whether it was accepted.
pub type TextFormat = (&'static str, Vec<u8>, fn(&Path) -> bool);

/// All that is read for the sake of text.
pub fn formats() -> Vec<TextFormat> {
    vec![
        ("tokenizer-byte-level", byte_level().to_string().into_bytes(), read_tokenizer),
        ("tokenizer-sentence-piece", sentence_piece().to_string().into_bytes(), read_tokenizer),
        ("tokenizer-unigram", unigram().to_string().into_bytes(), read_tokenizer),
        ("tokenizer-word-piece", word_piece().to_string().into_bytes(), read_tokenizer),
        ("tokenizer-config", CONFIG.to_vec(), read_config),
        ("generation-config", br#"{"eos_token_id": [2, 3], "top_p": 0.9}"#.to_vec(), read_ends),
        ("chat-template", TEMPLATE.to_vec(), read_template),
        ("chat-template-python", PYTHON.to_vec(), read_template),
        ("vocabulary", VOCABULARY.to_vec(), read_vocabulary),
    ]
}

/// Values that a file may have in the place of others.
fn odd_values() -> [Value; 12] {
    let numbers = [json!(-1), json!(0), json!(1e300), json!(u32::MAX), json!(u64::MAX)];
    let [a, b, c, d, e] = numbers;
    let long = json!("ab".repeat(300));
    [a, b, c, d, e, json!(null), json!(true), json!(""), json!("##"), json!([]), json!({}), long]
}

/// A file with some values in the places of others: unlike changed bytes it is JSON still.
pub fn rearranged(valid: &[u8], rng: &mut SampleRng) -> Vec<u8> {
    let Ok(mut json) = serde_json::from_slice::<Value>(valid) else { return valid.to_vec() };
    for _ in 0..=rng.below(3) {
        let mut places = Vec::new();
        list_places(&json, &mut String::new(), &mut places);
        let place = &places[rng.below(places.len())];
        let other = match rng.below(3) {
            0 => odd_values()[rng.below(12)].clone(),
            _ => json.pointer(&places[rng.below(places.len())]).cloned().unwrap_or_default(),
        };
        let (parent, key) = place.rsplit_once('/').unwrap_or_default();
        let is_removed = rng.below(5) == 0;
        match json.pointer_mut(parent) {
            Some(Value::Object(object)) if is_removed => drop(object.shift_remove(key)),
            Some(Value::Array(list)) if is_removed => drop(list.pop()),
            _ => {
                if let Some(value) = json.pointer_mut(place) {
                    *value = other;
                }
            }
        }
    }
    json.to_string().into_bytes()
}

/// The pointers to all values below one.
fn list_places(json: &Value, path: &mut String, places: &mut Vec<String>) {
    places.push(path.clone());
    let entries: Vec<(String, &Value)> = match json {
        Value::Array(list) => list.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        Value::Object(object) => object.iter().map(|(key, v)| (key.clone(), v)).collect(),
        _ => return,
    };
    for (key, value) in entries {
        let len = path.len();
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        list_places(value, path, places);
        path.truncate(len);
    }
}

const TEXT: &str = "It's  the 12345 tokens,\n\n naïve <s>東京</s> 😀 \u{301}ab\u{0}";

/// Reads a tokenizer and uses it.
fn read_tokenizer(path: &Path) -> bool {
    told(path, Tokenizer::from_file(path)).is_some_and(|tokenizer| is_usable(&tokenizer))
}

/// Encodes, decodes and streams; errors are answers too.
fn is_usable(tokenizer: &Tokenizer) -> bool {
    let ids = tokenizer.encode(TEXT, true).unwrap_or_default();
    let ids: Vec<u32> = ids.into_iter().chain(0..40).chain([u32::MAX]).collect();
    for skip_special in [false, true] {
        let mut stream = tokenizer.stream(skip_special);
        let pieces: Result<Vec<String>, _> = ids.iter().map(|&id| stream.push(id)).collect();
        let end = stream.finish();
        let whole = tokenizer.decode(&ids, skip_special);
        if let (Ok(pieces), Ok(whole)) = (pieces, whole) {
            assert_eq!(pieces.concat() + &end, whole, "streamed and whole");
        }
    }
    let _ = (tokenizer.vocab_size(), tokenizer.token_bytes(3), tokenizer.is_special(0));
    true
}

/// Reads the file as one of a model folder.
fn read_as(name: &str, path: &Path) -> bool {
    let Ok(folder) = tempfile::tempdir() else { return false };
    let file = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).is_ok();
    let is_there = fs::read(path).is_ok_and(|bytes| file(name, &bytes))
        && file("tokenizer.json", byte_level().to_string().as_bytes());
    is_there
        && told(folder.path(), Pretrained::load(folder.path())).is_some_and(|model| {
            let template = model.chat_template(false);
            let conversation = model.conversation(vec![json!({"role": "user", "content": "x"})]);
            let _ = template.and_then(|template| template.render(&conversation));
            is_usable(&model.tokenizer)
        })
}

fn read_config(path: &Path) -> bool {
    read_as("tokenizer_config.json", path)
}

fn read_ends(path: &Path) -> bool {
    read_as("generation_config.json", path)
}

/// Reads a template as that of a model folder, and renders it for a conversation with tools.
fn read_template(path: &Path) -> bool {
    let Ok(folder) = tempfile::tempdir() else { return false };
    let [template, tokenizer] =
        ["chat_template.jinja", "tokenizer.json"].map(|name| folder.path().join(name));
    let is_there = fs::copy(path, &template).is_ok()
        && fs::write(tokenizer, br#"{"model": {"type": "BPE", "vocab": {}, "merges": []}}"#)
            .is_ok();
    let model = told(&template, Pretrained::load(folder.path()));
    let template = model.and_then(|model| told(&template, model.chat_template(true)));
    let call = json!([{"function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]);
    let conversation = Conversation {
        messages: vec![
            json!({"role": "system", "content": "Be kind."}),
            json!({"role": "user", "content": [{"type": "text", "text": " Hi\n"}]}),
            json!({"role": "assistant", "content": "<think>\nx</think> y", "tool_calls": call}),
        ],
        tools: vec![json!({"name": "f", "items": {"a": "é"}})],
        add_generation_prompt: true,
        bos_token: "<s>".to_owned(),
        ..Conversation::default()
    };
    is_there && template.is_some_and(|template| template.render(&conversation).is_ok())
}

/// Reads the lists of a GGUF file, written as JSON.
fn read_vocabulary(path: &Path) -> bool {
    let json = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let Some(json) = json else { return false };
    let id = |name: &str| json[name].as_u64().and_then(|id| u32::try_from(id).ok());
    fn list<T: serde_json::value::Index + Copy>(json: &Value, name: T) -> Vec<String> {
        let items = json[name].as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    }
    let numbers = |name: &str| {
        let items = json[name].as_array().into_iter().flatten();
        items.filter_map(Value::as_f64).collect::<Vec<f64>>()
    };
    let vocabulary = Vocabulary {
        model: json["model"].as_str().unwrap_or_default().to_owned(),
        pre: json["pre"].as_str().unwrap_or_default().to_owned(),
        tokens: list(&json, "tokens"),
        merges: list(&json, "merges"),
        scores: numbers("scores").into_iter().map(|score| score as f32).collect(),
        token_types: numbers("token_types").into_iter().map(|ty| ty as i32).collect(),
        bos: id("bos"),
        eos: id("eos"),
        unk: id("unk"),
        pad: id("pad"),
        add_bos: json["add_bos"] == true,
        add_eos: json["add_eos"] == true,
        add_space_prefix: json["add_space_prefix"] == true,
    };
    Pretrained::from_vocabulary(&vocabulary, None).is_ok_and(|model| is_usable(&model.tokenizer))
}

fn added(id: u32, content: &str, is_special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": true,
           "normalized": !is_special, "special": is_special})
}

fn byte_level() -> Value {
    let split = json!({"type": "Split", "pattern": {"Regex": r"[0-9]{1,3}|'s| ?[a-z]+|\s+(?!\S)|\s+"},
                       "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<s>", true), added(1, "</s>", true), added(9, "naïve", false)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "Ġ": 5, "t": 6, "h": 7, "th": 8, "naïve": 9, "Ã": 10},
            "merges": [["a", "b"], ["t", "h"]]}
    })
}

fn sentence_piece() -> Value {
    json!({
        "version": "1.0",
        "added_tokens": [added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0xC3>": 3, "<0xAF>": 4, "▁": 5, "a": 6, "b": 7, "▁a": 8},
            "merges": ["▁ a"]}
    })
}

fn unigram() -> Value {
    json!({
        "version": "1.0", "added_tokens": [added(1, "</s>", true)],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
            "vocab": [["<unk>", 0.0], ["</s>", 0.0], ["▁", -2.5], ["a", -3.0], ["ab", -3.5], ["é", -4]]}
    })
}

fn word_piece() -> Value {
    json!({
        "version": "1.0", "added_tokens": [added(0, "[UNK]", true)],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[UNK]", 0], "cls": ["[UNK]", 0]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "it": 1, "##s": 2, "th": 3, "##e": 4, ",": 5}}
    })
}

const CONFIG: &[u8] = br#"{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
"added_tokens_decoder": {"0": {"content": "<s>", "special": true}, "11": {"content": "<t>", "rstrip": true}},
"extra_special_tokens": {"image_token": "<i>"}, "chat_template": [{"name": "default", "template": "{{ bos_token }}"}]}"#;

const TEMPLATE: &[u8] = br"{{- bos_token }}
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}{{ 'x' | trim }}{% endif %}
    {% generation %}{{ message['content'] | string }}{% endgeneration %}
{% endfor -%}
{%- if tools is defined and tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- macro f(x) %}{{ x.name }}{% endmacro %}{{ f(tools[0]) }}
{%- if add_generation_prompt %}<|assistant|>{% endif %}
{# a comment #}{{ raise_exception('no') if messages | length > 9 }}
";

const PYTHON: &[u8] = br"{%- set ns = namespace(n=0, last=messages[0]) %}
{%- for m in messages[::-1] %}{% set ns.n = ns.n + loop.index0 %}
{%- set c = m.content if m.content is string else m.content[0].text %}
{{- c.split('</think>')[-1].lstrip('\n').strip() ~ c.rstrip() | upper }}
{%- for k, v in tools[0].items() %}{{ k ~ '=' ~ v | tojson }}{{ v | string | indent(2) }}{% endfor %}
{%- if c.startswith('<think>') and not c.endswith('x') %}{{ c.replace('x', 'yy') | length }}{% endif %}
{%- endfor %}{{ ns.n }}{{ [1, 2.5, none, true] | join(', ') }}{{ strftime_now('%d %b') | length }}
";

const VOCABULARY: &[u8] = br#"{"model": "llama", "pre": "", "tokens": ["<unk>", "<s>", "<0xC3>", " ", "a", "b", "ab", "ba", "aba"],
"merges": [], "scores": [0, 0, 0, -1, -2, -3, -4, -5.5, -6], "token_types": [2, 3, 6, 1, 1, 1, 1, 1, 4], "bos": 1, "eos": 1,
"unk": 0, "add_bos": true, "add_eos": false, "add_space_prefix": true}"#;
