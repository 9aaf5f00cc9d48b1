//! Tokens picked on the device, by steps that are recorded: what a request gives is the same whatever runs beside
//! it and whatever else it asks for, and greedy answers are those of the host.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use genesis::Device;
use genesis::generate::{Engine, EngineOptions, Output, Request, Sampling, Speculation, generate};
use genesis::models::{CausalLm, LoadOptions, load};

/// One of each kind: biases, tied head, windows and norms on both sides, experts, learned positions.
const MODELS: [&str; 5] = ["llama_biased", "qwen2_tied", "gemma3", "qwen3_moe", "gpt2"];

pub(crate) fn model(name: &str, device: Device) -> Result<Arc<dyn CausalLm>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models").join(name);
    let options = LoadOptions { device, ..LoadOptions::default() };
    Ok(load(folder, &options).with_context(|| name.to_owned())?.model)
}

fn options() -> EngineOptions {
    EngineOptions {
        page_size: 4,
        pages: Some(200),
        on_device: Some(true),
        async_scheduling: Some(true),
        ..EngineOptions::default()
    }
}

fn answers(
    model: &Arc<dyn CausalLm>,
    options: EngineOptions,
    requests: &[Request],
) -> Result<Vec<Output>> {
    let mut engine = Engine::new(Arc::clone(model), None, options)?;
    Ok(generate(&mut engine, requests, &mut |_, _| {})?)
}

fn tokens(outputs: &[Output]) -> Vec<Vec<u32>> {
    outputs.iter().map(|output| output.tokens.clone()).collect()
}

/// Greedy and sampled, plain and with what the host has to see logits for.
fn requests(vocabulary: usize) -> Vec<Request> {
    let request = |i: usize| {
        let prompt = (0..1 + i * 3 % 17).map(|p| ((p * p + i) % vocabulary) as u32).collect();
        let mut sampling = Sampling {
            temperature: [0.0, 0.8, 1.5][i % 3],
            top_k: [None, Some(9)][i % 2],
            top_p: [1.0, 0.9, 0.7][i / 2 % 3],
            min_p: [0.0, 0.05][i / 3 % 2],
            repetition_penalty: [1.0, 1.0, 1.3][i % 5 % 3],
            seed: i as u64,
            ..Sampling::default()
        };
        if i % 7 == 6 {
            sampling.logit_bias.insert(5, 2.0);
        }
        Request { prompt, max_tokens: 3 + i % 12, sampling, ..Request::default() }
    };
    (0..14).map(request).collect()
}

#[test]
fn answers_do_not_depend_on_what_runs_beside_them() -> Result<()> {
    for device in crate::gpu::devices("generation on the device") {
        for name in MODELS {
            let model = model(name, device)?;
            let requests = requests(model.vocab_size());
            let alone = requests.iter().map(|request| {
                Ok(answers(&model, options(), std::slice::from_ref(request))?.remove(0))
            });
            let expected = tokens(&alone.collect::<Result<Vec<_>>>()?);
            let lookup = Speculation::PromptLookup { longest: 2, drafts: 3 };
            let ways = [
                options(),
                EngineOptions { async_scheduling: Some(false), ..options() },
                EngineOptions { max_sequences: 5, chunk: Some(3), ..options() },
                EngineOptions { speculation: lookup, ..options() },
            ];
            for way in ways {
                let described = format!("{name} on {device}, {way:?}");
                ensure!(tokens(&answers(&model, way, &requests)?) == expected, "{described}");
            }
        }
    }
    Ok(())
}

#[test]
fn asking_for_more_changes_no_token() -> Result<()> {
    for device in crate::gpu::devices("log-probabilities of tokens picked on the device") {
        let model = model("qwen2_tied", device)?;
        let plain = requests(model.vocab_size());
        let wordy: Vec<Request> = plain
            .iter()
            .map(|request| Request {
                logprobs: Some(3),
                prompt_logprobs: Some(0),
                ..request.clone()
            })
            .collect();
        let (plain, wordy) =
            (answers(&model, options(), &plain)?, answers(&model, options(), &wordy)?);
        assert_eq!(tokens(&plain), tokens(&wordy));
        for output in &wordy {
            assert_eq!(output.logprobs.len(), output.tokens.len());
            let is_sorted = |top: &[(u32, f32)]| top.is_sorted_by(|a, b| a.1 >= b.1);
            assert!(
                output.logprobs.iter().all(|place| place.top.len() == 3 && is_sorted(&place.top))
            );
        }
    }
    Ok(())
}

#[test]
fn greedy_answers_are_those_of_the_host() -> Result<()> {
    for device in crate::gpu::devices("greedy generation on the device") {
        for name in MODELS {
            let model = model(name, device)?;
            let mut requests = requests(model.vocab_size());
            requests.iter_mut().for_each(|request| request.sampling.temperature = 0.0);
            let on_host = EngineOptions { on_device: Some(false), ..options() };
            let expected = tokens(&answers(&model, on_host, &requests)?);
            let mut engine = Engine::new(Arc::clone(&model), None, options())?;
            let found = generate(&mut engine, &requests, &mut |_, _| {})?;
            ensure!(tokens(&found) == expected, "{name} on {device}");
            // Which experts a token goes to is read on the host.
            let recorded = engine.stats().recorded_steps;
            ensure!((recorded == 0) == (name == "qwen3_moe"), "{name} on {device}: {recorded}");
        }
    }
    Ok(())
}

#[test]
fn draws_follow_their_seeds() -> Result<()> {
    let model = model("qwen2_tied", Device::Cpu)?;
    let with = |seed| {
        let sampling = Sampling { temperature: 1.5, seed, ..Sampling::default() };
        Request { prompt: vec![1, 2], max_tokens: 8, sampling, ..Request::default() }
    };
    let requests: Vec<Request> = (0..20).map(with).collect();
    let mut found = tokens(&answers(&model, options(), &requests)?);
    assert_eq!(found, tokens(&answers(&model, options(), &requests)?));
    found.sort();
    found.dedup();
    assert!(found.len() > 15, "{} of 20 seeds draw differently", found.len());
    Ok(())
}
