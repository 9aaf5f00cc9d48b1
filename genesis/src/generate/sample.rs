//! From a row of logits to a token: the reference of every sampler, in f64 on the host.
//!
//! The order is that of [`Sampling`]: penalties, bias, mask, temperature, top-k, top-p, min-p, draw. Hugging
//! Face and vLLM agree on penalties before temperature and on top-k before top-p; min-p compares with the most
//! likely token, so that its place behind them changes nothing but which tokens are looked at.
//!
//! What is kept is defined by an order without ties, more likely first and lower ids first among equals:
//!
//! ```text
//! logits       2.0  1.0  2.0  0.0        temperature 1
//! order        0 (2.0), 2 (2.0), 1 (1.0), 3 (0.0)
//! top_k 3      0 2 1                     weights 1, 1, 0.37: in all 2.37
//! top_p 0.8    0 2                       before 2 there are 0.42, before 1 there are 0.84 of the mass
//! min_p 0.5    0 2
//! draw         u * 2.0 falls on 0 below 1.0, on 2 above: kept tokens are walked in the order of ids
//! ```

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::constraint::TokenMask;
use super::draw;
use super::request::{Sampling, TokenLogprobs, refused};
use crate::error::Result;

/// How often each token stands in a sequence, for the penalties.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(BTreeMap<u32, u32>);

impl Counts {
    /// The tokens of a prompt, which only the repetition penalty looks at.
    pub(super) fn of_prompt(prompt: &[u32]) -> Counts {
        Counts(prompt.iter().map(|&token| (token, 0)).collect())
    }

    /// One more token was generated.
    pub(super) fn add(&mut self, token: u32) {
        *self.0.entry(token).or_default() += 1;
    }
}

/// What a pick depends on besides the logits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule<'a> {
    pub(super) sampling: &'a Sampling,
    /// The sample's own seed.
    pub(super) seed: u64,
    /// Where the token will stand.
    pub(super) position: usize,
}

/// Picks a token by a row of logits, to which [`adjust`] did what it does.
///
/// # Errors
/// If no token has a finite logit.
pub(super) fn pick(logits: &[f32], rule: &Rule<'_>) -> Result<u32> {
    let best = argmax(logits);
    let top = best.map_or(f32::NEG_INFINITY, |best| logits[best as usize]);
    let Some(best) = best.filter(|_| top.is_finite()) else {
        let place = rule.position;
        let message = if top == f32::INFINITY { "an infinite" } else { "no finite" };
        return Err(refused(format!("the token at position {place} has {message} logit")));
    };
    if rule.sampling.temperature == 0.0 {
        return Ok(best);
    }
    let weights = weights(logits, top, rule.sampling.temperature);
    let u = draw::uniform(rule.seed, rule.position as u64);
    let least = f64::from(rule.sampling.min_p);
    let weight = |token: u32| Some(weights[token as usize]).filter(|&weight| weight >= least);
    let token = match kept(logits, &weights, rule.sampling) {
        Some(tokens) => walk(u, || tokens.iter().copied(), weight),
        None => walk(u, || 0..logits.len() as u32, weight),
    };
    Ok(token.unwrap_or(best))
}

/// Applies penalties by what stands in the sequence, bias, and the mask of tokens that may come.
pub(super) fn adjust(
    logits: &mut [f32],
    sampling: &Sampling,
    counts: Option<&Counts>,
    mask: Option<&TokenMask>,
) {
    for (&token, &count) in counts.iter().flat_map(|counts| &counts.0) {
        let logit = &mut logits[token as usize];
        let repetition = sampling.repetition_penalty;
        *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
        if count > 0 {
            let per_time = sampling.frequency_penalty * count as f32;
            *logit -= per_time + sampling.presence_penalty;
        }
    }
    for (&token, &bias) in &sampling.logit_bias {
        logits[token as usize] += bias;
    }
    if let Some(mask) = mask {
        let rejected = (0..logits.len() as u32).filter(|&token| !mask.allows(token));
        for token in rejected {
            logits[token as usize] = f32::NEG_INFINITY;
        }
    }
}

