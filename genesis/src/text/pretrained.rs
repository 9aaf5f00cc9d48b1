//! All that a model folder says about text: its tokenizer, special tokens, chat templates and where answers end.
//!
//! The facts are spread over files that grew over the years, and they contradict each other. What counts is what
//! `transformers` makes of them:
//!
//! | what | where, the first that has it |
//! |---|---|
//! | vocabulary | `tokenizer.json` |
//! | special tokens | `tokenizer_config.json`; `special_tokens_map.json` over it, where it has no `added_tokens_decoder` |
//! | chat template | `chat_template.jinja` and `chat_templates/*.jinja`; `tokenizer_config.json`; `chat_template.json` |
//! | ends | `generation_config.json`, else `config.json`; and the end-of-sequence token |

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::template::{ChatTemplate, Conversation};
use super::tokenizer::Tokenizer;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::files::{MOST_CONFIG, read_at_most};

/// The template for everything.
const DEFAULT: &str = "default";
/// The template for conversations with tools.
const TOOL_USE: &str = "tool_use";

/// The text side of a published model.
#[derive(Clone, Debug)]
pub struct Pretrained {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Special tokens by their names, `bos_token` and the like.
    pub special_tokens: BTreeMap<String, String>,
    /// Ids that end an answer, in order and each once.
    pub stop_tokens: Vec<u32>,
    /// Sources of chat templates by name; the usual one is `default`.
    pub chat_templates: BTreeMap<String, String>,
    /// The file that each template is from, for errors.
    pub template_files: BTreeMap<String, PathBuf>,
}

impl Pretrained {
    /// Reads a model folder as Hugging Face publishes it.
    ///
    /// # Errors
    /// If `tokenizer.json` is absent, or a file is not what its name says; the error names it.
    pub fn load(folder: impl AsRef<Path>) -> Result<Pretrained> {
        let folder = folder.as_ref();
        let tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))?;
        let config = optional_object(folder, "tokenizer_config.json")?.unwrap_or_default();
        let map = optional_object(folder, "special_tokens_map.json")?.unwrap_or_default();
        let special_tokens = special_tokens(&config, &map);
        let added = added_tokens(&tokenizer, &config, &special_tokens)
            .map_err(|why| problem(folder, "tokenizer_config.json", &why))?;
        let tokenizer = tokenizer.with_added(&added)?;
        let mut stop_tokens = ends(folder)?;
        let eos = special_tokens.get("eos_token");
        stop_tokens.extend(eos.and_then(|token| tokenizer.token_to_id(token)));
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        let mut model = Pretrained {
            tokenizer,
            special_tokens,
            stop_tokens,
            chat_templates: BTreeMap::new(),
            template_files: BTreeMap::new(),
        };
        for Source { name, source, file } in chat_templates(folder, &config)? {
            model.template_files.insert(name.clone(), file);
            model.chat_templates.insert(name, source);
        }
        Ok(model)
    }

    /// What a GGUF file says: its vocabulary and `tokenizer.chat_template`.
    ///
    /// # Errors
    /// If the vocabulary is not supported, or its lists don't fit each other.
    pub fn from_vocabulary(vocabulary: &Vocabulary, template: Option<&str>) -> Result<Pretrained> {
        let tokenizer = Tokenizer::from_vocabulary(vocabulary)?;
        let Vocabulary { bos, eos, unk, pad, .. } = vocabulary;
        let mut special_tokens = BTreeMap::new();
        for (id, name) in [(bos, "bos"), (eos, "eos"), (unk, "unknown"), (pad, "padding")] {
            let key = match name {
                "unknown" => "unk_token".to_owned(),
                "padding" => "pad_token".to_owned(),
                name => format!("{name}_token"),
            };
            if let Some(token) = vocabulary.named(*id, name)? {
                special_tokens.insert(key, token.to_owned());
            }
        }
        let template = template.map(|source| (DEFAULT.to_owned(), source.to_owned()));
        Ok(Pretrained {
            tokenizer,
            special_tokens,
            stop_tokens: eos.iter().copied().collect(),
            chat_templates: template.into_iter().collect(),
            template_files: BTreeMap::new(),
        })
    }

    /// The chat template, the one for tools where there is one and tools are given.
    ///
    /// # Errors
    /// If there is none, or it is no Jinja2; the error names the file that it is from, and the line.
    pub fn chat_template(&self, has_tools: bool) -> Result<ChatTemplate> {
        let tools = self.chat_templates.get_key_value(TOOL_USE).filter(|_| has_tools);
        let usual = tools.or_else(|| self.chat_templates.get_key_value(DEFAULT));
        let (name, source) = usual.ok_or_else(|| {
            let names: Vec<&str> = self.chat_templates.keys().map(String::as_str).collect();
            let why = match names.is_empty() {
                true => "the model has none".to_owned(),
                false => format!("the model has none named {DEFAULT}, only {}", names.join(", ")),
            };
            Error::op("chat template", why)
        })?;
        ChatTemplate::new(source).map_err(|error| match self.template_files.get(name) {
            Some(file) => Error::io(format!("{}: {error}", file.display())),
            None => error,
        })
    }

    /// A conversation with this model's special tokens.
    pub fn conversation(&self, messages: Vec<Value>) -> Conversation {
        let token = |name: &str| self.special_tokens.get(name).cloned().unwrap_or_default();
        let rest = self.special_tokens.iter();
        let rest = rest.filter(|(name, _)| !matches!(name.as_str(), "bos_token" | "eos_token"));
        Conversation {
            messages,
            add_generation_prompt: true,
            bos_token: token("bos_token"),
            eos_token: token("eos_token"),
            extra: rest.map(|(name, token)| (name.clone(), token.clone().into())).collect(),
            ..Conversation::default()
        }
    }
}

