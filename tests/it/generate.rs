//! Generation over a toy model: what a request gives is the same bits whatever happens around it.
//!
//! The model is one layer of attention over the real paged cache, with a little arithmetic on the host whose
//! order is fixed for each row. Its logits depend on all earlier tokens, so that a wrong page, position or
//! length anywhere shows in the tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use genesis::generate::{
    Answer, Constraint, ConstraintState, Detokenizer, Engine, EngineOptions, EngineStats, Event,
    FinishReason, Grammars, Output, Request, Runner, Sampling, Speculation, TokenMask, TokenText,
    embed, generate,
};
use genesis::models::{Batch, CausalLm, KvCache, KvShape, Pass};
use genesis::nn::{Module, Visitor, VisitorMut};
use genesis::{Device, Error, Result, Tensor};

const VOCAB: usize = 24;
const CHANNELS: usize = 4;

/// One layer of attention, no parameter, so that the engine takes it to be on the CPU.
struct Toy {
    /// Scales what attention adds; models of different scales agree often but not always.
    scale: f32,
    calls: AtomicUsize,
    /// The call that fails, and whether by a panic.
    fails_at: Option<(usize, bool)>,
}

impl Module for Toy {
    fn visit<'a>(&'a self, _: &mut Visitor<'a, '_>) {}

    fn visit_mut(&mut self, _: &mut VisitorMut<'_>) {}

    fn as_module(&self) -> &dyn Module {
        self
    }
}

/// A fixed number that looks random, in [-1, 1).
fn noise(a: usize, b: usize) -> f32 {
    let mixed = (a * 7919 + b * 104_729 + 12_345).wrapping_mul(2_654_435_761) >> 8;
    (mixed % 2000) as f32 / 1000.0 - 1.0
}

impl Toy {
    fn new(scale: f32) -> Arc<Toy> {
        Arc::new(Toy { scale, calls: AtomicUsize::new(0), fails_at: None })
    }

    fn failing(at: usize, panics: bool) -> Arc<Toy> {
        Arc::new(Toy { scale: 1.0, calls: AtomicUsize::new(0), fails_at: Some((at, panics)) })
    }

    fn attend(&self, row: &[f32], keys: &[f32], values: &[f32], slots: &[usize]) -> Vec<f32> {
        let key = |slot: usize| &keys[slot * CHANNELS..][..CHANNELS];
        let score = |slot: &usize| -> f32 { row.iter().zip(key(*slot)).map(|(a, b)| a * b).sum() };
        let weights: Vec<f32> = slots.iter().map(|slot| score(slot).exp()).collect();
        let total: f32 = weights.iter().sum();
        let mut out = row.to_vec();
        for (weight, slot) in weights.iter().zip(slots) {
            for (out, value) in out.iter_mut().zip(&values[slot * CHANNELS..]) {
                *out += self.scale * weight / total * value;
            }
        }
        out
    }

    fn paged(&self, tokens: &[i64], batch: &Batch, cache: &KvCache) -> Result<Tensor> {
        let positions = batch.positions.to_vec::<i64>()?;
        let embed = |(&token, &position): (&i64, &i64)| {
            let (token, position) = (token as usize, position as usize);
            (0..CHANNELS).map(move |c| noise(token, c) + 0.3 * noise(position + 100, c))
        };
        let rows: Vec<f32> = tokens.iter().zip(&positions).flat_map(embed).collect();
        let (keys, values) = cache.layer(0)?;
        let fresh = Tensor::from_slice_on(&rows, &[tokens.len(), CHANNELS], Device::Cpu)?;
        keys.view(&[-1, CHANNELS as i64])?.index_copy_(0, &batch.slots, &fresh)?;
        values.view(&[-1, CHANNELS as i64])?.index_copy_(0, &batch.slots, &fresh)?;
        let (keys, values) = (keys.to_vec::<f32>()?, values.to_vec::<f32>()?);
        let starts = batch.query_starts.to_vec::<i64>()?;
        let lengths = batch.key_lengths.to_vec::<i64>()?;
        let (pages, columns) = (batch.pages.to_vec::<i64>()?, batch.pages.shape()[1]);
        let page_size = cache.page_size();
        let mut out = Vec::new();
        for (sequence, bounds) in starts.windows(2).enumerate() {
            for n in bounds[0] as usize..bounds[1] as usize {
                let position = lengths[sequence] as usize - (bounds[1] as usize - n);
                assert_eq!(position, positions[n] as usize);
                let slot = |p: usize| {
                    pages[sequence * columns + p / page_size] as usize * page_size + p % page_size
                };
                let slots: Vec<usize> = (0..=position).map(slot).collect();
                out.extend(self.attend(&rows[n * CHANNELS..][..CHANNELS], &keys, &values, &slots));
            }
        }
        Tensor::from_slice_on(&out, &[tokens.len(), CHANNELS], Device::Cpu)
    }
}

