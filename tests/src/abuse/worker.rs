//! The process that is abused.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use genesis::{Device, Tensor, memory};

use super::calls::{Row, look, rows};
use super::files::Files;
use super::generate::Gen;

/// What tensors of one worker may take.
const TENSORS: usize = 256 << 20;
/// What a call may take beside twice its operands and results: compiled code, the caches of threads.
const ALLOWANCE: usize = 64 << 20;

/// Where the last panic was.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Makes every `step`th call or file from `from`; the state file says the one under way, failures are printed.
///
/// # Errors
/// If files can't be written, or there is no such method.
pub fn work(
    kind: &str,
    from: u64,
    to: u64,
    step: u64,
    state: &Path,
    only: Option<&str>,
) -> Result<()> {
    let worker = Worker::new(only)?;
    let state = File::options().write(true).open(state)?;
    for number in (from..to).step_by(step as usize) {
        state.write_all_at(format!("{number:<20}").as_bytes(), 0)?;
        if let Some(problem) = worker.run(kind, number, false) {
            println!("{kind}={number} {}: {problem}", worker.name(kind, number));
        }
    }
    // One line behind the end says that all was done.
    state.write_all_at(format!("{:<20}", "done").as_bytes(), 0)?;
    Ok(())
}

/// Makes one call, or reads one file, and tells about it; whether it was well.
///
/// # Errors
/// If there is no such kind, or the files can't be made.
pub fn one(kind: &str, number: u64, only: Option<&str>) -> Result<bool> {
    let worker = Worker::new(only)?;
    println!("{}", worker.name(kind, number));
    let problem = worker.run(kind, number, true);
    println!("{}", problem.as_deref().unwrap_or("well"));
    Ok(problem.is_none())
}

struct Worker {
    rows: Vec<Row>,
    files: Files,
}

impl Worker {
    fn new(only: Option<&str>) -> Result<Worker> {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let text = info.payload_as_str().unwrap_or("").replace('\n', " ");
            *PANIC.lock().unwrap_or_else(PoisonError::into_inner) =
                format!("panic at {place}: {text}");
        }));
        memory::set_memory_limit(Device::Cpu, Some(TENSORS))?;
        let mut rows = rows();
        rows.retain(|row| only.is_none_or(|name| row.name == name));
        if rows.is_empty() {
            bail!("no method {}", only.unwrap_or_default());
        }
        Ok(Worker { rows, files: Files::new()? })
    }

    fn row(&self, number: u64) -> &Row {
        &self.rows[(number % self.rows.len() as u64) as usize]
    }

    fn name(&self, kind: &str, number: u64) -> &'static str {
        if kind == "call" { self.row(number).name } else { self.files.name(number) }
    }

    /// What goes wrong, if anything.
    fn run(&self, kind: &str, number: u64, is_told: bool) -> Option<String> {
        let before = start_of_peak();
        let mut needs = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| -> Option<String> {
            if kind != "call" {
                match self.files.read(number) {
                    // A file may be unpacked into what its header says.
                    Ok(length) => needs = length + (16 << 20),
                    Err(error) => return Some(format!("{error:#}")),
                }
                return None;
            }
            let mut g = Gen::new(number, is_told);
            let outcome = (self.row(number).call)(&mut g);
            if is_told {
                match &outcome {
                    Ok(tensors) => println!("gives {} tensors", tensors.len()),
                    Err(error) => println!("error: {error}"),
                }
            }
            // A call that asks for too much may have taken all that it may have before.
            let most = outcome.as_ref().is_err_and(|error| error.is_out_of_memory());
            let tensors = outcome.unwrap_or_default();
            if most {
                needs = TENSORS / 2;
                return None;
            }
            needs = g.bytes + tensors.iter().map(bytes).sum::<usize>();
            tensors.iter().find_map(look)
        }));
        match outcome {
            Err(_) => {
                Some(std::mem::take(&mut *PANIC.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            Ok(Some(problem)) => Some(problem),
            Ok(None) => {
                let took = peak().ok()?.saturating_sub(before?);
                (took > 2 * needs + ALLOWANCE)
                    .then(|| format!("takes {} MiB where {} bytes are needed", took >> 20, needs))
            }
        }
    }
}

fn bytes(x: &Tensor) -> usize {
    x.numel().saturating_mul(x.dtype().bytes()).min(TENSORS)
}

/// Starts the kernel's record of the most memory anew; what is in use now.
fn start_of_peak() -> Option<usize> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    peak().ok()
}

/// The most memory since then, in bytes.
fn peak() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<usize>()? << 10)
}
