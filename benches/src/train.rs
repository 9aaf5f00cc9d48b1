//! One training step of a language model beside transformers under torch.compile: forward, backward, AdamW.
//!
//! A case is `train/<model>/b<batch>s<tokens>/<precision>`, of any batch and length. `autocast` keeps weights in f32 and
//! computes in bf16 where autocast puts it, `bf16` has weights and moments in bf16, `f32` has neither. Ours is what a user
//! writes with `models`, `optim` and `graph`; the peer runs `peer_train.py`, in turns with us on the same device. Weights
//! are random on both sides: a first loss that is not about that of a uniform guess is an error.
//!
//! `train/../<precision>/ddp<ranks>` is the step of one of so many ranks in `DistributedDataParallel`, over NCCL on GPUs
//! even if there is but one, beside the same step without it: what data parallel training costs. `genesis run -n <ranks>`
//! or another launcher starts more than one.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use genesis::amp::{Autocast, autocast};
use genesis::distributed::{DistributedDataParallel, ProcessGroup, World, init, init_world};
use genesis::memory::{max_memory_allocated, reset_peak_memory_stats};
use genesis::models::{CausalLm, LoadOptions, Pass, SharedModel, initialize};
use genesis::ops::Reduction;
use genesis::optim::{AdamW, AdamWOptions, Optimizer};
use genesis::profiler::{GroupBy, ProfilerOptions, SortBy, profile};
use genesis::{DType, Device, Result, Tensor, graph, no_grad};
use serde_json::{Map, Value, json};

use crate::peer::Peer;
use crate::table::{Aim, Case};
use crate::timing::{Times, median};

/// The peer's script, which travels in the program.
const SCRIPT: &str = include_str!("../peer_train.py");

/// The steps that are always timed, with the ratio to torch.compile that each must have; of `ddp1` to the step without.
const CASES: [(&str, f64); 6] = [
    ("train/gpt2/b8s1024/autocast", 1.15),
    ("train/qwen2.5-0.5b/b8s1024/autocast", 1.2),
    ("train/qwen2.5-0.5b/b8s1024/bf16", 1.2),
    ("train/qwen2.5-0.5b/b4s4096/bf16", 1.2),
    ("train/llama-3.2-1b/b4s2048/bf16", 1.2),
    ("train/qwen2.5-0.5b/b8s1024/autocast/ddp1", 0.98),
];

/// Steps that nobody times: kernels are compiled, then the step is recorded.
const WARMUP: usize = 4;
/// Steps of one turn, and turns of which the median counts.
const STEPS: usize = 4;
const TURNS: usize = 5;

pub(crate) fn cases() -> Vec<Case> {
    let case = |&(name, must): &(&str, f64)| Case {
        name: name.to_owned(),
        must: Some(must),
        aim: Some(Aim::Ratio(1.05 * must)),
    };
    CASES.iter().map(case).collect()
}

/// What the name of a case says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Step {
    model: String,
    batch: usize,
    length: usize,
    precision: Precision,
    /// Over how many ranks gradients are reduced.
    ranks: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Precision {
    F32,
    Bf16,
    Autocast,
}

impl Precision {
    fn parse(text: &str) -> Option<Precision> {
        match text {
            "f32" => Some(Precision::F32),
            "bf16" => Some(Precision::Bf16),
            "autocast" => Some(Precision::Autocast),
            _ => None,
        }
    }

    /// Of weights and moments.
    fn of_weights(self) -> DType {
        if self == Precision::Bf16 { DType::BF16 } else { DType::F32 }
    }
}

