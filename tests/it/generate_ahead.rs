//! Steps that are launched before the tokens of the step before are known: answers, their ends and what they took are
//! those of steps that wait, while sequences end in the middle of others', are cancelled, join and lose their pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use genesis::generate::{
    Engine, EngineOptions, EngineStats, Event, FinishReason, Request, RequestId, Sampling,
    Speculation, Usage,
};
use genesis::models::{CausalLm, KvShape, Pass};
use genesis::nn::{Module, Visitor, VisitorMut};
use genesis::{Device, Error, Tensor};

use crate::generate::Letters;
use crate::generate_device::model;

/// The models, and whether their steps can be recorded: which experts a token goes to is read on the host.
const MODELS: [(&str, bool); 4] =
    [("llama_tied", true), ("gemma3", true), ("gpt2", true), ("qwen3_moe", false)];

/// Tokens after which every fourth request is cancelled.
const PATIENCE: usize = 4;

fn is_cancelled(place: usize, answer: &Answer) -> bool {
    place % 4 == 3 && answer.tokens.len() == PATIENCE && answer.finish.is_none()
}

fn options() -> EngineOptions {
    EngineOptions {
        page_size: 4,
        pages: Some(200),
        prefix_cache: false,
        on_device: Some(true),
        async_scheduling: Some(true),
        ..EngineOptions::default()
    }
}

fn waiting() -> EngineOptions {
    EngineOptions { async_scheduling: Some(false), ..options() }
}

fn engine(model: &Arc<dyn CausalLm>, options: EngineOptions) -> Result<Engine> {
    Ok(Engine::new(Arc::clone(model), Some(Arc::new(Letters)), options)?)
}

/// What a request gave.
#[derive(Clone, Default, PartialEq, Debug)]
struct Answer {
    tokens: Vec<u32>,
    text: String,
    finish: Option<FinishReason>,
    usage: Usage,
    error: Option<String>,
}

impl Answer {
    fn add(&mut self, event: Event) {
        self.tokens.extend(event.token);
        self.text.push_str(&event.text);
        (self.finish, self.usage) = (event.finish, event.usage);
        self.error = event.error.map(|error| error.to_string());
    }
}

/// Answers requests of which one comes every few steps; every fourth is cancelled on its way.
fn answers(engine: &mut Engine, requests: &[Request], every: usize) -> Result<Vec<Answer>> {
    let mut answers = vec![Answer::default(); requests.len()];
    let mut places: BTreeMap<RequestId, usize> = BTreeMap::new();
    let mut step = 0;
    while places.len() < requests.len() || engine.has_work() {
        if step % every == 0
            && let Some(request) = requests.get(places.len())
        {
            places.insert(engine.submit(request.clone())?, places.len());
        }
        step += 1;
        for event in engine.step() {
            // Of what was cancelled before there is an end to tell.
            let Some(&place) = places.get(&event.id) else { continue };
            let answer = &mut answers[place];
            ensure!(answer.finish.is_none(), "request {place} goes on behind its end");
            let id = event.id;
            answer.add(event);
            if is_cancelled(place, answer) {
                ensure!(engine.cancel(id));
            }
        }
    }
    let EngineStats { pages_used, running, waiting, .. } = engine.stats();
    ensure!((pages_used, running, waiting) == (0, 0, 0), "{:?}", engine.stats());
    Ok(answers)
}

/// Each request by an engine that has nothing else to do and waits for every step.
fn alone(model: &Arc<dyn CausalLm>, requests: &[Request]) -> Result<Vec<Answer>> {
    let mut all = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        let mut engine = engine(model, waiting())?;
        let id = engine.submit(request.clone())?;
        let mut answer = Answer::default();
        while engine.has_work() {
            for event in engine.step() {
                answer.add(event);
            }
            if is_cancelled(place, &answer) {
                engine.cancel(id);
            }
        }
        all.push(answer);
    }
    Ok(all)
}