impl CausalLm for Toy {
    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn max_positions(&self) -> usize {
        64
    }

    fn kv_shape(&self) -> KvShape {
        KvShape { layers: 1, heads: 1, head_dim: CHANNELS }
    }

    fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some((_, panics)) = self.fails_at.filter(|(at, _)| *at == call) {
            assert!(!panics, "the toy panics");
            return Err(Error::op("toy", "it fails"));
        }
        match pass {
            // Without attention: only embeddings look at it.
            Pass::Whole => {
                let tokens = tokens.to_vec::<i64>()?;
                let rows =
                    tokens.iter().flat_map(|&t| (0..CHANNELS).map(move |c| noise(t as usize, c)));
                let rows: Vec<f32> = rows.collect();
                Tensor::from_slice_on(&rows, &[1, tokens.len(), CHANNELS], Device::Cpu)
            }
            Pass::Packed(_) => Err(Error::op("toy", "it is not trained")),
            Pass::Paged { batch, cache } => self.paged(&tokens.to_vec::<i64>()?, batch, cache),
        }
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let rows = hidden.to_vec::<f32>()?;
        let logit = |row: &[f32], token: usize| -> f32 {
            (0..CHANNELS).map(|c| 2.0 * row[c] * noise(token + 50, c)).sum()
        };
        let all = rows.chunks(CHANNELS).flat_map(|row| (0..VOCAB).map(move |t| logit(row, t)));
        let all: Vec<f32> = all.collect();
        Tensor::from_slice_on(&all, &[rows.len() / CHANNELS, VOCAB], Device::Cpu)
    }
}

/// Token 0 is `a`, token 1 is `b`, and so on.
pub(crate) struct Letters;

impl Detokenizer for Letters {
    fn stream(&self) -> Box<dyn TokenText + Send> {
        Box::new(Letters)
    }
}

impl TokenText for Letters {
    fn push(&mut self, token: u32) -> Result<String> {
        Ok(letters(&[token]))
    }

    fn finish(&mut self) -> String {
        String::new()
    }
}

fn letters(tokens: &[u32]) -> String {
    tokens.iter().map(|&token| char::from(b'a' + token as u8)).collect()
}

fn options() -> EngineOptions {
    EngineOptions { page_size: 4, pages: Some(400), ..EngineOptions::default() }
}

fn engine(options: EngineOptions) -> Engine {
    Engine::new(Toy::new(1.0), Some(Arc::new(Letters)), options).expect("the options are right")
}

fn answer(engine: &mut Engine, requests: &[Request]) -> Vec<Output> {
    generate(engine, requests, &mut |_, _| {}).expect("the requests are right")
}

/// Prompts of all lengths, many of which begin alike; greedy and sampled in turn.
fn requests(count: usize) -> Vec<Request> {
    let request = |i: usize| {
        let prompt = (0..1 + i % 23).map(|p| ((p * p + p * (i % 3)) % VOCAB) as u32).collect();
        let sampling = Sampling {
            temperature: [0.0, 0.8, 1.5][i % 3],
            top_k: [None, Some(9), None, None][i % 4],
            top_p: [1.0, 0.9][i % 2],
            repetition_penalty: [1.0, 1.0, 1.0, 1.0, 1.2][i % 5],
            frequency_penalty: [0.0, 0.3][i % 7 / 6],
            seed: i as u64,
            ..Sampling::default()
        };
        let max_tokens = 3 + i % 17;
        Request { prompt, max_tokens, sampling, logprobs: Some(2), ..Request::default() }
    };
    (0..count).map(request).collect()
}

