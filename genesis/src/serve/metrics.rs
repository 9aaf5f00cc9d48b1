//! What the server counts, and `/metrics` in Prometheus' text form.
//!
//! Counters never shrink and histograms are cumulative: each bucket holds what is at most its bound.
//!
//! ```text
//! # TYPE genesis_time_to_first_token_seconds histogram
//! genesis_time_to_first_token_seconds_bucket{le="0.05"} 3
//! genesis_time_to_first_token_seconds_bucket{le="+Inf"} 4
//! genesis_time_to_first_token_seconds_sum 0.31
//! genesis_time_to_first_token_seconds_count 4
//! ```

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::backend::Gauge;

/// Bounds of the time to the first token, in seconds: from a cached prompt to a long one on a CPU.
const FIRST: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0];

/// Bounds of the time between tokens, in seconds.
const BETWEEN: &[f64] =
    &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

/// Bounds of the time of a whole answer, in seconds.
const WHOLE: &[f64] = &[0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0];

/// Everything that is counted.
#[derive(Debug)]
pub(super) struct Metrics {
    /// Requests by route and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    pub(super) prompt_tokens: AtomicU64,
    pub(super) cached_tokens: AtomicU64,
    pub(super) generated_tokens: AtomicU64,
    pub(super) cancelled: AtomicU64,
    /// Answers that wait for a place.
    pub(super) waiting: AtomicI64,
    /// Answers that are made.
    pub(super) running: AtomicI64,
    pub(super) connections: AtomicI64,
    pub(super) first_token: Histogram,
    pub(super) between_tokens: Histogram,
    pub(super) whole: Histogram,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        Metrics {
            requests: Mutex::default(),
            prompt_tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            waiting: AtomicI64::new(0),
            running: AtomicI64::new(0),
            connections: AtomicI64::new(0),
            first_token: Histogram::new(FIRST),
            between_tokens: Histogram::new(BETWEEN),
            whole: Histogram::new(WHOLE),
        }
    }

    /// Counts a request that was answered.
    pub(super) fn request(&self, route: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
    }

    /// Everything, with what the engine counts.
    pub(super) fn text(&self, engine: &[Gauge]) -> String {
        let mut page = Page(String::new());
        let name = "genesis_requests_total";
        page.head(name, "counter", "Requests by route and status.");
        for ((route, status), count) in
            &*self.requests.lock().unwrap_or_else(PoisonError::into_inner)
        {
            page.line(format_args!("{name}{{route=\"{route}\",status=\"{status}\"}}"), count);
        }
        for (name, help, count) in [
            ("genesis_prompt_tokens_total", "Tokens of prompts.", &self.prompt_tokens),
            (
                "genesis_cached_tokens_total",
                "Prompt tokens taken from a cache.",
                &self.cached_tokens,
            ),
            ("genesis_generation_tokens_total", "Tokens generated.", &self.generated_tokens),
            ("genesis_cancelled_total", "Answers whose reader went away.", &self.cancelled),
        ] {
            page.single(name, "counter", help, count.load(Ordering::Relaxed));
        }
        for (name, help, count) in [
            ("genesis_requests_waiting", "Answers that wait for a place.", &self.waiting),
            ("genesis_requests_running", "Answers that are being made.", &self.running),
            ("genesis_connections", "Open connections.", &self.connections),
        ] {
            page.single(name, "gauge", help, count.load(Ordering::Relaxed));
        }
        for (name, help, histogram) in [
            ("genesis_time_to_first_token_seconds", "Until the first token.", &self.first_token),
            ("genesis_inter_token_latency_seconds", "Between tokens.", &self.between_tokens),
            ("genesis_answer_duration_seconds", "Until an answer is whole.", &self.whole),
        ] {
            histogram.print(name, help, &mut page);
        }
        for Gauge { name, help, is_counter, value } in engine {
            page.single(name, if *is_counter { "counter" } else { "gauge" }, help, value);
        }
        page.0
    }
}

/// Durations by size.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// Of each bound, and of what is beyond the last.
    counts: Vec<AtomicU64>,
    /// In nanoseconds, so that the sum is exact.
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|&bound| bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn print(&self, name: &str, help: &str, page: &mut Page) {
        page.head(name, "histogram", help);
        let mut count = 0;
        let ends = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, bucket) in ends.zip(&self.counts) {
            count += bucket.load(Ordering::Relaxed);
            page.line(format_args!("{name}_bucket{{le=\"{bound}\"}}"), count);
        }
        let seconds = self.sum.load(Ordering::Relaxed) as f64 * 1e-9;
        page.line(format_args!("{name}_sum"), seconds);
        page.line(format_args!("{name}_count"), count);
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: impl Display, value: impl Display) {
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_at_most_their_bound() {
        let histogram = Histogram::new(&[0.1, 0.2]);
        for milliseconds in [100, 150, 500] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        let mut page = Page(String::new());
        histogram.print("t", "Help.", &mut page);
        assert_eq!(
            page.0,
            "# HELP t Help.\n# TYPE t histogram\nt_bucket{le=\"0.1\"} 1\nt_bucket{le=\"0.2\"} 2\n\
             t_bucket{le=\"+Inf\"} 3\nt_sum 0.75\nt_count 3\n"
        );
    }

    #[test]
    fn requests_are_counted_by_route_and_status() {
        let metrics = Metrics::new();
        metrics.request("/health", 200);
        metrics.request("/health", 200);
        let text = metrics.text(&[]);
        assert!(text.contains("genesis_requests_total{route=\"/health\",status=\"200\"} 2\n"));
    }
}
