//! How fast a model reads and writes, beside what the device allows.
//!
//! The roofline is what the arithmetic of the weights and the bytes of weights and cache take at the peak
//! rates of the device, with nothing between them. A prompt is bound by products, `2 * parameters` operations
//! a token; an answer is bound by memory: a step reads all weights once, and the keys and values of each
//! sequence.
//!
//! ```text
//! 0.5e9 parameters in bf16 at 4.8 TB/s, 1 sequence:  1.0 GB / 4.8 TB/s = 0.21 ms a token, 4,800 tokens/s
//! ```

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use genesis::generate::{Request, Sampling};
use genesis::profiler::Peaks;
use genesis::serve::Answer;
use serde_json::json;

use super::answer::Waiter;
use super::model::{Loaded, Work};
use super::{Failure, Outcome, say};

/// What is timed.
pub(super) struct Bench {
    /// Prompts side by side.
    pub(super) sequences: usize,
    pub(super) prompt_tokens: usize,
    pub(super) new_tokens: usize,
    pub(super) json: bool,
}

/// Runs that are timed, after one that is not; the median counts.
const RUNS: usize = 5;

/// What a run took.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// From the prompts to the first token of each.
    prefill: Duration,
    /// From there to the last token, and the tokens in between.
    decode: Duration,
    tokens: usize,
}

pub(super) fn run(loaded: &Loaded, bench: &Bench, sampling: &Sampling) -> Outcome {
    let context = loaded.backend.model().context;
    let length = bench.prompt_tokens.saturating_add(bench.new_tokens);
    if length > context {
        let why = format!("{length} tokens of prompt and answer, the context has {context}");
        return Err(Failure::Message(why));
    }
    let waiter = Waiter::new()?;
    let mut times = Vec::with_capacity(RUNS);
    for run in 0..=RUNS {
        let time = time(loaded, bench, sampling, (&waiter, run))?;
        // Kernels are compiled and caches filled in the first.
        if run > 0 {
            times.push(time);
        }
    }
    let prompts = (bench.sequences * bench.prompt_tokens) as f64;
    let prefill = median(times.iter().map(|time| prompts / time.prefill.as_secs_f64()));
    let first = median(times.iter().map(|time| time.prefill.as_secs_f64() * 1e3));
    let rate = |time: &Times| time.tokens as f64 / time.decode.as_secs_f64().max(1e-9);
    let decode = median(times.iter().filter(|time| time.tokens > 0).map(rate));
    let best = Roofline::of(&Peaks::of(loaded.device)?, &loaded.work, bench);
    print(loaded, bench, [prefill, first, decode], &best)
}

/// Times one run.
fn time(
    loaded: &Loaded,
    bench: &Bench,
    sampling: &Sampling,
    (waiter, run): (&Waiter, usize),
) -> Result<Times, Failure> {
    let never = AtomicBool::new(false);
    let vocab_size = loaded.backend.model().vocab_size;
    let own = |sequence| prompt(vocab_size, bench, run * bench.sequences + sequence);
    let prompts: Vec<Vec<u32>> = (0..bench.sequences).map(own).collect();
    let begun = Instant::now();
    let submit = |prompt| {
        let request = Request {
            prompt,
            max_tokens: bench.new_tokens,
            sampling: sampling.clone(),
            ..Request::default()
        };
        Ok::<_, Failure>(Some(loaded.backend.submit(request)?))
    };
    let mut answers: Vec<Option<Answer>> =
        prompts.into_iter().map(submit).collect::<Result<_, _>>()?;
    let mut begins = vec![false; bench.sequences];
    let (mut prefill, mut tokens, mut left) = (None, 0, bench.sequences);
    while left > 0 {
        let Some((place, event)) = waiter.next_of(&mut answers, &never)? else { break };
        if event.token.is_some() {
            if prefill.is_some() {
                tokens += 1;
            }
            begins[place] = true;
            if prefill.is_none() && begins.iter().all(|&has_begun| has_begun) {
                prefill = Some(begun.elapsed());
            }
        }
        if event.finish.is_some() {
            answers[place] = None;
            left -= 1;
        }
    }
    let whole = begun.elapsed();
    let prefill = prefill.unwrap_or(whole);
    Ok(Times { prefill, decode: whole - prefill, tokens })
}

