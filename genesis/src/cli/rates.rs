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

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use genesis::generate::{EngineOptions, Request, Sampling};
use genesis::profiler::{Peaks, Rows};
use genesis::serve::Answer;
use serde_json::{Value, json};

use super::answer::Waiter;
use super::model::{Loaded, Work};
use super::output::warn;
use super::{Failure, Outcome, say};

/// What is timed.
pub(super) struct Bench {
    /// Prompts side by side.
    pub(super) sequences: usize,
    pub(super) prompt_tokens: usize,
    pub(super) new_tokens: usize,
    /// Memory for keys and values.
    pub(super) cache_mib: usize,
    pub(super) json: bool,
    /// Where rows are added.
    pub(super) rows: Option<PathBuf>,
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
    if let Some(needed) = bench.lacks(&loaded.work) {
        warn(format_args!(
            "{} x {length} tokens need {needed} MiB of keys and values and the cache has {}, so that some wait for \
             others: --cache-mib {needed} has room for all",
            bench.sequences, bench.cache_mib
        ));
    }
    // That rows can't be written is said before all is timed.
    let mut rows = bench.rows.as_deref().map(|path| Rows::open(Some(path))).transpose()?;
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
    let found = Found { prefill, first, decode, best };
    if let Some(rows) = &mut rows {
        for fields in found.rows(&loaded.backend.model().name, bench) {
            let row = rows.row(&fields);
            rows.write(&row)?;
        }
    }
    print(loaded, bench, &found)
}

/// What was timed.
struct Found {
    /// Tokens a second.
    prefill: f64,
    /// Milliseconds to the first token of all.
    first: f64,
    /// Tokens a second.
    decode: f64,
    best: Roofline,
}

impl Found {
    /// The rows of prompts and of answers: milliseconds to the first token, and of a step.
    fn rows(&self, name: &str, bench: &Bench) -> [Value; 2] {
        let &Bench { sequences, prompt_tokens, new_tokens, .. } = bench;
        let row = |what: &str, ms: f64, rate: f64, best: f64| {
            json!({
                "case": format!("generate/{name}/b{sequences}p{prompt_tokens}n{new_tokens}/{what}"),
                "ours_ms": ms,
                "peer": null,
                "peer_ms": null,
                "ratio": null,
                "tokens_per_s": rate,
                "roofline": rate / best,
                "timing": "host",
            })
        };
        let step = sequences as f64 / self.decode.max(1e-9) * 1e3;
        [
            row("prefill", self.first, self.prefill, self.best.prefill),
            row("decode", step, self.decode, self.best.decode),
        ]
    }
}

impl Bench {
    /// The MiB that keys and values of all sequences take, where the cache has fewer.
    fn lacks(&self, work: &Work) -> Option<usize> {
        // Sequences take whole pages, and one page is nobody's.
        let page = EngineOptions::default().page_size;
        let each = (self.prompt_tokens + self.new_tokens).next_multiple_of(page);
        let tokens = (self.sequences.saturating_mul(each)).saturating_add(page) as u64;
        let bytes = tokens.saturating_mul(work.cache_bytes_per_token);
        let needed = usize::try_from(bytes.div_ceil(1 << 20)).unwrap_or(usize::MAX);
        (needed > self.cache_mib).then_some(needed)
    }
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

fn print(loaded: &Loaded, bench: &Bench, found: &Found) -> Outcome {
    let &Found { prefill, first, decode, ref best } = found;
    let &Bench { sequences, prompt_tokens, new_tokens, json, .. } = bench;
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

    fn bench(sequences: usize, prompt_tokens: usize, new_tokens: usize) -> Bench {
        let (cache_mib, json, rows) = (1024, false, None);
        Bench { sequences, prompt_tokens, new_tokens, cache_mib, json, rows }
    }

    #[test]
    fn a_cache_that_is_too_small_is_noticed() {
        // Keys and values of Llama-3-8B in 16 bits.
        let work = Work {
            parameters: 0,
            weight_bytes: 0,
            cache_bytes_per_token: 2 * 32 * 8 * 128 * 2,
            is_half: true,
        };
        assert_eq!(bench(64, 128, 128).lacks(&work), Some(2050));
        assert_eq!(bench(31, 128, 128).lacks(&work), None);
    }

    #[test]
    fn rows_have_the_fields_of_all_benchmarks() {
        let best = Roofline { prefill: 2000.0, decode: 1000.0 };
        let found = Found { prefill: 1000.0, first: 8.0, decode: 800.0, best };
        let [_, decode] = found.rows("model", &bench(4, 2, 3));
        assert_eq!(decode["case"], "generate/model/b4p2n3/decode");
        assert_eq!((&decode["ours_ms"], &decode["roofline"]), (&json!(5.0), &json!(0.8)));
    }

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
        let bench = bench(1, 10_000, 1);
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
