//! Differential testing: random programs on the interpreter, the CPU, emulated GPUs and real ones.
//!
//! A seed gives a program ([`Source`]: tile IR, or a kernel in the language's syntax), the interpreter
//! says what it leaves in memory, and every [`Machine`] has to leave the same bits; where the arithmetic
//! is not defined to the bit (transcendental functions on a GPU) values within the ULP that
//! [`fn@crate::passes::expand_math`] states. A program that fails is cut down to the ops that it fails with.
//!
//! ```
//! use genesis_kernel::differential::{Campaign, Machine, Source};
//!
//! let machines = vec![Machine::Cpu];
//! let campaign =
//!     Campaign { source: Source::TileIr, seeds: 0..5, machines, threads: 1, limit: None };
//! let report = campaign.run();
//! assert!(report.failures.is_empty(), "{report}");
//! ```

pub(crate) mod compare;
#[cfg(test)]
mod found;
mod language;
pub(crate) mod reduce;
mod subject;
mod syntax;
mod text;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use self::subject::{Subject, hints, kind, message};
use crate::ir::print;
use crate::ir::random::{RandomOptions, random_program_with};

#[cfg(test)]
pub(crate) use self::subject::everywhere;
pub use self::subject::{Machine, Outcome};
pub use self::written::{is_as_written, written};

/// A program that takes longer than this on one machine hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The most failures of one kind that are cut down and kept.
const MOST_ALIKE: u64 = 2;

/// What programs are made as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Tile IR.
    TileIr,
    /// Kernels in the language's syntax, lowered by its front end.
    Kernels,
}

/// Programs to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What they are made as.
    pub source: Source,
    /// Which.
    pub seeds: Range<u64>,
    /// Where.
    pub machines: Vec<Machine>,
    /// Programs at once.
    pub threads: usize,
    /// Begins no program after this time.
    pub limit: Option<Duration>,
}

/// A program that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// Where it fails; none where the interpreter refuses it.
    pub machine: Option<Machine>,
    /// How, and the least program that does.
    pub text: String,
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How often each outcome came, by its name.
    pub counts: BTreeMap<&'static str, u64>,
    /// Programs made.
    pub programs: u64,
    /// Programs that the interpreter ran to their end.
    pub valid: u64,
    /// How often programs failed, by how.
    pub kinds: BTreeMap<String, u64>,
    /// The first failures of each kind.
    pub failures: Vec<Failure>,
    /// How often the compiler refused a program, by why.
    pub refusals: BTreeMap<String, u64>,
}

impl Source {
    /// The program of a seed, and what the compiler is told to choose.
    fn program(self, seed: u64) -> Result<Subject, String> {
        let mut program = match self {
            Source::TileIr => random_program_with(seed, RandomOptions::EVERYWHERE),
            Source::Kernels => language::kernel(seed)?,
        };
        // A promise that changes when a tile is asked for, and no bit.
        for param in program.func.params.iter_mut().filter(|_| seed.is_multiple_of(3)) {
            param.attrs.constant = param.attrs.readonly;
        }
        Ok(Subject { program, hints: hints(seed) })
    }
}

