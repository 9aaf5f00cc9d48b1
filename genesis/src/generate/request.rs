//! What a caller asks for, and what it is told.
//!
//! A [`Request`] is plain data: a prompt as tokens, when to stop, how tokens are picked. What comes back is
//! an [`Event`] for each token, in order, and the last event of a sample says why it ended. Text is only
//! there when the engine has a tokenizer; a stop string is never part of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::constraint::Constraint;
use crate::error::{Error, Result};

/// A request as the engine numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// A prompt, and how it is to go on.
///
/// # Examples
/// ```
/// use genesis::generate::{Request, Sampling};
///
/// let greedy = Request { prompt: vec![3, 1, 4], max_tokens: 16, ..Request::default() };
/// let warm = Sampling { temperature: 0.7, top_p: 0.9, seed: 42, ..Sampling::default() };
/// let sampled = Request { sampling: warm, samples: 3, ..greedy.clone() };
/// assert_eq!(greedy.sampling.temperature, 0.0);
/// assert_eq!(sampled.prompt, greedy.prompt);
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    /// Tokens of the prompt; at least one.
    pub prompt: Vec<u32>,
    /// The most tokens to generate; the context's end may come first.
    pub max_tokens: usize,
    /// Tokens that end a sample; one that does is in the events, its text is not.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a sample wherever they appear in its text; they are left out of it.
    pub stop: Vec<String>,
    /// How tokens are picked.
    pub sampling: Sampling,
    /// How many samples of the same prompt.
    pub samples: usize,
    /// Whether each token comes with its log-probability, and with those of how many most likely ones.
    pub logprobs: Option<usize>,
    /// As `logprobs`, for the tokens of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// What the text must follow, as a JSON schema.
    pub constraint: Option<Arc<dyn Constraint>>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            prompt: Vec::new(),
            max_tokens: 16,
            stop_tokens: Vec::new(),
            stop: Vec::new(),
            sampling: Sampling::default(),
            samples: 1,
            logprobs: None,
            prompt_logprobs: None,
            constraint: None,
        }
    }
}

/// How a token is picked from logits; greedy unless a temperature is given.
///
/// The steps come in this order: penalties, bias, the constraint's mask, temperature, top-k, top-p, min-p,
/// draw. Each of the last four works on what the one before it left.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampling {
    /// What logits are divided by; at 0 the most likely token is taken, the lowest of equal ones.
    pub temperature: f32,
    /// How many of the most likely tokens are kept; of equal ones those with lower ids.
    pub top_k: Option<usize>,
    /// The most likely tokens are kept until their probabilities reach this; 1 keeps all.
    pub top_p: f32,
    /// Tokens below this share of the most likely one's probability are left out; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that are in the prompt or were generated;
    /// 1 changes nothing.
    pub repetition_penalty: f32,
    /// Is taken off the logits of tokens that were generated.
    pub presence_penalty: f32,
    /// Is taken off the logits of tokens for each time that they were generated.
    pub frequency_penalty: f32,
    /// What is added to the logits of single tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// The key of the draws: equal seeds give equal tokens, whatever else the engine does.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Whether the pick depends on the tokens before it otherwise than through the logits.
    pub(super) fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }

    /// Refuses numbers outside of their range, by the name of the setting.
    pub(super) fn check(&self, vocab_size: usize) -> Result<()> {
        let refuse = |name: &str, value: f32, range: &str| {
            Err(refused(format!("{name} is {value}, it must be {range}")))
        };
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return refuse("temperature", self.temperature, "0 or more");
        }
        if self.top_k == Some(0) {
            return Err(refused("top_k is 0, it must be at least 1"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", self.top_p, "above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return refuse("min_p", self.min_p, "from 0 to 1");
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return refuse("repetition_penalty", self.repetition_penalty, "above 0");
        }
        if !self.presence_penalty.is_finite() {
            return refuse("presence_penalty", self.presence_penalty, "a finite number");
        }
        if !self.frequency_penalty.is_finite() {
            return refuse("frequency_penalty", self.frequency_penalty, "a finite number");
        }
        for (&token, &bias) in &self.logit_bias {
            check_token("logit_bias", token, vocab_size)?;
            if !bias.is_finite() {
                return refuse(&format!("logit_bias of token {token}"), bias, "a finite number");
            }
        }
        Ok(())
    }
}

