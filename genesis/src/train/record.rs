//! `metrics.jsonl`: a line a step.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::Progress;
use crate::error::{Error, Result};

/// Writes what a run measures, where it writes at all.
#[derive(Default)]
pub(super) struct Record {
    file: Option<File>,
}

impl Record {
    /// Opens the file of a run that has done `step` steps. Lines after them are of a run that was
    /// killed later than its last checkpoint; they are written again.
    pub(super) fn open(out: Option<&Path>, step: usize) -> Result<Record> {
        let Some(folder) = out else { return Ok(Record::default()) };
        let path = folder.join("metrics.jsonl");
        let problem = |error| Error::io(format!("can't write {}: {error}", path.display()));
        fs::create_dir_all(folder).map_err(problem)?;
        let before = fs::read_to_string(&path).unwrap_or_default();
        let of = |line: &str| serde_json::from_str::<Value>(line).ok()?["step"].as_u64();
        let kept: String = before
            .lines()
            .filter(|line| of(line).is_some_and(|at| at <= step as u64))
            .map(|line| format!("{line}\n"))
            .collect();
        fs::write(&path, kept).map_err(problem)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(problem)?;
        Ok(Record { file: Some(file) })
    }

    pub(super) fn write(&mut self, progress: &Progress) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let Progress { step, loss, lr, metric, .. } = progress;
        let mut line = json!({ "step": step, "loss": loss, "lr": lr });
        if let Some(metric) = metric {
            line[metric.name] = metric.value.into();
        }
        Ok(writeln!(file, "{line}")?)
    }
}
