//! What was found, for people and for programs.

use genesis_kernel::autotune::{Candidate, Outcome, TuneReport};
use genesis_kernel::kernel::KernelDef;
use serde_json::{Value, json};

use super::list::Entry;

/// Every candidate, the fastest first.
pub(super) fn text(kernel: &KernelDef, report: &TuneReport, seconds: f64) -> String {
    let tried = report.candidates.iter().filter(|c| c.outcome != Outcome::Untried);
    let configs: Vec<(String, &Candidate)> =
        tried.map(|candidate| (candidate.config.text(kernel.ast), candidate)).collect();
    let width = configs.iter().map(|(config, _)| config.len()).max().unwrap_or(0).max(13);
    let mut lines = vec![format!(
        "{:width$}  {:>9}  {:>9}  {:>5}  {:>4}  {:>6}",
        "configuration", "us", "model us", "bound", "regs", "shared"
    )];
    for (config, candidate) in &configs {
        let (registers, shared) = match candidate.footprint {
            Some((registers, shared)) => (registers.to_string(), shared.to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let (us, share) = match &candidate.outcome {
            Outcome::Timed { us, .. } => {
                (format!("{us:.2}"), format!("{:.0} %", 100.0 * report.bound_us / us))
            }
            Outcome::Illegal(why) | Outcome::Wrong(why) => {
                let why = why.lines().next().unwrap_or("");
                lines.push(format!("{config:width$}  {why}"));
                continue;
            }
            Outcome::Untried => continue,
        };
        let model = candidate.estimate_us;
        lines.push(format!(
            "{config:width$}  {us:>9}  {model:>9.2}  {share:>5}  {registers:>4}  {shared:>6}"
        ));
    }
    let all = report.candidates.len();
    lines.push(format!(
        "{} of {all} configurations tried in {seconds:.1} s; the bound is {:.2} us",
        configs.len(),
        report.bound_us
    ));
    lines.join("\n")
}

/// The first candidates in the model's order.
pub(super) fn forecast(kernel: &KernelDef, entry: &Entry, report: &TuneReport, n: usize) -> String {
    let all = report.candidates.len();
    let head = format!("{entry}: {all} configurations, the bound is {:.2} us", report.bound_us);
    let rows = report.candidates.iter().take(n).map(|candidate| {
        format!("  {:>9.2} us  {}", candidate.estimate_us, candidate.config.text(kernel.ast))
    });
    [head].into_iter().chain(rows).collect::<Vec<String>>().join("\n")
}

/// The best candidate in one line.
pub(super) fn line(kernel: &KernelDef, entry: &Entry, report: &TuneReport, seconds: f64) -> String {
    let best = report.best().and_then(|best| Some((best, best.outcome.us()?)));
    let Some((best, us)) = best else { return format!("{entry}: nothing could be timed") };
    let refused = report
        .candidates
        .iter()
        .filter(|c| matches!(c.outcome, Outcome::Illegal(_) | Outcome::Wrong(_)))
        .count();
    format!(
        "{entry}: {} in {us:.2} us, {:.0} % of the bound ({seconds:.1} s, {refused} refused)",
        best.config.text(kernel.ast),
        100.0 * report.bound_us / us,
    )
}

/// Everything, as one line of JSON.
pub(super) fn json(kernel: &KernelDef, entry: &Entry, report: &TuneReport, seconds: f64) -> Value {
    let candidates: Vec<Value> = report
        .candidates
        .iter()
        .filter(|candidate| candidate.outcome != Outcome::Untried)
        .map(|candidate| {
            let refused = match &candidate.outcome {
                Outcome::Illegal(why) | Outcome::Wrong(why) => Some(why.as_str()),
                Outcome::Timed { .. } | Outcome::Untried => None,
            };
            json!({
                "config": candidate.config.text(kernel.ast),
                "us": candidate.outcome.us(),
                "model_us": candidate.estimate_us,
                "registers": candidate.footprint.map(|(registers, _)| registers),
                "shared_bytes": candidate.footprint.map(|(_, shared)| shared),
                "refused": refused,
            })
        })
        .collect();
    json!({
        "problem": entry.to_string(),
        "bound_us": report.bound_us,
        "seconds": seconds,
        "candidates": candidates,
    })
}
