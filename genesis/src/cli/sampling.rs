//! How tokens are picked, as flags.

use std::time::{SystemTime, UNIX_EPOCH};

use genesis::generate::Sampling;

/// What is not given is as the model's `generation_config.json` says.
#[derive(clap::Args, Clone, Default)]
pub(super) struct SamplingArgs {
    /// What logits are divided by; at 0 the most likely token is taken.
    #[arg(long, value_parser = temperature)]
    temperature: Option<f32>,
    /// Keep this many of the most likely tokens; 0 keeps all.
    #[arg(long)]
    top_k: Option<usize>,
    /// Keep the most likely tokens until their probabilities reach this.
    #[arg(long, value_parser = share)]
    top_p: Option<f32>,
    /// Leave out tokens below this share of the most likely one's probability.
    #[arg(long, value_parser = share)]
    min_p: Option<f32>,
    /// Make tokens less likely that came before; 1 changes nothing.
    #[arg(long, value_parser = penalty)]
    repetition_penalty: Option<f32>,
    /// The key of the draws; equal seeds give equal answers. Another one each time without it.
    #[arg(long)]
    seed: Option<u64>,
    /// The most tokens of an answer; as many as the context has room for without it.
    #[arg(long, value_parser = super::values::positive)]
    pub(super) max_tokens: Option<usize>,
}

impl SamplingArgs {
    /// The settings of the model, with those that were given.
    pub(super) fn over(&self, usual: &Sampling) -> Sampling {
        let mut sampling = usual.clone();
        let set = |to: &mut f32, value: Option<f32>| *to = value.unwrap_or(*to);
        set(&mut sampling.temperature, self.temperature);
        // Nothing but the most likely token is what 0 asks for.
        set(&mut sampling.top_p, self.top_p.map(|p| p.max(f32::MIN_POSITIVE)));
        set(&mut sampling.min_p, self.min_p);
        set(&mut sampling.repetition_penalty, self.repetition_penalty);
        if let Some(top_k) = self.top_k {
            sampling.top_k = Some(top_k).filter(|&top_k| top_k > 0);
        }
        sampling.seed = self.seed.unwrap_or_else(fresh_seed);
        sampling
    }
}

/// A seed that the next process will not have.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = format!("{} {}", since.as_nanos(), std::process::id());
    let hash = blake3::hash(text.as_bytes());
    hash.as_bytes()[..8].iter().fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

fn number(text: &str, holds: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    let number = text.parse::<f32>().ok().filter(|&x| x.is_finite() && holds(x));
    number.ok_or_else(|| format!("must be a number {expected}"))
}

fn temperature(text: &str) -> Result<f32, String> {
    number(text, |x| x >= 0.0, "from 0")
}

fn share(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "from 0 to 1")
}

fn penalty(text: &str) -> Result<f32, String> {
    number(text, |x| x > 0.0, "above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_goes_over_what_is_usual() {
        let usual = Sampling { temperature: 0.7, top_k: Some(20), ..Sampling::default() };
        let args = SamplingArgs { top_k: Some(0), seed: Some(3), ..SamplingArgs::default() };
        let sampling = args.over(&usual);
        assert_eq!((sampling.temperature, sampling.top_k, sampling.seed), (0.7, None, 3));
    }

    #[test]
    fn numbers_out_of_range_are_wrong_usage() {
        assert!(share("1.5").is_err() && share("nan").is_err() && temperature("-1").is_err());
        assert_eq!(penalty("0").expect_err("zero"), "must be a number above 0");
    }
}
