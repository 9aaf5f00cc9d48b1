//! Training of language models: what is learned, packing, accumulation, adapters, going on, export.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use genesis::models::{
    CausalLm, LoadOptions, Pass, WeightForm, initialize, load, load_adapter, save, save_adapter,
};
use genesis::nn::{LoraOptions, adapt, merge};
use genesis::optim::{AdamW, AdamWOptions};
use genesis::random::thread_rng;
use genesis::text::{ChatTemplate, Conversation, Pretrained, TokenizerOptions};
use genesis::train::language::{
    Corpus, Document, Encoder, Event, LossOn, Options, Sample, Session, Start, TokenBatch,
    loss_sum, run, train_step,
};
use genesis::{DType, Device, Tensor, no_grad};
use serde_json::{Value, json};

/// A parameter's name and numbers.
pub(crate) type Named = (String, Vec<f64>);

/// Conversations that a tiny model can learn by heart.
pub(crate) const SAID: [(&str, &str); 4] = [
    ("What is the sea?", "The sea is wide and blue."),
    ("Who are you?", "I am a small model."),
    ("What is two and two?", "Two and two are four."),
    ("Good night!", "Sleep well, and dream of the sea."),
];

pub(crate) fn messages((user, assistant): (&str, &str)) -> Value {
    json!([{"role": "user", "content": user}, {"role": "assistant", "content": assistant}])
}

fn documents() -> Vec<Document> {
    let document = |said| Document::Conversation {
        messages: messages(said).as_array().cloned().unwrap_or_default(),
        tools: Vec::new(),
    };
    SAID.map(document).into()
}

pub(crate) fn tokenizer() -> Result<Pretrained> {
    let texts: Vec<String> = SAID.iter().map(|(a, b)| format!("{a}\n{b}\n").repeat(3)).collect();
    let options = TokenizerOptions { vocabulary: 320, ..TokenizerOptions::default() };
    Ok(Pretrained::train(&texts, &options)?)
}

pub(crate) fn config(vocabulary: usize) -> serde_json::Map<String, Value> {
    let config = json!({
        "model_type": "qwen2", "vocab_size": vocabulary, "hidden_size": 48,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": true,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    });
    config.as_object().cloned().unwrap_or_default()
}

pub(crate) fn model(device: Device) -> Result<Arc<dyn CausalLm>> {
    let _own = thread_rng(3);
    let options = LoadOptions { trainable: true, device, ..LoadOptions::default() };
    Ok(initialize(&config(320), &options)?.model)
}

pub(crate) fn corpus(length: usize) -> Result<Corpus> {
    let encoder = Encoder::new(tokenizer()?, LossOn::Assistant);
    Ok(Corpus::new(&documents(), &encoder, length)?)
}

pub(crate) fn all(corpus: &Corpus) -> Vec<Sample> {
    (0..corpus.len()).map(|index| corpus.sample(index)).collect()
}

pub(crate) fn gradients(model: &dyn CausalLm) -> Result<Vec<(String, Vec<f64>)>> {
    let of = |(name, tensor): (String, Tensor)| {
        let gradient = tensor.grad().with_context(|| format!("{name} has no gradient"))?;
        Ok((name, gradient.contiguous()?.to_f64_vec()?))
    };
    model.named_parameters().into_iter().map(of).collect()
}

/// The largest difference of two gradients as a share of the norm of the first.
pub(crate) fn apart(a: &[(String, Vec<f64>)], b: &[(String, Vec<f64>)]) -> f64 {
    let one = |((_, a), (_, b)): (&Named, &Named)| {
        let norm = a.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9);
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / norm
    };
    a.iter().zip(b).map(one).fold(0.0, f64::max)
}

#[test]
fn masks_are_those_of_transformers() -> Result<()> {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../fixtures/training/masks.json"))?;
    let folder = tempfile::tempdir()?;
    let json = crate::text::byte_level_tokenizer()?;
    std::fs::write(folder.path().join("tokenizer.json"), json)?;
    for case in &cases {
        let template = case["template"].as_str().context("a template")?;
        std::fs::write(folder.path().join("chat_template.jinja"), template)?;
        let encoder = Encoder::new(Pretrained::load(folder.path())?, LossOn::Assistant);
        let messages = case["messages"].as_array().cloned().context("messages")?;
        let found = encoder.encode(&Document::Conversation { messages, tools: Vec::new() })?;
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone())?;
        let mask: Vec<u8> = serde_json::from_value(case["mask"].clone())?;
        ensure!(found.tokens == ids, "{}: {:?}", case["messages"], found.tokens);
        let own: Vec<u8> = found.is_learned.iter().map(|&is| u8::from(is)).collect();
        ensure!(own == mask, "{}: {own:?}, not {mask:?}", case["messages"]);
    }
    Ok(())
}

