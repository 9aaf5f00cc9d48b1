//! Rows: a table for people, lines of JSON for machines.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

/// One timed case.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// `<op>/<dtype>/<shape>`
    pub(crate) case: String,
    /// Our time in ms.
    pub(crate) ours: f64,
    /// The peer's name and its time in ms.
    pub(crate) peer: Option<(String, f64)>,
    /// Bytes that must move, for GB/s.
    pub(crate) bytes: Option<f64>,
}

/// Collects rows.
pub(crate) struct Report {
    file: Option<File>,
    filter: String,
    commit: String,
    gpu: String,
    rows: Vec<Row>,
}

/// The first line that a command prints, or nothing.
fn line_of(command: &str, args: &[&str]) -> String {
    let output = Command::new(command).args(args).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

impl Report {
    pub(crate) fn new(out: Option<PathBuf>, filter: String) -> anyhow::Result<Report> {
        let file =
            out.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
        let commit = std::env::var("GENESIS_COMMIT")
            .unwrap_or_else(|_| line_of("git", &["rev-parse", "--short", "HEAD"]));
        let gpu = line_of("nvidia-smi", &query);
        Ok(Report { file, filter, commit, gpu, rows: Vec::new() })
    }

    /// Whether the user asked for this case.
    pub(crate) fn wants(&self, case: &str) -> bool {
        case.contains(&self.filter)
    }

    /// Prints and keeps a row.
    pub(crate) fn add(&mut self, row: Row) -> anyhow::Result<()> {
        println!("{}", line(&row));
        if let Some(file) = &mut self.file {
            let date = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
            let (peer, peer_ms) = row.peer.clone().unzip();
            let record = json!({
                "date": date,
                "gpu": self.gpu,
                "commit": self.commit,
                "case": row.case,
                "ours_ms": row.ours,
                "peer": peer,
                "peer_ms": peer_ms,
                "ratio": peer_ms.map(|ms| ms / row.ours),
                "gb_per_s": row.bytes.map(|bytes| bytes / row.ours / 1e6),
            });
            writeln!(file, "{record}")?;
        }
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn finish(&self) {
        println!("{} cases; ratio is the peer's time over ours", self.rows.len());
    }
}

fn line(row: &Row) -> String {
    let rate = row.bytes.map_or(String::new(), |b| format!("{:7.0} GB/s", b / row.ours / 1e6));
    let peer = match &row.peer {
        Some((name, ms)) => format!("{name} {ms:.5} ms  ratio {:.3}", ms / row.ours),
        None => "no peer here".to_owned(),
    };
    format!("{:32} {:9.5} ms {rate:>13}  {peer}", row.case, row.ours)
}

/// The median.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