/// Greedy and sampled requests, of which some end by a token or a string in the middle of what they would say.
fn requests(model: &Arc<dyn CausalLm>, count: usize) -> Result<Vec<Request>> {
    let request = |i: usize| {
        let prompt =
            (0..1 + i * 3 % 11).map(|p| ((p * p + i) % model.vocab_size()) as u32).collect();
        let sampling = Sampling {
            temperature: [0.0, 1.2, 2.0][i % 3],
            top_k: [None, Some(40)][i % 2],
            seed: i as u64,
            ..Sampling::default()
        };
        Request { prompt, max_tokens: 2 + i * 5 % 13, sampling, ..Request::default() }
    };
    let mut all: Vec<Request> = (0..count).map(request).collect();
    for (place, answer) in alone(model, &all)?.into_iter().enumerate() {
        let middle = answer.tokens.len() / 2;
        match place % 4 {
            1 => all[place].stop_tokens = vec![answer.tokens[middle]],
            2 => all[place].stop = vec![answer.text.chars().skip(middle).take(2).collect()],
            _ => (),
        }
    }
    Ok(all)
}

#[test]
fn answers_are_those_of_steps_that_wait() -> Result<()> {
    for device in crate::gpu::devices("steps ahead") {
        for (name, is_recorded) in MODELS {
            let model = model(name, device)?;
            let requests = requests(&model, 16)?;
            let expected = alone(&model, &requests)?;
            let ends = |reason| expected.iter().filter(|a| a.finish == Some(reason)).count();
            assert!(ends(FinishReason::Stop) > 3 && ends(FinishReason::Length) > 3);
            assert!(ends(FinishReason::Cancelled) > 1);
            let ways = [
                (waiting(), 1),
                (options(), 1),
                (options(), 3),
                (EngineOptions { max_sequences: 3, chunk: Some(3), ..options() }, 1),
                (EngineOptions { pages: Some(8), ..options() }, 1),
                (EngineOptions { page_size: 1, ..options() }, 2),
            ];
            for (way, every) in ways {
                let described = format!("{name} on {device}, one in {every} steps, {way:?}");
                let is_ahead = way.async_scheduling == Some(true) && is_recorded;
                let is_tight = way.pages == Some(8);
                let mut engine = engine(&model, way)?;
                let found = answers(&mut engine, &requests, every)?;
                for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    ensure!(found == expected, "{described}: {place}: {found:?}, {expected:?}");
                }
                let stats = engine.stats();
                ensure!((stats.ahead_steps > 0) == is_ahead, "{described}: {stats:?}");
                ensure!(!is_tight || stats.preemptions > 0, "{described}: {stats:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn steps_go_ahead_where_nothing_has_to_know_tokens() -> Result<()> {
    let model = model("llama_tied", Device::Cpu)?;
    let plain = Request { prompt: vec![1, 2, 3], max_tokens: 10, ..Request::default() };
    let stats = |options: EngineOptions, request: &Request| -> Result<EngineStats> {
        let mut engine = engine(&model, options)?;
        answers(&mut engine, std::slice::from_ref(request), 1)?;
        Ok(engine.stats())
    };
    let free = stats(options(), &plain)?;
    // The prompt's step is planned with everything known, and no token is too many.
    assert_eq!((free.steps, free.recorded_steps, free.ahead_steps), (10, 10, 9));
    let sampling = Sampling { frequency_penalty: 0.1, ..Sampling::default() };
    let lookup = Speculation::PromptLookup { longest: 2, drafts: 2 };
    let waits = [
        (waiting(), plain.clone()),
        (EngineOptions { speculation: lookup, ..options() }, plain.clone()),
        (options(), Request { logprobs: Some(0), ..plain.clone() }),
        (options(), Request { sampling, ..plain }),
    ];
    for (options, request) in waits {
        let stats = stats(options, &request)?;
        assert_eq!(stats.ahead_steps, 0, "{request:?}");
        assert!(stats.generated_tokens == 10 && stats.recorded_steps > 0, "{stats:?}");
    }
    Ok(())
}

#[test]
fn a_step_that_nobody_awaits_is_in_nobodys_way() -> Result<()> {
    for device in crate::gpu::devices("steps ahead of sequences that end") {
        let model = model("llama_tied", device)?;
        let long = Request { prompt: vec![5; 6], max_tokens: 12, ..Request::default() };
        let expected = alone(&model, std::slice::from_ref(&long))?;
        // There is room for one such request, so that the next one gets the pages of the one before.
        let mut engine = engine(&model, EngineOptions { pages: Some(6), ..options() })?;
        for tokens in 1..6 {
            let id = engine.submit(long.clone())?;
            let mut told = 0;
            while told < tokens {
                told += engine.step().iter().filter(|event| event.token.is_some()).count();
            }
            ensure!(engine.cancel(id) && engine.stats().pages_used == 0);
            let stop_tokens = vec![expected[0].tokens[tokens]];
            let short = Request { stop_tokens, ..long.clone() };
            let other = Request { prompt: vec![7, 8, 9], ..long.clone() };
            let ends = alone(&model, &[short.clone(), other.clone(), long.clone()])?;
            let found = answers(&mut engine, &[short, other, long.clone()], 20)?;
            ensure!(found == ends, "on {device}, {tokens}: {found:?}, {ends:?}");
        }
    }
    Ok(())
}

/// A model that fails once, in a step of one token a sequence, and whose logits are another times as large.
struct Odd {
    model: Arc<dyn CausalLm>,
    /// Steps of one token a sequence.
    calls: AtomicUsize,
    /// All steps.
    steps: AtomicUsize,
    fails_at: usize,
    scale: f64,
}

impl Odd {
    fn around(model: &Arc<dyn CausalLm>, fails_at: usize, scale: f64) -> Arc<dyn CausalLm> {
        let [calls, steps] = [0; 2].map(AtomicUsize::new);
        Arc::new(Odd { model: Arc::clone(model), calls, steps, fails_at, scale })
    }
}

impl Module for Odd {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.model.visit(visitor);
    }

    fn visit_mut(&mut self, _: &mut VisitorMut<'_>) {}

    fn as_module(&self) -> &dyn Module {
        self
    }
}

impl CausalLm for Odd {
    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn max_positions(&self) -> usize {
        self.model.max_positions()
    }

    fn kv_shape(&self) -> KvShape {
        self.model.kv_shape()
    }

    fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> genesis::Result<Tensor> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let is_counted = matches!(pass, Pass::Paged { batch, .. } if batch.max_queries == 1);
        if is_counted && self.calls.fetch_add(1, Ordering::Relaxed) == self.fails_at {
            return Err(Error::op("odd", "it fails"));
        }
        self.model.hidden(tokens, pass)
    }

    fn logits(&self, hidden: &Tensor) -> genesis::Result<Tensor> {
        self.model.logits(hidden)?.mul_scalar(self.scale)
    }
}

#[test]
fn the_next_step_is_launched_before_anybody_is_told_of_the_last() -> Result<()> {
    let model = model("llama_tied", Device::Cpu)?;
    // The second chunk of the prompt is launched by the call that gives what came of the first.
    for (way, expected) in [(options(), 2), (waiting(), 1)] {
        let [calls, steps] = [0; 2].map(AtomicUsize::new);
        let model = Arc::clone(&model);
        let odd = Arc::new(Odd { model, calls, steps, fails_at: usize::MAX, scale: 1.0 });
        let model: Arc<dyn CausalLm> = odd.clone();
        let mut engine = engine(&model, EngineOptions { chunk: Some(3), ..way })?;
        engine.submit(Request { prompt: vec![5; 7], max_tokens: 2, ..Request::default() })?;
        engine.step();
        assert_eq!(odd.steps.load(Ordering::Relaxed), expected);
    }
    Ok(())
}

#[test]
fn a_step_that_fails_ahead_is_done_in_its_turn() -> Result<()> {
    let model = model("llama_tied", Device::Cpu)?;
    let requests: Vec<Request> = requests(&model, 4)?;
    let expected = alone(&model, &requests)?;
    let mut ahead = 0;
    for at in 0..10 {
        let mut engine = engine(&Odd::around(&model, at, 1.0), options())?;
        let found = answers(&mut engine, &requests, 1)?;
        ensure!(found == expected, "call {at}: {found:?}, {expected:?}");
        ahead += engine.stats().ahead_steps;
    }
    assert!(ahead > 0);
    Ok(())
}

#[test]
fn a_sequence_without_a_token_ends_alone() -> Result<()> {
    let mut late = 0;
    for device in crate::gpu::devices("steps ahead of tokens that there are none of") {
        let model = model("llama_tied", device)?;
        let mut requests = requests(&model, 8)?;
        requests.iter_mut().for_each(|request| request.sampling.temperature = 0.0);
        // What is larger than the limit becomes infinite.
        for limit in [10.0, 12.0, 14.0, 16.0] {
            let model = Odd::around(&model, usize::MAX, f64::from(f32::MAX) / limit);
            let expected = alone(&model, &requests)?;
            let found = answers(&mut engine(&model, options())?, &requests, 1)?;
            ensure!(found == expected, "{limit} on {device}: {found:?}, {expected:?}");
            late += found.iter().filter(|a| a.error.is_some() && a.tokens.len() > 2).count();
        }
    }
    assert!(late > 0);
    Ok(())
}