/// A template without `{% generation %}` is asked turn by turn; the tags say the same.
#[test]
fn answers_are_found_without_tags() -> Result<()> {
    let tagged = tokenizer()?;
    let mut bare = tagged.clone();
    let source = &tagged.chat_templates["default"];
    let source = source.replace("{%- generation %}", "").replace("{%- endgeneration %}", "");
    ensure!(!ChatTemplate::new(&source)?.has_generation_tags());
    bare.chat_templates.insert("default".to_owned(), source);
    let mut turns = messages(SAID[0]).as_array().cloned().context("a list")?;
    turns.extend(messages(SAID[1]).as_array().cloned().context("a list")?);
    let document = Document::Conversation { messages: turns, tools: Vec::new() };
    let by_tags = Encoder::new(tagged, LossOn::Assistant).encode(&document)?;
    let by_turns = Encoder::new(bare.clone(), LossOn::Assistant).encode(&document)?;
    ensure!(by_tags == by_turns, "{by_tags:?}\n{by_turns:?}");
    let learned = by_tags.is_learned.iter().filter(|&&is| is).count();
    ensure!(learned > 4 && learned < by_tags.tokens.len(), "{learned}");
    let whole = Encoder::new(bare.clone(), LossOn::All).encode(&document)?;
    ensure!(whole.is_learned.iter().all(|&is| is));
    // Older answers lose what they thought, as in templates of reasoning models.
    let thoughts = "{%- for m in messages %}<{{ m.role }}>{%- if m.role == 'assistant' and loop.last %}[thinks]{%- endif %}\
        {{- m.content }};{%- endfor %}{%- if add_generation_prompt %}<assistant>{%- endif %}";
    bare.chat_templates.insert("default".to_owned(), thoughts.to_owned());
    let found = Encoder::new(bare.clone(), LossOn::Assistant).encode(&document)?;
    let text = |is_learned: bool| -> Result<String> {
        let tokens = found.tokens.iter().zip(&found.is_learned);
        let tokens: Vec<u32> =
            tokens.filter(|(_, is)| **is == is_learned).map(|(t, _)| *t).collect();
        Ok(bare.tokenizer.decode(&tokens, false)?)
    };
    ensure!(
        text(true)? == "The sea is wide and blue.;[thinks]I am a small model.;",
        "{}",
        text(true)?
    );
    Ok(())
}

#[test]
fn completions_and_texts_are_learned_from_where_they_begin() -> Result<()> {
    let text = tokenizer()?;
    let encoder = Encoder::new(text.clone(), LossOn::Assistant);
    let end = text.tokenizer.token_to_id("<|im_end|>").context("a token")?;
    let document =
        Document::Completion { prompt: "Who are you?".into(), completion: " I am".into() };
    let found = encoder.encode(&document)?;
    let prompt = text.tokenizer.encode("Who are you?", true)?.len();
    ensure!(found.tokens.last() == Some(&end));
    ensure!(found.is_learned.iter().position(|&is| is) == Some(prompt), "{found:?}");
    let found = encoder.encode(&Document::Text("the sea".into()))?;
    ensure!(found.is_divisible && found.tokens.last() == Some(&end));
    Ok(())
}