/// The object of a JSON file that may be absent.
fn optional_object(folder: &Path, name: &str) -> Result<Option<Map<String, Value>>> {
    let path = folder.join(name);
    if !path.exists() {
        return Ok(None);
    }
    let json = serde_json::from_slice(&read_at_most(&path, MOST_CONFIG)?);
    match json.map_err(|error| problem(folder, name, &format!("is no JSON: {error}")))? {
        Value::Object(object) => Ok(Some(object)),
        _ => Err(problem(folder, name, "is not a JSON object")),
    }
}

/// The text of a file that may be absent.
fn optional_text(path: &Path) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = String::from_utf8(read_at_most(path, MOST_CONFIG)?);
    text.map(Some).map_err(|error| Error::io(format!("{}: {error}", path.display())))
}

/// The text of a token, which is a string or an object of a string and its flags.
fn content(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

/// Special tokens by name.
fn special_tokens(
    config: &Map<String, Value>,
    map: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let is_map_read = !config.contains_key("added_tokens_decoder");
    let more = map.iter().filter(|_| is_map_read);
    // Later ones win: the map over the configuration.
    let extra = config.get("extra_special_tokens").and_then(Value::as_object);
    let entries = extra.into_iter().flatten().chain(config).chain(more);
    entries
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, token)| Some((name.clone(), content(token)?.to_owned())))
        .collect()
}

/// Tokens that the configuration adds to those of `tokenizer.json`.
fn added_tokens(
    tokenizer: &Tokenizer,
    config: &Map<String, Value>,
    special: &BTreeMap<String, String>,
) -> Result<Vec<AddedToken>, String> {
    let known = tokenizer.inner().get_added_tokens_decoder();
    let known: BTreeMap<&str, &AddedToken> =
        known.values().map(|token| (token.content.as_str(), token)).collect();
    let mut added = BTreeMap::new();
    if let Some(decoder) = config.get("added_tokens_decoder") {
        let decoder = decoder.as_object().ok_or("added_tokens_decoder is not an object")?;
        for (id, token) in decoder {
            let number: u32 = id.parse().map_err(|_| format!("added token {id:?} is no id"))?;
            let text = content(token).ok_or_else(|| format!("added token {id} has no content"))?;
            let flag = |name: &str| token[name].as_bool();
            if !known.contains_key(text) && !text.is_empty() {
                let is_special = flag("special").unwrap_or(false);
                let token = AddedToken::from(text, is_special)
                    .single_word(flag("single_word").unwrap_or(false))
                    .lstrip(flag("lstrip").unwrap_or(false))
                    .rstrip(flag("rstrip").unwrap_or(false))
                    .normalized(flag("normalized").unwrap_or(!is_special));
                added.insert(number, token);
            }
        }
    }
    let mut tokens: Vec<AddedToken> = added.into_values().collect();
    for text in special.values().filter(|text| !text.is_empty()) {
        if let Some(token) = tokens.iter_mut().find(|token| token.content == *text) {
            token.special = true;
        } else if let Some(token) = known.get(text.as_str()) {
            let mut token = (*token).clone();
            if !token.special {
                token.special = true;
                tokens.push(token);
            }
        } else if tokenizer.token_to_id(text).is_some() {
            // A token that the vocabulary lacks would be given an id that the model lacks.
            tokens.push(AddedToken::from(text.as_str(), true).normalized(false));
        }
    }
    Ok(tokens)
}

