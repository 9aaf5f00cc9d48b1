//! Rows of benchmarks: lines of JSON that say when, of which commit and on which machine beside what was timed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use genesis_kernel::knobs;
use serde_json::{Value, json};

use crate::error::Result;

/// Where rows go, and what all of them say.
#[derive(Debug)]
pub struct Rows {
    file: Option<File>,
    commit: String,
    gpu: String,
    driver: String,
}

impl Rows {
    /// Rows are added to the end of `out`, where there is one.
    ///
    /// # Errors
    /// If the file can't be opened.
    pub fn open(out: Option<&Path>) -> Result<Rows> {
        let open = |path| File::options().create(true).append(true).open(path);
        let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
        let of_folder = || line_of("git", &["rev-parse", "--short", "HEAD"]);
        let commit = knobs::get().commit.clone().unwrap_or_else(of_folder);
        let machine = line_of("nvidia-smi", &query);
        let (gpu, driver) = machine.split_once(", ").unwrap_or((machine.as_str(), ""));
        let (gpu, driver) = (gpu.to_owned(), driver.to_owned());
        Ok(Rows { file: out.map(open).transpose()?, commit, gpu, driver })
    }

    /// A row: `date`, in seconds since 1970, `commit`, `gpu`, `driver`, then these fields.
    pub fn row(&self, fields: &Value) -> Value {
        let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (commit, gpu, driver) = (&self.commit, &self.gpu, &self.driver);
        let mut row = json!({ "date": date, "commit": commit, "gpu": gpu, "driver": driver });
        if let (Some(row), Some(fields)) = (row.as_object_mut(), fields.as_object()) {
            row.extend(fields.clone());
        }
        row
    }

    /// Adds a row to the file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&mut self, row: &Value) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{row}")?;
        }
        Ok(())
    }
}

/// The first line that a command prints, or nothing.
fn line_of(command: &str, args: &[&str]) -> String {
    let output = Command::new(command).args(args).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_behind_those_that_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.jsonl");
        for case in ["a", "b"] {
            let mut rows = Rows::open(Some(&path)).expect("it can be made");
            let row = rows.row(&json!({ "case": case, "ours_ms": 1.5 }));
            rows.write(&row).expect("it can be written");
        }
        let text = std::fs::read_to_string(&path).expect("it is there");
        let rows: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let names: Vec<&String> = rows[1].as_object().expect("an object").keys().collect();
        assert_eq!(names, ["date", "commit", "gpu", "driver", "case", "ours_ms"]);
        assert_eq!((&rows[0]["case"], &rows[1]["case"]), (&json!("a"), &json!("b")));
    }
}
