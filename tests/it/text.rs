//! Tokenizers and chat templates against what transformers made of the same: golden files of `tests/parity/text_*.py`.
//!
//! Vocabularies of published models are too large for the repository. `GENESIS_TEST_TOKENIZERS` names a folder of
//! them with golden files beside; without it that comparison does not run, and says so. `GENESIS_TEST_TEMPLATES`
//! names a golden file of more templates.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use genesis::data::SampleRng;
use genesis::text::{ChatTemplate, Conversation, Pretrained, Tokenizer, Vocabulary};
use serde_json::{Value, json};
use tests::mutate_text;

use crate::skipped::tell;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/text").join(name)
}

fn unpacked(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file = fs::File::open(path).with_context(|| path.display().to_string())?;
    GzDecoder::new(file).read_to_string(&mut text)?;
    Ok(text)
}

fn golden(name: &str) -> Result<Value> {
    Ok(serde_json::from_str(&unpacked(&fixture(name))?)?)
}

fn ids(value: &Value) -> Result<Vec<u32>> {
    Ok(serde_json::from_value(value.clone())?)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a text")
}

/// The text of the ids, one by one.
fn streamed(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> Result<String> {
    let mut stream = tokenizer.stream(skip_special);
    let mut whole = String::new();
    for &id in ids {
        whole.push_str(&stream.push(id)?);
    }
    whole.push_str(&stream.finish());
    Ok(whole)
}

/// Whether ids decode to what transformers decodes them to, at once and one by one.
fn decodes(tokenizer: &Tokenizer, ids: &[u32], plain: &str, skipped: &str) -> Result<()> {
    for (skip, expected) in [(false, plain), (true, skipped)] {
        let whole = tokenizer.decode(ids, skip)?;
        ensure!(whole == expected, "{ids:?} give {whole:?}, not {expected:?}");
        let pieces = streamed(tokenizer, ids, skip)?;
        ensure!(pieces == expected, "{ids:?} one by one give {pieces:?}, not {expected:?}");
    }
    Ok(())
}

#[test]
fn ids_and_texts_are_those_of_transformers() -> Result<()> {
    for name in ["byte_level.json.gz", "sentence_piece.json.gz"] {
        let golden = golden(name)?;
        let tokenizer = Tokenizer::from_bytes(golden["tokenizer"].to_string().as_bytes())?;
        for row in golden["golden"].as_array().context("rows")? {
            let given = text(&row[0])?;
            for (add_special, expected) in [(false, ids(&row[1])?), (true, ids(&row[2])?)] {
                ensure!(tokenizer.encode(given, add_special)? == expected, "{name}: {given:?}");
            }
            decodes(&tokenizer, &ids(&row[1])?, text(&row[3])?, text(&row[4])?)?;
        }
        for row in golden["drawn"].as_array().context("rows")? {
            decodes(&tokenizer, &ids(&row[0])?, text(&row[1])?, text(&row[2])?)?;
        }
    }
    Ok(())
}

/// Compares all texts of a golden file; how many there were.
fn compare(folder: &Path, tokenizer: &Tokenizer) -> Result<usize> {
    let rows = unpacked(&folder.join("golden.jsonl.gz"))?;
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row)?;
        let expected = ids(&row["ids"])?;
        if let Some(given) = row["text"].as_str() {
            let found = tokenizer.encode(given, false)?;
            ensure!(found == expected, "{given:?} gives {found:?}, not {expected:?}");
            let special = ids(&row["special"])?;
            ensure!(tokenizer.encode(given, true)? == special, "{given:?} with special tokens");
            ensure!(streamed(tokenizer, &special, true)? == text(&row["skipped"])?, "{given:?}");
            ensure!(streamed(tokenizer, &expected, false)? == text(&row["decoded"])?, "{given:?}");
        } else {
            decodes(tokenizer, &expected, text(&row["decoded"])?, text(&row["skipped"])?)?;
        }
    }
    Ok(rows.lines().count())
}

/// What `text_tokenizers.py` wrote of a GGUF file.
fn vocabulary(path: &Path) -> Result<Vocabulary> {
    let json: Value = serde_json::from_slice(&fs::read(path)?)?;
    let flag = |name: &str| json[name].as_bool().unwrap_or_default();
    let id = |name: &str| json[name].as_u64().and_then(|id| u32::try_from(id).ok());
    Ok(Vocabulary {
        model: text(&json["model"])?.to_owned(),
        pre: text(&json["pre"])?.to_owned(),
        tokens: serde_json::from_value(json["tokens"].clone())?,
        merges: serde_json::from_value(json["merges"].clone())?,
        scores: serde_json::from_value(json["scores"].clone())?,
        token_types: serde_json::from_value(json["token_types"].clone())?,
        bos: id("bos"),
        eos: id("eos"),
        unk: id("unk"),
        pad: id("pad"),
        add_bos: flag("add_bos"),
        add_eos: flag("add_eos"),
        add_space_prefix: flag("add_space_prefix"),
    })
}

