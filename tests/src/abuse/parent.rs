//! Starts workers, watches them, and gathers what goes wrong.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::worker::MOST;

/// The address space of a worker in KiB.
const ADDRESSES: u64 = 6 << 20;
/// A call that works on nothing hangs after so many times what one may take.
const WAITS: u32 = 6;
/// Threads of a worker: more than one, so that what is parallel is, and no more than cores can run.
const THREADS: &str = "2";

/// What is to be done.
pub struct Plan {
    /// The program that works.
    pub program: PathBuf,
    /// How many calls.
    pub calls: u64,
    /// How many files.
    pub files: u64,
    /// The first number.
    pub from: u64,
    /// Workers at a time; as many as there are cores where absent.
    pub jobs: Option<u64>,
    /// The longest that one call may take.
    pub patience: Duration,
    /// When to stop, done or not.
    pub longest: Duration,
    /// The only method to call, or how the names of formats begin that are read.
    pub only: Option<String>,
}

/// What came of it.
#[derive(Default)]
pub struct Report {
    /// How many calls and files were worked on.
    pub done: BTreeMap<&'static str, u64>,
    /// What went wrong, each with its number.
    pub failures: Vec<String>,
    /// The most memory that files took beyond twice their size, of each format and worker.
    pub most: Vec<String>,
}

struct Worker {
    end: u64,
    step: u64,
    next: u64,
    folder: PathBuf,
    child: Child,
    seen: String,
    since: Instant,
    /// The time of processors that it had used by then.
    used: Duration,
}

/// What a look at a worker tells.
enum Status {
    /// All of its numbers are done.
    Done,
    /// It is at this number.
    At(u64),
    /// It died or hangs at its number, and how.
    Failed(String),
}

impl Worker {
    fn start(
        plan: &Plan,
        kind: &'static str,
        [from, end, step]: [u64; 3],
        folder: &Path,
    ) -> Result<Worker> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("state"), format!("{from:<20}"))?;
        let out = File::options().create(true).append(true).open(folder.join("out"))?;
        let errors = File::options().create(true).append(true).open(folder.join("errors"))?;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {ADDRESSES}; ulimit -c 0; exec \"$0\" \"$@\"")]);
        command.arg(&plan.program).args(["work", kind]);
        command.args([from, end, step].map(|n| n.to_string())).arg(folder.join("state"));
        // Files of its own go with its folder, however it ends.
        command
            .args(&plan.only)
            .env("TMPDIR", folder)
            .env("GENESIS_NUM_THREADS", THREADS)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors);
        let (child, since) = (command.spawn()?, Instant::now());
        let folder = folder.to_owned();
        let (seen, used) = (String::new(), Duration::ZERO);
        Ok(Worker { end, step, next: from, folder, child, seen, since, used })
    }

    /// Where it is; nothing once all is done.
    fn state(&mut self) -> Result<Option<u64>> {
        let state = fs::read_to_string(self.folder.join("state"))?.trim().to_owned();
        if state != self.seen {
            (self.seen, self.since) = (state.clone(), Instant::now());
            self.used = used(self.child.id());
        }
        if let Ok(number) = state.parse() {
            self.next = number;
            return Ok(Some(number));
        }
        Ok(None)
    }

    /// Whether a call takes longer than it may. On a machine that others use too, that is not told from the clock
    /// alone: it worked for half of that time, or it waits for nothing.
    fn hangs(&self, patience: Duration) -> bool {
        let waited = self.since.elapsed();
        waited > patience
            && (used(self.child.id()).saturating_sub(self.used) > patience / 2
                || waited > patience * WAITS)
    }

    fn status(&mut self, patience: Duration) -> Result<Status> {
        let ended = self.child.try_wait()?;
        Ok(match (ended, self.state()?) {
            (_, None) => Status::Done,
            (Some(status), Some(_)) => {
                let line = last_line(&self.folder);
                Status::Failed(format!("the process dies: {status}; {line}"))
            }
            (None, Some(_)) if self.hangs(patience) => {
                Status::Failed(format!("hangs for {patience:?}"))
            }
            (None, Some(at)) => Status::At(at),
        })
    }

    /// The worker that goes on: itself, or another behind the number at which it failed. Where none does, the number
    /// before which all of its numbers are done.
    fn go_on(
        mut self,
        plan: &Plan,
        kind: &'static str,
        is_late: bool,
        failures: &mut Vec<String>,
    ) -> Result<ControlFlow<u64, Worker>> {
        let next = match self.status(plan.patience)? {
            Status::Done => self.end,
            Status::At(_) if !is_late => return Ok(ControlFlow::Continue(self)),
            Status::At(at) => at,
            Status::Failed(problem) => {
                failures.push(format!("{kind}={} {problem}", self.next));
                self.next + self.step
            }
        };
        self.stop();
        if is_late || next >= self.end {
            return Ok(ControlFlow::Break(next));
        }
        let numbers = [next, self.end, self.step];
        Worker::start(plan, kind, numbers, &self.folder).map(ControlFlow::Continue)
    }

    fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a plan on all cores.