#[test]
fn packed_losses_are_those_of_each_sample_alone() -> Result<()> {
    for device in crate::gpu::devices("lm_training") {
        let (model, samples) = (model(device)?, all(&corpus(64)?));
        let loss = |samples: &[Sample], total: usize| -> Result<f64> {
            let batch = TokenBatch::new(samples, total, device)?;
            Ok(no_grad(|| loss_sum(&model, &batch, None))?.item()?)
        };
        let packed = loss(&samples, 256)?;
        let alone = samples.iter().map(|sample| loss(std::slice::from_ref(sample), 0));
        let alone: f64 = alone.collect::<Result<Vec<_>>>()?.iter().sum();
        ensure!((packed - alone).abs() < 1e-4 * alone, "{packed}, not {alone} on {device}");
    }
    Ok(())
}

/// Batches of unlike numbers of learned tokens: a mean of means would be off.
#[test]
fn accumulated_gradients_are_those_of_one_batch() -> Result<()> {
    let samples = all(&corpus(64)?);
    let of = |sizes: &[usize]| -> Result<(f64, Vec<Named>)> {
        let model = model(Device::Cpu)?;
        let frozen = AdamWOptions { lr: 0.0, weight_decay: 0.0, ..AdamWOptions::default() };
        let mut optimizer = AdamW::new(model.named_parameters(), frozen);
        let mut rest = samples.as_slice();
        let mut batches = Vec::new();
        for &size in sizes {
            let (some, others) = rest.split_at(size);
            batches.push(TokenBatch::new(some, 0, Device::Cpu)?);
            rest = others;
        }
        let trained = train_step(&model, &mut optimizer, &batches, None, 0.0)?;
        Ok((trained.loss, gradients(&*model)?))
    };
    let (whole, parts) = (of(&[4])?, of(&[1, 3])?);
    ensure!((whole.0 - parts.0).abs() < 1e-6, "{} and {}", whole.0, parts.0);
    let off = apart(&whole.1, &parts.1);
    ensure!(off < 1e-5, "gradients are off by {off}");
    Ok(())
}

/// Weights in f32, products in bf16: what a GPU does unless it is told otherwise.
#[test]
fn a_step_in_bf16_is_near_that_in_f32() -> Result<()> {
    let samples = all(&corpus(64)?);
    let of = |half: Option<DType>| -> Result<(f64, Vec<Named>)> {
        let model = model(Device::Cpu)?;
        let batch = TokenBatch::new(&samples, 0, Device::Cpu)?;
        let loss = loss_sum(&model, &batch, half)?;
        loss.backward()?;
        Ok((loss.item()?, gradients(&*model)?))
    };
    let (single, half) = (of(None)?, of(Some(DType::BF16))?);
    ensure!((half.0 / single.0 - 1.0).abs() < 0.01, "{} and {}", half.0, single.0);
    let off = apart(&single.1, &half.1);
    ensure!(off < 0.1, "gradients are off by {off}");
    ensure!(single.0 != half.0, "nothing was computed in bf16");
    Ok(())
}

/// Trains on the conversations; gives the last loss.
pub(crate) fn learned_by_heart(model: &Arc<dyn CausalLm>, steps: usize, lr: f64) -> Result<f64> {
    let device = model.parameters()[0].device();
    let batch = TokenBatch::new(&all(&corpus(64)?), 256, device)?;
    let trained = model.named_parameters().into_iter().filter(|(_, p)| p.requires_grad());
    let options = AdamWOptions { lr, weight_decay: 0.0, ..AdamWOptions::default() };
    let mut optimizer = AdamW::new(trained.collect::<Vec<_>>(), options);
    let mut last = f64::INFINITY;
    for _ in 0..steps {
        let batches = std::slice::from_ref(&batch);
        last = train_step(model, &mut optimizer, batches, None, 1.0)?.loss;
        if last < 0.04 {
            break;
        }
    }
    Ok(last)
}