/// What must not depend on anything but the request, to the bit.
pub(crate) fn bits(outputs: &[Output]) -> Vec<(Vec<u32>, Vec<Vec<u32>>, FinishReason)> {
    let of = |output: &Output| {
        let logprobs = output.logprobs.iter();
        let numbers = logprobs.map(|place| {
            let top = place.top.iter().flat_map(|(token, logprob)| [*token, logprob.to_bits()]);
            std::iter::once(place.logprob.to_bits()).chain(top).collect()
        });
        (output.tokens.clone(), numbers.collect(), output.finish)
    };
    outputs.iter().map(of).collect()
}

fn alone(requests: &[Request]) -> Vec<Output> {
    let one = |request: &Request| {
        let single = EngineOptions { max_sequences: 1, prefix_cache: false, ..options() };
        answer(&mut engine(single), std::slice::from_ref(request)).remove(0)
    };
    requests.iter().map(one).collect()
}

#[test]
fn an_answer_has_the_same_bits_alone_and_in_any_batch() {
    let requests = requests(64);
    let expected = bits(&alone(&requests));
    let variants = [
        EngineOptions { max_sequences: 7, ..options() },
        EngineOptions { max_sequences: 64, prefix_cache: false, ..options() },
        EngineOptions { chunk: Some(3), max_sequences: 64, ..options() },
        EngineOptions { page_size: 7, chunk: Some(1), max_sequences: 5, ..options() },
        EngineOptions { page_size: 1, ..options() },
    ];
    for variant in variants {
        let described = format!("{variant:?}");
        let mut engine = engine(variant);
        assert_eq!(bits(&answer(&mut engine, &requests)), expected, "{described}");
        // Again, with what the first time left in the cache.
        let hits = engine.stats().prefix_hit_tokens;
        assert_eq!(bits(&answer(&mut engine, &requests)), expected, "{described}, again");
        let are_hit = engine.stats().prefix_hit_tokens > hits;
        assert_eq!(are_hit, !described.contains("prefix_cache: false"), "{described}");
        assert_eq!(engine.stats().pages_used, 0);
    }
}

#[test]
fn an_answer_has_the_same_bits_after_preemptions() {
    let requests = requests(40);
    let expected = bits(&alone(&requests));
    let mut engine = engine(EngineOptions { pages: Some(17), ..options() });
    assert_eq!(bits(&answer(&mut engine, &requests)), expected);
    let stats = engine.stats();
    assert!(stats.preemptions > 10, "{stats:?}");
    assert_eq!((stats.pages_used, stats.running, stats.waiting), (0, 0, 0));
}

#[test]
fn guesses_change_no_bit_and_save_steps() {
    let requests = requests(40);
    let plain = EngineOptions { max_sequences: 7, ..options() };
    let mut engine_without = engine(plain.clone());
    let expected = bits(&answer(&mut engine_without, &requests));
    let guesses = [
        Speculation::PromptLookup { longest: 2, drafts: 3 },
        Speculation::Draft { model: Toy::new(0.9), drafts: 4 },
        Speculation::Draft { model: Toy::new(-3.0), drafts: 4 },
        Speculation::Draft { model: Toy::new(1.0), drafts: 9 },
    ];
    for speculation in guesses {
        for tight in [None, Some(18)] {
            let described = format!("{speculation:?} {tight:?}");
            let pages = tight.or(plain.pages);
            let speculation = speculation.clone();
            let mut engine = engine(EngineOptions { speculation, pages, ..plain.clone() });
            assert_eq!(bits(&answer(&mut engine, &requests)), expected, "{described}");
            let stats = engine.stats();
            assert!(stats.accepted_tokens > 0, "{described}: {stats:?}");
            assert!(stats.accepted_tokens <= stats.drafted_tokens, "{described}: {stats:?}");
            let steps = engine_without.stats().steps;
            assert!(tight.is_some() || stats.steps < steps, "{described}: {stats:?}, {steps}");
            assert_eq!(stats.pages_used, 0);
        }
    }
}