/// The most likely token, the lowest of equal ones; NaN is never it.
fn argmax(logits: &[f32]) -> Option<u32> {
    // Lanes that don't wait for each other; every row of a greedy request comes through here.
    let mut lanes = [f32::NEG_INFINITY; 16];
    for part in logits.chunks(lanes.len()) {
        for (lane, &logit) in lanes.iter_mut().zip(part) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    let top = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let place = logits.iter().position(|&logit| logit == top && logit > f32::NEG_INFINITY)?;
    Some(place as u32)
}

/// The probability of each token as a share of the most likely one's.
fn weights(logits: &[f32], top: f32, temperature: f32) -> Vec<f64> {
    let (top, temperature) = (f64::from(top), f64::from(temperature));
    let weight = |&logit: &f32| ((f64::from(logit) - top) / temperature).exp();
    let weights = logits.iter().map(weight);
    weights.map(|weight| if weight.is_nan() { 0.0 } else { weight }).collect()
}

/// More likely first, then lower ids first; NaN last.
fn order(logits: &[f32], a: u32, b: u32) -> Ordering {
    let of = |token: u32| {
        let logit = logits[token as usize];
        if logit.is_nan() { f32::NEG_INFINITY } else { logit }
    };
    of(b).partial_cmp(&of(a)).unwrap_or(Ordering::Equal).then(a.cmp(&b))
}

/// The `count` most likely tokens in order; O(V + count log count).
fn most_likely(logits: &[f32], count: usize) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    if count == 0 {
        return Vec::new();
    }
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count - 1, |&a, &b| order(logits, a, b));
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(|&a, &b| order(logits, a, b));
    tokens
}

/// What top-k and top-p keep, in the order of ids; nothing where they keep everything.
fn kept(logits: &[f32], weights: &[f64], sampling: &Sampling) -> Option<Vec<u32>> {
    let top_k = sampling.top_k.filter(|&k| k < logits.len());
    let p = f64::from(sampling.top_p);
    let of = |token: &u32| weights[*token as usize];
    let (mut tokens, total) = match top_k {
        None if p >= 1.0 => return None,
        None => {
            let total = weights.iter().sum();
            (nucleus(logits, weights, p * total), total)
        }
        Some(k) => {
            let tokens = most_likely(logits, k);
            let total = tokens.iter().map(of).sum::<f64>();
            (tokens, total)
        }
    };
    if p < 1.0 {
        let (mut before, mut count) = (0.0, 0);
        while count < tokens.len() && (count == 0 || before < p * total) {
            before += of(&tokens[count]);
            count += 1;
        }
        tokens.truncate(count);
    }
    tokens.sort_unstable();
    Some(tokens)
}

/// The most likely tokens, as many as have this mass and maybe more: looking at a few suffices for most rows,
/// and a sort of the whole vocabulary is what costs.
fn nucleus(logits: &[f32], weights: &[f64], mass: f64) -> Vec<u32> {
    let mut count = 64;
    loop {
        let tokens = most_likely(logits, count);
        let found: f64 = tokens.iter().map(|&token| weights[token as usize]).sum();
        if found >= mass || tokens.len() == logits.len() {
            return tokens;
        }
        count *= 8;
    }
}

/// The token on which `u` of the whole weight falls.
fn walk<I: Iterator<Item = u32>>(
    u: f64,
    tokens: impl Fn() -> I,
    weight: impl Fn(u32) -> Option<f64>,
) -> Option<u32> {
    let weights = || tokens().filter_map(|token| Some((token, weight(token)?)));
    let total: f64 = weights().map(|(_, weight)| weight).sum();
    let target = u * total;
    let (mut sum, mut last) = (0.0, None);
    for (token, weight) in weights().filter(|(_, weight)| *weight > 0.0) {
        sum += weight;
        last = Some(token);
        if sum > target {
            break;
        }
    }
    last
}