#[test]
fn a_tiny_model_learns_conversations_by_heart() -> Result<()> {
    let model = model(Device::Cpu)?;
    let loss = learned_by_heart(&model, 150, 1e-2)?;
    ensure!(loss < 0.05, "the loss is {loss}");
    // It says what it learned.
    let text = tokenizer()?;
    let said = vec![json!({"role": "user", "content": SAID[1].0})];
    let conversation: Conversation = text.conversation(said);
    let prompt = text.chat_template(false)?.render(&conversation)?;
    let mut tokens = text.tokenizer.encode(&prompt, false)?;
    let start = tokens.len();
    for _ in 0..24 {
        let ids: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
        let ids = Tensor::from_slice(&ids, &[1, ids.len()])?.to_device(Device::Cpu)?;
        let hidden = no_grad(|| model.hidden(&ids, &Pass::Whole))?;
        let last = hidden.select(1, ids.shape()[1] - 1)?;
        let next = no_grad(|| model.logits(&last))?.argmax(-1)?.to_vec::<i64>()?[0] as u32;
        if text.stop_tokens.contains(&next) {
            break;
        }
        tokens.push(next);
    }
    assert_eq!(text.tokenizer.decode(&tokens[start..], true)?, SAID[1].1);
    Ok(())
}

pub(crate) fn logits(model: &dyn CausalLm) -> Result<Tensor> {
    let ids: Vec<i64> = (0..40).map(|i| (i * 37) % 320).collect();
    let ids = Tensor::from_slice_on(&ids, &[2, 20], Device::Cpu)?;
    Ok(no_grad(|| model.logits(&model.hidden(&ids, &Pass::Whole)?))?)
}

pub(crate) fn off(a: &Tensor, b: &Tensor) -> Result<f64> {
    Ok(a.sub(b)?.abs()?.max()?.item()?)
}

#[test]
fn adapters_learn_merge_and_are_read_back() -> Result<()> {
    [false, true].into_iter().try_for_each(adapters_are_read_back)
}

fn adapters_are_read_back(dora: bool) -> Result<()> {
    let mut adapted = model(Device::Cpu)?;
    let _own = thread_rng(4);
    let before = logits(&*adapted)?;
    let options = LoraOptions { rank: 8, alpha: 32.0, dora, ..LoraOptions::default() };
    let unique = Arc::get_mut(&mut adapted).context("one owner")?;
    let names = adapt(unique, &options)?;
    assert_eq!(names.len(), 14);
    // The bias is added to rounded products where rows have magnitudes.
    let near = if dora { 1e-6 } else { 0.0 };
    ensure!(off(&before, &logits(&*adapted)?)? <= near, "a new adapter changes something");
    let base: Vec<Tensor> =
        adapted.parameters().into_iter().filter(|p| !p.requires_grad()).collect();
    let untouched: Vec<Vec<f64>> = base.iter().map(|p| p.to_f64_vec()).collect::<Result<_, _>>()?;
    let loss = learned_by_heart(&adapted, 20, 1e-2)?;
    ensure!(loss < 5.2, "the adapters do not learn: {loss}");
    for (p, values) in base.iter().zip(untouched) {
        ensure!(p.to_f64_vec()? == values && p.grad().is_none(), "a frozen weight was trained");
    }
    adapted.eval();
    let trained = logits(&*adapted)?;
    ensure!(off(&before, &trained)? > 0.1);
    let folder = tempfile::tempdir()?;
    save_adapter(folder.path(), &*adapted, &options, "tiny")?;
    let refused = save(folder.path().join("model"), &*adapted, &genesis_config(), None)
        .unwrap_err()
        .to_string();
    ensure!(refused.contains("merge them first"), "{refused}");
    let mut other = model(Device::Cpu)?;
    let read = load_adapter(folder.path(), Arc::get_mut(&mut other).context("one owner")?)?;
    ensure!((read.rank, read.alpha, read.dora) == (8, 32.0, dora));
    other.eval();
    ensure!(off(&trained, &logits(&*other)?)? == 0.0, "adapters that were read differ");
    assert_eq!(merge(Arc::get_mut(&mut adapted).context("one owner")?)?, 14);
    let off = off(&trained, &logits(&*adapted)?)?;
    ensure!(off < 1e-4, "merged weights are off by {off}");
    Ok(())
}