/// What happened to a sample of a request: a token, its end, or both.
#[derive(Clone, Debug)]
pub struct Event {
    /// Whose event it is.
    pub id: RequestId,
    /// Which of the request's samples.
    pub sample: usize,
    /// The token, where there is one: a cancelled sample ends without.
    pub token: Option<u32>,
    /// Text that is certain by now. It may lag behind the tokens: half a character is held back, and so is
    /// what may become a stop string.
    pub text: String,
    /// The token's log-probability, where it was asked for.
    pub logprob: Option<TokenLogprobs>,
    /// With the first event of a sample whose request asks for them: those of the prompt's tokens from the
    /// second on.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Why the sample ended, in its last event.
    pub finish: Option<FinishReason>,
    /// What went wrong, where the reason is [`FinishReason::Error`].
    pub error: Option<Error>,
    /// What the sample took so far.
    pub usage: Usage,
}

impl Event {
    /// Nothing happened yet.
    pub(super) fn new(id: RequestId, sample: usize) -> Event {
        Event {
            id,
            sample,
            token: None,
            text: String::new(),
            logprob: None,
            prompt_logprobs: Vec::new(),
            finish: None,
            error: None,
            usage: Usage::default(),
        }
    }

    /// The end of a sample that could not begin.
    pub(super) fn failure(id: RequestId, sample: usize, error: Error) -> Event {
        let finish = Some(FinishReason::Error);
        Event { finish, error: Some(error), ..Event::new(id, sample) }
    }
}

/// Why a sample ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinishReason {
    /// A stop token or a stop string came, or the constraint is complete.
    Stop,
    /// It has as many tokens as it was to have, or as the context has room for.
    Length,
    /// Its request was cancelled.
    Cancelled,
    /// The model, the sampler or the constraint failed.
    Error,
}

/// What a sample took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt whose keys and values were cached already.
    pub cached_tokens: usize,
    /// Tokens generated.
    pub completion_tokens: usize,
}

/// Log-probabilities at a place of a sequence, of the softmax before any setting of the sampler.
#[derive(Clone, PartialEq, Debug)]
pub struct TokenLogprobs {
    /// The token that stands there.
    pub token: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// The most likely tokens, most likely first, equal ones by id.
    pub top: Vec<(u32, f32)>,
}

/// What requests may ask of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Tokens that the model knows.
    pub vocab_size: usize,
    /// The most tokens of a sequence, prompt and answer together.
    pub context: usize,
    /// The most samples that wait.
    pub max_queue: usize,
    /// Whether there is a tokenizer, without which there is no text and no stop string.
    pub has_text: bool,
}

/// The most stop strings of a request, and the most bytes of all of them.
const STOP_STRINGS: (usize, usize) = (64, 16 << 10);