#[test]
fn published_vocabularies_give_the_ids_of_transformers() -> Result<()> {
    let Some(folder) = std::env::var_os("GENESIS_TEST_TOKENIZERS") else {
        tell(
            "GENESIS_TEST_TOKENIZERS names no folder: published vocabularies \
             (tests/parity/text_tokenizers.py says how to make one)"
                .to_owned(),
        );
        return Ok(());
    };
    let mut failures = Vec::new();
    let mut folders: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|e| e.path()).collect();
    folders.sort();
    for folder in folders.iter().filter(|folder| folder.join("golden.jsonl.gz").exists()) {
        let start = Instant::now();
        let listed = folder.join("vocabulary.json");
        let tokenizer = match listed.exists() {
            true => Tokenizer::from_vocabulary(&vocabulary(&listed)?)?,
            false => Pretrained::load(folder)?.tokenizer,
        };
        let loaded = start.elapsed();
        match compare(folder, &tokenizer) {
            Ok(rows) => println!("{}: {rows} rows equal, loaded in {loaded:?}", folder.display()),
            Err(error) => failures.push(format!("{}: {error:.400}", folder.display())),
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Renders every conversation with every option; what differs from what transformers made.
fn differences(golden: &Value) -> Result<Vec<String>> {
    let mut different = Vec::new();
    for entry in golden["templates"].as_array().context("templates")? {
        let name = text(&entry["name"])?;
        let template = ChatTemplate::new(text(&entry["template"])?)?;
        for (key, expected) in entry["rendered"].as_object().context("rendered")? {
            let (conversation, option) = key.split_once('/').context("a pair of names")?;
            let mut extra = golden["options"][option].as_object().context("options")?.clone();
            let tools = extra.shift_remove("tools");
            let add = extra.shift_remove("add_generation_prompt");
            for (name, value) in entry["variables"].as_object().context("variables")? {
                extra.entry(name).or_insert(value.clone());
            }
            let messages = golden["conversations"][conversation].as_array().context("messages")?;
            let result = template.render(&Conversation {
                messages: messages.clone(),
                tools: tools.and_then(|tools| tools.as_array().cloned()).unwrap_or_default(),
                add_generation_prompt: add == Some(Value::Bool(true)),
                extra,
                ..Conversation::default()
            });
            match (result, expected.as_str()) {
                (Ok(prompt), Some(expected)) if prompt == expected => {}
                (Err(_), None) => {}
                (result, _) => different.push(format!("{name}, {key}: {result:?}, not {expected}")),
            }
        }
    }
    Ok(different)
}

#[test]
fn prompts_are_those_of_transformers_to_the_byte() -> Result<()> {
    let different = differences(&golden("templates.json.gz")?)?;
    ensure!(different.is_empty(), "{}", different.join("\n"));
    if let Some(path) = std::env::var_os("GENESIS_TEST_TEMPLATES") {
        let more = differences(&serde_json::from_str(&unpacked(Path::new(&path))?)?)?;
        ensure!(more.is_empty(), "{} differ\n{}", more.len(), more.join("\n"));
    }
    Ok(())
}

/// The `tokenizer.json` of the small byte-level vocabulary.
pub(crate) fn byte_level_tokenizer() -> Result<String> {
    Ok(golden("byte_level.json.gz")?["tokenizer"].to_string())
}

/// A model folder of these files, with the small vocabulary.
fn folder(files: &[(&str, Value)]) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let tokenizer = golden("byte_level.json.gz")?["tokenizer"].to_string();
    fs::write(folder.path().join("tokenizer.json"), tokenizer)?;
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, content.as_str().map_or_else(|| content.to_string(), str::to_owned))?;
    }
    Ok(folder)
}

#[test]
fn a_folder_says_where_answers_end() -> Result<()> {
    let config =
        json!({"eos_token": {"content": "<|im_end|>", "lstrip": false}, "bos_token": null});
    let folder = folder(&[
        ("tokenizer_config.json", config),
        ("generation_config.json", json!({"eos_token_id": [600, 7]})),
        ("config.json", json!({"eos_token_id": 9})),
    ])?;
    let model = Pretrained::load(folder.path())?;
    assert_eq!(model.tokenizer.token_to_id("<|im_end|>"), Some(602));
    assert_eq!(model.stop_tokens, [7, 600, 602]);
    fs::remove_file(folder.path().join("generation_config.json"))?;
    assert_eq!(Pretrained::load(folder.path())?.stop_tokens, [9, 602]);
    Ok(())
}

