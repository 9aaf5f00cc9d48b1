//! Learning from pairs of answers: the loss and its gradient, what is learned, and going on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use genesis::models::CausalLm;
use genesis::random::thread_rng;
use genesis::train::language::{
    DpoOptions, Encoder, LossOn, Options, PairBatch, Sample, Session, Start, TokenBatch, loss_sum,
    preference_losses, read_pairs, run,
};
use genesis::{Device, Tensor};
use serde_json::{Value, json};

use crate::lm_training::{
    SAID, Workplace, apart, gradients, messages, model, resumes_exactly, tokenizer,
};

/// The better answers are those of the others' questions.
fn line(n: usize) -> Value {
    let ((user, right), (_, wrong)) = (SAID[n], SAID[(n + 1) % SAID.len()]);
    let answer = |text: &str| json!([{"role": "assistant", "content": text}]);
    json!({
        "prompt": [{"role": "user", "content": user}],
        "chosen": answer(right),
        "rejected": answer(wrong),
    })
}

/// A folder with pairs, and options of a short run on them.
fn workplace() -> Result<Workplace> {
    let workplace = Workplace::new()?;
    let lines: String = (0..4).map(|n| format!("{}\n", line(n))).collect();
    std::fs::write(workplace.path("pairs.jsonl"), lines)?;
    Ok(workplace)
}

fn options(workplace: &Workplace, out: &str) -> Options {
    let pairs = vec![workplace.path("pairs.jsonl")];
    Options {
        data: pairs.clone(),
        eval_data: pairs,
        beta: Some(0.5),
        accumulate: 1,
        sequence_length: 64,
        learning_rate: 2e-3,
        epochs: 3,
        ..workplace.options(out)
    }
}

fn samples() -> Result<Vec<[Sample; 2]>> {
    let workplace = workplace()?;
    let encoder = Encoder::new(tokenizer()?, LossOn::Assistant);
    let pairs = read_pairs(&[workplace.path("pairs.jsonl")])?;
    pairs
        .iter()
        .map(|pair| {
            let sample = |document| -> Result<Sample> {
                let found = encoder.encode_from(document, pair.given)?;
                let (last, tokens) = (found.tokens.len(), found.tokens);
                let target = |at: usize| found.is_learned[at].then_some(tokens[at]);
                let targets = (1..last).map(target).collect();
                Ok(Sample { inputs: tokens[..last - 1].to_vec(), targets })
            };
            Ok([sample(&pair.chosen)?, sample(&pair.rejected)?])
        })
        .collect()
}

/// Of a conversation of several turns only the last answer is learned.
#[test]
fn only_the_answer_is_learned() -> Result<()> {
    let workplace = workplace()?;
    let mut turns = messages(SAID[0]).as_array().cloned().context("a list")?;
    turns.extend(messages(SAID[1]).as_array().cloned().context("a list")?);
    let whole = |last: &str| {
        let mut turns = turns.clone();
        turns[3]["content"] = last.into();
        turns
    };
    let line = json!({"chosen": whole("Yes."), "rejected": whole("No.")});
    std::fs::write(workplace.path("turns.jsonl"), line.to_string())?;
    let pairs = read_pairs(&[workplace.path("turns.jsonl")])?;
    ensure!(pairs[0].given == 3);
    let text = tokenizer()?;
    for (loss_on, learned) in [(LossOn::Assistant, "Yes.<|im_end|>"), (LossOn::All, "")] {
        let encoder = Encoder::new(text.clone(), loss_on);
        let found = encoder.encode_from(&pairs[0].chosen, pairs[0].given)?;
        let tokens = found.tokens.iter().zip(&found.is_learned);
        let tokens: Vec<u32> = tokens.filter(|(_, is)| **is).map(|(token, _)| *token).collect();
        let said = text.tokenizer.decode(&tokens, false)?;
        ensure!(said.contains("Yes.") && !said.contains(SAID[0].1), "{said}");
        ensure!(learned.is_empty() || said == learned, "{said}");
    }
    Ok(())
}

