//! The process that is abused.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use genesis::{Device, Tensor, memory};

use super::calls::{Row, look, rows};
use super::files::Files;
use super::generate::Gen;
use super::memory::Meter;

/// What tensors of one worker may take.
const TENSORS: usize = 256 << 20;
/// What a call may take beside twice its operands and results: compiled code, the caches of threads.
const ALLOWANCE: usize = 64 << 20;
/// What a file may be unpacked into, whatever its size.
const UNPACKED: usize = 16 << 20;

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
    let mut worker = Worker::new(kind, only)?;
    let state = File::options().write(true).open(state)?;
    for number in (from..to).step_by(step as usize) {
        state.write_all_at(format!("{number:<20}").as_bytes(), 0)?;
        if let Some(problem) = worker.run(kind, number, false) {
            println!("{kind}={number} {}: {problem}", worker.name(kind, number));
        }
    }
    for (name, most) in &worker.most {
        println!("{MOST}{name}: {most}");
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
    let mut worker = Worker::new(kind, only)?;
    println!("{}", worker.name(kind, number));
    let problem = worker.run(kind, number, true);
    println!("{:?}", worker.most);
    println!("{}", problem.as_deref().unwrap_or("well"));
    Ok(problem.is_none())
}

/// What begins a line that says the most bytes beyond twice a file that any of a format took.
pub(super) const MOST: &str = "most beyond twice the file, ";

struct Worker {
    rows: Vec<Row>,
    files: Files,
    /// The most bytes beyond twice a file, by format.
    most: BTreeMap<&'static str, usize>,
}

impl Worker {
    fn new(kind: &str, only: Option<&str>) -> Result<Worker> {
        memory::set_memory_limit(Device::Cpu, Some(TENSORS))?;
        let mut rows = rows();
        let files = Files::new(only)?;
        rows.retain(|row| only.is_none_or(|name| row.name == name));
        if if kind == "call" { rows.is_empty() } else { files.is_empty() } {
            bail!("no {kind} is of {}", only.unwrap_or_default());
        }
        if kind != "call" {
            files.read_valid()?;
        }
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let text = info.payload_as_str().unwrap_or("").replace('\n', " ");
            *PANIC.lock().unwrap_or_else(PoisonError::into_inner) =
                format!("panic at {place}: {text}");
        }));
        Ok(Worker { rows, files, most: BTreeMap::new() })
    }

    fn row(&self, number: u64) -> &Row {
        &self.rows[(number % self.rows.len() as u64) as usize]
    }

    fn name(&self, kind: &str, number: u64) -> &'static str {
        if kind == "call" { self.row(number).name } else { self.files.format(number).name }
    }

    /// What goes wrong, if anything.
    fn run(&mut self, kind: &str, number: u64, is_told: bool) -> Option<String> {
        let result = match kind {
            "call" => self.call(number, is_told),
            _ => self.file(number, is_told),
        };
        result.unwrap_or_else(|error| Some(format!("{error:#}")))
    }

    fn file(&mut self, number: u64, is_told: bool) -> Result<Option<String>> {
        let (room, name) = (self.files.format(number).room, self.files.format(number).name);
        let length = self.files.write(number)?;
        let meter = Meter::start(room.is_none())?;
        match catch_unwind(AssertUnwindSafe(|| self.files.read(number))) {
            Err(_) => return Ok(Some(last_panic())),
            Ok(is_accepted) if is_told => println!("accepted: {is_accepted}"),
            Ok(_) => {}
        }
        let Some(room) = room else {
            return Ok(meter.pages().and_then(|took| excess(took, length + UNPACKED)));
        };
        let beyond = meter.own()?.saturating_sub(2 * length);
        let most = self.most.entry(name).or_default();
        *most = beyond.max(*most);
        let excess = format!("takes {beyond} bytes beyond twice the {length} of the file");
        Ok((beyond > room).then_some(excess))
    }

    fn call(&self, number: u64, is_told: bool) -> Result<Option<String>> {
        let meter = Meter::start(true)?;
        let mut needs = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| -> Option<String> {
            let mut g = Gen::new(number, is_told);
            let outcome = self.row(number).call(&mut g);
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
            let results = tensors.iter().map(bytes).sum::<usize>();
            needs = g.bytes + g.joint_bytes().min(TENSORS) + results;
            tensors.iter().find_map(look)
        }));
        Ok(match outcome {
            Err(_) => Some(last_panic()),
            Ok(Some(problem)) => Some(problem),
            Ok(None) => meter.pages().and_then(|took| excess(took, needs)),
        })
    }
}

fn last_panic() -> String {
    std::mem::take(&mut *PANIC.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What is too much for something that needs so many bytes.
fn excess(took: usize, needs: usize) -> Option<String> {
    (took > 2 * needs + ALLOWANCE)
        .then(|| format!("takes {} MiB where {needs} bytes are needed", took >> 20))
}

/// The bytes of a result as it is computed: integers come of sums of wide ones.
fn bytes(x: &Tensor) -> usize {
    let each = if x.dtype().is_int() { size_of::<i64>() } else { x.dtype().bytes() };
    x.numel().saturating_mul(each).min(TENSORS)
}