impl Campaign {
    /// Runs every program everywhere. A line of counts goes to standard output every ten seconds.
    pub fn run(&self) -> Report {
        let (next, began) = (AtomicU64::new(self.seeds.start), Instant::now());
        let report = Mutex::new(Report::default());
        let running: Vec<Mutex<Option<(u64, Instant)>>> =
            (0..self.threads.max(1)).map(|_| Mutex::new(None)).collect();
        let is_done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let workers: Vec<_> = running
                .iter()
                .map(|mine| {
                    let (next, report) = (&next, &report);
                    // Regions nest, and passes recurse over them.
                    let builder = std::thread::Builder::new().stack_size(64 << 20);
                    let work = move || {
                        while self.limit.is_none_or(|limit| began.elapsed() < limit) {
                            let seed = next.fetch_add(1, Ordering::Relaxed);
                            if seed >= self.seeds.end {
                                break;
                            }
                            *lock(mine) = Some((seed, Instant::now()));
                            self.one(seed, report);
                            *lock(mine) = None;
                        }
                    };
                    builder.spawn_scoped(scope, work).expect("a thread starts")
                })
                .collect();
            scope.spawn(|| watch(&running, &report, &is_done));
            for worker in workers {
                worker.join().expect("programs that panic are caught");
            }
            is_done.store(1, Ordering::Relaxed);
        });
        let report = report.into_inner();
        report.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn one(&self, seed: u64, report: &Mutex<Report>) {
        let made = catch_unwind(AssertUnwindSafe(|| {
            let subject = self.source.program(seed)?;
            let expected = subject.expected();
            Ok::<_, String>((subject, expected))
        }));
        let fail = |machine, text: String| {
            let mut report = lock(report);
            println!("FAILURE seed {seed} {machine:?}: {text}");
            report.failures.push(Failure { seed, machine, text });
        };
        lock(report).programs += 1;
        let (subject, expected) = match made {
            Ok(Ok((subject, Ok(expected)))) => (subject, expected),
            Ok(Err(refusal)) => {
                let mut report = lock(report);
                report.count("REFUSED");
                *report.refusals.entry(kind(&refusal)).or_default() += 1;
                return;
            }
            Ok(Ok((subject, Err(why)))) => {
                lock(report).count("INVALID");
                return fail(None, format!("{why}\n{}", print(&subject.program.func)));
            }
            Err(panic) => {
                lock(report).count("PANIC");
                return fail(None, format!("panic: {}", message(&*panic)));
            }
        };
        lock(report).valid += 1;
        for &machine in &self.machines {
            let outcome = subject.outcome(machine, &expected);
            if self.is_new(&outcome, machine, &mut lock(report)) {
                fail(Some(machine), reduce::described(&subject, machine, &outcome));
            }
        }
    }

    /// Counts an outcome; whether it is a failure that few were like.
    fn is_new(&self, outcome: &Outcome, machine: Machine, report: &mut Report) -> bool {
        report.count(outcome.name());
        let kind = kind(outcome.why());
        if outcome.is_failure() {
            let same = report.kinds.entry(format!("{machine:?} {} {kind}", outcome.name()));
            let n = same.or_default();
            *n += 1;
            return *n <= MOST_ALIKE;
        }
        if *outcome != Outcome::Pass {
            *report.refusals.entry(kind).or_default() += 1;
        }
        false
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says how far it is, and ends the process where a program hangs: nothing else ends a thread.
fn watch(running: &[Mutex<Option<(u64, Instant)>>], report: &Mutex<Report>, is_done: &AtomicU64) {
    let mut said = Instant::now();
    while is_done.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(50));
        for slot in running {
            let late = lock(slot).filter(|(_, since)| since.elapsed() > LIMIT);
            if let Some((seed, _)) = late {
                println!("HANG seed {seed}: over {LIMIT:?}");
                std::process::exit(3);
            }
        }
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            println!("{}", lock(report).summary());
        }
    }
}

impl Report {
    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// The counts on one line.
    pub fn summary(&self) -> String {
        let counts: Vec<String> =
            self.counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let share = 100.0 * self.valid as f64 / self.programs.max(1) as f64;
        format!("{} programs, {share:.1} % valid: {}", self.programs, counts.join(", "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        for (kind, n) in &self.kinds {
            writeln!(f, "  failed {n} times: {kind}")?;
        }
        for (why, n) in &self.refusals {
            writeln!(f, "  refused {n} times: {why}")?;
        }
        for failure in self.failures.iter().take(3) {
            writeln!(f, "seed {} on {:?}: {}", failure.seed, failure.machine, failure.text)?;
        }
        Ok(())
    }
}
