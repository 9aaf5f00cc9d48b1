//! Models against `transformers`: tiny ones with random weights, whose logits and greedy continuations
//! `tests/parity/models_golden.py` has written down.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use genesis::io::load_safetensors;
use genesis::models::{
    Batch, CausalLm, Ends, KvCache, LoadOptions, Loaded, Pass, RopeSettings, load, load_bert,
    load_vit,
};
use genesis::{DType, Device, Tensor};

/// How far a logit may be off.
const NEAR: f64 = 2e-4;

/// Tokens of a page: few, so that prompts take several.
const PAGE: usize = 4;

pub(crate) const DECODERS: &[&str] = &[
    "gemma2",
    "gemma2_plain",
    "gemma3",
    "gemma3_old",
    "gpt2",
    "gpt2_scaled",
    "llama_biased",
    "llama_old",
    "llama_tied",
    "llama_yarn",
    "mistral_whole",
    "mistral_window",
    "qwen2_tied",
    "qwen2_window",
    "qwen3_biased",
    "qwen3_moe",
    "qwen3_moe_mixed",
    "qwen3_tied",
];

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models").join(name)
}

fn options() -> LoadOptions {
    on(Device::Cpu)
}

fn on(device: Device) -> LoadOptions {
    LoadOptions { device, ..LoadOptions::default() }
}

/// A model, and a tensor that was written down for it.
struct Golden {
    name: &'static str,
    loaded: Loaded,
    expected: std::collections::BTreeMap<String, Tensor>,
}

impl Golden {
    fn open(name: &'static str, device: Device) -> Result<Golden> {
        let loaded = load(folder(name), &on(device)).with_context(|| name)?;
        let expected = load_safetensors(folder(name).join("expected.safetensors"), device)?;
        Ok(Golden { name, loaded, expected })
    }

    fn rows(&self, key: &str) -> Result<Vec<Vec<i64>>> {
        let tensor = &self.expected[key];
        let width = tensor.shape()[1];
        Ok(tensor.to_vec::<i64>()?.chunks(width).map(<[i64]>::to_vec).collect())
    }
}

/// Every decoder on every device.
fn everywhere() -> impl Iterator<Item = (&'static str, Device)> {
    let devices = crate::gpu::devices("models");
    devices.into_iter().flat_map(|device| DECODERS.iter().map(move |&name| (name, device)))
}

fn check_near(what: &str, found: &Tensor, expected: &Tensor) -> Result<()> {
    ensure!(found.shape() == expected.shape(), "{what}: {:?}", found.shape());
    let off = found.sub(expected)?.abs()?.max()?.item()?;
    ensure!(off < NEAR, "{what} is off by {off}");
    Ok(())
}

#[test]
fn whole_passes_give_the_logits_of_transformers() -> Result<()> {
    for (name, device) in everywhere() {
        let golden = Golden::open(name, device)?;
        let model = &golden.loaded.model;
        let hidden = model.hidden(&golden.expected["tokens"], &Pass::Whole)?;
        let what = format!("{name} on {device}");
        check_near(&what, &model.logits(&hidden)?, &golden.expected["logits"])?;
        assert_eq!(model.vocab_size(), golden.expected["logits"].shape()[2], "{name}");
    }
    Ok(())
}

/// Two sequences in one cache, whose pages take turns.
struct Paged<'m> {
    model: &'m dyn CausalLm,
    device: Device,
    cache: KvCache,
    /// How many tokens of each are cached.
    cached: [usize; 2],
    /// The pages of each.
    pages: [Vec<i64>; 2],
    /// Whether bits do not depend on what else is computed.
    has_bits: bool,
}