///
/// # Errors
/// If workers can't be started.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::default();
    let start = Instant::now();
    // Files take the least; what is left of the time is for calls.
    let kinds = [("file", plan.files), ("call", plan.calls)];
    let kinds: Vec<(&'static str, u64)> = kinds.into_iter().filter(|kind| kind.1 > 0).collect();
    for (index, &(kind, count)) in kinds.iter().enumerate() {
        let share = plan.longest * (index as u32 + 1) / kinds.len() as u32;
        phase(plan, kind, count, start + share, &mut report)?;
    }
    Ok(report)
}

/// Makes calls or reads files, until all are done or it is late.
fn phase(
    plan: &Plan,
    kind: &'static str,
    count: u64,
    deadline: Instant,
    report: &mut Report,
) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let cores = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let step = plan.jobs.unwrap_or(cores).clamp(1, count);
    let (first, end) = (plan.from, plan.from + count);
    let start = |w: u64| {
        let folder = temporary.path().join(w.to_string());
        Worker::start(plan, kind, [first + w, end, step], &folder)
    };
    let mut workers = (0..step).map(start).collect::<Result<Vec<_>>>()?;
    let folders: Vec<PathBuf> = workers.iter().map(|worker| worker.folder.clone()).collect();
    let mut done = 0;
    while !workers.is_empty() {
        thread::sleep(Duration::from_millis(50));
        let is_late = Instant::now() > deadline;
        for worker in std::mem::take(&mut workers) {
            match worker.go_on(plan, kind, is_late, &mut report.failures)? {
                ControlFlow::Continue(worker) => workers.push(worker),
                ControlFlow::Break(next) => done += (next - first) / step,
            }
        }
    }
    for folder in folders {
        gather(&folder, report)?;
    }
    report.done.insert(kind, done.min(count));
    Ok(())
}

/// Adds what the workers of a folder printed.
fn gather(folder: &Path, report: &mut Report) -> Result<()> {
    let out = fs::read_to_string(folder.join("out"))?;
    let lines = out.lines().map(str::to_owned);
    let (most, failures): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with(MOST));
    report.most.extend(most);
    report.failures.extend(failures);
    Ok(())
}

/// The time of processors that a process used so far; zero where the system does not say.
fn used(process: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: user and system time are the 12th and 13th, in hundredths.
    let rest = text.rsplit(')').next().unwrap_or_default();
    let hundredths = rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok());
    Duration::from_millis(10 * hundredths.sum::<u64>())
}

fn last_line(folder: &Path) -> String {
    let errors = fs::read(folder.join("errors")).unwrap_or_default();
    String::from_utf8_lossy(&errors).lines().last().unwrap_or_default().to_owned()
}
