//! What memory a run needs, as it is computed before it and measured in it.
//!
//! Peaks are of a process, so that each run here is one of its own: the test starts itself.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use genesis::Device;
use genesis::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use genesis::random::thread_rng;
use genesis::train::language::{
    BaseWeights, LayerKeeps, MemoryPlan, OptimizerKind, Options, Precision, Session, Start,
    plan_memory, plan_memory_of_ranks, run,
};
use serde_json::{Value, json};

use crate::lm_training::Workplace;

/// A model, its data, and what of options is not as usual.
struct Case {
    name: &'static str,
    config: Value,
    data: &'static str,
    options: fn(Options) -> Options,
}

fn cases() -> Vec<Case> {
    let case = |name, config, data, options| Case { name, config, data, options };
    let usual: fn(Options) -> Options = |options| options;
    let deep = || json!({"num_hidden_layers": 5});
    vec![
        // Most is held where the loss is computed, by attention or by logits.
        case("attention", json!({}), "text", usual),
        case("short samples", deep(), "chats", usual),
        case("vocabulary", json!({"vocab_size": 8192}), "text", usual),
        case("tied", json!({"vocab_size": 8192, "tie_word_embeddings": true}), "text", usual),
        // In the last layer, and where parameters are stepped.
        case("wide", json!({"intermediate_size": 2048}), "text", usual),
        case(
            "parameters",
            json!({"intermediate_size": 4096, "num_hidden_layers": 4}),
            "few",
            |of| Options { batch_size: 1, sequence_length: 16, ..of },
        ),
        case("qwen2", json!({"model_type": "qwen2"}), "chats", usual),
        case("qwen3", json!({"model_type": "qwen3", "num_hidden_layers": 3}), "chats", usual),
        case("accumulated", deep(), "text", |of| Options { accumulate: 3, ..of }),
        case("lora", deep(), "text", |of| Options { lora_rank: Some(8), ..of }),
        case("dora", deep(), "text", |of| Options { lora_rank: Some(8), dora: true, ..of }),
        case("targets", deep(), "text", |of| {
            let lora_targets = vec!["q_proj".to_owned(), "v_proj".to_owned()];
            Options { lora_rank: Some(8), lora_targets, ..of }
        }),
        case("pairs", deep(), "pairs", |of| Options { beta: Some(0.1), batch_size: 4, ..of }),
        case("bf16", deep(), "text", |of| Options { dtype: Precision::Bf16, ..of }),
        case("8 bits", json!({"num_hidden_layers": 4, "intermediate_size": 4096}), "few", |of| {
            Options {
                batch_size: 1,
                sequence_length: 16,
                optimizer: OptimizerKind::AdamW8bit,
                ..of
            }
        }),
        // What is kept of layers, the rest being computed again.
        case("blocks", deep(), "text", |of| Options { checkpoint: Some(LayerKeeps::Block), ..of }),
        case("blocks, long", json!({"num_hidden_layers": 12}), "chats", |of| Options {
            checkpoint: Some(LayerKeeps::Block),
            ..of
        }),
        case("products", json!({"num_hidden_layers": 8}), "text", kept_products),
        case(
            "products, qwen2",
            json!({"model_type": "qwen2", "num_hidden_layers": 5}),
            "chats",
            kept_products,
        ),
        case("some products", json!({"num_hidden_layers": 8}), "text", |of| Options {
            checkpoint_budget: Some(12 << 20),
            ..kept_products(of)
        }),
        case("products, lora", json!({"num_hidden_layers": 8}), "text", |of| Options {
            lora_rank: Some(8),
            ..kept_products(of)
        }),
    ]
}

fn kept_products(of: Options) -> Options {
    Options { checkpoint: Some(LayerKeeps::Products), ..of }
}

fn workplace(case: &Case) -> Result<(Workplace, Options)> {
    let workplace = Workplace::new()?;
    let mut config = json!({
        "model_type": "llama", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 320,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "max_position_embeddings": 512, "tie_word_embeddings": false,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    });
    for (key, value) in case.config.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    std::fs::write(workplace.path("config.json"), config.to_string())?;
    let chat = |user: &str, said: &str| json!([{"role": "user", "content": user}, {"role": "assistant", "content": said}]);
    let many = |n: usize| "the sea is wide and blue, ".repeat(2 + n % 5);
    let data = match case.data {
        "few" => json!({"text": "The sea."}).to_string(),
        "text" => json!({"text": "The sea is wide and blue. ".repeat(300)}).to_string(),
        "chats" => {
            let line = |n: usize| json!({"messages": chat("What is it?", &many(n))}).to_string();
            (0..40).map(line).collect::<Vec<_>>().join("\n")
        }
        _ => {
            let pair = |n: usize| json!({"chosen": chat("What?", &many(n)), "rejected": chat("What?", &many(n + 1))});
            (0..8).map(|n| pair(n).to_string()).collect::<Vec<_>>().join("\n")
        }
    };
    std::fs::write(workplace.path("data.jsonl"), data)?;
    let usual = Options {
        out: None,
        eval_data: Vec::new(),
        accumulate: 1,
        batch_size: 4,
        sequence_length: 256,
        steps: Some(2),
        ..workplace.options("out")
    };
    Ok((workplace, (case.options)(usual)))
}

