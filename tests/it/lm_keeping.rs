//! What a step keeps for its backward changes its memory and its time, and no bit of it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use genesis::amp::autocast;
use genesis::autograd::{CheckpointPolicy, KeepBudget, KeptResults, save_on_cpu};
use genesis::memory::memory_allocated;
use genesis::models::{CausalLm, LoadOptions, checkpoint_layers, initialize};
use genesis::nn::{LoraOptions, adapt};
use genesis::profiler::{GroupBy, ProfilerOptions, profile};
use genesis::random::thread_rng;
use genesis::train::language::{LayerKeeps, Options, TokenBatch, loss_sum};
use genesis::{DType, Device};
use serde_json::{Map, Value, json};

use crate::lm_training::{Named, Workplace, all, config, corpus, resumes_exactly, until};

/// How a forward keeps what its backward reads.
type Keep = fn(&Arc<dyn CausalLm>, &mut dyn FnMut() -> Result<()>) -> Result<()>;

fn layers(
    model: &Arc<dyn CausalLm>,
    policy: &CheckpointPolicy,
    f: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut said = Ok(());
    checkpoint_layers(model, policy, || {
        said = f();
        Ok(())
    })?;
    said
}

fn products(bytes: Option<usize>) -> CheckpointPolicy {
    CheckpointPolicy { keep: KeptResults::Products, budget: bytes.map(KeepBudget::new) }
}

const WAYS: [(&str, Keep); 6] = [
    ("all", |_, f| f()),
    ("blocks", |model, f| layers(model, &CheckpointPolicy::default(), f)),
    ("products", |model, f| layers(model, &products(None), f)),
    ("some products", |model, f| layers(model, &products(Some(20_000)), f)),
    ("all, in the host", |_, f| in_host(f)),
    ("products, in the host", |model, f| in_host(&mut || layers(model, &products(None), f))),
];

fn in_host(f: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let mut said = Ok(());
    save_on_cpu(|| {
        said = f();
        Ok(())
    })?;
    said
}

fn model(change: &Value, lora: bool, device: Device) -> Result<Arc<dyn CausalLm>> {
    let _own = thread_rng(3);
    let is_other = change.get("n_embd").is_some();
    let mut config = if is_other { Map::new() } else { config(320) };
    for (key, value) in change.as_object().into_iter().flatten() {
        config.insert(key.clone(), value.clone());
    }
    let options = LoadOptions { trainable: true, device, ..LoadOptions::default() };
    let mut model = initialize(&config, &options)?.model;
    if lora && let Some(own) = Arc::get_mut(&mut model) {
        adapt(own, &LoraOptions { rank: 4, dropout: 0.2, ..LoraOptions::default() })?;
    }
    model.train(true);
    Ok(model)
}

/// The gradients of a step, and the loss.
fn step(
    model: &Arc<dyn CausalLm>,
    batch: &TokenBatch,
    half: bool,
    keep: Keep,
) -> Result<Vec<Named>> {
    let _own = thread_rng(5);
    let mut loss = None;
    keep(model, &mut || {
        let half = half.then_some(DType::BF16);
        loss = Some(match half {
            Some(half) => autocast(half, || loss_sum(model, batch, Some(half)))?,
            None => loss_sum(model, batch, None)?,
        });
        Ok(())
    })?;
    let loss = loss.expect("the forward ran");
    loss.backward()?;
    let mut found = vec![("loss".to_owned(), vec![loss.item()?])];
    for (name, parameter) in model.named_parameters() {
        if let Some(grad) = parameter.grad() {
            found.push((name, grad.contiguous()?.to_f64_vec()?));
            parameter.zero_grad();
        }
    }
    Ok(found)
}

fn same_bits(device: Device, cases: &[(Value, bool, bool)]) -> Result<()> {
    for (change, lora, half) in cases {
        let model = model(change, *lora, device)?;
        let batch = TokenBatch::new(&all(&corpus(64)?)[..3], 0, device)?;
        let mut first = None;
        for (name, keep) in WAYS {
            let found = step(&model, &batch, *half, keep)?;
            let first = first.get_or_insert_with(|| found.clone());
            for ((of, want), (_, got)) in first.iter().zip(&found) {
                ensure!(want == got, "{change}: {of} differs on {device} where {name} is kept");
            }
            ensure!(first.len() == found.len() && first.len() > 10);
        }
    }
    Ok(())
}

