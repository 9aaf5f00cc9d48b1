//! What products of models are computed from: blocks of GGUF files as they are stored, whole tensors, and
//! codes of 8 and 4 bits.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use genesis::io::{GgmlType, load_safetensors};
use genesis::models::{CausalLm, LoadOptions, Loaded, Pass, WeightForm, load};
use genesis::{DType, Device, Tensor};
use tests::gguf_writer::TinyModel;

use crate::models::{DECODERS, check_bits, folder};

const FORMS: [WeightForm; 4] =
    [WeightForm::Stored, WeightForm::Whole, WeightForm::Int8, WeightForm::Int4];

/// The types of blocks that products take.
const BLOCKS: [GgmlType; 8] = [
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
];

fn options(weights: WeightForm, device: Device) -> LoadOptions {
    LoadOptions { weights, device, ..LoadOptions::default() }
}

/// The logits of a whole pass on the host.
fn logits(model: &dyn CausalLm, tokens: &Tensor) -> Result<Vec<f32>> {
    let logits = model.logits(&model.hidden(tokens, &Pass::Whole)?)?;
    Ok(logits.to_dtype(DType::F32)?.to_vec::<f32>()?)
}

/// The size of the difference, of the size of what is expected.
fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let size = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
    };
    let off = size(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    off / size(&mut expected.iter().copied())
}

/// The products that have codes, by the name of their module.
fn quantized(model: &dyn CausalLm) -> BTreeSet<String> {
    let buffers = model.named_buffers().into_iter();
    buffers.filter_map(|(name, _)| name.strip_suffix(".weight.codes").map(str::to_owned)).collect()
}

/// The bytes of all parameters and buffers.
fn bytes(model: &dyn CausalLm) -> usize {
    let all = model.named_parameters().into_iter().chain(model.named_buffers());
    all.map(|(_, tensor)| tensor.numel() * tensor.dtype().bytes()).sum()
}

fn tiny(ty: GgmlType, experts: usize) -> TinyModel {
    TinyModel { ty, channels: 256, hidden: 256, vocabulary: 24, experts }
}

/// A file in a folder of its own, which goes when the first of both does.
fn written(bytes: &[u8]) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("tiny.gguf");
    fs::write(&path, bytes)?;
    Ok((folder, path))
}

/// Compares a model computed from blocks with the one of the tensors that they stand for.
fn check_stored(model: TinyModel, is_tied: bool, device: Device) -> Result<Loaded> {
    let mut shapes = model.shapes();
    shapes.retain(|(name, _)| !is_tied || name != "output.weight");
    let (_folder, path) = written(&model.file(&shapes).bytes())?;
    let tokens: Vec<i64> = (0..18).map(|i| i * 7 % 24).collect();
    let tokens = Tensor::from_slice_on(&tokens, &[2, 9], device)?;
    let stored = load(&path, &options(WeightForm::Stored, device))?;
    let whole = load(&path, &options(WeightForm::Whole, device))?;
    ensure!(quantized(&*whole.model).is_empty(), "whole products have no codes");
    let (found, expected) = (logits(&*stored.model, &tokens)?, logits(&*whole.model, &tokens)?);
    let off = relative(&found, &expected);
    ensure!(off < 1e-5, "{model:?} on {device} is off by {off}");
    ensure!(expected.iter().any(|logit| logit.abs() > 1e-3), "logits say something");
    // A code takes at most a byte, scales and minimums at most one more where groups are of 16 or 32.
    ensure!(2 * bytes(&*stored.model) < bytes(&*whole.model) + 24 * 256 * 4, "{model:?}");
    Ok(stored)
}

/// Rows of queries and keys are stored in pairs in a Llama's file.
#[test]
fn blocks_give_the_logits_of_the_tensors_that_they_stand_for() -> Result<()> {
    for device in crate::gpu::devices("model weights") {
        for ty in BLOCKS {
            let stored = check_stored(tiny(ty, 0), false, device)?;
            let found = quantized(&*stored.model);
            ensure!(found.len() == 8 && found.contains("lm_head"), "{ty}: {found:?}");
        }
    }
    Ok(())
}

/// Those of a layer's experts are one tensor in the file.
#[test]
fn blocks_of_experts_give_the_logits_of_the_tensors_that_they_stand_for() -> Result<()> {
    for device in crate::gpu::devices("model weights") {
        for ty in BLOCKS {
            let stored = check_stored(tiny(ty, 3), false, device)?;
            let found = quantized(&*stored.model);
            // Four of attention, the router, the head, and three of each expert.
            ensure!(found.len() == 6 + 9, "{ty}: {found:?}");
            ensure!(found.contains("model.layers.0.mlp.experts.2.down_proj"), "{ty}: {found:?}");
        }
    }
    Ok(())
}

