//! Totals as text.

use std::fmt::Write;

use super::averages::{Averages, Row};

/// What rows are sorted by, the largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortBy {
    /// The number of events.
    Calls,
    /// Host time.
    HostTotal,
    /// Host time outside of events inside.
    HostSelf,
    /// Time of kernels.
    DeviceTotal,
    /// Time of kernels outside of events inside.
    DeviceSelf,
    /// Bytes.
    Bytes,
    /// Floating-point operations.
    Flops,
    /// Memory kept.
    Memory,
}

impl SortBy {
    fn key(self, row: &Row) -> i128 {
        i128::from(match self {
            SortBy::Calls => row.calls,
            SortBy::HostTotal => row.host_total_ns,
            SortBy::HostSelf => row.host_self_ns,
            SortBy::DeviceTotal => row.device_total_ns,
            SortBy::DeviceSelf => row.device_self_ns,
            SortBy::Bytes => row.bytes,
            SortBy::Flops => row.flops,
            SortBy::Memory => return i128::from(row.memory_change),
        })
    }
}

impl Averages {
    /// The rows from the largest on.
    pub fn sorted(&self, by: SortBy) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows().iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(by.key(row)));
        rows
    }

    /// The largest rows as text.
    pub fn table(&self, by: SortBy, limit: usize) -> String {
        text(&self.sorted(by), limit, self.wall_ms, self.dropped)
    }
}

/// Columns of numbers, each with its width.
const COLUMNS: [(&str, usize); 9] = [
    ("calls", 8),
    ("host total", 12),
    ("host self", 12),
    ("device total", 13),
    ("device self", 12),
    ("bytes", 10),
    ("FLOP", 10),
    ("roofline", 9),
    ("memory", 11),
];

fn text(rows: &[&Row], limit: usize, wall_ms: f64, dropped: u64) -> String {
    let shown = &rows[..limit.min(rows.len())];
    let title = |row: &Row| match row.inputs.as_str() {
        "" => row.name.clone(),
        inputs => format!("{} ({inputs})", row.name),
    };
    let titles: Vec<String> = shown.iter().map(|row| title(row)).collect();
    let width = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!("{:width$}", "name");
    COLUMNS.iter().for_each(|(name, width)| text += &format!("{name:>width$}"));
    let line = "-".repeat(text.chars().count());
    let _ = write!(text, "\n{line}\n");
    for (row, title) in shown.iter().zip(&titles) {
        let _ = write!(text, "{title:width$}");
        for (cell, (_, width)) in cells(row).iter().zip(COLUMNS) {
            let _ = write!(text, "{cell:>width$}");
        }
        text.push('\n');
    }
    text += &line;
    let host: u64 = rows.iter().map(|row| row.host_self_ns).sum();
    let device: u64 = rows.iter().map(|row| row.device_self_ns).sum();
    let _ = write!(text, "\n{} of the host, {} of kernels", time(host), time(device));
    let _ = write!(text, ", in {} of wall time", time((wall_ms * 1e6) as u64));
    if shown.len() < rows.len() {
        let _ = write!(text, "; {} more rows", rows.len() - shown.len());
    }
    let count = |of: fn(&Row) -> u64| rows.iter().map(|row| of(row)).sum::<u64>();
    let (estimated, launches) = (count(|row| row.estimated), count(|row| row.launches));
    if estimated > 0 {
        let _ = write!(text, "; times of {estimated} of {launches} launches are estimated");
    }
    if dropped > 0 {
        let _ = write!(text, "; {dropped} events were dropped, see max_events");
    }
    text + "\n"
}

fn cells(row: &Row) -> [String; 9] {
    let count = |n: u64, unit| if n == 0 { "-".to_owned() } else { scaled(n as f64, unit) };
    [
        row.calls.to_string(),
        time(row.host_total_ns),
        time(row.host_self_ns),
        time(row.device_total_ns),
        time(row.device_self_ns),
        count(row.bytes, "B"),
        count(row.flops, ""),
        row.roofline().map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        match row.memory_change {
            0 => "-".to_owned(),
            n if n < 0 => format!("-{}", scaled(n.unsigned_abs() as f64, "B")),
            n => scaled(n as f64, "B"),
        },
    ]
}

/// `1.234 ms`
pub(super) fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        ns if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        ns if ns < 1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        ns => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// `1.23 G`
pub(super) fn scaled(number: f64, unit: &str) -> String {
    let prefixes = ["", "K", "M", "G", "T", "P"];
    let mut scaled = number;
    let mut prefix = 0;
    while scaled >= 1000.0 && prefix + 1 < prefixes.len() {
        (scaled, prefix) = (scaled / 1000.0, prefix + 1);
    }
    let digits = if prefix == 0 { 0 } else { 2 };
    format!("{scaled:.digits$} {}{unit}", prefixes[prefix]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let times = [0, 1500, 2_500_000, 3_000_000_000].map(time);
        assert_eq!(times, ["-", "1.5 us", "2.50 ms", "3.00 s"]);
        assert_eq!((scaled(17.0, "B"), scaled(2.5e9, "")), ("17 B".into(), "2.50 G".into()));
    }

    #[test]
    fn the_largest_rows_are_shown() {
        let row = |name: &str, ns| Row {
            name: name.to_owned(),
            calls: 2,
            host_total_ns: ns,
            host_self_ns: ns,
            launches: 2,
            estimated: 1,
            ..Row::default()
        };
        let (a, b) = (row("matmul", 2_000_000), row("add", 1_000));
        let text = text(&[&a, &b], 1, 4.0, 5);
        assert!(text.lines().nth(2).is_some_and(|line| line.starts_with("matmul")), "{text}");
        assert!(!text.contains("add"), "{text}");
        let end = "; 1 more rows; times of 2 of 4 launches are estimated; 5 events were dropped";
        assert!(text.contains(end), "{text}");
    }
}
