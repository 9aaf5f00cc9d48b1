//! `metrics.jsonl`: a line a step.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Progress;
use super::folder::METRICS;
use crate::error::{Error, Result};

/// Writes what a run measures, where it writes at all.
#[derive(Default)]
pub(super) struct Record {
    file: Option<(PathBuf, File)>,
    /// Bytes of whole lines in the file.
    written: u64,
    /// Lines that could not be written yet.
    waiting: String,
}

impl Record {
    /// Opens the file of a run that has done `step` steps. Lines after them are of a run that was
    /// killed later than its last checkpoint; they are written again.
    pub(super) fn open(out: Option<&Path>, step: usize) -> Result<Record> {
        Record::open_as(METRICS, out, step)
    }

    /// [`Record::open`] of another file.
    pub(super) fn open_as(name: &str, out: Option<&Path>, step: usize) -> Result<Record> {
        let Some(folder) = out else { return Ok(Record::default()) };
        let path = folder.join(name);
        let before = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(Error::io(format!("can't read {}: {error}", path.display())));
            }
        };
        let of = |line: &[u8]| serde_json::from_slice::<Value>(line).ok()?["step"].as_u64();
        let kept: Vec<u8> = before
            .split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .filter(|line| of(line).is_some_and(|at| at <= step as u64))
            .collect::<Vec<_>>()
            .concat();
        let problem = |error| cannot_write(&path, &error);
        if kept != before {
            // Under another name first: a run that is killed here keeps its lines.
            let other = folder.join(format!("{name}.new"));
            fs::write(&other, &kept).and_then(|()| fs::rename(&other, &path)).map_err(problem)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(problem)?;
        let written = kept.len() as u64;
        Ok(Record { file: Some((path, file)), written, waiting: String::new() })
    }

    /// Writes the line of a step.
    pub(super) fn write(&mut self, progress: &Progress) -> Result<()> {
        let Progress { step, loss, lr, metric, .. } = progress;
        let mut line = json!({ "step": step, "loss": loss, "lr": lr });
        if let Some(metric) = metric {
            line[metric.name] = metric.value.into();
        }
        self.write_line(&line)
    }

    /// Writes a line that has its `step`, and those before it that could not be written. A line is in the file
    /// whole or not at all, and stays to be written where it is not.
    pub(super) fn write_line(&mut self, line: &Value) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        self.waiting.push_str(&format!("{line}\n"));
        self.flush()
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        if let Err(error) = file.write_all(self.waiting.as_bytes()) {
            // Half of a line would spoil the next one.
            let _ = file.set_len(self.written);
            return Err(cannot_write(path, &error));
        }
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("can't write {}: {error}", path.display()))
}
