//! Whether what a case gave is right.
//!
//! dtype, shape and the places of NaN and infinities must be PyTorch's. Values that no rounding touches
//! are equal to the bit; others lie within PyTorch's default tolerance of the f64 answer, or, where many
//! values were added up, have at most twice (f32) or three times (16-bit) PyTorch's root mean square
//! error. Of calls that draw random numbers only dtype and shape count. Gradients have no f64 answer: they are held to PyTorch's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use genesis::{Device, Tensor};

use super::case::Case;
use super::tolerance::{default_tolerance, factor};

/// Ops that round nothing: every bit is PyTorch's.
const EXACT: &[&str] = &[
    "abs",
    "neg",
    "amax",
    "amin",
    "max",
    "min",
    "maximum",
    "minimum",
    "sort",
    "topk",
    "gather",
    "index_select",
    "take_along_dim",
    "__getitem__",
    "scatter",
    "cat",
    "stack",
    "where",
    "masked_fill",
    "reshape",
    "view",
    "flatten",
    "permute",
    "transpose",
    "t",
    "movedim",
    "squeeze",
    "unsqueeze",
    "expand",
    "broadcast_to",
    "repeat",
    "repeat_interleave",
    "roll",
    "flip",
    "narrow",
    "select",
    "split",
    "chunk",
    "diagonal",
    "tril",
    "triu",
    "clone",
    "contiguous",
    "ones",
    "zeros",
    "full",
    "eye",
    "floor",
    "ceil",
    "trunc",
    "sign",
    "clamp",
    "clamp_min",
    "clamp_max",
    "nn.functional.relu",
    "nn.functional.pad",
    "nn.functional.embedding",
    "nn.functional.max_pool2d",
];

/// The verdict of every case, on all cores: the problem, where there is one.
pub fn all(suite: &Path, cases: &[Case], device: Device) -> Vec<Result<(), String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let taken = taken.map_while(|at| cases.get(at).map(|case| (at, case)));
        taken.map(|(at, case)| (at, verdict(suite, case, device))).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut verdicts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default());
        results.collect::<Vec<_>>()
    });
    verdicts.sort_by_key(|(at, _)| *at);
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

/// Runs a case and compares.
///
/// # Errors
/// With the case's name and what is wrong.
pub fn verdict(suite: &Path, case: &Case, device: Device) -> Result<(), String> {
    let what = format!("{} {} {}", case.id, case.op(), case.variant());
    let outcome = case.run(suite, device);
    if case.must_fail() {
        return match outcome {
            Ok(_) => Err(format!("{what}: was not refused")),
            Err(message) if message.starts_with("unsupported") || message.starts_with("panic") => {
                Err(format!("{what}: {message}"))
            }
            Err(_) => Ok(()),
        };
    }
    let results = outcome.map_err(|message| format!("{what}: {message}"))?;
    let answers = case.tensors(suite, Device::Cpu).map_err(|error| format!("{what}: {error:#}"))?;
    compare(case, &results, &answers).map_err(|problem| format!("{what}: {problem}"))
}

fn compare(
    case: &Case,
    results: &BTreeMap<String, Tensor>,
    answers: &BTreeMap<String, Tensor>,
) -> Result<(), String> {
    let (outs, truths) = (case.names("out"), case.names("truth_f64"));
    let count = results.keys().filter(|name| name.starts_with("out")).count();
    if count != outs.len() {
        return Err(format!("{count} results, PyTorch gives {}", outs.len()));
    }
    for (k, out) in outs.iter().enumerate() {
        let Some(torch) = out.as_ref().and_then(|name| answers.get(name)) else { continue };
        let truth = truths.get(k).and_then(Option::as_ref).and_then(|name| answers.get(name));
        let exact = EXACT.contains(&case.op());
        let got = &results[&format!("out{k}")];
        if case.is_random() {
            if (got.dtype(), got.shape()) != (torch.dtype(), torch.shape()) {
                return Err(format!("out{k}: is {got:?}, PyTorch's {torch:?}"));
            }
            continue;
        }
        same(got, torch, truth, exact).map_err(|problem| format!("out{k}: {problem}"))?;
    }
    for (k, name) in case.names("grad_in").iter().enumerate() {
        let Some(torch) = name.as_ref().and_then(|name| answers.get(name)) else { continue };
        let got = results.get(&format!("gi{k}")).ok_or_else(|| format!("gi{k} is missing"))?;
        if case.is_random() && got.shape() == torch.shape() {
            continue;
        }
        same(got, torch, None, false).map_err(|problem| format!("gi{k}: {problem}"))?;
    }
    Ok(())
}

fn same(got: &Tensor, torch: &Tensor, truth: Option<&Tensor>, exact: bool) -> Result<(), String> {
    if (got.dtype(), got.shape()) != (torch.dtype(), torch.shape()) {
        return Err(format!("is {got:?}, PyTorch's {torch:?}"));
    }
    let text = |error: genesis::Error| error.to_string();
    let (got_values, torch_values) =
        (got.to_f64_vec().map_err(text)?, torch.to_f64_vec().map_err(text)?);
    let truth_values = match truth {
        Some(truth) if truth.shape() == torch.shape() => truth.to_f64_vec().map_err(text)?,
        _ => torch_values.clone(),
    };
    let (relative, absolute) = default_tolerance(got.dtype());
    let mut worst: Option<String> = None;
    let (mut own_square, mut torch_square) = (0.0, 0.0);
    for (index, ((&got_value, &torch_value), &truth_value)) in
        got_values.iter().zip(&torch_values).zip(&truth_values).enumerate()
    {
        let equal = got_value == torch_value
            && (got_value != 0.0
                || !exact
                || got_value.is_sign_negative() == torch_value.is_sign_negative());
        if equal || (got_value.is_nan() && torch_value.is_nan()) {
            torch_square += square(torch_value - truth_value);
            own_square += square(torch_value - truth_value);
            continue;
        }
        let tell = || {
            format!(
                "element {index} is {got_value:e}, PyTorch's {torch_value:e}, in f64 {truth_value:e}"
            )
        };
        if exact || !got.dtype().is_float() || !got_value.is_finite() || !torch_value.is_finite() {
            return Err(tell());
        }
        let error = (got_value - truth_value).abs();
        own_square += square(error);
        torch_square += square(torch_value - truth_value);
        if error > absolute + relative * truth_value.abs() && worst.is_none() {
            worst = Some(tell());
        }
    }
    let factor = factor(got.dtype());
    let scale = torch_values
        .iter()
        .fold(0.0f64, |top, v| if v.is_finite() { top.max(v.abs()) } else { top });
    // A gradient has only PyTorch's answer: sums of both orders lie this far apart.
    let floor =
        if truth.is_none() { relative * scale * (got_values.len() as f64).sqrt() } else { 0.0 };
    match worst {
        Some(problem) if own_square.sqrt() > (factor * torch_square.sqrt()).max(floor) => {
            Err(problem)
        }
        _ => Ok(()),
    }
}

fn square(v: f64) -> f64 {
    if v.is_finite() { v * v } else { 0.0 }
}
