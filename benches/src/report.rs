//! Rows: a table for people, lines of JSON for machines, and what passed.

use std::io::Write;
use std::path::Path;

use genesis::profiler::Rows;
use serde_json::{Value, json};

use crate::ops::Launched;
use crate::roofline::Work;
use crate::sweep::Summary;
use crate::table::{Aim, Case};
use crate::timing::Times;

/// One timed case.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) case: Case,
    /// The precision of the products, for the roofline.
    pub(crate) precision: String,
    pub(crate) times: Times,
    pub(crate) work: Work,
    /// What our kernels move and compute.
    pub(crate) launched: Launched,
    /// The largest distance from f64, relative.
    pub(crate) error: Option<f64>,
    /// The extents of the inputs, where the name does not say them.
    pub(crate) shapes: Option<String>,
    /// Why there is no peer, where the case itself has the reason.
    pub(crate) alone: Option<String>,
    /// Whether our call launches nothing and makes no memory: it gives a view.
    pub(crate) is_view: bool,
}

impl Row {
    /// A case of the host, which moves nothing.
    pub(crate) fn of_host(case: Case, times: Times) -> Row {
        let (work, launched) = (Work::default(), Launched::default());
        let precision = String::new();
        let (error, shapes, alone, is_view) = (None, None, None, false);
        Row { case, precision, times, work, launched, error, shapes, alone, is_view }
    }

    /// Bytes that the kernels load and store over those that must move: 1 where each is touched once.
    pub(crate) fn excess(&self) -> Option<f64> {
        let is_counted = self.work.bytes > 0.0 && self.launched.bytes > 0.0;
        is_counted.then(|| self.launched.bytes / self.work.bytes)
    }

    /// The peer's time over ours.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.times.peer.as_ref().map(|(_, ms)| ms / self.times.ours)
    }

    /// The share of what the machine can do at best; none where nothing is moved.
    pub(crate) fn roofline(&self) -> Option<f64> {
        let ideal = self.work.ideal_ms(&self.precision);
        (ideal > 0.0).then(|| ideal / self.times.ours)
    }

    fn verdict(&self) -> &'static str {
        match (self.ratio(), self.case.must) {
            (Some(ratio), Some(must)) if ratio < must => "BELOW",
            (Some(_), None) => "no bar",
            (Some(ratio), _) => match self.case.aim {
                Some(Aim::Ratio(aim)) if ratio >= aim => "aim",
                Some(Aim::Roofline(aim)) if self.roofline() >= Some(aim) => "aim",
                _ => "ok",
            },
            (None, _) => "no peer",
        }
    }
}

/// How a case ended.
pub(crate) enum Outcome {
    Timed(Box<Row>),
    /// The framework lacks the op.
    Missing,
    /// It failed, or its result is wrong.
    Failed(String),
    /// There was no time left for it.
    Skipped,
}

/// Collects outcomes.
pub(crate) struct Report {
    rows: Rows,
    json: bool,
    outcomes: Vec<(String, Outcome)>,
    /// What a sweep over the op table ends with, in place of the table of bars.
    summary: Option<Summary>,
}

/// Prints a line to stdout; a closed pipe ends the program quietly.
pub(crate) fn say(line: impl std::fmt::Display) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

impl Report {
    /// Rows go to `out` as well as to stdout; as JSON there too if `json`.
    pub(crate) fn new(out: Option<&Path>, json: bool) -> anyhow::Result<Report> {
        Ok(Report { rows: Rows::open(out)?, json, outcomes: Vec::new(), summary: None })
    }

    /// Ends with the summary of a sweep, of which these rows are known already; what fails is written to
    /// the file too.
    pub(crate) fn of_sweep(self, known: Summary) -> Report {
        Report { summary: Some(known), ..self }
    }

    /// Prints and keeps how a case ended.
    pub(crate) fn add(&mut self, name: &str, outcome: Outcome) -> anyhow::Result<()> {
        if let Outcome::Timed(row) = &outcome {
            let record = self.record(row);
            self.keep(&record)?;
            say(if self.json { record.to_string() } else { line(row) });
        } else {
            let why = why(&outcome);
            if self.summary.is_some() {
                let record = self.rows.row(&json!({ "case": name, "error": why }));
                self.keep(&record)?;
            }
            say(match self.json {
                true => json!({ "case": name, "outcome": why }).to_string(),
                false => format!("{name:40} {why}"),
            });
        }
        self.outcomes.push((name.to_owned(), outcome));
        Ok(())
    }

    fn keep(&mut self, record: &Value) -> anyhow::Result<()> {
        if let Some(summary) = &mut self.summary {
            summary.add(record);
        }
        Ok(self.rows.write(record)?)
    }

    fn record(&self, row: &Row) -> Value {
        let (peer, peer_ms) = row.times.peer.clone().unzip();
        let (gbs, tflops) = rates(row);
        let mut fields = json!({
            "case": row.case.name,
            "ours_ms": row.times.ours,
            "peer": peer,
            "peer_ms": peer_ms,
            "ratio": row.ratio(),
            "gbs": gbs,
            "tflops": tflops,
            "roofline": row.roofline(),
            "max_rel_err": row.error,
            "launches": row.launched.count,
            "ir_bytes": row.launched.bytes,
            "ir_flops": row.launched.flops,
            "timing": if row.times.from_graphs { "graph" } else { "events" },
        });
        for (name, text) in [("shapes", &row.shapes), ("alone", &row.alone)] {
            if let (Some(fields), Some(text)) = (fields.as_object_mut(), text) {
                fields.insert(name.to_owned(), json!(text));
            }
        }
        if let (Some(fields), true) = (fields.as_object_mut(), row.is_view) {
            fields.insert("view".to_owned(), json!(true));
        }
        self.rows.row(&fields)
    }