#[test]
fn a_draft_model_that_is_the_model_is_nearly_always_right() {
    let request = Request { prompt: vec![1, 2, 3], max_tokens: 40, ..Request::default() };
    let speculation = Speculation::Draft { model: Toy::new(1.0), drafts: 4 };
    let mut engine = engine(EngineOptions { speculation, ..options() });
    answer(&mut engine, &[request]);
    let stats = engine.stats();
    assert_eq!(stats.accepted_tokens, stats.drafted_tokens);
    assert_eq!(stats.steps, 9, "one for the prompt, then five tokens each: {stats:?}");
}

#[test]
fn samples_share_the_prompt_and_differ() {
    let sampling = Sampling { temperature: 1.5, seed: 3, ..Sampling::default() };
    let prompt: Vec<u32> = (0..18).collect();
    let one = Request { prompt, max_tokens: 12, sampling, ..Request::default() };
    let many = Request { samples: 4, ..one.clone() };
    for prefix_cache in [true, false] {
        let mut engine = engine(EngineOptions { prefix_cache, ..options() });
        let outputs = answer(&mut engine, std::slice::from_ref(&many));
        let tokens: std::collections::BTreeSet<&Vec<u32>> =
            outputs.iter().map(|output| &output.tokens).collect();
        assert_eq!(tokens.len(), 4);
        assert_eq!(outputs[0].tokens, alone(std::slice::from_ref(&one))[0].tokens);
        assert_eq!(outputs.iter().map(|output| output.sample).collect::<Vec<_>>(), [0, 1, 2, 3]);
        // 16 of 18 tokens are in full pages.
        assert_eq!(engine.stats().prompt_tokens, 18 + 3 * 2);
        assert_eq!(outputs[3].usage.cached_tokens, 16);
    }
}

#[test]
fn seeds_decide_and_nothing_else() {
    let with = |seed| Request {
        prompt: vec![5, 6],
        sampling: Sampling { temperature: 1.0, seed, ..Sampling::default() },
        ..Request::default()
    };
    let outputs = answer(&mut engine(options()), &[with(1), with(2), with(1)]);
    assert_eq!(outputs[0].tokens, outputs[2].tokens);
    assert_ne!(outputs[0].tokens, outputs[1].tokens);
}

#[test]
fn a_draw_depends_on_the_place_and_not_on_what_was_the_prompt() {
    let sampling = Sampling { temperature: 1.0, top_p: 0.95, seed: 11, ..Sampling::default() };
    let whole = Request { prompt: vec![7, 7, 2], max_tokens: 20, sampling, ..Request::default() };
    let output = answer(&mut engine(options()), std::slice::from_ref(&whole)).remove(0);
    let prompt = [&whole.prompt[..], &output.tokens[..9]].concat();
    let rest = Request { prompt, max_tokens: 11, ..whole };
    assert_eq!(answer(&mut engine(options()), &[rest])[0].tokens, output.tokens[9..]);
}

#[test]
fn a_penalty_sees_every_token_that_was_generated() {
    let sampling = Sampling { presence_penalty: 1000.0, ..Sampling::default() };
    let request = Request { prompt: vec![1, 2], max_tokens: 20, sampling, ..Request::default() };
    for drafts in [0, 4] {
        let speculation = Speculation::Draft { model: Toy::new(1.0), drafts };
        let mut engine = engine(EngineOptions { speculation, ..options() });
        let tokens = answer(&mut engine, std::slice::from_ref(&request)).remove(0).tokens;
        let different: std::collections::BTreeSet<u32> = tokens.into_iter().collect();
        assert_eq!(different.len(), 20);
    }
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let plain = Request { prompt: vec![4, 7], max_tokens: 20, ..Request::default() };
    let sampling = Sampling { temperature: 1.2, seed: 8, ..Sampling::default() };
    let plain = Request { sampling, ..plain };
    let whole = answer(&mut engine(options()), std::slice::from_ref(&plain)).remove(0);
    assert_eq!((whole.text.len(), whole.finish), (20, FinishReason::Length));
    let stop = whole.text[6..9].to_owned();
    let before = whole.text.find(&stop).expect("it is there");
    let request = Request { stop: vec!["never!".to_owned(), stop], ..plain.clone() };
    for drafts in [0, 4] {
        let speculation = Speculation::PromptLookup { longest: 2, drafts };
        let mut engine = engine(EngineOptions { speculation, ..options() });
        let mut streamed = String::new();
        let outputs = generate(&mut engine, std::slice::from_ref(&request), &mut |_, event| {
            streamed.push_str(&event.text);
        });
        let output = outputs.expect("the request is right").remove(0);
        assert_eq!(output.text, whole.text[..before]);
        assert_eq!(streamed, output.text);
        assert_eq!(output.tokens, whole.tokens[..before + 3]);
        assert_eq!(output.finish, FinishReason::Stop);
    }
    let stop_tokens = vec![whole.tokens[5]];
    let output = answer(&mut engine(options()), &[Request { stop_tokens, ..plain }]).remove(0);
    let place = whole.tokens.iter().position(|token| *token == whole.tokens[5]);
    let place = place.expect("it is there");
    assert_eq!(output.text, whole.text[..place], "a stop token has no text");
    assert_eq!(output.tokens, whole.tokens[..=place]);
}