/// Prints what was computed and what is measured of one case; told which by the environment.
#[test]
fn measured() -> Result<()> {
    let Ok(name) = std::env::var("GENESIS_TEST_MEMORY") else { return Ok(()) };
    let case = cases().into_iter().find(|case| case.name == name).context("a case")?;
    let (_workplace, options) = workplace(&case)?;
    let plan = plan_memory(&options, None, Device::Cpu)?.context("it is known")?;
    let _own = thread_rng(0);
    let before = memory_allocated(Device::Cpu)?;
    reset_peak_memory_stats(Device::Cpu)?;
    let start = Start::open(&options, None, Device::Cpu)?;
    let outcome = run(start, &options, Session::default(), &AtomicBool::new(false), |_| {})?;
    // The optimizer has its state from the first step on.
    ensure!(outcome.steps == 2, "{} steps", outcome.steps);
    let peak = max_memory_allocated(Device::Cpu)? - before;
    println!("\n{}", json!({ "computed": plan.peak, "measured": peak }));
    ensure!(plan.weights + plan.gradients + plan.optimizer <= plan.peak);
    Ok(())
}

#[test]
fn what_is_computed_is_within_5_percent_of_what_is_measured() -> Result<()> {
    let mut wrong = Vec::new();
    for case in cases() {
        let own = std::env::current_exe()?;
        let arguments = ["lm_memory::measured", "--exact", "--nocapture", "--test-threads=1"];
        let mut command = Command::new(own);
        let output = command.args(arguments).env("GENESIS_TEST_MEMORY", case.name).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("{}: {said}{errors}", case.name))?;
        let line: Value = serde_json::from_str(line)?;
        let number = |key: &str| line[key].as_f64().context("a number");
        let (computed, measured) = (number("computed")?, number("measured")?);
        let off = computed / measured - 1.0;
        println!("{}: computed {computed}, measured {measured}, {:+.1} %", case.name, off * 100.0);
        if off.abs() > 0.05 {
            wrong.push(format!("{}: {computed} computed, {measured} measured", case.name));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn each_rank_counts_what_it_has() -> Result<()> {
    let config = json!({"num_hidden_layers": 4, "vocab_size": 2048});
    let case = Case { name: "", config, data: "text", options: |of| of };
    let (_workplace, usual) = workplace(&case)?;
    let plans = |options: &Options, ranks| -> Result<Vec<MemoryPlan>> {
        plan_memory_of_ranks(options, None, Device::Cpu, ranks)?.context("it is known")
    };
    let one = plan_memory(&usual, None, Device::Cpu)?.context("it is known")?;
    ensure!(plans(&usual, 1)? == [one] && plans(&usual, 3)? == [one], "each has a whole model");
    let of = |change: fn(Options) -> Options, ranks| plans(&change(usual.clone()), ranks);
    let zero = of(|of| Options { zero1: true, dp: Some(4), ..of }, 4)?[0];
    ensure!(zero.optimizer == one.optimizer / 4 && zero.weights == one.weights, "{zero:?}");
    let fsdp = of(|of| Options { fsdp: Some(4), ..of }, 4)?[0];
    for (part, whole) in [
        (fsdp.weights, one.weights),
        (fsdp.gradients, one.gradients),
        (fsdp.optimizer, one.optimizer),
    ] {
        ensure!(part * 4 >= whole && part * 4 < whole + 64, "{part} of {whole}");
    }
    ensure!(fsdp.peak < one.peak && fsdp.activations > one.activations, "{fsdp:?}");
    let tp = of(|of| Options { tp: Some(2), ..of }, 2)?[0];
    ensure!(tp.weights * 2 > one.weights && tp.weights * 100 < one.weights * 51, "{tp:?}");
    let stages = of(|of| Options { pp: Some(2), accumulate: 4, ..of }, 2)?;
    ensure!(stages.len() == 2);
    ensure!(stages.iter().map(|stage| stage.weights).sum::<usize>() == one.weights);
    let cp = of(|of| Options { cp: Some(2), ..of }, 2)?[0];
    ensure!(cp.activations < one.activations && cp.weights == one.weights);
    let coded = of(|of| Options { optimizer: OptimizerKind::AdamW8bit, ..of }, 1)?[0];
    ensure!(coded.optimizer * 38 < one.optimizer * 10, "{coded:?}");
    let refused = of(|of| Options { zero1: true, ..of }, 1).err().context("one rank")?.to_string();
    ensure!(refused.contains("zero1 needs a dp above 1"), "{refused}");
    let refused = of(|of| Options { fsdp: Some(2), zero1: true, ..of }, 2).err().context("both")?;
    ensure!(refused.to_string().contains("of which fsdp leaves none"), "{refused}");
    Ok(())
}

#[test]
fn what_is_not_known_is_not_guessed() -> Result<()> {
    let gemma = json!({"model_type": "gemma2", "head_dim": 32, "query_pre_attn_scalar": 32});
    let quantized: fn(Options) -> Options =
        |of| Options { lora_rank: Some(4), lora_base: BaseWeights::Int8, ..of };
    for (config, options) in [(gemma, (|of| of) as fn(Options) -> Options), (json!({}), quantized)]
    {
        let case = Case { name: "", config, data: "text", options };
        let (_workplace, options) = workplace(&case)?;
        ensure!(plan_memory(&options, None, Device::Cpu)?.is_none());
    }
    Ok(())
}