pub(crate) fn genesis_config() -> genesis::models::ModelConfig {
    let options = LoadOptions { device: Device::Cpu, ..LoadOptions::default() };
    initialize(&config(320), &options).expect("the configuration is right").config
}

#[test]
fn targets_that_name_nothing_are_refused() -> Result<()> {
    let mut model = model(Device::Cpu)?;
    let model = Arc::get_mut(&mut model).context("one owner")?;
    let targets = vec!["q_proj".to_owned(), "c_attn".to_owned()];
    let options = LoraOptions { targets, ..LoraOptions::default() };
    let said = adapt(model, &options).unwrap_err().to_string();
    let there = "down_proj, gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj";
    assert_eq!(
        said,
        format!("lora: no product that can be adapted is called c_attn; there are {there}")
    );
    let none = LoraOptions { rank: 0, ..LoraOptions::default() };
    assert!(adapt(model, &none).is_err());
    Ok(())
}

/// Adapters beside weights of 4 and 8 bits have the gradients that they have beside those weights, whole.
#[test]
fn adapters_learn_beside_quantized_weights() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let first = model(Device::Cpu)?;
    save(folder.path(), &*first, &genesis_config(), None)?;
    for weights in [WeightForm::Int8, WeightForm::Int4] {
        let of = LoadOptions { device: Device::Cpu, weights, ..LoadOptions::default() };
        let mut quantized = load(folder.path(), &of)?.model;
        let whole = LoadOptions { trainable: true, weights: WeightForm::Whole, ..of };
        let mut whole = load(folder.path(), &whole)?.model;
        let mut found = Vec::new();
        for model in [&mut quantized, &mut whole] {
            let _own = thread_rng(5);
            adapt(Arc::get_mut(model).context("one owner")?, &LoraOptions::default())?;
            // B begins as 0, so that A has no gradient yet.
            for (name, b) in model.named_parameters() {
                if name.ends_with("lora_B") {
                    let values = Tensor::randn(b.shape(), b.device())?.mul_scalar(0.05)?;
                    no_grad(|| b.detach().copy_(&values))?;
                }
            }
            let batch = TokenBatch::new(&all(&corpus(64)?), 0, Device::Cpu)?;
            let loss = loss_sum(model, &batch, None)?;
            loss.backward()?;
            let adapters = model.named_parameters().into_iter().filter(|(_, p)| p.requires_grad());
            let gradients = adapters.map(|(name, p)| {
                let gradient = p.grad().with_context(|| format!("{name} has no gradient"))?;
                Ok((name, gradient.to_f64_vec()?))
            });
            found.push((loss.item()?, gradients.collect::<Result<Vec<_>>>()?));
        }
        assert_eq!(found[0].1.len(), 28);
        let (loss, apart) =
            ((found[0].0 / found[1].0 - 1.0).abs(), apart(&found[1].1, &found[0].1));
        let near = if weights == WeightForm::Int8 { 0.05 } else { 0.5 };
        ensure!(loss < 0.02 && apart < near, "{weights:?}: losses {loss}, gradients {apart} apart");
        ensure!(apart > 0.0, "{weights:?}: the weights are not quantized");
    }
    Ok(())
}

/// A folder with tokenizer, configuration and data, and options of a short run on them.
pub(crate) struct Workplace {
    pub(crate) folder: tempfile::TempDir,
}

impl Workplace {
    pub(crate) fn new() -> Result<Workplace> {
        let folder = tempfile::tempdir()?;
        Workplace::fill(folder.path())?;
        Ok(Workplace { folder })
    }