#[test]
fn logprobs_of_a_prompt_are_those_of_generating_it() {
    let request = Request { prompt: vec![9, 2], max_tokens: 20, ..Request::default() };
    let request = Request { logprobs: Some(3), ..request };
    let generated = alone(std::slice::from_ref(&request)).remove(0);
    let prompt = [&request.prompt[..], &generated.tokens[..]].concat();
    let scored = Request { prompt, max_tokens: 0, prompt_logprobs: Some(3), ..request };
    for chunk in [1, 6, 512] {
        let mut engine = engine(EngineOptions { chunk: Some(chunk), ..options() });
        for _ in 0..2 {
            let output = answer(&mut engine, std::slice::from_ref(&scored)).remove(0);
            assert_eq!(output.prompt_logprobs[1..], generated.logprobs, "chunk {chunk}");
            assert_eq!((output.tokens.len(), output.finish), (0, FinishReason::Length));
        }
    }
}

#[test]
fn the_end_of_the_context_ends_an_answer() {
    let request = Request { prompt: vec![1; 60], max_tokens: 100, ..Request::default() };
    let speculation = Speculation::PromptLookup { longest: 1, drafts: 8 };
    let mut engine = engine(EngineOptions { speculation, ..options() });
    let output = answer(&mut engine, &[request]).remove(0);
    assert_eq!((output.tokens.len(), output.finish), (4, FinishReason::Length));
}

/// Lets only every third token come, and five of them.
#[derive(Debug)]
struct Thirds;

struct ThirdsState(usize);

impl Constraint for Thirds {
    fn begin(&self) -> Result<Box<dyn ConstraintState>> {
        Ok(Box::new(ThirdsState(0)))
    }
}

impl ConstraintState for ThirdsState {
    fn allowed(&mut self) -> Result<TokenMask> {
        let mut mask = TokenMask::none(VOCAB);
        (0..VOCAB as u32).step_by(3).for_each(|token| mask.allow(token));
        Ok(mask)
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        assert_eq!(token % 3, 0);
        self.0 += 1;
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.0 == 5
    }
}

#[test]
fn a_constraint_decides_what_may_come_and_when_it_ends() {
    let constraint: Option<Arc<dyn Constraint>> = Some(Arc::new(Thirds));
    let request = Request { prompt: vec![1], max_tokens: 20, constraint, ..Request::default() };
    let mut expected = None;
    for drafts in [0, 3] {
        let speculation = Speculation::Draft { model: Toy::new(1.0), drafts };
        let mut engine = engine(EngineOptions { speculation, ..options() });
        let output = answer(&mut engine, std::slice::from_ref(&request)).remove(0);
        assert_eq!((output.tokens.len(), output.finish), (5, FinishReason::Stop));
        assert_eq!(*expected.get_or_insert(output.tokens.clone()), output.tokens);
    }
}

#[test]
fn cancelling_frees_pages_and_says_so() {
    let mut engine = engine(options());
    let request = Request { prompt: vec![3; 9], max_tokens: 30, samples: 2, ..Request::default() };
    let id = engine.submit(request).expect("it is right");
    engine.step();
    assert!(engine.stats().pages_used > 0);
    assert!(engine.cancel(id));
    assert_eq!(engine.stats().pages_used, 0);
    let reasons: Vec<_> = engine.step().into_iter().map(|event| event.finish).collect();
    assert_eq!(reasons, [Some(FinishReason::Cancelled); 2]);
    assert!(!engine.has_work() && !engine.cancel(id));
    assert_eq!(engine.stats().waiting, 0);
}