impl<'m> Paged<'m> {
    fn new(
        model: &'m dyn CausalLm,
        positions: usize,
        (dtype, device): (DType, Device),
    ) -> Result<Paged<'m>> {
        let each = positions.div_ceil(PAGE) as i64;
        let cache = KvCache::new(model.kv_shape(), 2 * each as usize + 1, PAGE, dtype, device)?;
        // From the end, so that no order is a coincidence; page 0 is nobody's.
        let pages = [0, 1].map(|s| (0..each).map(|i| 2 * (each - i) - s).collect());
        Ok(Paged { model, device, cache, cached: [0, 0], pages, has_bits: true })
    }

    /// Logits of new tokens of both sequences, in one pass.
    fn run(&mut self, new: [&[i64]; 2]) -> Result<[Tensor; 2]> {
        let (mut positions, mut slots) = (Vec::new(), Vec::new());
        for (s, tokens) in new.iter().enumerate() {
            for position in self.cached[s]..self.cached[s] + tokens.len() {
                positions.push(position as i64);
                let page = self.pages[s][position / PAGE];
                slots.push(page * PAGE as i64 + (position % PAGE) as i64);
            }
            self.cached[s] += tokens.len();
        }
        let device = self.device;
        let list = |values: &[i64]| Tensor::from_slice_on(values, &[values.len()], device);
        let lengths = self.cached.map(|length| length as i64);
        let width = self.pages[0].len();
        let mut batch = Batch {
            positions: list(&positions)?,
            slots: list(&slots)?,
            query_starts: list(&[0, new[0].len() as i64, positions.len() as i64])?,
            key_lengths: list(&lengths)?,
            pages: list(&self.pages.concat())?.reshape(&[2, width])?,
            max_queries: new[0].len().max(new[1].len()),
            max_keys: self.cached[0].max(self.cached[1]),
            ends: None,
        };
        let hidden = |batch: &Batch| {
            let pass = Pass::Paged { batch, cache: &self.cache };
            self.model.hidden(&list(&new.concat())?, &pass)
        };
        let all = hidden(&batch)?;
        // A sequence without tokens has any row.
        let ends = [new[0].len(), positions.len()].map(|end| end.saturating_sub(1) as i64);
        batch.ends = Some(Ends::new(list(&ends)?)?);
        let of_ends = hidden(&batch)?;
        assert_eq!(of_ends.shape(), [2, all.shape()[1]]);
        for s in (0..2).filter(|&s| !new[s].is_empty()) {
            let [own, of_all] = [of_ends.narrow(0, s, 1)?, all.narrow(0, ends[s] as usize, 1)?];
            match self.has_bits {
                true => assert_eq!(own.to_f64_vec()?, of_all.to_f64_vec()?, "sequence {s}"),
                false => check_near("hidden states of last tokens", &own, &of_all)?,
            }
        }
        let hidden = all;
        let logits = self.model.logits(&hidden)?;
        let first = new[0].len();
        Ok([logits.narrow(0, 0, first)?, logits.narrow(0, first, new[1].len())?])
    }
}

/// Prompts come in uneven pieces, then both sequences are decoded token by token.
#[test]
fn paged_passes_continue_as_transformers_does() -> Result<()> {
    const PIECES: [[usize; 2]; 4] = [[7, 3], [1, 1], [0, 10], [12, 6]];
    for (name, device) in everywhere() {
        let golden = Golden::open(name, device)?;
        let (prompts, greedy) = (golden.rows("tokens")?, golden.rows("greedy")?);
        let (length, new) = (prompts[0].len(), greedy[0].len());
        let at = (DType::F32, device);
        let mut paged = Paged::new(&*golden.loaded.model, length + new, at)?;
        paged.has_bits = !name.starts_with("gpt2");
        let mut last = [0i64; 2];
        for piece in PIECES {
            let start = paged.cached;
            let part = |s: usize| &prompts[s][start[s]..start[s] + piece[s]];
            let logits = paged.run([part(0), part(1)])?;
            for (s, logits) in logits.iter().enumerate() {
                let expected = golden.expected["logits"].select(0, s)?;
                let expected = expected.narrow(0, start[s], piece[s])?;
                if piece[s] > 0 {
                    check_near(
                        &format!("{name} on {device} from {}", start[s]),
                        logits,
                        &expected,
                    )?;
                    let next = logits.narrow(0, piece[s] - 1, 1)?.argmax(-1)?;
                    last[s] = next.to_vec::<i64>()?[0];
                }
            }
        }
        for (step, (&a, &b)) in greedy[0].iter().zip(&greedy[1]).enumerate() {
            let expected = [a, b];
            ensure!(last == expected, "{} at {step}: {last:?}, not {expected:?}", golden.name);
            let logits = paged.run([&[last[0]], &[last[1]]])?;
            for (s, logits) in logits.iter().enumerate() {
                last[s] = logits.argmax(-1)?.to_vec::<i64>()?[0];
            }
        }
    }
    Ok(())
}

/// A token's logits are the same bits however its prompt comes and whatever runs beside it. Products of GPT-2
/// are of whole matrices, for its weights lie the other way round.
#[test]
fn logits_have_the_same_bits_in_any_batch() -> Result<()> {
    for (name, device) in everywhere().filter(|(name, _)| !name.starts_with("gpt2")) {
        for dtype in [DType::F32, DType::BF16] {
            check_bits(name, &LoadOptions { dtype: Some(dtype), ..on(device) })?;
        }
    }
    Ok(())
}

