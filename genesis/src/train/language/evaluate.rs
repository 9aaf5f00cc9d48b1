//! Evaluation: held-out loss and perplexity, and samples of text.

use std::sync::Arc;

use genesis_kernel::ir::DType;
use serde_json::json;

use super::lesson::{Lesson, Preferences};
use super::ranks::Ranks;
use super::start::Start;
use super::turns;
use crate::autograd::no_grad;
use crate::data::DataLoader;
use crate::error::Result;
use crate::generate::{Engine, EngineOptions, Request, Sampling, generate};
use crate::models::CausalLm;

/// The loss on texts that were not trained on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evaluation {
    /// The mean loss of the tokens that would be learned, or of the pairs, in nats.
    pub loss: f64,
    /// How many tokens they are.
    pub tokens: usize,
    /// Of pairs, how far the better answers are preferred.
    pub preferences: Option<Preferences>,
}

impl Evaluation {
    /// Between how many tokens the model is undecided, as if they were equally likely: `exp(loss)`.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

/// The loss over all batches of a loader, which is at its beginning then again; on several ranks each measures its own
/// of them.
pub(super) fn evaluate<L: Lesson>(
    model: &Arc<dyn CausalLm>,
    loader: &DataLoader<L>,
    half: Option<DType>,
    ranks: Option<&Ranks>,
) -> Result<Evaluation> {
    let (mut sum, mut count, mut tokens) = (0.0, 0, 0);
    let mut preferences = Vec::new();
    let every = ranks.map_or(1, Ranks::size);
    let mut batches = loader.iter()?;
    loop {
        // As many as ranks take in a turn.
        let some = batches.by_ref().take(every).collect::<Result<Vec<L>>>()?;
        if some.is_empty() {
            break;
        }
        count += some.iter().map(L::count).sum::<usize>();
        tokens += some.iter().map(|batch| batch.tokens().learned()).sum::<usize>();
        for own in turns::own(&some, ranks) {
            if let Some(stages) = ranks.and_then(|ranks| ranks.stages.as_ref()) {
                let found = stages.evaluate(model, own.batch.tokens(), half)?;
                sum += if own.counts() { found } else { 0.0 };
                continue;
            }
            let measured = no_grad(|| own.batch.measure(model, half))?;
            sum += own.weighted(measured.loss)?.item()?;
            preferences.extend(measured.preferences);
        }
    }
    let mut preferences = Preferences::of(&preferences, count)?;
    if let Some(ranks) = ranks {
        [sum] = ranks.sum([sum])?;
        preferences = Preferences::over::<L>(preferences, ranks)?;
    }
    Ok(Evaluation { loss: sum / count.max(1) as f64, tokens, preferences })
}

/// What the model writes after each prompt: a text that goes on, or what a user says.
pub(super) fn samples(
    start: &Start,
    (prompts, is_chat): (&[String], bool),
    most: usize,
) -> Result<Vec<String>> {
    let encode = |prompt: &String| prompt_tokens(start, prompt, is_chat);
    let tokens: Vec<Vec<u32>> = prompts.iter().map(encode).collect::<Result<_>>()?;
    let longest = tokens.iter().map(Vec::len).max().unwrap_or(0);
    let context = longest.saturating_add(most).min(start.model.max_positions());
    let options = EngineOptions {
        context: Some(context),
        pages: Some(2 + context.div_ceil(EngineOptions::default().page_size) * tokens.len()),
        max_sequences: tokens.len().max(1),
        ..EngineOptions::default()
    };
    let mut stop_tokens = start.text.stop_tokens.clone();
    stop_tokens.retain(|&token| (token as usize) < start.model.vocab_size());
    let request = |prompt| Request {
        prompt,
        max_tokens: most,
        stop_tokens: stop_tokens.clone(),
        sampling: Sampling { temperature: 0.8, top_p: 0.95, seed: 0, ..Sampling::default() },
        ..Request::default()
    };
    let requests: Vec<Request> = tokens.into_iter().map(request).collect();
    let tokenizer = Arc::new(start.text.tokenizer.clone());
    let mut engine = Engine::new(start.model.clone(), Some(tokenizer), options)?;
    let outputs = generate(&mut engine, &requests, &mut |_, _| {})?;
    Ok(outputs.into_iter().map(|output| output.text).collect())
}

fn prompt_tokens(start: &Start, prompt: &str, is_chat: bool) -> Result<Vec<u32>> {
    let text = &start.text;
    if !is_chat {
        return text.tokenizer.encode(prompt, true);
    }
    let said = vec![json!({ "role": "user", "content": prompt })];
    let prompt = text.chat_template(false)?.render(&text.conversation(said))?;
    text.tokenizer.encode(&prompt, false)
}