#[test]
fn what_is_shared_by_threads_can_be() {
    fn is_sent<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_sent::<Engine>();
    is_sent::<Answer>();
    is_shared::<Runner>();
    is_shared::<Grammars>();
}

#[test]
fn wrong_options_are_refused_by_name() {
    let refusal = |options: EngineOptions| {
        let error = Engine::new(Toy::new(1.0), None, options).expect_err("it is refused");
        error.to_string()
    };
    let chunk = EngineOptions { chunk: Some(0), ..options() };
    assert_eq!(refusal(chunk), "generate: chunk is 0, it must be at least 1");
    let pages = EngineOptions { pages: Some(1), ..options() };
    assert_eq!(refusal(pages), "generate: a cache of 1 pages of 4 tokens can't be used");
    let context = EngineOptions { context: Some(1), ..options() };
    let message = "generate: the context is 1, a prompt and an answer need 2 at least";
    assert_eq!(refusal(context), message);
    let speculation = Speculation::PromptLookup { longest: 0, drafts: 2 };
    let lookup = EngineOptions { speculation, ..options() };
    assert_eq!(refusal(lookup), "generate: prompt lookup needs at least one token to look for");
}

#[test]
fn a_full_queue_is_busy_and_takes_requests_again() {
    let mut engine = engine(EngineOptions { max_queue: 2, max_sequences: 1, ..options() });
    let request = Request { prompt: vec![1], max_tokens: 2, ..Request::default() };
    for _ in 0..2 {
        engine.submit(request.clone()).expect("there is room");
    }
    let error = engine.submit(request.clone()).expect_err("the queue is full");
    assert!(error.is_busy());
    assert_eq!(error.to_string(), "generate: 2 samples wait, the queue has room for 2");
    engine.step();
    engine.submit(request.clone()).expect("one is running");
    while engine.has_work() {
        engine.step();
    }
    // More requests than the queue has room for are no error of the plain call.
    assert_eq!(answer(&mut engine, &vec![request; 9]).len(), 9);
}

#[test]
fn an_error_of_the_model_ends_the_step_it_was_in_and_no_other() {
    let mut engine =
        Engine::new(Toy::failing(1, false), None, options()).expect("the options are right");
    let request = Request { prompt: vec![1, 2], max_tokens: 4, ..Request::default() };
    engine.submit(request.clone()).expect("it is right");
    engine.step();
    let events = engine.step();
    let message = events[0].error.as_ref().map(ToString::to_string);
    assert_eq!(message.as_deref(), Some("toy: it fails"));
    assert_eq!(events[0].finish, Some(FinishReason::Error));
    assert!(!engine.has_work());
    assert_eq!(answer(&mut engine, &[request]).len(), 1);
}

/// What an answer gave in all.
fn collect(answer: Answer) -> (Vec<u32>, Option<Event>) {
    let events: Vec<Event> = answer.collect();
    (events.iter().filter_map(|event| event.token).collect(), events.last().cloned())
}

#[test]
fn a_runner_answers_many_threads_as_the_engine_would() {
    let requests = requests(24);
    let expected: Vec<Vec<u32>> = alone(&requests).into_iter().map(|o| o.tokens).collect();
    let runner = Runner::start(engine(options())).expect("there is a thread");
    std::thread::scope(|scope| {
        let ask = |request: &Request| {
            let answer = runner.submit(request.clone()).expect("it is right");
            scope.spawn(move || collect(answer).0)
        };
        let answers: Vec<_> = requests.iter().map(ask).collect();
        let found: Vec<Vec<u32>> =
            answers.into_iter().map(|answer| answer.join().expect("no panic")).collect();
        assert_eq!(found, expected);
    });
    assert_eq!(runner.stats().waiting, 0);
}