/// Compares the bits of a model's logits: both prompts at once, one after the other, and in pieces.
pub(crate) fn check_bits(name: &'static str, options: &LoadOptions) -> Result<()> {
    const WAYS: [&[[usize; 2]]; 4] = [
        &[[20, 20]],
        &[[20, 0], [0, 20]],
        &[[7, 3], [1, 1], [0, 10], [12, 6]],
        &[[1, 19], [18, 0], [1, 1]],
    ];
    let loaded = load(folder(name), options)?;
    let prompts = Golden::open(name, Device::Cpu)?.rows("tokens")?;
    let mut first: Option<[Vec<f32>; 2]> = None;
    for way in WAYS {
        let at = (loaded.config.dtype, options.device);
        let mut paged = Paged::new(&*loaded.model, 20, at)?;
        let mut all = [Vec::new(), Vec::new()];
        for piece in way {
            let start = paged.cached;
            let part = |s: usize| &prompts[s][start[s]..start[s] + piece[s]];
            let logits = paged.run([part(0), part(1)])?;
            for (all, logits) in all.iter_mut().zip(logits) {
                all.extend(logits.to_dtype(DType::F32)?.contiguous()?.to_vec::<f32>()?);
            }
        }
        let first = first.get_or_insert_with(|| all.clone());
        for s in [0, 1] {
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            let far = first[s].iter().zip(&all[s]).position(|pair| !same(pair));
            ensure!(far.is_none(), "{name} with {options:?}, {way:?}: {far:?}");
        }
    }
    Ok(())
}

#[test]
fn encoders_give_the_logits_of_transformers() -> Result<()> {
    for name in ["bert", "bert_relu"] {
        let expected = load_safetensors(folder(name).join("expected.safetensors"), Device::Cpu)?;
        let model = load_bert(folder(name), &options())?;
        let [tokens, kinds, mask] = ["tokens", "kinds", "mask"].map(|key| &expected[key]);
        let hidden = model.hidden(tokens, Some(kinds), Some(mask))?;
        check_near(name, &hidden, &expected["hidden"])?;
        check_near(name, &model.logits(&hidden)?, &expected["logits"])?;
    }
    for name in ["vit", "vit_grey"] {
        let expected = load_safetensors(folder(name).join("expected.safetensors"), Device::Cpu)?;
        let model = load_vit(folder(name), &options())?;
        let hidden = model.hidden(&expected["pixels"])?;
        check_near(name, &model.logits(&hidden)?, &expected["logits"])?;
    }
    Ok(())
}

#[test]
fn frequencies_are_those_of_every_rope_of_transformers() -> Result<()> {
    let cases: serde_json::Value = serde_json::from_str(&fs::read_to_string(folder("rope.json"))?)?;
    for case in cases.as_array().context("a list")? {
        let parameters = case["parameters"].as_object().context("an object")?;
        let size = |key: &str| case[key].as_u64().map(|n| n as usize);
        let (head_dim, most) = (size("head_dim").unwrap_or(0), size("max_positions").unwrap_or(0));
        let settings = RopeSettings::parse(parameters, head_dim, most)?;
        let (found, factor) = settings.frequencies(size("length").unwrap_or(0));
        let expected = case["inv_freq"].as_array().context("a list")?;
        ensure!(found.len() == expected.len(), "{parameters:?}: {}", found.len());
        for (found, expected) in found.iter().zip(expected) {
            let expected = expected.as_f64().unwrap_or(f64::NAN);
            ensure!((found / expected - 1.0).abs() < 1e-5, "{parameters:?}: {found}, {expected}");
        }
        let expected = case["attention_factor"].as_f64().unwrap_or(f64::NAN);
        ensure!((factor - expected).abs() < 1e-9, "{parameters:?}: {factor}, {expected}");
    }
    Ok(())
}

