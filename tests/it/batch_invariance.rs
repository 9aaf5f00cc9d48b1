//! Log probabilities of an engine's answers are the same bits alone, in batches of 7 and 64, with prompts in
//! chunks, and behind prefixes that are in the cache.
//!
//! The models are those of `tests/fixtures/models`. `GENESIS_TEST_PROMPTS=1000` takes so many prompts of each in
//! the place of a few.

use anyhow::{Result, ensure};
use genesis::DType;
use genesis::data::SampleRng;
use genesis::generate::{Engine, EngineOptions, Output, Request, Sampling, generate};
use genesis::models::{LoadOptions, Loaded, WeightForm, load};

use crate::generate::bits;
use crate::models::folder;

/// Models, and what they are computed in and from: full attention, windows, experts, 16 bits, codes.
const MODELS: [(&str, DType, WeightForm); 7] = [
    ("llama_tied", DType::F32, WeightForm::Whole),
    ("gemma3", DType::F32, WeightForm::Whole),
    ("qwen3_moe", DType::F32, WeightForm::Whole),
    ("qwen3_tied", DType::BF16, WeightForm::Whole),
    ("llama_biased", DType::F32, WeightForm::Int4),
    ("llama_biased", DType::BF16, WeightForm::Int4),
    ("qwen3_tied", DType::BF16, WeightForm::Int8),
];

/// The tokens of each of these models.
const VOCABULARY: usize = 96;
/// How many prompts of each there are where nothing else is asked for.
const FEW: usize = 8;
/// Tokens of a page of the cache: few, so that prompts share several.
const PAGE: usize = 4;

fn options(count: usize) -> EngineOptions {
    EngineOptions {
        page_size: PAGE,
        pages: Some(1600),
        max_queue: count,
        prefix_cache: false,
        ..EngineOptions::default()
    }
}

/// Prompts of 1 to 60 tokens, most of which begin as others do; every second is sampled.
fn requests(count: usize) -> Vec<Request> {
    let request = |number: usize| {
        let mut rng = SampleRng::new(number as u64);
        let (shared, own) = (rng.below(5) * 8, 1 + rng.below(28));
        let family = rng.below(3);
        let start = (0..shared).map(|place| ((place * place + 31 * family) % VOCABULARY) as u32);
        let start: Vec<u32> = start.collect();
        let prompt = start.into_iter().chain((0..own).map(|_| rng.below(VOCABULARY) as u32));
        let sampling = Sampling {
            temperature: [0.0, 1.1][number % 2],
            top_p: [1.0, 0.95][number / 2 % 2],
            seed: number as u64,
            ..Sampling::default()
        };
        Request {
            prompt: prompt.collect(),
            max_tokens: 2 + rng.below(9),
            sampling,
            logprobs: Some(3),
            ..Request::default()
        }
    };
    (0..count).map(request).collect()
}

fn engine(loaded: &Loaded, options: EngineOptions) -> Result<Engine> {
    Ok(Engine::new(loaded.model.clone(), None, options)?)
}

fn answers(engine: &mut Engine, requests: &[Request]) -> Result<Vec<Output>> {
    Ok(generate(engine, requests, &mut |_, _| {})?)
}

/// Compares the answers of a model in every way with those alone.
fn check(loaded: &Loaded, count: usize, what: &str) -> Result<()> {
    let requests = requests(count);
    let mut single = engine(loaded, EngineOptions { max_sequences: 1, ..options(count) })?;
    let mut alone = Vec::new();
    for request in &requests {
        alone.extend(answers(&mut single, std::slice::from_ref(request))?);
    }
    let alone = bits(&alone);
    let ways = [
        EngineOptions { max_sequences: 7, ..options(count) },
        EngineOptions { max_sequences: 64, ..options(count) },
        EngineOptions { max_sequences: 64, chunk: Some(5), ..options(count) },
        EngineOptions { max_sequences: 7, prefix_cache: true, ..options(count) },
    ];
    for way in ways {
        let described = format!("{what}: {way:?}");
        let has_prefixes = way.prefix_cache;
        let mut engine = engine(loaded, way)?;
        for turn in 0..if has_prefixes { 2 } else { 1 } {
            let found = bits(&answers(&mut engine, &requests)?);
            let far = found.iter().zip(&alone).position(|(found, alone)| found != alone);
            ensure!(found.len() == count && far.is_none(), "{described}, {turn}: request {far:?}");
        }
        let hits = engine.stats().prefix_hit_tokens;
        ensure!(has_prefixes == (hits > 0), "{described}: {hits} tokens of prefixes");
    }
    Ok(())
}

#[test]
fn log_probabilities_have_the_same_bits_alone_and_in_any_batch() -> Result<()> {
    let count = std::env::var("GENESIS_TEST_PROMPTS").map_or(Ok(FEW), |count| count.parse())?;
    for device in crate::gpu::devices("batch invariance") {
        for (name, dtype, weights) in MODELS {
            let options =
                LoadOptions { dtype: Some(dtype), device, weights, ..LoadOptions::default() };
            let loaded = load(folder(name), &options)?;
            let start = std::time::Instant::now();
            let what = format!("{name} in {dtype}, {weights:?}, on {device}");
            check(&loaded, count, &what)?;
            println!("{count} prompts of {what}: {:?}", start.elapsed());
        }
    }
    Ok(())
}