/// The ids that end an answer, as far as configurations say.
fn ends(folder: &Path) -> Result<Vec<u32>> {
    for name in ["generation_config.json", "config.json"] {
        let Some(config) = optional_object(folder, name)? else { continue };
        let ids = match config.get("eos_token_id") {
            None | Some(Value::Null) => continue,
            Some(Value::Array(ids)) => ids.as_slice(),
            Some(id) => std::slice::from_ref(id),
        };
        let id = |id: &Value| u32::try_from(id.as_u64()?).ok();
        let ids: Option<Vec<u32>> = ids.iter().map(id).collect();
        return ids
            .ok_or_else(|| problem(folder, name, "eos_token_id is neither an id nor a list"));
    }
    Ok(Vec::new())
}

/// A template, and the file that it is from.
struct Source {
    name: String,
    source: String,
    file: PathBuf,
}

/// Sources of templates.
fn chat_templates(folder: &Path, config: &Map<String, Value>) -> Result<Vec<Source>> {
    let mut templates = Vec::new();
    let file = folder.join("chat_template.jinja");
    if let Some(source) = optional_text(&file)? {
        templates.push(Source { name: DEFAULT.to_owned(), source, file });
    }
    if let Ok(entries) = fs::read_dir(folder.join("chat_templates")) {
        for file in entries.flatten().map(|entry| entry.path()) {
            let name = file.file_name().and_then(|name| name.to_str());
            let Some(name) = name.and_then(|name| name.strip_suffix(".jinja")) else { continue };
            let name = name.to_owned();
            if let Some(source) = optional_text(&file)? {
                templates.push(Source { name, source, file });
            }
        }
    }
    if !templates.is_empty() {
        return Ok(templates);
    }
    let named = |value: Option<&Value>, file: &str| -> Result<Vec<Source>> {
        let named = named_templates(value).map_err(|why| problem(folder, file, why))?;
        let file = folder.join(file);
        let source = |(name, source)| Source { name, source, file: file.clone() };
        Ok(named.into_iter().map(source).collect())
    };
    let templates = named(config.get("chat_template"), "tokenizer_config.json")?;
    if !templates.is_empty() {
        return Ok(templates);
    }
    let old = optional_object(folder, "chat_template.json")?.unwrap_or_default();
    named(old.get("chat_template"), "chat_template.json")
}

/// One source, or a list of named ones.
fn named_templates(value: Option<&Value>) -> Result<BTreeMap<String, String>, &'static str> {
    let one = |source: &str| (DEFAULT.to_owned(), source.to_owned());
    match value {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::String(source)) => Ok(BTreeMap::from([one(source)])),
        Some(Value::Array(list)) => {
            let named = |entry: &Value| {
                let text = |key: &str| entry.get(key)?.as_str().map(str::to_owned);
                text("name").zip(text("template"))
            };
            let all: Option<_> = list.iter().map(named).collect();
            all.ok_or("chat_template has an entry without name or template")
        }
        Some(_) => Err("chat_template is neither a text nor a list"),
    }
}

fn problem(folder: &Path, name: &str, why: &str) -> Error {
    Error::io(format!("{}: {why}", folder.join(name).display()))
}