/// The gradient along random directions against differences of the loss.
#[test]
fn whole_passes_have_gradients() -> Result<()> {
    for name in ["qwen3_tied", "gemma2", "qwen3_moe"] {
        let trainable = LoadOptions { trainable: true, dtype: Some(DType::F64), ..options() };
        let model = load(folder(name), &trainable)?.model;
        let expected = load_safetensors(folder(name).join("expected.safetensors"), Device::Cpu)?;
        let tokens = expected["tokens"].narrow(1, 0, 6)?;
        let loss = || -> Result<Tensor> {
            let logits = model.logits(&model.hidden(&tokens, &Pass::Whole)?)?;
            Ok(logits.square()?.mean()?)
        };
        loss()?.backward()?;
        for (parameter, tensor) in model.named_parameters() {
            let Some(gradient) = tensor.grad() else {
                // An expert that no token went to.
                ensure!(parameter.contains(".experts."), "{name}: {parameter} has no gradient");
                continue;
            };
            let direction = Tensor::randn(tensor.shape(), (DType::F64, Device::Cpu))?;
            let slope = gradient.mul(&direction)?.sum()?.item()?;
            let moved = |by: f64| -> Result<f64> {
                let step = direction.mul_scalar(by)?;
                genesis::no_grad(|| {
                    let raw = tensor.detach();
                    raw.copy_(&raw.add(&step)?)?;
                    let value = loss().map_err(|error| genesis::Error::io(error.to_string()))?;
                    raw.copy_(&raw.sub(&step)?)?;
                    value.item()
                })
                .map_err(Into::into)
            };
            let measured = (moved(1e-5)? - moved(-1e-5)?) / 2e-5;
            let off = (slope - measured).abs() / (slope.abs() + 1e-3);
            ensure!(off < 1e-3, "{name}: {parameter} has slope {slope}, measured {measured}");
        }
    }
    Ok(())
}

/// 16-bit models give what f32 gives, but for the rounding.
#[test]
fn models_of_16_bits_are_near_those_of_32() -> Result<()> {
    for name in ["qwen2_tied", "gemma3", "gpt2"] {
        let golden = Golden::open(name, Device::Cpu)?;
        let half = LoadOptions { dtype: Some(DType::BF16), ..options() };
        let loaded = load(folder(name), &half)?;
        assert_eq!(loaded.config.dtype, DType::BF16);
        assert_eq!(loaded.config.model_type, golden.loaded.config.model_type);
        let hidden = loaded.model.hidden(&golden.expected["tokens"], &Pass::Whole)?;
        let logits = loaded.model.logits(&hidden)?;
        assert_eq!(logits.dtype(), DType::BF16);
        let expected = &golden.expected["logits"];
        let off = logits.to_dtype(DType::F32)?.sub(expected)?.square()?.mean()?.item()?.sqrt();
        let size = expected.square()?.mean()?.item()?.sqrt();
        ensure!(off < 0.05 * size, "{name}: off by {off} of {size}");
    }
    Ok(())
}

/// The error of a model whose configuration has other keys than that of the fixture.
fn refused(name: &str, change: impl Fn(&mut serde_json::Map<String, serde_json::Value>)) -> String {
    let copy = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(folder(name).join("config.json")).unwrap();
    let mut config: serde_json::Map<_, _> = serde_json::from_str(&text).unwrap();
    change(&mut config);
    fs::write(copy.path().join("config.json"), serde_json::to_string(&config).unwrap()).unwrap();
    let weights = "model.safetensors";
    fs::copy(folder(name).join(weights), copy.path().join(weights)).unwrap();
    let error = load(copy.path(), &options()).map(drop).unwrap_err().to_string();
    error.replace(&copy.path().display().to_string(), "")
}

#[test]
fn settings_that_are_not_understood_are_refused_by_name() {
    let with = |key: &str, value: serde_json::Value| {
        refused("llama_tied", |config| drop(config.insert(key.to_owned(), value.clone())))
    };
    let unsupported =
        |key: &str, value: &str| format!("/config.json: {key} is {value}, which is not supported");
    assert_eq!(with("attn_temperature", 2.5.into()), unsupported("attn_temperature", "2.5"));
    assert_eq!(with("model_type", "mamba".into()), unsupported("model_type", "\"mamba\""));
    assert_eq!(with("hidden_act", "xielu".into()), unsupported("hidden_act", "\"xielu\""));
    let quantized = serde_json::json!({ "quant_method": "gptq" });
    let said = unsupported("quantization_config", "{\"quant_method\":\"gptq\"}");
    assert_eq!(with("quantization_config", quantized), said);
    let rope = serde_json::json!({ "rope_type": "default", "rope_theta": 1e4, "spin": 3 });
    let said = "/config.json: rope_parameters: spin is 3, which is not supported";
    assert_eq!(with("rope_parameters", rope), said);
    let rope = serde_json::json!({ "rope_type": "spiral" });
    let said = "/config.json: rope_parameters: rope_type is \"spiral\", which is not supported";
    assert_eq!(with("rope_parameters", rope), said);
}

