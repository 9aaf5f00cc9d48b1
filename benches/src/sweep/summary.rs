//! What all rows of `bench ops` say together: the geometric mean of the ratios, how many reach 0.9, what is
//! below 0.5, the slowest, and the mean of each op.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

/// Lines of a list.
const SLOWEST: usize = 40;

/// The ratios of a run: the peer's time over ours.
#[derive(Default)]
pub(crate) struct Summary {
    ratios: BTreeMap<String, f64>,
    /// Cases whose result is a view on our side: there is nothing to time.
    views: BTreeSet<String>,
    /// Cases that failed, and why.
    failed: BTreeMap<String, String>,
    /// Cases without a peer, and why.
    alone: BTreeMap<String, String>,
}

/// The rows of a file, of each case the last.
///
/// # Errors
/// If it can't be read.
pub(crate) fn read(path: &Path) -> anyhow::Result<Summary> {
    let mut summary = Summary::default();
    for line in std::fs::read_to_string(path)?.lines() {
        summary.add(&serde_json::from_str(line)?);
    }
    Ok(summary)
}

fn mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

impl Summary {
    /// Takes in a row of the report, as it is written.
    pub(crate) fn add(&mut self, row: &Value) {
        let Some(case) = row["case"].as_str().filter(|case| case.starts_with(super::scope::PREFIX))
        else {
            return;
        };
        self.ratios.remove(case);
        self.failed.remove(case);
        self.alone.remove(case);
        self.views.remove(case);
        if let Some(error) = row["error"].as_str() {
            self.failed.insert(case.to_owned(), error.to_owned());
        } else if row["view"] == true {
            self.views.insert(case.to_owned());
        } else if let Some(ratio) = row["ratio"].as_f64() {
            self.ratios.insert(case.to_owned(), ratio);
        } else {
            let why = row["alone"].as_str().unwrap_or("no peer here");
            self.alone.insert(case.to_owned(), why.to_owned());
        }
    }

    /// The ratios in order, the slowest first.
    fn ordered(&self) -> Vec<(&str, f64)> {
        let mut ordered: Vec<(&str, f64)> =
            self.ratios.iter().map(|(case, &ratio)| (case.as_str(), ratio)).collect();
        ordered.sort_by(|a, b| a.1.total_cmp(&b.1));
        ordered
    }

    /// The geometric mean of each op, the slowest first.
    fn by_op(&self) -> Vec<(String, f64, usize)> {
        let mut ops: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (case, &ratio) in &self.ratios {
            let op = case.split('/').nth(1).unwrap_or_default();
            let part = if case.ends_with("/bwd") { " backward" } else { "" };
            ops.entry(format!("{op}{part}")).or_default().push(ratio);
        }
        let mut means: Vec<(String, f64, usize)> = ops
            .into_iter()
            .map(|(op, ratios)| (op, mean(ratios.iter().copied()), ratios.len()))
            .collect();
        means.sort_by(|a, b| a.1.total_cmp(&b.1));
        means
    }

    /// The lines that a run ends with.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut list = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{title}\n{}", lines.join("\n"));
            }
        };
        let named = |cases: &BTreeMap<String, String>| {
            cases.iter().map(|(case, why)| format!("  {case:48} {why}")).collect()
        };
        list("failed", named(&self.failed));
        list("without a peer", named(&self.alone));
        let of = |op: &(String, f64, usize)| format!("  {:48} {:8.3}  of {}", op.0, op.1, op.2);
        list("ops, by the geometric mean of their ratios", self.by_op().iter().map(of).collect());
        let ordered = self.ordered();
        let line = |(case, ratio): &(&str, f64)| format!("  {case:48} {ratio:8.3}");
        list("slowest", ordered.iter().take(SLOWEST).map(line).collect());
        let count = |least: f64| ordered.iter().filter(|(_, ratio)| *ratio >= least).count();
        let all = ordered.len();
        let share = |count: usize| 100.0 * count as f64 / all.max(1) as f64;
        let _ = writeln!(
            text,
            "\n{all} ratios, geometric mean {:.3}: {:.1} % at least 0.9, {} below 0.5; {} views, {} \
             failed, {} without a peer",
            mean(ordered.iter().map(|(_, ratio)| *ratio)),
            share(count(0.9)),
            all - count(0.5),
            self.views.len(),
            self.failed.len(),
            self.alone.len(),
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_row_of_a_case_counts() {
        let mut summary = Summary::default();
        summary.add(&json!({ "case": "ops/add/f32/large", "error": "no memory" }));
        summary.add(&json!({ "case": "ops/add/f32/large", "ratio": 4.0 }));
        summary.add(&json!({ "case": "ops/add/f32/small", "ratio": 1.0 }));
        summary.add(&json!({ "case": "ops/sort/f32/small", "ratio": 0.25 }));
        summary.add(&json!({ "case": "ops/odd/f32/small", "ratio": null, "alone": "a reason" }));
        summary.add(&json!({ "case": "softmax/f32/8x8", "ratio": 0.1 }));
        summary.add(&json!({ "case": "ops/t/f32/large", "ratio": 9000.0, "view": true }));
        let text = summary.text();
        assert!(text.contains("3 ratios, geometric mean 1.000: 66.7 % at least 0.9, 1 below 0.5"));
        assert!(text.contains("1 views, 0 failed, 1 without a peer"), "{text}");
        assert_eq!(summary.by_op()[1], ("add".to_owned(), 2.0, 2));
    }
}
