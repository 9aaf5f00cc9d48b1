//! The plain call: prompts in, answers out, in order.

use std::collections::BTreeMap;

use super::engine::Engine;
use super::request::{Event, FinishReason, Request, RequestId, TokenLogprobs, Usage, refused};
use crate::error::Result;

/// A finished sample.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// Which request it answers, by its place.
    pub request: usize,
    /// Which of the request's samples it is.
    pub sample: usize,
    /// The tokens, one that stopped it included.
    pub tokens: Vec<u32>,
    /// The text, without what stopped it; empty where the engine has no tokenizer.
    pub text: String,
    /// The log-probabilities of the tokens, where they were asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// Those of the prompt's tokens from the second on, where they were asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Why it ended.
    pub finish: FinishReason,
    /// What it took.
    pub usage: Usage,
}

/// Answers requests with an engine that has nothing else to do: a sample each, in the order of requests and
/// of their samples.
///
/// `on_event` sees every event as it comes, with the place of its request; it is where streaming hooks in.
///
/// # Errors
/// If a request is out of the engine's limits, or the model, the sampler or a constraint fails.
pub fn generate(
    engine: &mut Engine,
    requests: &[Request],
    on_event: &mut dyn FnMut(usize, &Event),
) -> Result<Vec<Output>> {
    if engine.has_work() {
        return Err(refused("the engine has other requests under way"));
    }
    requests.iter().try_for_each(|request| request.check(engine.limits()))?;
    let mut outputs: BTreeMap<(usize, usize), Output> = BTreeMap::new();
    let mut places: BTreeMap<RequestId, usize> = BTreeMap::new();
    let mut next = 0;
    loop {
        while let Some(request) = requests.get(next) {
            match engine.submit(request.clone()) {
                Ok(id) => places.insert(id, next),
                Err(error) if error.is_busy() => break,
                Err(error) => return Err(abandon(engine, error)),
            };
            next += 1;
        }
        if !engine.has_work() {
            return Ok(outputs.into_values().collect());
        }
        for event in engine.step() {
            let Some(&place) = places.get(&event.id) else { continue };
            on_event(place, &event);
            if let Some(error) = event.error {
                return Err(abandon(engine, error));
            }
            let output = outputs.entry((place, event.sample));
            add(output.or_insert_with(|| empty(place, event.sample)), event);
        }
    }
}

/// Leaves the engine without work.
fn abandon(engine: &mut Engine, error: crate::Error) -> crate::Error {
    engine.fail_all(&error);
    engine.step();
    error
}

fn empty(request: usize, sample: usize) -> Output {
    Output {
        request,
        sample,
        tokens: Vec::new(),
        text: String::new(),
        logprobs: Vec::new(),
        prompt_logprobs: Vec::new(),
        finish: FinishReason::Length,
        usage: Usage::default(),
    }
}

fn add(output: &mut Output, event: Event) {
    output.tokens.extend(event.token);
    output.text.push_str(&event.text);
    output.logprobs.extend(event.logprob);
    output.prompt_logprobs.extend(event.prompt_logprobs);
    output.finish = event.finish.unwrap_or(output.finish);
    output.usage = event.usage;
}