    /// Every ratio beside its bar, and how many cases ended how.
    pub(crate) fn finish(&self) {
        if self.json {
            return;
        }
        if let Some(summary) = &self.summary {
            return say(summary.text());
        }
        let [case, ratio, must, aim] = ["case", "ratio", "must", "aim"];
        say(format_args!("\n{case:40} {ratio:>7} {must:>6} {aim:>6}  {:>8}", "roofline"));
        let mut counts = [0usize; 7];
        for (name, outcome) in &self.outcomes {
            match outcome {
                Outcome::Timed(row) => {
                    counts[match row.verdict() {
                        "BELOW" => 1,
                        "no peer" => 2,
                        "no bar" => 6,
                        _ => 0,
                    }] += 1;
                    say(summary(row));
                }
                other => {
                    counts[match other {
                        Outcome::Missing => 3,
                        Outcome::Failed(_) => 4,
                        _ => 5,
                    }] += 1;
                    say(format_args!("{name:40} {}", why(other)));
                }
            }
        }
        let [passed, below, alone, missing, failed, skipped, free] = counts;
        say(format_args!(
            "{} cases: {passed} reach their bar, {below} are below it, {free} have none, {alone} \
             have no peer, {missing} missing, {failed} failed, {skipped} skipped",
            self.outcomes.len()
        ));
    }
}

fn why(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Timed(_) => String::new(),
        Outcome::Missing => "missing: the framework has no such op yet".to_owned(),
        Outcome::Failed(error) => format!("FAILED: {error}"),
        Outcome::Skipped => "skipped: no time left".to_owned(),
    }
}

/// GB/s, and TFLOP/s where there are products.
fn rates(row: &Row) -> (Option<f64>, Option<f64>) {
    let (bytes, flops) = (row.work.bytes, row.work.flops);
    let gbs = (bytes > 0.0).then(|| bytes / row.times.ours / 1e6);
    (gbs, (flops > 0.0).then(|| flops / row.times.ours / 1e9))
}

fn line(row: &Row) -> String {
    let rate = match rates(row) {
        (_, Some(tflops)) if row.work.is_compute_bound(&row.precision) => {
            format!("{tflops:6.1} TFLOP/s")
        }
        (Some(gbs), _) => format!("{gbs:6.0} GB/s"),
        _ => String::new(),
    };
    let peer = match (&row.times.peer, row.ratio()) {
        (Some((name, ms)), Some(ratio)) => format!("{name} {ms:.5} ms  ratio {ratio:.3}"),
        _ => format!("alone: {}", row.alone.as_deref().unwrap_or("no peer here")),
    };
    let roofline = row.roofline().map_or(String::new(), |share| format!("{:4.0}%", share * 100.0));
    let error = row.error.map_or(String::new(), |error| format!("err {error:.1e}"));
    let launched = row
        .excess()
        .map_or(String::new(), |excess| format!("{} x {excess:.2}", row.launched.count));
    let ours = row.times.ours;
    format!(
        "{:40} {ours:9.5} ms {rate:>14} {roofline:>5} {launched:>9}  {peer}  {error}{}",
        row.case.name,
        row.shapes.as_deref().unwrap_or_default()
    )
}

fn summary(row: &Row) -> String {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
    let ratio = row.ratio().map_or("-".to_owned(), |v| format!("{v:.3}"));
    let aim = match row.case.aim {
        Some(Aim::Ratio(aim)) => format!("{aim:.2}"),
        Some(Aim::Roofline(aim)) => format!("{:.0}%", aim * 100.0),
        None => "-".to_owned(),
    };
    let share = row.roofline().map_or("-".to_owned(), |v| format!("{:.0}%", v * 100.0));
    format!(
        "{:40} {ratio:>7} {:>6} {aim:>6}  {share:>8}  {}",
        row.case.name,
        number(row.case.must),
        row.verdict()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, peer: Option<f64>) -> Row {
        let case = Case {
            name: "add/f32/8192x8192".to_owned(),
            must: Some(0.98),
            aim: Some(Aim::Ratio(1.02)),
        };
        let peer = peer.map(|ms| ("torch".to_owned(), ms));
        Row {
            case,
            precision: "f32".to_owned(),
            times: Times { ours, peer, from_graphs: false },
            work: Work { bytes: 805_306_368.0, flops: 0.0 },
            launched: Launched { count: 1, bytes: 805_306_368.0, flops: 0.0 },
            error: Some(0.0),
            shapes: None,
            alone: None,
            is_view: false,
        }
    }

    #[test]
    fn ratios_are_held_against_their_bar() {
        assert_eq!(row(0.2, Some(0.19)).verdict(), "BELOW");
        assert_eq!(row(0.2, Some(0.2)).verdict(), "ok");
        assert_eq!(row(0.2, Some(0.21)).verdict(), "aim");
        assert_eq!(row(0.2, None).verdict(), "no peer");
        let mut free = row(0.2, Some(0.1));
        free.case.must = None;
        assert_eq!(free.verdict(), "no bar");
        let share = row(0.2, None).roofline().unwrap();
        assert!((share - 0.94).abs() < 0.001, "{share}");
    }

    #[test]
    fn a_record_has_every_field() {
        let report = Report::new(None, false).unwrap();
        let record = report.record(&row(0.2, Some(0.19)));
        let names: Vec<&String> = record.as_object().unwrap().keys().collect();
        let wanted = [
            "date",
            "commit",
            "gpu",
            "driver",
            "case",
            "ours_ms",
            "peer",
            "peer_ms",
            "ratio",
            "gbs",
            "tflops",
            "roofline",
            "max_rel_err",
            "launches",
            "ir_bytes",
            "ir_flops",
            "timing",
        ];
        assert_eq!(names, wanted);
    }
}