#[test]
fn blocks_of_a_tied_head_stay_and_its_embedding_is_whole() -> Result<()> {
    for device in crate::gpu::devices("model weights") {
        for ty in [GgmlType::Q8_0, GgmlType::Q4_K] {
            let model = check_stored(tiny(ty, 0), true, device)?.model;
            ensure!(quantized(&*model).contains("lm_head"), "{ty}");
            let parameters = model.named_parameters();
            let is_whole = |name: &str| parameters.iter().any(|(own, _)| own == name);
            ensure!(is_whole("model.embed_tokens.weight") && !is_whole("lm_head.weight"), "{ty}");
        }
    }
    Ok(())
}

/// Products take no blocks of f32.
#[test]
fn tensors_that_are_no_blocks_stay_whole() -> Result<()> {
    let model = tiny(GgmlType::F32, 0);
    let (_folder, path) = written(&model.file(&model.shapes()).bytes())?;
    let loaded = load(&path, &options(WeightForm::Stored, Device::Cpu))?;
    ensure!(quantized(&*loaded.model).is_empty(), "f32 is no block");
    Ok(())
}

/// Weights of these models are random and their rows short, so that rounding takes more of them than of a
/// trained model's. Measured: 0.005 to 0.024 of the logits' size by 8 bits, 0.25 to 0.41 by 4; the heads of the
/// GPT-2s, which have 8 bits in both, 0.005 to 0.006.
#[test]
fn eight_and_four_bits_are_near_the_whole_weights() -> Result<()> {
    for device in crate::gpu::devices("model weights") {
        for &name in DECODERS {
            let golden = load_safetensors(folder(name).join("expected.safetensors"), device)?;
            let run = |form| -> Result<Vec<f32>> {
                let loaded = load(folder(name), &options(form, device))?;
                logits(&*loaded.model, &golden["tokens"])
            };
            let whole = run(WeightForm::Whole)?;
            for (form, most) in [(WeightForm::Int8, 0.03), (WeightForm::Int4, 0.5)] {
                let off = relative(&run(form)?, &whole);
                ensure!(off < most && off > 0.003, "{name} {form:?} on {device}: off by {off}");
            }
        }
    }
    Ok(())
}

#[test]
fn eight_and_four_bits_have_the_same_bits_in_any_batch() -> Result<()> {
    for device in crate::gpu::devices("model weights") {
        for name in DECODERS.iter().filter(|name| !name.starts_with("gpt2")) {
            for form in [WeightForm::Int8, WeightForm::Int4] {
                for dtype in [DType::F32, DType::BF16] {
                    let dtype = Some(dtype);
                    check_bits(name, &LoadOptions { dtype, ..options(form, device) })?;
                }
            }
        }
    }
    Ok(())
}

/// Feed-forward layers of the fixture have 40 channels.
#[test]
fn rows_that_are_no_multiple_of_16_stay_whole() -> Result<()> {
    for form in [WeightForm::Int8, WeightForm::Int4] {
        let model = load(folder("llama_tied"), &options(form, Device::Cpu))?.model;
        let codes = quantized(&*model);
        for layer in ["model.layers.0", "model.layers.1"] {
            ensure!(!codes.contains(&format!("{layer}.mlp.down_proj")), "{form:?}: {codes:?}");
            ensure!(codes.contains(&format!("{layer}.mlp.up_proj")), "{form:?}: {codes:?}");
        }
        let is_whole = |name: &str| model.named_parameters().iter().any(|(own, _)| own == name);
        ensure!(is_whole("model.layers.0.mlp.down_proj.weight"), "{form:?}");
        ensure!(!is_whole("model.layers.0.mlp.up_proj.weight"), "{form:?}");
    }
    Ok(())
}

#[test]
fn a_tied_head_has_codes_and_its_embedding_none() -> Result<()> {
    for form in [WeightForm::Int8, WeightForm::Int4] {
        for name in ["llama_tied", "qwen3_tied", "gemma2"] {
            let model = load(folder(name), &options(form, Device::Cpu))?.model;
            let codes = quantized(&*model);
            ensure!(codes.contains("lm_head"), "{name} {form:?}: {codes:?}");
            let parameters = model.named_parameters();
            let embedding = parameters.iter().find(|(own, _)| own == "model.embed_tokens.weight");
            let (_, embedding) = embedding.with_context(|| format!("{name} {form:?}"))?;
            ensure!(embedding.shape() == [96, 32] && embedding.dtype() == DType::F32, "{name}");
            let head =
                model.named_buffers().into_iter().find(|(own, _)| own == "lm_head.weight.codes");
            // 8 bits in either form: a byte each.
            ensure!(head.context("codes")?.1.numel() == 96 * 32, "{name} {form:?}");
        }
    }
    Ok(())
}

