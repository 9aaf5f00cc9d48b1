//! Hostile calls and damaged files by the million; see `tests::abuse`.
//!
//! ```text
//! genesis-abuse [calls=N] [files=N] [from=N] [jobs=N] [seconds=N] [patience=N] [only=NAME]
//! genesis-abuse call=N [only=NAME]    genesis-abuse file=N [only=NAME]
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tests::abuse::{self, Plan};
use tests::heap::Counted;

#[global_allocator]
static HEAP: Counted = Counted;

fn main() -> ExitCode {
    command().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn command() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [work, kind, from, to, step, state, only @ ..] = arguments.as_slice()
        && work == "work"
    {
        let only = only.first().map(String::as_str);
        abuse::work(kind, from.parse()?, to.parse()?, step.parse()?, Path::new(state), only)?;
        return Ok(ExitCode::SUCCESS);
    }
    let get = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
    let number =
        |name: &str, default| get(name).map_or(Ok(default), str::parse::<u64>).context("a number");
    for kind in ["call", "file"] {
        if let Some(at) = get(kind) {
            let is_well = abuse::one(kind, at.parse()?, get("only"))?;
            return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    let plan = Plan {
        program: std::env::current_exe()?,
        calls: number("calls", 0)?,
        files: number("files", 0)?,
        from: number("from", 0)?,
        jobs: get("jobs").map(str::parse).transpose().context("a number")?,
        patience: Duration::from_secs(number("patience", 10)?),
        longest: Duration::from_secs(number("seconds", 1 << 30)?),
        only: get("only").map(str::to_owned),
    };
    let report = abuse::run(&plan)?;
    report.failures.iter().chain(&report.most).for_each(|line| println!("{line}"));
    println!("{:?}, {} failures", report.done, report.failures.len());
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