#[test]
fn hostile_settings_are_errors() {
    let wrong: &[(&str, &str)] = &[
        ("num_attention_heads", "0"),
        ("num_attention_heads", "-4"),
        ("num_attention_heads", "3"),
        ("num_key_value_heads", "3"),
        ("num_key_value_heads", "8"),
        ("num_hidden_layers", "1000000000"),
        ("num_hidden_layers", "3"),
        ("num_hidden_layers", "1e30"),
        ("num_hidden_layers", "[2]"),
        ("hidden_size", "2147483648"),
        ("hidden_size", "33"),
        ("hidden_size", "18446744073709551615"),
        ("vocab_size", "2147483648"),
        ("intermediate_size", "\"many\""),
        ("head_dim", "7"),
        ("head_dim", "1"),
        ("head_dim", "2147483648"),
        ("rms_norm_eps", "-1.0"),
        ("rope_parameters", "7"),
        ("rope_parameters", r#"{"rope_type": "llama3"}"#),
        ("rope_parameters", r#"{"rope_type": "linear", "factor": 0.0}"#),
        (
            "rope_parameters",
            r#"{"rope_type": "longrope", "short_factor": [1.0], "long_factor": []}"#,
        ),
        ("rope_parameters", r#"{"rope_theta": -5.0}"#),
        ("tie_word_embeddings", "3"),
        ("dtype", "\"int4\""),
    ];
    for (key, value) in wrong {
        let said = refused("llama_tied", |config| {
            let value = serde_json::from_str(value).expect("a value of the table");
            config.insert((*key).to_owned(), value);
        });
        assert!(said.starts_with('/'), "{key} {value}: {said}");
    }
    for (key, value) in
        [("num_experts", "2000000000"), ("num_experts", "0"), ("moe_intermediate_size", "0")]
    {
        let said = refused("qwen3_moe", |config| {
            config.remove("num_local_experts");
            config.insert(key.to_owned(), serde_json::from_str(value).expect("a number"));
        });
        assert!(!said.is_empty(), "{key} {value}");
    }
}

#[test]
fn weights_that_do_not_fit_are_named() {
    let said = refused("llama_tied", |config| {
        config.insert("tie_word_embeddings".to_owned(), false.into());
    });
    assert_eq!(said, "/model.safetensors: missing `lm_head.weight`");
    let said = refused("llama_tied", |config| {
        config.insert("intermediate_size".to_owned(), 41.into());
    });
    let first =
        "`model.layers.0.mlp.gate_proj.weight` has shape [40, 32], the module needs [41, 32]";
    assert!(said.contains(first), "{said}");
    let said = refused("llama_tied", |config| {
        config.insert("num_hidden_layers".to_owned(), 1.into());
    });
    assert!(said.contains("unexpected `model.layers.1.input_layernorm.weight`"), "{said}");
}

/// The same model from the file that llama.cpp would make of it.
#[test]
fn gguf_files_give_the_logits_of_transformers() -> Result<()> {
    for name in ["gemma2", "gpt2", "llama_tied", "qwen3_moe"] {
        let loaded = load(folder(&format!("{name}.gguf")), &options()).with_context(|| name)?;
        let expected = load_safetensors(folder(name).join("expected.safetensors"), Device::Cpu)?;
        let hidden = loaded.model.hidden(&expected["tokens"], &Pass::Whole)?;
        check_near(name, &loaded.model.logits(&hidden)?, &expected["logits"])?;
        assert_eq!(loaded.config.eos_tokens, [7]);
    }
    Ok(())
}

/// Configurations with bytes changed are errors or models, and never more than that.
#[test]
fn damaged_configurations_are_errors() -> Result<()> {
    let count: u64 = std::env::var("MUTATED_FILES").map_or(Ok(300), |count| count.parse())?;
    let copy = tempfile::tempdir()?;
    for (turn, name) in ["llama_yarn", "qwen3_moe", "gemma3", "gpt2"].iter().enumerate() {
        fs::copy(folder(name).join("model.safetensors"), copy.path().join("model.safetensors"))?;
        let whole = fs::read(folder(name).join("config.json"))?;
        let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_add(turn as u64);
        let mut draw = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for _ in 0..count / 4 {
            let mut bytes = whole.clone();
            for _ in 0..1 + draw(3) {
                let at = draw(bytes.len());
                match draw(4) {
                    0 => bytes[at] = b"0123456789-eE.,:\"{}[] ntf"[draw(25)],
                    1 => drop(bytes.splice(at..at, b"99999".iter().copied())),
                    2 => drop(bytes.remove(at)),
                    _ => bytes[at] = draw(256) as u8,
                }
            }
            fs::write(copy.path().join("config.json"), &bytes)?;
            if let Err(error) = load(copy.path(), &options()) {
                ensure!(!error.to_string().is_empty(), "an error says something");
            }
        }
    }
    Ok(())
}