/// `-beta ((1 - e) sigmoid(-beta m) - e sigmoid(beta m))` times the gradient of the margin `m`, written by hand.
#[test]
fn the_gradient_is_that_of_the_formula() -> Result<()> {
    let samples = samples()?;
    let pairs: Vec<&[Sample; 2]> = samples.iter().collect();
    let reference = [[-40.0f32, -42.5], [-39.0, -30.0], [-41.5, -41.0], [-44.0, -61.0]];
    for smoothing in [0.0, 0.2] {
        let of = DpoOptions { beta: 0.3, label_smoothing: smoothing };
        let found = model(Device::Cpu)?;
        let batch = PairBatch::new(&pairs, &reference, of, Device::Cpu)?;
        let policy = batch.log_probabilities(&found, None)?;
        let (losses, rewards) = preference_losses(&policy, &batch.reference, of)?;
        losses.sum()?.backward()?;
        let by_hand = model(Device::Cpu)?;
        let (mut terms, mut loss) = (Vec::new(), 0.0);
        for (n, [chosen, rejected]) in samples.iter().enumerate() {
            let surprise = |sample: &Sample| -> Result<Tensor> {
                let batch = TokenBatch::new(std::slice::from_ref(sample), 0, Device::Cpu)?;
                Ok(loss_sum(&by_hand, &batch, None)?)
            };
            let (c, r) = (surprise(chosen)?, surprise(rejected)?);
            let [ref_c, ref_r] = reference[n].map(f64::from);
            let ratios = [-c.item()? - ref_c, -r.item()? - ref_r];
            let margin = 0.3 * (ratios[0] - ratios[1]);
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let slope = -0.3 * ((1.0 - smoothing) * sigmoid(-margin) - smoothing * sigmoid(margin));
            terms.push(r.sub(&c)?.mul_scalar(slope)?);
            loss -= (1.0 - smoothing) * sigmoid(margin).ln() + smoothing * sigmoid(-margin).ln();
            for (side, ratio) in ratios.iter().enumerate() {
                let reward = rewards.to_f64_vec()?[side * 4 + n];
                ensure!((reward - 0.3 * ratio).abs() < 1e-3, "{reward}, not {}", 0.3 * ratio);
            }
        }
        Tensor::stack(&terms.iter().collect::<Vec<_>>(), 0)?.sum()?.backward()?;
        let own = losses.sum()?.item()?;
        ensure!((own - loss).abs() < 1e-4 * loss.abs(), "the loss is {own}, not {loss}");
        let off = apart(&gradients(&*by_hand)?, &gradients(&*found)?);
        ensure!(off < 1e-3, "gradients are off by {off}");
    }
    Ok(())
}

#[test]
fn the_first_loss_is_ln_2_and_answers_are_preferred_at_last() -> Result<()> {
    let _own = thread_rng(0);
    let workplace = workplace()?;
    let options = Options { epochs: 8, batch_size: 4, ..options(&workplace, "out") };
    let (stop, start) = (AtomicBool::new(false), Start::open(&options, None, Device::Cpu)?);
    let outcome = run(start, &options, Session::default(), &stop, |_| {})?;
    let first = outcome.losses[0];
    ensure!((first - 2f64.ln()).abs() < 1e-5, "the first loss is {first}");
    let found = outcome.evaluation.and_then(|found| found.preferences).context("an evaluation")?;
    ensure!(found.accuracy == 1.0 && found.margin > 0.5, "{found:?}");
    ensure!((found.chosen - found.rejected - found.margin).abs() < 1e-6, "{found:?}");
    let text = std::fs::read_to_string(workplace.path("out/metrics.jsonl"))?;
    let lines = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    ensure!(lines[0]["reward_margin"].as_f64().is_some_and(|m| m.abs() < 1e-4), "{}", lines[0]);
    let last = lines.iter().rfind(|line| line.get("eval_loss").is_some()).context("one")?;
    ensure!(last["reward_accuracy"] == 1.0 && last.get("perplexity").is_none(), "{last}");
    Ok(())
}

#[test]
fn a_run_on_pairs_that_goes_on_has_the_same_bits() -> Result<()> {
    let workplace = workplace()?;
    for lora in [false, true] {
        let of = |out: &str| {
            let usual = options(&workplace, &format!("{out}-{lora}"));
            let (lora_rank, dora) = (lora.then_some(4), lora);
            Options { lora_rank, dora, lora_dropout: 0.1, save_every: Some(1), ..usual }
        };
        resumes_exactly(of)?;
    }
    Ok(())
}

#[test]
fn what_is_no_pair_is_named() -> Result<()> {
    let workplace = workplace()?;
    let said = |options: &Options| -> Result<String> {
        let _own = thread_rng(0);
        let start = match Start::open(options, None, Device::Cpu) {
            Ok(start) => start,
            Err(error) => return Ok(error.to_string()),
        };
        let stop = AtomicBool::new(false);
        let outcome = run(start, options, Session::default(), &stop, |_| {});
        Ok(outcome.err().context("it is refused")?.to_string())
    };
    let usual = options(&workplace, "out");
    let chats = Options { data: vec![workplace.path("data.jsonl")], ..usual.clone() };
    let why = "data.jsonl:1: has no prompt, chosen and rejected, but messages";
    ensure!(said(&chats)?.ends_with(why), "{}", said(&chats)?);
    let why = "train: beta is 0, it must be a number above 0";
    assert_eq!(said(&Options { beta: Some(0.0), ..usual.clone() })?, why);
    let why = "train: label_smoothing is 0.5, it must be from 0 and below 0.5";
    assert_eq!(said(&Options { label_smoothing: Some(0.5), ..usual.clone() })?, why);
    let why = "train: dora is a kind of adapters; give them a lora_rank";
    assert_eq!(said(&Options { dora: true, ..usual })?, why);
    Ok(())
}

/// A model in several hands stays one model.
#[test]
fn references_do_not_train() -> Result<()> {
    let samples = samples()?;
    let of = DpoOptions { beta: 0.1, label_smoothing: 0.0 };
    let found: Arc<dyn CausalLm> = model(Device::Cpu)?;
    let batch = PairBatch::new(&[&samples[0]], &[[-1.0, -2.0]], of, Device::Cpu)?;
    let (_, rewards) =
        preference_losses(&batch.log_probabilities(&found, None)?, &batch.reference, of)?;
    ensure!(!rewards.requires_grad() && !batch.reference.requires_grad());
    Ok(())
}
