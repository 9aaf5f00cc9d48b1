//! Models written as GGUF files and read again: logits, names of keys, tokenizers.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use genesis::io::{GgmlType, GgufFile, GgufValue};
use genesis::models::{
    CausalLm, LoadOptions, ModelConfig, WeightForm, initialize, load, save_gguf,
};
use genesis::random::thread_rng;
use genesis::text::Pretrained;
use genesis::{DType, Device, Tensor, no_grad};
use half::f16;
use serde_json::{Map, Value, json};

use crate::lm_training::{logits, off, tokenizer};

/// A small model of a type; `more` comes over the usual keys.
fn config(model_type: &str, more: Value) -> Map<String, Value> {
    let mut config = json!({
        "model_type": model_type, "vocab_size": 320, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": false,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
        "rms_norm_eps": 1e-5,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config.as_object().cloned().unwrap_or_default()
}

/// Weights that are no round numbers, biases and norms included.
fn made(config: &Map<String, Value>) -> Result<(Arc<dyn CausalLm>, ModelConfig)> {
    let _own = thread_rng(3);
    let options = LoadOptions { trainable: true, device: Device::Cpu, ..LoadOptions::default() };
    let loaded = initialize(config, &options)?;
    for tensor in loaded.model.parameters() {
        let noise = Tensor::randn(tensor.shape(), Device::Cpu)?.mul_scalar(0.05)?;
        no_grad(|| tensor.detach().copy_(&tensor.detach().add(&noise)?))?;
    }
    Ok((loaded.model, loaded.config))
}

fn read(path: &Path, trainable: bool) -> Result<Arc<dyn CausalLm>> {
    let (dtype, weights) = (Some(DType::F32), WeightForm::Whole);
    let options = LoadOptions { dtype, trainable, weights, ..LoadOptions::default() };
    Ok(load(path, &LoadOptions { device: Device::Cpu, ..options })?.model)
}

#[test]
fn a_file_gives_the_logits_of_the_model() -> Result<()> {
    let llama3 = json!({"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 50000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    }});
    let linear = json!({"rope_parameters":
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}});
    let yarn = json!({"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 64,
    }});
    // Divisors of frequencies are f32 in a file, so that angles are rounded once more.
    for (model_type, more, near) in [
        ("llama", json!({}), 0.0),
        ("llama", json!({"attention_bias": true, "mlp_bias": true}), 0.0),
        ("llama", linear, 0.0),
        ("llama", llama3, 1e-4),
        ("qwen2", json!({"tie_word_embeddings": true}), 0.0),
        ("qwen2", yarn, 0.0),
        ("qwen3", json!({"head_dim": 32}), 0.0),
        ("mistral", json!({"sliding_window": null}), 0.0),
    ] {
        let (model, config) = made(&config(model_type, more.clone()))?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("model.gguf");
        save_gguf(&path, &*model, &config, GgmlType::F32, Vec::new())?;
        let off = off(&logits(&*model)?, &logits(&*read(&path, true)?)?)?;
        ensure!(off <= near, "{model_type} {more}: logits are off by {off}");
    }
    Ok(())
}

/// A matrix as its type keeps it, written here anew.
fn rounded(tensor: &Tensor, ty: GgmlType) -> Result<Tensor> {
    if ty != GgmlType::Q8_0 {
        let half = if ty == GgmlType::F16 { DType::F16 } else { DType::BF16 };
        return Ok(tensor.detach().to_dtype(half)?.to_dtype(DType::F32)?);
    }
    let mut values = tensor.detach().contiguous()?.to_vec::<f32>()?;
    for block in values.chunks_mut(32) {
        let largest = block.iter().map(|x| x.abs()).fold(0.0, f32::max);
        let (step, stored) = (largest / 127.0, f16::from_f32(largest / 127.0).to_f32());
        block.iter_mut().for_each(|x| *x = (*x * (1.0 / step)).round() * stored);
    }
    Ok(Tensor::from_slice_on(&values, tensor.shape(), Device::Cpu)?)
}

#[test]
fn matrices_are_rounded_to_their_type_and_vectors_are_not() -> Result<()> {
    for (ty, channels) in
        [(GgmlType::F16, 64), (GgmlType::BF16, 64), (GgmlType::Q8_0, 64), (GgmlType::Q8_0, 48)]
    {
        let (model, config) = made(&config("qwen2", json!({"hidden_size": channels})))?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("model.gguf");
        save_gguf(&path, &*model, &config, ty, Vec::new())?;
        let file = GgufFile::open(&path)?;
        // Rows of 48 are no blocks of 32.
        let wanted = if channels == 48 { GgmlType::F16 } else { ty };
        ensure!(file.tensors()["blk.1.attn_q.weight"].ty == wanted);
        ensure!(file.tensors()["blk.1.ffn_down.weight"].ty == ty);
        ensure!(file.tensors()["blk.1.attn_q.bias"].ty == GgmlType::F32);
        for tensor in model.parameters().iter().filter(|tensor| tensor.rank() == 2) {
            let ty = if tensor.shape()[1] == 48 { GgmlType::F16 } else { ty };
            let values = rounded(tensor, ty)?;
            no_grad(|| tensor.detach().copy_(&values))?;
        }
        let off = off(&logits(&*model)?, &logits(&*read(&path, true)?)?)?;
        ensure!(off == 0.0, "{ty}: logits are off by {off}");
    }
    Ok(())
}

#[test]
fn names_are_those_of_llama_cpp() -> Result<()> {
    let (model, config) = made(&config("llama", json!({"tie_word_embeddings": true})))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    save_gguf(&path, &*model, &config, GgmlType::Q8_0, tokenizer()?.gguf_fields(320)?)?;
    let file = GgufFile::open(&path)?;
    let count = |key: &str| file.metadata().get(key).and_then(GgufValue::as_u64);
    for (key, value) in [
        ("general.file_type", 7),
        ("general.quantization_version", 2),
        ("llama.vocab_size", 320),
        ("llama.context_length", 256),
        ("llama.embedding_length", 64),
        ("llama.block_count", 2),
        ("llama.feed_forward_length", 96),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
        ("llama.rope.dimension_count", 16),
    ] {
        ensure!(count(key) == Some(value), "{key} is {:?}", count(key));
    }
    let number = |key: &str| file.metadata().get(key).and_then(GgufValue::as_f64);
    ensure!(number("llama.rope.freq_base") == Some(50000.0));
    ensure!(number("llama.attention.layer_norm_rms_epsilon") == Some(f64::from(1e-5f32)));
    let text = |key: &str| file.metadata().get(key).and_then(GgufValue::as_str);
    ensure!(text("general.architecture") == Some("llama"));
    ensure!(
        text("tokenizer.ggml.model") == Some("gpt2") && text("tokenizer.ggml.pre") == Some("gpt-2")
    );
    let mut names: Vec<&str> = file.tensors().keys().map(String::as_str).collect();
    names.retain(|name| !name.starts_with("blk.1."));
    let layer = "attn_k attn_norm attn_output attn_q attn_v ffn_down ffn_gate ffn_norm ffn_up";
    let mut wanted: Vec<String> =
        layer.split(' ').map(|name| format!("blk.0.{name}.weight")).collect();
    wanted.extend(["output_norm.weight".to_owned(), "token_embd.weight".to_owned()]);
    ensure!(names == wanted, "{names:?}");
    Ok(())
}

#[test]
fn tokenizers_come_back() -> Result<()> {
    let own = tokenizer()?;
    let (model, config) = made(&config("llama", json!({})))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    save_gguf(&path, &*model, &config, GgmlType::F16, own.gguf_fields(320)?)?;
    let read = Pretrained::from_gguf(&GgufFile::open(&path)?)?;
    for text in ["<|im_start|>user\nWhat is the sea?<|im_end|>\n", "  two,  12345 é\t👍", ""] {
        let ids = own.tokenizer.encode(text, true)?;
        ensure!(read.tokenizer.encode(text, true)? == ids, "{text:?}");
        ensure!(read.tokenizer.decode(&ids, false)? == text, "{text:?}");
    }
    ensure!(read.stop_tokens == own.stop_tokens, "{:?}", read.stop_tokens);
    ensure!(read.chat_templates == own.chat_templates);
    ensure!(read.special_tokens == own.special_tokens, "{:?}", read.special_tokens);
    let said = own.gguf_fields(100).unwrap_err().to_string();
    ensure!(said.ends_with("is one too many: the model knows 100"), "{said}");
    Ok(())
}

#[test]
fn what_gguf_can_not_say_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    let said = |config: &Map<String, Value>, ty| -> Result<String> {
        let (model, config) = made(config)?;
        let saved = save_gguf(&path, &*model, &config, ty, Vec::new());
        Ok(saved.err().context("it is refused")?.to_string())
    };
    let window = json!({"sliding_window": 32});
    let why = "save_gguf: attention has a window of 32";
    assert_eq!(said(&config("mistral", window), GgmlType::F32)?, why);
    let dynamic = json!({"rope_parameters":
        {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}});
    let why = "save_gguf: rotary positions are dynamic";
    assert_eq!(said(&config("llama", dynamic), GgmlType::F32)?, why);
    let why = "save_gguf: Q4_K is not written; F32, F16, BF16 and Q8_0 are";
    assert_eq!(said(&config("llama", json!({})), GgmlType::Q4_K)?, why);
    ensure!(!path.exists(), "a refused file was written");
    Ok(())
}