/// The log-probability of a token and of the `count` most likely ones, of logits that nothing changed.
pub(super) fn logprobs(logits: &[f32], token: u32, count: usize) -> TokenLogprobs {
    let top = argmax(logits).map_or(0.0, |best| f64::from(logits[best as usize]));
    let terms = logits.iter().filter(|logit| !logit.is_nan());
    let sum: f64 = terms.map(|&logit| (f64::from(logit) - top).exp()).sum();
    let log_sum = top + sum.ln();
    let of = |token: u32| (f64::from(logits[token as usize]) - log_sum) as f32;
    let top = most_likely(logits, count).into_iter().map(|token| (token, of(token))).collect();
    TokenLogprobs { token, logprob: of(token), top }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(sampling: &Sampling) -> Rule<'_> {
        Rule { sampling, seed: sampling.seed, position: 3 }
    }

    fn warm() -> Sampling {
        Sampling { temperature: 1.0, ..Sampling::default() }
    }

    fn greedy(logits: &[f32], rule: &Rule<'_>) -> u32 {
        pick(logits, rule).expect("a token is picked")
    }

    /// Every token that some position draws.
    fn drawn(logits: &[f32], sampling: &Sampling) -> Vec<u32> {
        let draw = |position| greedy(logits, &Rule { position, ..rule(sampling) });
        let set: std::collections::BTreeSet<u32> = (0..500).map(draw).collect();
        set.into_iter().collect()
    }

    #[test]
    fn greedy_takes_the_lowest_of_equal_logits() {
        let sampling = Sampling::default();
        assert_eq!(greedy(&[1.0, 5.0, f32::NAN, 5.0], &rule(&sampling)), 1);
    }

    #[test]
    fn a_row_without_a_finite_maximum_is_refused() {
        let sampling = Sampling::default();
        let error = pick(&[f32::NAN, f32::NEG_INFINITY], &rule(&sampling));
        let message = error.expect_err("it is refused").to_string();
        assert_eq!(message, "generate: the token at position 3 has no finite logit");
        let error = pick(&[0.0, f32::INFINITY], &rule(&sampling)).expect_err("it is refused");
        assert_eq!(error.to_string(), "generate: the token at position 3 has an infinite logit");
    }

    #[test]
    fn top_k_and_top_p_keep_what_the_example_says() {
        let logits = [2.0, 1.0, 2.0, 0.0];
        let with = |top_k, top_p, min_p| Sampling { top_k, top_p, min_p, ..warm() };
        assert_eq!(drawn(&logits, &with(None, 1.0, 0.0)), [0, 1, 2, 3]);
        assert_eq!(drawn(&logits, &with(Some(3), 1.0, 0.0)), [0, 1, 2]);
        assert_eq!(drawn(&logits, &with(Some(1), 1.0, 0.0)), [0]);
        assert_eq!(drawn(&logits, &with(Some(3), 0.8, 0.0)), [0, 2]);
        assert_eq!(drawn(&logits, &with(None, 0.4, 0.0)), [0, 2]);
        assert_eq!(drawn(&logits, &with(None, 0.3, 0.0)), [0]);
        assert_eq!(drawn(&logits, &with(None, 1.0, 0.3)), [0, 1, 2]);
        assert_eq!(drawn(&logits, &with(None, 1.0, 1.0)), [0, 2]);
    }

    #[test]
    fn a_nucleus_over_many_tokens_is_that_of_a_full_sort() {
        let logits: Vec<f32> = (0..5000).map(|i| ((i * 7919) % 5000) as f32 / 900.0).collect();
        for top_p in [0.01f32, 0.5, 0.97] {
            let sampling = Sampling { top_p, ..warm() };
            let weights = weights(&logits, 4999.0 / 900.0, 1.0);
            let found = kept(&logits, &weights, &sampling).expect("top-p keeps a part");
            let mut sorted: Vec<u32> = (0..5000).collect();
            sorted.sort_by(|&a, &b| order(&logits, a, b));
            let total: f64 = weights.iter().sum();
            let mut before = 0.0;
            sorted.retain(|&token| {
                let keep = before < f64::from(top_p) * total;
                before += weights[token as usize];
                keep
            });
            sorted.sort();
            assert_eq!(found, sorted, "top_p {top_p}");
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0, 3f32.ln(), f32::NEG_INFINITY];
        let sampling = warm();
        let draw = |position| greedy(&logits, &Rule { position, ..rule(&sampling) });
        let ones = (0..4000).filter(|&position| draw(position) == 1).count();
        assert!((2900..3100).contains(&ones), "{ones} of 4000, 3000 are expected");
    }

    #[test]
    fn penalties_count_prompt_and_answer_as_they_should() {
        let mut counts = Counts::of_prompt(&[0]);
        counts.add(1);
        counts.add(1);
        let sampling = Sampling {
            repetition_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            ..Sampling::default()
        };
        let mut logits = [4.0, -1.0, 3.0];
        adjust(&mut logits, &sampling, Some(&counts), None);
        assert_eq!(logits, [2.0, -3.0, 3.0]);
    }

    #[test]
    fn bias_and_mask_come_before_the_pick() {
        let mut sampling = Sampling::default();
        sampling.logit_bias.insert(2, 10.0);
        let mut mask = TokenMask::none(3);
        mask.allow(0);
        for (mask, expected) in [(None, 2), (Some(&mask), 0)] {
            let mut logits = [1.0, 2.0, 0.0];
            adjust(&mut logits, &sampling, None, mask);
            assert_eq!(greedy(&logits, &rule(&sampling)), expected);
        }
    }

    #[test]
    fn logprobs_are_those_of_the_softmax() {
        let found = logprobs(&[0.0, 3f32.ln(), 0.0], 2, 2);
        let expected = [0.6f32.ln(), 0.2f32.ln()];
        assert!((found.logprob - expected[1]).abs() < 1e-6);
        assert_eq!(found.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 0]);
        assert!((found.top[0].1 - expected[0]).abs() < 1e-6);
    }
}