#[test]
fn templates_are_taken_from_where_transformers_takes_them() -> Result<()> {
    let named = json!({"chat_template": [
        {"name": "default", "template": "named"}, {"name": "tool_use", "template": "tools"}
    ]});
    let folder = folder(&[
        ("chat_template.json", json!({"chat_template": "old"})),
        ("tokenizer_config.json", named),
        ("chat_templates/tool_use.jinja", json!("file for tools")),
        ("chat_template.jinja", json!("file")),
    ])?;
    let rendered = |has_tools| -> Result<String> {
        let model = Pretrained::load(folder.path())?;
        Ok(model.chat_template(has_tools)?.render(&model.conversation(Vec::new()))?)
    };
    assert_eq!((rendered(false)?, rendered(true)?), ("file".into(), "file for tools".into()));
    fs::remove_dir_all(folder.path().join("chat_templates"))?;
    assert_eq!(rendered(true)?, "file");
    fs::remove_file(folder.path().join("chat_template.jinja"))?;
    assert_eq!((rendered(false)?, rendered(true)?), ("named".into(), "tools".into()));
    fs::write(folder.path().join("tokenizer_config.json"), "{}")?;
    assert_eq!(rendered(false)?, "old");
    fs::remove_file(folder.path().join("chat_template.json"))?;
    let error = rendered(false).unwrap_err().to_string();
    assert_eq!(error, "chat template: the model has none");
    for (name, content) in [
        ("chat_template.jinja", "\n{% if %}"),
        ("tokenizer_config.json", r#"{"chat_template": "\n{% if %}"}"#),
    ] {
        fs::write(folder.path().join(name), content)?;
        let error = Pretrained::load(folder.path())?.chat_template(false).unwrap_err().to_string();
        let file = folder.path().join(name);
        let start = format!("{}: chat template: syntax error: ", file.display());
        ensure!(error.starts_with(&start) && error.ends_with("(line 2)"), "{error}");
        fs::remove_file(file)?;
    }
    Ok(())
}

#[test]
fn special_tokens_of_the_configuration_are_special() -> Result<()> {
    let added = json!({"eos_token": "</think>", "added_tokens_decoder": {
        "606": {"content": "<new>", "special": true}, "603": {"content": "<think>", "special": false}
    }});
    let folder = folder(&[("tokenizer_config.json", added)])?;
    let tokenizer = Pretrained::load(folder.path())?.tokenizer;
    let ids = tokenizer.encode("a<think>b</think>c<new>", true)?;
    assert_eq!(ids[ids.len() - 1], 606);
    assert_eq!(tokenizer.decode(&ids, true)?, "a<think>bc");
    assert_eq!(tokenizer.decode(&ids, false)?, "a<think>b</think>c<new>");
    Ok(())
}

#[test]
fn broken_folders_name_the_file() -> Result<()> {
    for (name, content, why) in [
        ("tokenizer_config.json", "[]", "is not a JSON object"),
        (
            "tokenizer_config.json",
            r#"{"chat_template": 3}"#,
            "chat_template is neither a text nor a list",
        ),
        (
            "tokenizer_config.json",
            r#"{"added_tokens_decoder": {"x": {}}}"#,
            "added token \"x\" is no id",
        ),
        (
            "generation_config.json",
            r#"{"eos_token_id": "x"}"#,
            "eos_token_id is neither an id nor a list",
        ),
        (
            "generation_config.json",
            "{",
            "is no JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("tokenizer.json", "{}", "is no tokenizer: there is no model"),
    ] {
        let folder = folder(&[(name, json!(content))])?;
        let path = folder.path().join(name);
        let error = Pretrained::load(folder.path()).expect_err(name).to_string();
        assert_eq!(error, format!("{}: {why}", path.display()));
    }
    Ok(())
}

/// `MUTATED_FILES=1000000` reads so many in the place of some hundred.
#[test]
fn files_with_values_in_the_places_of_others_are_errors() -> Result<()> {
    let count = std::env::var("MUTATED_FILES").map_or(Ok(900), |count| count.parse::<u64>())?;
    let formats = mutate_text::formats();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("rearranged");
    for number in 0..count {
        let (name, valid, read) = &formats[(number % formats.len() as u64) as usize];
        let bytes = mutate_text::rearranged(valid, &mut SampleRng::new(number));
        fs::write(&path, &bytes)?;
        let start = Instant::now();
        // What panics names its number below.
        println!("{name} {number}");
        read(&path);
        let taken = start.elapsed();
        ensure!(taken < Duration::from_secs(10), "{name} {number} took {taken:?}");
    }
    Ok(())
}

#[test]
fn long_texts_take_time_by_their_length() -> Result<()> {
    let golden = golden("byte_level.json.gz")?;
    let tokenizer = Tokenizer::from_bytes(golden["tokenizer"].to_string().as_bytes())?;
    for piece in [" ", "\n", "a", "<|im_end|>", "é", "'s", "1", "\u{301}"] {
        let given = piece.repeat((1 << 18) / piece.len());
        let start = Instant::now();
        let ids = tokenizer.encode(&given, false)?;
        let pieces = streamed(&tokenizer, &ids, false)?;
        ensure!(pieces == tokenizer.decode(&ids, false)?, "{piece:?}");
        let taken = start.elapsed();
        ensure!(taken < Duration::from_secs(20), "{piece:?} took {taken:?}");
    }
    Ok(())
}