/// Weights that ask for gradients are whole whatever is asked for.
#[test]
fn what_is_trained_is_whole() -> Result<()> {
    let trainable = LoadOptions { trainable: true, ..options(WeightForm::Int4, Device::Cpu) };
    let model = load(folder("llama_tied"), &trainable)?.model;
    ensure!(quantized(&*model).is_empty(), "{:?}", quantized(&*model));
    Ok(())
}

/// Products of f64 are of whole tensors only: blocks become them, and a form that was asked for is refused.
#[test]
fn products_of_f64_are_whole() -> Result<()> {
    let model = tiny(GgmlType::Q4_0, 0);
    let (_folder, path) = written(&model.file(&model.shapes()).bytes())?;
    let double = |form| LoadOptions { dtype: Some(DType::F64), ..options(form, Device::Cpu) };
    let loaded = load(&path, &double(WeightForm::Stored))?;
    ensure!(quantized(&*loaded.model).is_empty(), "{:?}", quantized(&*loaded.model));
    let tokens = Tensor::from_slice_on(&[3i64, 1, 4], &[1, 3], Device::Cpu)?;
    logits(&*loaded.model, &tokens)?;
    for form in [WeightForm::Int8, WeightForm::Int4] {
        let error = load(&path, &double(form)).map(drop).unwrap_err().to_string();
        ensure!(error.contains("f64"), "{error}");
    }
    Ok(())
}

/// The error of a file in some form.
fn refused(path: &Path, form: WeightForm) -> Result<String> {
    let loaded = load(path, &options(form, Device::Cpu));
    let error = loaded.map(drop).err().with_context(|| format!("{form:?} takes it"))?.to_string();
    ensure!(error.contains(&path.display().to_string()), "{form:?}: {error}");
    Ok(error)
}

/// A file one of whose tensors has another shape.
fn misshapen(name: &str, shape: &[usize]) -> Vec<u8> {
    let model = tiny(GgmlType::Q8_0, if name.contains("exps") { 3 } else { 0 });
    let mut shapes = model.shapes();
    shapes.iter_mut().filter(|(own, _)| own == name).for_each(|(_, own)| *own = shape.to_vec());
    model.file(&shapes).bytes()
}

#[test]
fn shapes_that_do_not_fit_are_errors_in_every_form() -> Result<()> {
    let wrong: [(&str, &[usize]); 11] = [
        ("blk.0.attn_q.weight", &[255, 256]),
        ("blk.0.attn_q.weight", &[0, 256]),
        ("blk.0.attn_q.weight", &[256]),
        ("blk.0.attn_q.weight", &[256, 128]),
        ("blk.0.attn_k.weight", &[2, 64, 256]),
        ("blk.0.ffn_down.weight", &[256, 288]),
        ("output.weight", &[23, 256]),
        ("output.weight", &[24 * 256]),
        ("token_embd.weight", &[256]),
        ("blk.0.ffn_up_exps.weight", &[2, 256, 256]),
        ("blk.0.ffn_up_exps.weight", &[256, 256]),
    ];
    for (name, shape) in wrong {
        let (_folder, path) = written(&misshapen(name, shape))?;
        for form in FORMS {
            let error = refused(&path, form).with_context(|| format!("{name} {shape:?}"))?;
            ensure!(error.len() > path.display().to_string().len() + 2, "{error}");
        }
    }
    Ok(())
}

/// A number that is not finite has no code; the error names the tensor.
#[test]
fn weights_that_are_not_finite_have_no_codes() -> Result<()> {
    let copy = tempfile::tempdir()?;
    let mut tensors =
        load_safetensors(folder("llama_tied").join("model.safetensors"), Device::Cpu)?;
    let name = "model.layers.1.self_attn.v_proj.weight";
    let broken = tensors[name].mul_scalar(f64::NAN)?;
    tensors.insert(name.to_owned(), broken);
    genesis::io::save_safetensors(copy.path().join("model.safetensors"), &tensors)?;
    fs::copy(folder("llama_tied").join("config.json"), copy.path().join("config.json"))?;
    for form in [WeightForm::Int8, WeightForm::Int4] {
        let error = load(copy.path(), &options(form, Device::Cpu)).map(drop).unwrap_err();
        ensure!(error.to_string().contains(name), "{error}");
    }
    load(copy.path(), &options(WeightForm::Stored, Device::Cpu))?;
    Ok(())
}