#[test]
fn gradients_have_the_same_bits_whatever_is_kept() -> Result<()> {
    let qwen3 = json!({"model_type": "qwen3", "head_dim": 12});
    let gemma = json!({"model_type": "gemma2", "head_dim": 12, "query_pre_attn_scalar": 12});
    let gpt2 = json!({"model_type": "gpt2", "vocab_size": 320, "n_embd": 48, "n_layer": 2, "n_head": 4,
        "n_positions": 256});
    let cases = [
        (json!({}), false, false),
        (json!({}), false, true),
        (json!({}), true, false),
        (gpt2.clone(), false, false),
        (gpt2, false, true),
        (qwen3, false, false),
        (gemma, false, false),
    ];
    same_bits(Device::Cpu, &cases)
}

#[test]
fn gradients_of_a_gpu_have_the_same_bits_whatever_is_kept() -> Result<()> {
    let Some(device) = crate::gpu::gpu("lm_keeping") else { return Ok(()) };
    same_bits(device, &[(json!({}), false, false), (json!({}), false, true)])
}

#[test]
fn what_waits_in_the_host_takes_no_memory_of_the_gpu() -> Result<()> {
    let Some(device) = crate::gpu::gpu("lm_keeping") else { return Ok(()) };
    let model = model(&json!({}), false, device)?;
    let batch = TokenBatch::new(&all(&corpus(64)?)[..3], 0, device)?;
    let held = |keep: Keep| -> Result<usize> {
        let before = memory_allocated(device)?;
        let mut loss = None;
        keep(&model, &mut || {
            loss = Some(loss_sum(&model, &batch, None)?);
            Ok(())
        })?;
        // A read waits for all that was copied.
        loss.as_ref().map(|loss| loss.item()).transpose()?;
        device.synchronize()?;
        let held = memory_allocated(device)?.saturating_sub(before);
        loss.map(|loss| loss.backward()).transpose()?;
        Ok(held)
    };
    let (here, there) = (held(WAYS[0].1)?, held(WAYS[4].1)?);
    ensure!(there * 3 < here, "{there} bytes are held of {here}");
    Ok(())
}

#[test]
fn kept_products_are_computed_once() -> Result<()> {
    let model = model(&json!({}), false, Device::Cpu)?;
    let batch = TokenBatch::new(&all(&corpus(64)?)[..1], 0, Device::Cpu)?;
    let products = |keep: Keep| -> Result<u64> {
        let run = |_: &mut _| Ok(step(&model, &batch, false, keep).map(drop));
        let (done, profile) = profile(ProfilerOptions::default(), run)?;
        done?;
        let ops = profile.key_averages(GroupBy::Name);
        Ok(["matmul", "matmul_bias"].map(|op| ops.row(op).map_or(0, |row| row.calls)).iter().sum())
    };
    let (all, blocks, kept) = (products(WAYS[0].1)?, products(WAYS[1].1)?, products(WAYS[2].1)?);
    // Of the four products of two layers each, those of queries, keys and values being one as gate and up are, a block runs
    // all again that something is read behind; scores of attention are no products with a matrix.
    let again = blocks - all;
    ensure!(
        kept < blocks && blocks - kept >= 2 * 3 && kept - all <= again - 2 * 3,
        "{kept} products, {all} of a plain step, {blocks} of blocks"
    );
    Ok(())
}

#[test]
fn a_run_that_keeps_less_has_the_same_losses_and_goes_on_from_another() -> Result<()> {
    let _own = thread_rng(0);
    let workplace = Workplace::new()?;
    let plain = until(&workplace.options("plain"), false, usize::MAX)?;
    let less = |out: &str, keeps| Options { checkpoint: Some(keeps), ..workplace.options(out) };
    ensure!(until(&less("block", LayerKeeps::Block), false, usize::MAX)? == plain);
    let budget = Options {
        checkpoint_budget: Some(30_000),
        offload: true,
        ..less("products", LayerKeeps::Products)
    };
    let mut parts = until(&workplace.options("products"), false, 3)?;
    parts.extend(until(&budget, true, usize::MAX)?);
    ensure!(parts == plain, "{parts:?}, not {plain:?}");
    resumes_exactly(|out| less(out, LayerKeeps::Products))
}

#[test]
fn what_can_not_be_kept_so_is_refused() -> Result<()> {
    let workplace = Workplace::new()?;
    let said = |options: &Options| until(options, false, 1).err().map(|error| error.to_string());
    let budget = Options { checkpoint_budget: Some(1), ..workplace.options("out") };
    let text = said(&budget).unwrap_or_default();
    ensure!(text.contains("it needs checkpoint = products"), "{text}");
    Ok(())
}