#[test]
fn an_answer_that_is_dropped_frees_its_pages() {
    let runner = Runner::start(engine(options())).expect("there is a thread");
    let request = Request { prompt: vec![1; 20], max_tokens: 40, samples: 8, ..Request::default() };
    for _ in 0..20 {
        let mut answer = runner.submit(request.clone()).expect("it is right");
        assert!(answer.next().is_some_and(|event| event.finish.is_none()));
    }
    let patience = Instant::now() + Duration::from_secs(20);
    let is_at_rest = |stats: EngineStats| stats.pages_used + stats.running + stats.waiting == 0;
    while !is_at_rest(runner.stats()) {
        assert!(Instant::now() < patience, "{:?}", runner.stats());
        std::thread::yield_now();
    }
}

#[test]
fn a_panic_ends_all_answers_and_not_the_runner() {
    let engine =
        Engine::new(Toy::failing(2, true), None, options()).expect("the options are right");
    let runner = Runner::start(engine).expect("there is a thread");
    let request = Request { prompt: vec![1, 2], max_tokens: 8, samples: 2, ..Request::default() };
    let (_, last) = collect(runner.submit(request.clone()).expect("it is right"));
    let message = last.and_then(|event| event.error).map(|error| error.to_string());
    assert_eq!(message.as_deref(), Some("generate: the engine panicked: the toy panics"));
    let (tokens, _) = collect(runner.submit(request).expect("it is right"));
    assert_eq!(tokens.len(), 16);
}

#[test]
fn a_runner_that_is_dropped_ends_its_answers() {
    let runner = Runner::start(engine(options())).expect("there is a thread");
    let request = Request { prompt: vec![1; 8], max_tokens: 50, samples: 40, ..Request::default() };
    let answer = runner.submit(request).expect("it is right");
    drop(runner);
    let ends: Vec<FinishReason> = answer.filter_map(|event| event.finish).collect();
    assert_eq!(ends.len(), 40);
    assert!(ends.contains(&FinishReason::Cancelled));
}

#[test]
fn nothing_is_lost_when_requests_come_and_go_at_random() {
    let mut engine = engine(EngineOptions {
        pages: Some(24),
        max_queue: 12,
        chunk: Some(9),
        speculation: Speculation::PromptLookup { longest: 2, drafts: 3 },
        ..options()
    });
    let requests = requests(40);
    let expected: Vec<Vec<u32>> = alone(&requests).into_iter().map(|o| o.tokens).collect();
    let (mut open, mut ends) = (std::collections::BTreeMap::new(), 0);
    let mut next = 0usize;
    for step in 0..1500usize {
        if noise(step, 1) > 0.2 {
            let place = next % requests.len();
            if let Ok(id) = engine.submit(requests[place].clone()) {
                open.insert(id, (place, Vec::new()));
                next += 1;
            }
        }
        if noise(step, 2) > 0.9
            && let Some((&id, _)) = open.iter().nth(step % 5)
        {
            assert!(engine.cancel(id));
        }
        for event in engine.step() {
            let (_, tokens) = open.get_mut(&event.id).expect("it is under way");
            tokens.extend(event.token);
            let Some(reason) = event.finish else { continue };
            let (place, tokens) = open.remove(&event.id).expect("it ends once");
            assert!(expected[place].starts_with(&tokens));
            assert!(reason == FinishReason::Cancelled || tokens == expected[place]);
            ends += 1;
        }
    }
    assert!(ends > 100, "{ends} ended");
    for (id, _) in open {
        assert!(engine.cancel(id));
    }
    let stats = engine.stats();
    assert!(stats.preemptions > 0);
    assert_eq!((stats.pages_used, stats.running, stats.waiting), (0, 0, 0));
}

#[test]
fn an_embedding_is_the_mean_of_the_hidden_states() {
    let found = embed(&*Toy::new(1.0), &[3, 5]).expect("the tokens are known");
    let expected = |c| (f64::from(noise(3, c)) + f64::from(noise(5, c))) / 2.0;
    assert_eq!(found, (0..CHANNELS).map(|c| expected(c) as f32).collect::<Vec<_>>());
    let refusal =
        |tokens: &[u32]| embed(&*Toy::new(1.0), tokens).expect_err("they are refused").to_string();
    assert_eq!(refusal(&[]), "generate: there are 0 tokens to embed, from 1 to 64 can be");
    assert_eq!(refusal(&[99]), "generate: the text has token 99, the model knows 24 tokens");
}
