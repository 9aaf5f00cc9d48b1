//! Damaged files of models: configurations, GGUF files and safetensors that whole models are loaded from.
//!
//! One file of a model is damaged, the others are whole. A model that is loaded all the same runs: what a
//! configuration gets wrong may show when tokens come.

use std::fs;
use std::path::Path;

use anyhow::Result;
use genesis::io::{GgmlType, GgufFile, Weights};
use genesis::models::{LoadOptions, Loaded, Pass, load};
use genesis::text::Pretrained;
use genesis::{Device, Tensor};

use crate::gguf_writer::{GgufWriter, TinyModel};
use crate::mutate::{Format, told};

/// Configurations that are damaged; each is of a kind that has settings of its own.
const CONFIGS: [(&str, &str); 6] = [
    ("config-llama", "llama_yarn"),
    ("config-qwen2", "qwen2_window"),
    ("config-qwen3-moe", "qwen3_moe"),
    ("config-gemma2", "gemma2"),
    ("config-gemma3", "gemma3"),
    ("config-gpt2", "gpt2"),
];

/// Formats by the name of their files, with their files below `folder`.
///
/// # Errors
/// If a file can't be made.
pub fn formats(folder: &Path) -> Result<Vec<Format>> {
    let mut all = Vec::new();
    for (name, fixture) in CONFIGS {
        all.push(damaged(name, fixture, "config.json", &folder.join(name))?);
    }
    let weights = "model.safetensors";
    let model = damaged("safetensors-model", "llama_tied", weights, &folder.join(weights))?;
    let length = model.valid.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    all.push(model.headed(8 + length as usize));
    for (name, ty, experts) in
        [("gguf-llama", GgmlType::Q8_0, 0), ("gguf-experts", GgmlType::Q4_0, 2)]
    {
        let model = TinyModel { ty, channels: 32, hidden: 32, vocabulary: 9, experts };
        let file = with_text(model.file(&model.shapes()));
        all.push(Format::new(name, file.bytes(), is_read).headed(file.header().len()));
    }
    Ok(all)
}

/// A file of a fixture's folder, the other one of which is whole.
fn damaged(name: &'static str, fixture: &str, file: &str, folder: &Path) -> Result<Format> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models").join(fixture);
    fs::create_dir_all(folder)?;
    for file in ["config.json", "model.safetensors"] {
        fs::copy(from.join(file), folder.join(file))?;
    }
    let (valid, folder, path) = (fs::read(from.join(file))?, folder.to_owned(), folder.join(file));
    Ok(Format::new(name, valid, move |file| fs::copy(file, &path).is_ok() && is_loaded(&folder)))
}

/// Loads a model and runs it; whether it was accepted.
fn is_loaded(path: &Path) -> bool {
    let options = LoadOptions { device: Device::Cpu, ..LoadOptions::default() };
    told(path, load(path, &options)).is_some_and(|loaded| runs(&loaded))
}

/// Logits of a few tokens; errors are answers too.
fn runs(loaded: &Loaded) -> bool {
    let tokens = Tensor::from_slice_on(&[1i64, 0, 1], &[1, 3], Device::Cpu);
    let model = &loaded.model;
    let hidden = tokens.and_then(|tokens| model.hidden(&tokens, &Pass::Whole));
    let _ = hidden.and_then(|hidden| model.logits(&hidden));
    true
}

/// All that is read of a GGUF file: its weights, its model and its text.
fn is_read(path: &Path) -> bool {
    let weights = told(path, Weights::open(path));
    let is_whole = weights.is_some_and(|weights| {
        told(path, weights.load_all(Device::Cpu)).is_some_and(|all| !all.is_empty())
    });
    let file = told(path, GgufFile::open(path));
    let is_text = file.is_some_and(|file| {
        told(path, Pretrained::from_gguf(&file)).is_some_and(|text| {
            // Without the key there is no template, which is no fault of the file.
            let has_template = !text.chat_templates.is_empty();
            let template = has_template.then(|| told(path, text.chat_template(false))).flatten();
            let message = serde_json::json!({"role": "user", "content": "ab"});
            let conversation = text.conversation(vec![message]);
            template.is_some_and(|template| template.render(&conversation).is_ok())
        })
    });
    is_loaded(path) && is_text && is_whole
}

/// A file with a vocabulary, a chat template and tokens of its own.
fn with_text(file: GgufWriter) -> GgufWriter {
    file.text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &["<unk>", "<s>", "<0xC3>", " ", "a", "b", "ab", "ba", "c"])
        .floats("tokenizer.ggml.scores", &[0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.5, -6.0])
        .integers("tokenizer.ggml.token_type", &[2, 3, 6, 1, 1, 1, 1, 1, 1])
        .count("tokenizer.ggml.bos_token_id", 1)
        .count("tokenizer.ggml.unknown_token_id", 0)
        .text("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")
}