/// The step that a name means; none if it is no name of one.
pub(crate) fn parse(name: &str) -> Option<Step> {
    let mut parts = name.strip_prefix("train/")?.split('/');
    let (model, sizes, precision) = (parts.next()?, parts.next()?, parts.next()?);
    let (batch, length) = sizes.strip_prefix('b')?.split_once('s')?;
    let step = Step {
        model: model.to_owned(),
        batch: batch.parse().ok().filter(|&n| n > 0)?,
        length: length.parse().ok().filter(|&n| n > 0)?,
        precision: Precision::parse(precision)?,
        ranks: match parts.next() {
            None => None,
            Some(part) => Some(part.strip_prefix("ddp")?.parse().ok().filter(|&n| n > 0)?),
        },
    };
    (parts.next().is_none() && config(&step.model).is_some()).then_some(step)
}

/// The configuration of a model, as transformers has it.
fn config(model: &str) -> Option<Map<String, Value>> {
    let qwen = json!({
        "model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "max_position_embeddings": 32_768, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
    });
    let llama = json!({
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "max_position_embeddings": 8192, "rope_theta": 5e5, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
    });
    let gpt2 = json!({
        "model_type": "gpt2", "vocab_size": 50_257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
    });
    let shrunk = |of: &Value, less: Value| {
        let mut config = of.as_object()?.clone();
        config.extend(less.as_object()?.clone());
        Some(config)
    };
    let few = json!({
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    });
    match model {
        "gpt2" => gpt2.as_object().cloned(),
        "qwen2.5-0.5b" => qwen.as_object().cloned(),
        "llama-3.2-1b" => llama.as_object().cloned(),
        "qwen2-tiny" => shrunk(&qwen, few),
        "gpt2-tiny" => {
            shrunk(&gpt2, json!({"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}))
        }
        _ => None,
    }
}

/// A model at its training.
struct Training {
    model: Arc<dyn CausalLm>,
    optimizer: AdamW,
    half: Option<Autocast>,
    tokens: Tensor,
    targets: Tensor,
    /// Reduces the gradients of each backward for as long as it is there.
    _reducer: Option<DistributedDataParallel<SharedModel>>,
}

impl Training {
    fn new(step: &Step, device: Device, group: Option<&ProcessGroup>) -> anyhow::Result<Training> {
        let config = config(&step.model).context("no model is called so")?;
        genesis::manual_seed(0);
        let options = LoadOptions {
            dtype: Some(step.precision.of_weights()),
            device,
            trainable: true,
            ..LoadOptions::default()
        };
        let model = initialize(&config, &options)?.model;
        let vocabulary = model.vocab_size() as i64;
        let (tokens, targets) = no_grad(|| {
            let shape = [step.batch, step.length + 1];
            let ids = Tensor::randint(0, vocabulary, &shape, (DType::I64, device))?;
            let part = |first| ids.narrow(1, first, step.length)?.contiguous();
            Ok::<_, genesis::Error>((part(0)?, part(1)?.flatten(0, 1)?))
        })?;
        // Of bf16 weights the peer has no copy in f32 and moments in bf16.
        let stochastic_rounding = step.precision.of_weights() == DType::BF16;
        let options = AdamWOptions { lr: 1e-5, stochastic_rounding, ..AdamWOptions::default() };
        let optimizer = AdamW::new(model.parameters(), options);
        let half = (step.precision == Precision::Autocast).then(|| Autocast::from(DType::BF16));
        let reduced = |group| {
            DistributedDataParallel::new(SharedModel(model.clone()), group, Default::default())
        };
        let reducer = group.map(reduced).transpose()?;
        Ok(Training { model, optimizer, half, tokens, targets, _reducer: reducer })
    }

    /// One step; gives the loss.
    fn step(&mut self) -> Result<Tensor> {
        let Training { model, optimizer, half, tokens, targets, .. } = self;
        run(&**model, *half, optimizer, [tokens, targets])
    }

    /// The step as a graph, which was replayed a few times.
    fn record(self, device: Device) -> anyhow::Result<Side> {
        let Training { model, mut optimizer, half, tokens, targets, _reducer: reducer } = self;
        let guess = (model.vocab_size() as f64).ln();
        let mut recorded = graph(move |optimizer: &mut AdamW, args: &[Tensor]| {
            let _is_kept = &reducer;
            Ok(vec![run(&*model, half, optimizer, [&args[0], &args[1]])?])
        });
        // The memory of a step is taken while it is recorded: a captured one holds it outside of what is allocated.
        reset_peak_memory_stats(device)?;
        let first = recorded.call(&mut optimizer, &[&tokens, &targets])?[0].item()?;
        let is_right = (first - guess).abs() < 0.1 * guess;
        anyhow::ensure!(is_right, "the first loss is {first}, not {guess}");
        let mut steps = move |n: usize| -> anyhow::Result<f64> {
            let start = Instant::now();
            for _ in 0..n {
                recorded.call(&mut optimizer, &[&tokens, &targets])?;
            }
            device.synchronize()?;
            Ok(start.elapsed().as_secs_f64() * 1e3 / n as f64)
        };
        steps(WARMUP)?;
        let peak_gib = max_memory_allocated(device)? as f64 / f64::from(1 << 30);
        Ok(Side { name: "the plain step".to_owned(), peak_gib, burst: Box::new(steps) })
    }
}

/// One step; gives the loss.
fn run(
    model: &dyn CausalLm,
    half: Option<Autocast>,
    optimizer: &mut AdamW,
    [tokens, targets]: [&Tensor; 2],
) -> Result<Tensor> {
    optimizer.zero_grad();
    let forward = || {
        let hidden = model.hidden(tokens, &Pass::Whole)?.flatten(0, 1)?; // [B * tokens, C]
        match model.cross_entropy(&hidden, targets, Reduction::Mean)? {
            Some(loss) => Ok(loss),
            None => model.logits(&hidden)?.cross_entropy(targets, Reduction::Mean),
        }
    };
    let loss = match half {
        Some(half) => autocast(half, forward)?,
        None => forward()?,
    };
    loss.backward()?;
    optimizer.step()?;
    Ok(loss.detach())
}

/// One of the two that are timed in turns.
struct Side {
    name: String,
    /// The most memory that its step takes.
    peak_gib: f64,
    /// Runs so many steps; gives the ms of each.
    burst: Box<dyn FnMut(usize) -> anyhow::Result<f64>>,
}

/// The times of a step beside the peer's, and what both took of memory.
pub(crate) fn time(step: &Step, device: Device, is_alone: bool) -> anyhow::Result<(Times, String)> {
    let group = step.ranks.map(|ranks| group_of(ranks, device)).transpose()?;
    let device = group.as_ref().map_or(device, ProcessGroup::device);
    let mut ours = Training::new(step, device, group.as_ref())?.record(device)?;
    let mut peer = match &group {
        _ if is_alone => None,
        Some(_) => Some(Training::new(step, device, None)?.record(device)?),
        None => Some(start_peer(step, device)?),
    };
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        for (side, times) in [Some(&mut ours), peer.as_mut()].into_iter().zip(&mut times) {
            let Some(side) = side else { continue };
            // Ranks begin together: none is timed as it waits for one that is still at the other side's steps.
            group.as_ref().map_or(Ok(()), ProcessGroup::barrier)?;
            times.push((side.burst)(STEPS)?);
        }
    }
    let [ours_ms, theirs] = times.map(|times| (!times.is_empty()).then(|| median(times)));
    let ours_ms = ours_ms.context("no turn was timed")?;
    let rate = (step.batch * step.length * step.ranks.unwrap_or(1)) as f64 / ours_ms * 1e3;
    let mut shapes = format!("{rate:.0} tokens/s, {:.2} GiB", ours.peak_gib);
    let peer = peer.zip(theirs).map(|(Side { name, peak_gib, .. }, ms)| {
        // What the plain step takes beside ours can't be told apart.
        if group.is_none() {
            shapes += &format!("; {name} {peak_gib:.2} GiB");
        }
        (name, ms)
    });
    Ok((Times { ours: ours_ms, peer, from_graphs: true }, shapes))
}

/// The group of all ranks, of which there must be so many. One that no launcher started reduces by NCCL too.
fn group_of(ranks: usize, device: Device) -> anyhow::Result<ProcessGroup> {
    let mut world = World::from_env()?;
    let found = world.size;
    anyhow::ensure!(found == ranks, "{found} ranks were started: `genesis run -n {ranks} ..`");
    if world.launcher.is_some() && device.is_cuda() {
        return Ok(init()?);
    }
    world.launcher.get_or_insert("genesis bench");
    Ok(init_world(world, device)?)
}

/// The peer with the step prepared.
fn start_peer(step: &Step, device: Device) -> anyhow::Result<Side> {
    let mut peer = Peer::start_script("peer_train.py", SCRIPT, device)?;
    let precision = match step.precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
        Precision::Autocast => "autocast",
    };
    let answer = peer.ask(&json!({
        "do": "prepare",
        "config": config(&step.model),
        "precision": precision,
        "batch": step.batch,
        "length": step.length,
    }))?;
    let name = answer["name"].as_str().context("an answer without a name")?.to_owned();
    let peak_gib = answer["peak_gib"].as_f64().unwrap_or(0.0);
    let burst = Box::new(move |steps: usize| {
        let answer = peer.ask(&json!({"do": "burst", "steps": steps}))?;
        answer["ms"].as_f64().context("an answer without ms")
    });
    Ok(Side { name, peak_gib, burst })
}

/// What the kernels of a step are and do, as a table.
pub(crate) fn kernels(step: &Step, device: Device) -> anyhow::Result<String> {
    let mut training = Training::new(step, device, None)?;
    // What is made once is made by the first.
    training.step()?;
    let options = ProfilerOptions { record_shapes: true, ..ProfilerOptions::default() };
    let (_, profile) = profile(options, |_| {
        training.step()?;
        Ok(device.synchronize()?)
    })?;
    let table = |by, rows| profile.key_averages(by).table(SortBy::DeviceTotal, rows);
    let (kernels, inputs) = (table(GroupBy::Kernel, 80), table(GroupBy::KernelAndInputs, 80));
    Ok(format!("{kernels}\n{inputs}\n{}", profile.summary()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_model_sizes_and_precision() {
        let step = parse("train/gpt2/b8s1024/autocast").unwrap();
        assert_eq!((step.batch, step.length, step.precision), (8, 1024, Precision::Autocast));
        assert_eq!(parse("train/gpt2/b8s8/f32/ddp2").unwrap().ranks, Some(2));
        let wrong = [
            "gpt2/b8/f32",
            "gpt3/b8s8/f32",
            "gpt2/b0s8/f32",
            "gpt2/b8s8/f32/ddp0",
            "gpt2/b8s8/f32/fsdp",
        ];
        for wrong in wrong {
            assert_eq!(parse(&format!("train/{wrong}")), None, "{wrong}");
        }
        assert_eq!(parse("add/f32/8"), None);
        assert!(CASES.iter().all(|(name, _)| parse(name).is_some()));
    }

    #[test]
    fn small_models_train_in_every_precision() {
        for model in ["gpt2-tiny", "qwen2-tiny"] {
            for precision in ["f32", "bf16", "autocast"] {
                let step = parse(&format!("train/{model}/b2s16/{precision}")).unwrap();
                let (times, shapes) = time(&step, Device::Cpu, true).unwrap();
                assert!(times.ours > 0.0 && shapes.contains("tokens/s"), "{shapes}");
            }
        }
        let step = parse("train/gpt2-tiny/b2s16/f32/ddp1").unwrap();
        let (times, _) = time(&step, Device::Cpu, false).unwrap();
        assert_eq!(times.peer.unwrap().0, "the plain step");
        let step = parse("train/gpt2-tiny/b2s16/autocast").unwrap();
        assert!(kernels(&step, Device::Cpu).unwrap().contains("add_layer_norm"));
    }
}