impl Request {
    /// Refuses what an engine can't do, by the name of the setting.
    ///
    /// # Errors
    /// If a setting is out of range, a token unknown, or the prompt empty or longer than the context.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        if self.prompt.is_empty() {
            return Err(refused("the prompt has no tokens"));
        }
        let (tokens, room) = (self.prompt.len(), limits.context);
        if tokens >= room {
            let message = format!("the prompt has {tokens} tokens, the context has {room}");
            return Err(refused(message + " and an answer needs one at least"));
        }
        let known = |tokens: &[u32], what: &str| {
            tokens.iter().try_for_each(|&token| check_token(what, token, limits.vocab_size))
        };
        known(&self.prompt, "prompt")?;
        known(&self.stop_tokens, "stop_tokens")?;
        if self.samples == 0 || self.samples > limits.max_queue {
            let range = format!("from 1 to {}", limits.max_queue);
            return Err(refused(format!("samples is {}, it must be {range}", self.samples)));
        }
        for (name, count) in
            [("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)]
        {
            if let Some(count) = count.filter(|&count| count > limits.vocab_size) {
                let tokens = limits.vocab_size;
                return Err(refused(format!("{name} is {count}, there are {tokens} tokens")));
            }
        }
        self.check_stop(limits)?;
        self.sampling.check(limits.vocab_size)
    }

    fn check_stop(&self, limits: &Limits) -> Result<()> {
        let (count, bytes) = STOP_STRINGS;
        if self.stop.iter().any(String::is_empty) {
            return Err(refused("a stop string is empty"));
        }
        if !self.stop.is_empty() && !limits.has_text {
            return Err(refused("stop strings need a tokenizer, and the engine has none"));
        }
        if self.stop.len() > count {
            let found = self.stop.len();
            return Err(refused(format!("there are {found} stop strings, at most {count} may be")));
        }
        let found: usize = self.stop.iter().map(String::len).sum();
        if found > bytes {
            let message = format!("the stop strings have {found} bytes, at most {bytes} may be");
            return Err(refused(message));
        }
        Ok(())
    }
}

fn check_token(what: &str, token: u32, vocab_size: usize) -> Result<()> {
    if token as usize >= vocab_size {
        let message = format!("{what} has token {token}, the model knows {vocab_size} tokens");
        return Err(refused(message));
    }
    Ok(())
}

/// A request that can't be answered.
pub(super) fn refused(message: impl Into<String>) -> Error {
    Error::op("generate", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { vocab_size: 8, context: 6, max_queue: 4, has_text: false };

    fn refusal(change: impl FnOnce(&mut Request)) -> String {
        let mut request = Request { prompt: vec![1, 2], ..Request::default() };
        change(&mut request);
        request.check(&LIMITS).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_plain_request_is_taken() {
        let request = Request { prompt: vec![1, 2], ..Request::default() };
        assert!(request.check(&LIMITS).is_ok());
    }

    #[test]
    fn refusals_name_the_setting() {
        assert_eq!(refusal(|r| r.prompt.clear()), "generate: the prompt has no tokens");
        assert_eq!(
            refusal(|r| r.prompt = vec![0; 6]),
            "generate: the prompt has 6 tokens, the context has 6 and an answer needs one at least"
        );
        assert_eq!(
            refusal(|r| r.prompt[1] = 8),
            "generate: prompt has token 8, the model knows 8 tokens"
        );
        assert_eq!(refusal(|r| r.samples = 5), "generate: samples is 5, it must be from 1 to 4");
        assert_eq!(
            refusal(|r| r.logprobs = Some(9)),
            "generate: logprobs is 9, there are 8 tokens"
        );
        assert_eq!(refusal(|r| r.stop.push(String::new())), "generate: a stop string is empty");
        assert_eq!(
            refusal(|r| r.stop.push("a".into())),
            "generate: stop strings need a tokenizer, and the engine has none"
        );
    }

    #[test]
    fn sampling_out_of_range_is_refused() {
        let of = |change: fn(&mut Sampling)| refusal(|r| change(&mut r.sampling));
        assert_eq!(
            of(|s| s.temperature = f32::NAN),
            "generate: temperature is NaN, it must be 0 or more"
        );
        assert_eq!(of(|s| s.top_k = Some(0)), "generate: top_k is 0, it must be at least 1");
        assert_eq!(of(|s| s.top_p = 0.0), "generate: top_p is 0, it must be above 0 and at most 1");
        assert_eq!(of(|s| s.min_p = 1.5), "generate: min_p is 1.5, it must be from 0 to 1");
        assert_eq!(
            of(|s| s.repetition_penalty = 0.0),
            "generate: repetition_penalty is 0, it must be above 0"
        );
        assert_eq!(
            of(|s| s.logit_bias.extend([(3, f32::INFINITY)])),
            "generate: logit_bias of token 3 is inf, it must be a finite number"
        );
    }
}