/// Tokens that no other prompt begins with, so that nothing of it is cached.
fn prompt(vocab_size: usize, bench: &Bench, number: usize) -> Vec<u32> {
    let token = |place: usize| {
        let hash = blake3::hash(format!("{number} {place}").as_bytes());
        let bits = hash.as_bytes()[..8].iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        u32::try_from(bits % vocab_size.max(1) as u64).unwrap_or(0)
    };
    (0..bench.prompt_tokens).map(token).collect()
}

/// The middle one; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// What the device allows, in tokens a second.
struct Roofline {
    prefill: f64,
    decode: f64,
}

impl Roofline {
    fn of(peaks: &Peaks, work: &Work, bench: &Bench) -> Roofline {
        let products = if work.is_half { peaks.half_products } else { peaks.single_products };
        let tokens = (bench.sequences * bench.prompt_tokens) as f64;
        let flops = 2.0 * work.parameters as f64 * tokens;
        // Rates are in bytes and operations a nanosecond.
        let prefill = (flops / products).max(work.weight_bytes as f64 / peaks.bytes);
        let keys = bench.prompt_tokens as f64 + bench.new_tokens as f64 / 2.0;
        let cache = bench.sequences as f64 * keys * work.cache_bytes_per_token as f64;
        let step = (work.weight_bytes as f64 + cache) / peaks.bytes;
        let step = step.max(2.0 * work.parameters as f64 * bench.sequences as f64 / products);
        Roofline { prefill: tokens / prefill * 1e9, decode: bench.sequences as f64 / step * 1e9 }
    }
}

fn print(
    loaded: &Loaded,
    bench: &Bench,
    [prefill, first, decode]: [f64; 3],
    best: &Roofline,
) -> Outcome {
    let &Bench { sequences, prompt_tokens, new_tokens, json } = bench;
    let name = &loaded.backend.model().name;
    let device = loaded.device.to_string();
    if json {
        return say(json!({
            "model": name,
            "device": device,
            "sequences": sequences,
            "prompt_tokens": prompt_tokens,
            "new_tokens": new_tokens,
            "first_token_ms": first,
            "prefill_tokens_per_s": prefill,
            "prefill_roofline_tokens_per_s": best.prefill,
            "decode_tokens_per_s": decode,
            "decode_roofline_tokens_per_s": best.decode,
        }));
    }
    say(format_args!("{name} on {device}, {sequences} x {prompt_tokens} + {new_tokens} tokens"))?;
    let line = |what: &str, rate: f64, best: f64, more: &str| {
        let share = 100.0 * rate / best;
        say(format_args!(
            "{what:<8} {rate:>10.1} tokens/s, roofline {best:>10.1}, {share:>5.1} %{more}"
        ))
    };
    line("prefill", prefill, best.prefill, &format!(", first token after {first:.1} ms"))?;
    line("decode", decode, best.decode, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_is_memory_for_answers_and_products_for_prompts() {
        let peaks = Peaks {
            bytes: 1000.0,
            flops: 1e5,
            half_products: 1e6,
            single_products: 1e5,
            double_products: 1e4,
        };
        let work = Work {
            parameters: 1_000_000_000,
            weight_bytes: 2_000_000_000,
            cache_bytes_per_token: 0,
            is_half: true,
        };
        let bench = Bench { sequences: 1, prompt_tokens: 10_000, new_tokens: 1, json: false };
        let best = Roofline::of(&peaks, &work, &bench);
        assert!((best.decode - 500.0).abs() < 1e-6, "2 GB at 1 TB/s are 2 ms");
        assert!((best.prefill - 500_000.0).abs() < 1e-3, "2 GFLOP at 1 PFLOP/s are 2 us");
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