    /// Writes the files of one to a folder.
    pub(crate) fn fill(folder: &Path) -> Result<()> {
        tokenizer()?.save(folder.join("tokenizer"))?;
        std::fs::write(folder.join("config.json"), Value::Object(config(320)).to_string())?;
        let line = |said| format!("{}\n", json!({ "messages": messages(said) }));
        let data: String = SAID.iter().chain(&SAID[1..]).map(|&said| line(said)).collect();
        Ok(std::fs::write(folder.join("data.jsonl"), data)?)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn options(&self, out: &str) -> Options {
        Options {
            model: self.path("config.json").display().to_string(),
            tokenizer: Some(self.path("tokenizer")),
            data: vec![self.path("data.jsonl")],
            eval_data: vec![self.path("data.jsonl")],
            out: Some(self.path(out)),
            epochs: 4,
            batch_size: 2,
            accumulate: 2,
            sequence_length: 32,
            learning_rate: 5e-3,
            save_every: Some(1),
            ..Options::sft()
        }
    }
}

/// Runs until so many steps of this process are done.
pub(crate) fn until(options: &Options, resume: bool, most: usize) -> Result<Vec<f64>> {
    let _own = thread_rng(0);
    let (stop, mut done) = (AtomicBool::new(false), 0);
    let start = Start::open(options, None, Device::Cpu)?;
    let session = Session { resume, overwrite: false };
    let outcome = run(start, options, session, &stop, |event| {
        done += usize::from(matches!(event, Event::Step(_)));
        stop.store(done >= most, Ordering::Relaxed);
    })?;
    Ok(outcome.losses)
}

/// The losses of `metrics.jsonl`, as they are written.
pub(crate) fn written(out: &Path) -> Result<Vec<(u64, String)>> {
    let text = std::fs::read_to_string(out.join("metrics.jsonl"))?;
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    let steps = lines.iter().filter(|line| line.get("loss").is_some());
    Ok(steps
        .map(|line| {
            (line["step"].as_u64().unwrap_or(0), format!("{} {}", line["loss"], line["grad_norm"]))
        })
        .collect())
}

/// Fails unless a run in parts has the bits of a whole one: losses, what is written of them, and the exported model. `of`
/// gives the options of a run to a folder of this name.
pub(crate) fn resumes_exactly(of: impl Fn(&str) -> Options) -> Result<()> {
    let (whole, parts) = (of("whole"), of("parts"));
    let losses = until(&whole, false, usize::MAX)?;
    ensure!(losses.len() >= 6, "only {} steps", losses.len());
    let mut all = until(&parts, false, 1)?;
    while all.len() < losses.len() {
        // In the middle of an epoch, and after each of its steps.
        all.extend(until(&parts, true, 2)?);
    }
    ensure!(all == losses, "{all:?}, not {losses:?}");
    let out = |options: &Options| options.out.clone().context("the run is written");
    let (whole, parts) = (out(&whole)?, out(&parts)?);
    ensure!(written(&whole)? == written(&parts)?);
    let bytes = |out: &Path| std::fs::read(out.join("model/model.safetensors"));
    ensure!(bytes(&whole)? == bytes(&parts)?, "the exported models differ");
    Ok(())
}

#[test]
fn a_run_that_goes_on_has_the_same_bits() -> Result<()> {
    let workplace = Workplace::new()?;
    let options =
        |out: &str| Options { lora_rank: Some(4), lora_dropout: 0.1, ..workplace.options(out) };
    for lora in [false, true] {
        let of = |out: &str| {
            let out = format!("{out}-{lora}");
            if lora { options(&out) } else { workplace.options(&out) }
        };
        resumes_exactly(of)?;
        let adapter = format!("whole-{lora}/adapter/adapter_model.safetensors");
        ensure!(workplace.path(&adapter).exists() == lora);
    }
    let other = Options { learning_rate: 1e-4, ..workplace.options("parts-false") };
    let said = until(&other, true, 1).unwrap_err().to_string();
    let why = "train: the checkpoint is of another run: learning_rate was 0.005, is 0.0001";
    assert_eq!(said, why);
    Ok(())
}

#[test]
fn an_exported_model_gives_the_same_logits() -> Result<()> {
    let _own = thread_rng(0);
    let workplace = Workplace::new()?;
    let options = workplace.options("out");
    let (stop, start) = (AtomicBool::new(false), Start::open(&options, None, Device::Cpu)?);
    let trained = start.model.clone();
    let outcome = run(start, &options, Session::default(), &stop, |_| {})?;
    let evaluation = outcome.evaluation.context("there is data for it")?;
    ensure!(evaluation.perplexity() < 320.0 && outcome.losses.len() == outcome.steps);
    let on_cpu = LoadOptions { device: Device::Cpu, trainable: true, ..LoadOptions::default() };
    let read = load(workplace.path("out/model"), &on_cpu)?;
    ensure!(off(&logits(&*trained)?, &logits(&*read.model)?)? == 0.0);
    let text = Pretrained::load(workplace.path("out/model"))?;
    let end = text.tokenizer.token_to_id("<|im_end|>").context("a token")?;
    ensure!(text.stop_tokens.contains(&end));
    ensure!(text.chat_template(false)?.has_generation_tags());
    // Rounded where that is asked for.
    save(workplace.path("half"), &*read.model, &read.config, Some(DType::BF16))?;
    let half = load(
        workplace.path("half"),
        &LoadOptions { device: Device::Cpu, ..LoadOptions::default() },
    )?;
    ensure!(half.config.dtype == DType::BF16);
    Ok(())
}

#[test]
fn what_can_not_be_trained_on_is_named() -> Result<()> {
    let workplace = Workplace::new()?;
    let options = workplace.options("out");
    let said = |options: &Options| -> String {
        let start = match Start::open(options, None, Device::Cpu) {
            Ok(start) => start,
            Err(error) => return error.to_string(),
        };
        let stop = AtomicBool::new(false);
        run(start, options, Session::default(), &stop, |_| {}).unwrap_err().to_string()
    };
    let long = Options { sequence_length: 512, ..options.clone() };
    assert_eq!(said(&long), "train: sequence_length is 512, the model has 256 positions");
    let bare = Options { tokenizer: None, ..options.clone() };
    ensure!(said(&bare).contains("needs a tokenizer"), "{}", said(&bare));
    let data = |text: &str| -> Result<Options> {
        std::fs::write(workplace.path("bad.jsonl"), text)?;
        Ok(Options { data: vec![workplace.path("bad.jsonl")], ..options.clone() })
    };
    let named = |said: String| said.replace(&workplace.folder.path().display().to_string(), "");
    let missing = data("{\"text\": \"a b\"}\n\n{\"messages\": [{\"role\": 1}]}\n")?;
    let why = "/bad.jsonl:3: `messages[0].role` is missing or no text";
    assert_eq!(named(said(&missing)), why);
    assert_eq!(named(said(&data("\n")?)), "/bad.jsonl: holds nothing to train on");
    let nobody = json!({"messages": [{"role": "user", "content": "hello"}]}).to_string();
    let why = "training data: none of 1 documents has a token to learn";
    assert_eq!(said(&data(&nobody)?), why);
    std::fs::remove_file(workplace.path("tokenizer/chat_template.jinja"))?;
    let why = "document 1: chat template: the model has none";
    assert_eq!(said(&options), why);
    Ok(())
}

/// Kernels of a step on a GPU, where there is one; the virtual one runs them in `virtual_gpu`.
#[test]
fn a_step_is_the_same_on_every_device() -> Result<()> {
    let mut first: Option<Vec<(String, Vec<f64>)>> = None;
    for device in crate::gpu::devices("lm_training") {
        let model = model(device)?;
        let batch = TokenBatch::new(&all(&corpus(64)?)[..1], 0, device)?;
        loss_sum(&model, &batch, None)?.backward()?;
        let found = gradients(&*model)?;
        let first = first.get_or_insert_with(|| found.clone());
        let off = apart(first, &found);
        ensure!(off < 1e-3, "gradients on {device} are off by {off}");
    }
    Ok(())
}
