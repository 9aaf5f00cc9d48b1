//! The memory of a plan of one GPU beside that of `genesis sft --dry-run`.

use anyhow::{Context, Result, ensure};
use genesis::Device;
use genesis::plan::{Gpu, Job, ModelShape, Network, Strategy, simulate};
use genesis::train::language::{Options, Precision, plan_memory};
use serde_json::{Value, json};

use crate::lm_training::Workplace;

#[test]
fn one_gpu_needs_what_a_dry_run_says() -> Result<()> {
    for (kind, layers, hidden, is_tied) in
        [("llama", 4, 1024, false), ("qwen2", 8, 512, true), ("qwen3", 3, 2048, false)]
    {
        let workplace = Workplace::new()?;
        let config = json!({
            "model_type": kind, "vocab_size": 2048, "hidden_size": 256, "intermediate_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 64, "max_position_embeddings": 512, "tie_word_embeddings": is_tied,
        });
        std::fs::write(workplace.path("config.json"), config.to_string())?;
        let text = json!({ "text": "The sea is wide and blue. ".repeat(600) }).to_string();
        std::fs::write(workplace.path("data.jsonl"), text)?;
        let (batch_size, sequence_length) = (4, 256);
        let options = Options {
            out: None,
            eval_data: Vec::new(),
            accumulate: 1,
            batch_size,
            sequence_length,
            steps: Some(2),
            dtype: Precision::Bf16,
            ..workplace.options("out")
        };
        // Nothing runs: the device says which kernels would.
        let known = plan_memory(&options, None, Device::Cuda(0))?.context("it is known")?;
        let Value::Object(config) = config else { unreachable!("an object") };
        let job = Job {
            model: ModelShape::of_config(&config, kind)?,
            gpu: Gpu::H200,
            gpus: 1,
            gpus_per_node: 8,
            network: Network::IB_400,
            batch: batch_size,
            sequence: sequence_length,
        };
        let strategy = Strategy { microbatch: batch_size, ..Strategy::default() };
        let own = simulate(&job, &strategy)?.memory;
        for (what, own, known, most) in [
            ("weights", own.weights, known.weights, 1e-9),
            ("gradients", own.gradients, known.gradients, 1e-9),
            ("optimizer", own.optimizer, known.optimizer, 1e-9),
            ("the peak", own.peak, known.peak, 0.05),
        ] {
            let off = own / known as f64 - 1.0;
            println!("{kind}: {what} {own}, a dry run says {known}, {off:+.3}");
            ensure!(off.abs() <= most, "{kind}: {what} {own}, a dry run says {known}, {off:+.3}");
        }
    }
    Ok(())
}
