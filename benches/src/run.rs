//! One case after the other. A case that fails, hangs or breaks the GPU says so and the run goes on:
//! after the last two in a fresh process, since this one can't use the GPU any more.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use genesis::Device;
use genesis::distributed::World;
use genesis::memory::memory_allocated;
use serde_json::{Value, json};

use crate::host;
use crate::name::{CaseName, matches};
use crate::ops::{self, Missing, Setup};
use crate::options::Options;
use crate::peer::Peer;
use crate::report::{self, Outcome, Report, Row};
use crate::sweep::{self, Scope, Summary};
use crate::table::{self, Case};
use crate::timing::{Ours, PeerFailed, Plan, Times, compare};
use crate::train;

/// Buffers of a case take at least this many bytes together: several times the cache.
const ROTATING_BYTES: f64 = 512e6;

/// The cases that are asked for, in order.
fn chosen(options: &Options, device: Device) -> Vec<Case> {
    let mut cases = match options.filter.as_deref() {
        Some("ops") => chosen_ops(options, device),
        Some("train") => chosen_steps(options),
        _ => chosen_of_table(options),
    };
    if let Some(last) = &options.after
        && let Some(at) = cases.iter().position(|case| case.name == *last)
    {
        cases.drain(..=at);
    }
    cases
}

/// Those of the op table; a pattern without stars is what a name contains.
fn chosen_ops(options: &Options, device: Device) -> Vec<Case> {
    let fits = |glob: &String, name: &str| matches(glob, name) || name.contains(glob.as_str());
    let mut cases = sweep::cases(Scope { device, is_quick: options.quick });
    cases.retain(|case| {
        options.cases.is_empty() || options.cases.iter().any(|glob| fits(glob, &case.name))
    });
    cases
}

/// Training steps; a name that stands for itself may be of any size.
fn chosen_steps(options: &Options) -> Vec<Case> {
    let mut cases = train::cases();
    cases.retain(|case| {
        options.cases.is_empty() || options.cases.iter().any(|glob| matches(glob, &case.name))
    });
    for text in &options.cases {
        if !cases.iter().any(|case| case.name == *text) && train::parse(text).is_some() {
            cases.push(Case { name: text.clone(), must: None, aim: None });
        }
    }
    cases
}

fn chosen_of_table(options: &Options) -> Vec<Case> {
    let is_wanted = |name: &str| {
        (options.cases.is_empty() || options.cases.iter().any(|glob| matches(glob, name)))
            && options.filter.as_ref().is_none_or(|part| name.contains(part))
    };
    let mut cases: Vec<Case> = table::all();
    cases.extend(host::cases());
    cases.retain(|case| is_wanted(&case.name));
    // A name that stands for itself may be of any size.
    for text in options.cases.iter().filter(|text| !text.contains(['*', '?'])) {
        if !cases.iter().any(|case| case.name == *text) && CaseName::parse(text).is_some() {
            cases.push(Case { name: text.clone(), must: None, aim: None });
        }
    }
    cases
}

/// Runs what is asked for.
pub(crate) fn all(options: &Options) -> anyhow::Result<()> {
    if let Some(path) = &options.summary {
        report::say(sweep::read(path)?.text());
        return Ok(());
    }
    if options.check {
        return check(options);
    }
    let device = options.device()?;
    let mut cases = chosen(options, device);
    if options.list {
        cases.iter().for_each(|case| report::say(&case.name));
        return Ok(());
    }
    if !device.is_cuda() && options.takes_all() {
        cases.retain(|case| host::needs_no_gpu(&case.name));
        say(
            options,
            "no GPU here: only the cases of the host and the CPU; --case GLOB times any other on the CPU",
        );
    }
    if cases.is_empty() {
        anyhow::bail!("no case matches; see `bench --list`");
    }
    // Ranks time one step together: the first keeps its row.
    let keeps = World::from_env()?.rank == 0;
    let mut report = Report::new(options.out.as_deref().filter(|_| keeps), options.json)?;
    if options.sweeps() {
        report = report.of_sweep(known(options)?);
    }
    let is_alone = options.no_peer || options.trains();
    let peer = if is_alone { None } else { start_peer(device, options) };
    let session = Session {
        options: options.clone(),
        device,
        started: Instant::now(),
        report: Arc::new(Mutex::new(report)),
        unrecorded: Mutex::default(),
    };
    session.run(&cases, peer)
}

/// The rows of a sweep that were written before this process took over.
fn known(options: &Options) -> anyhow::Result<Summary> {
    match &options.out {
        Some(path) if options.after.is_some() => sweep::read(path),
        _ => Ok(Summary::default()),
    }
}

/// Compares the calls of the op table with the peer's.
fn check(options: &Options) -> anyhow::Result<()> {
    let mut peer = Peer::start(options.peer.as_deref(), Device::Cpu)?;
    let part = options.cases.first().map(String::as_str).unwrap_or_default();
    let wrong = sweep::check(&mut peer, part, report::say)?;
    anyhow::ensure!(wrong == 0, "{wrong} calls differ from PyTorch's");
    Ok(())
}

fn start_peer(device: Device, options: &Options) -> Option<Peer> {
    match Peer::start(options.peer.as_deref(), device) {
        Ok(peer) => {
            say(options, &format!("peers: {}", peer.versions));
            Some(peer)
        }
        Err(error) => {
            say(options, &format!("no peers: {error:#}"));
            None
        }
    }
}

/// A line for people, which stays out of JSON.
fn say(options: &Options, line: &str) {
    if options.json {
        eprintln!("{line}");
    } else {
        report::say(line);
    }
}

/// What all cases of a run share.
struct Session {
    options: Options,
    device: Device,
    started: Instant,
    report: Arc<Mutex<Report>>,
    /// Ops of the op table whose calls the peer can't record.
    unrecorded: Mutex<BTreeSet<&'static str>>,
}

impl Session {
    fn run(&self, cases: &[Case], mut peer: Option<Peer>) -> anyhow::Result<()> {
        let watch = self.watch();
        for case in cases {
            if self.options.budget.is_some_and(|budget| self.seconds() > budget) {
                self.report().add(&case.name, Outcome::Skipped)?;
                continue;
            }
            *lock(&watch) = Some((case.name.clone(), Instant::now()));
            let outcome = match self.case(case, &mut peer) {
                Ok(row) => Outcome::Timed(Box::new(row)),
                Err(error) if error.is::<Missing>() => Outcome::Missing,
                Err(error) => Outcome::Failed(format!("{error:#}").replace('\n', " ")),
            };
            *lock(&watch) = None;
            self.report().add(&case.name, outcome)?;
            let stream = self.device.stream();
            if stream.is_lost() {
                say(&self.options, "the GPU is lost to this process");
                return Err(restart(&self.report, &self.options, self.started, &case.name));
            }
            stream.release_memory()?;
            // A peer that is gone or hangs is started anew, once a case.
            if let Some(process) = &mut peer
                && process.release().is_err()
            {
                peer = None;
                peer = start_peer(self.device, &self.options).or(peer);
            }
        }
        self.report().finish();
        say(&self.options, &format!("{:.0} s in all", self.seconds()));
        Ok(())
    }

    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        lock(&self.report)
    }

    /// Starts the thread that ends this process when a case hangs; says where the case is set.
    fn watch(&self) -> Arc<Mutex<Option<(String, Instant)>>> {
        let watched: Arc<Mutex<Option<(String, Instant)>>> = Arc::default();
        let (current, report) = (watched.clone(), self.report.clone());
        let (options, started) = (self.options.clone(), self.started);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let Some((name, since)) = lock(&current).clone() else { continue };
                if since.elapsed().as_secs_f64() > options.limit {
                    let error = format!("no end after {} s", options.limit);
                    // Nothing can be done about a row that can't be written.
                    let _ = lock(&report).add(&name, Outcome::Failed(error));
                    eprintln!("{:#}", restart(&report, &options, started, &name));
                    std::process::exit(1);
                }
            }
        });
        watched
    }

    fn plan(&self) -> Plan {
        match (self.options.sweeps(), self.options.quick) {
            (false, false) => Plan::FULL,
            (false, true) => Plan::QUICK,
            (true, false) => Plan::SWEEP,
            (true, true) => Plan::QUICK_SWEEP,
        }
    }

    /// Prepares, checks and times one case.
    fn case(&self, case: &Case, peer: &mut Option<Peer>) -> anyhow::Result<Row> {
        if let Some(step) = train::parse(&case.name) {
            if self.options.kernels {
                say(&self.options, &train::kernels(&step, self.device)?);
            }
            let (times, shapes) = train::time(&step, self.device, self.options.no_peer)?;
            return Ok(Row { shapes: Some(shapes), ..Row::of_host(case.clone(), times) });
        }
        if let Some(times) = host::time(&case.name, self.device, peer.as_mut())? {
            return Ok(Row::of_host(case.clone(), times));
        }
        if self.options.sweeps() {
            return self.op(case, peer);
        }
        let name = CaseName::parse(&case.name)
            .ok_or_else(|| anyhow::anyhow!("{} is no name of a case", case.name))?;
        let ops = ops::all();
        let op = ops.iter().find(|op| op.name == name.op);
        let op = op.ok_or_else(|| anyhow::anyhow!("no op is called {}", name.op))?;
        let work = (op.work)(&name);
        let sets = (ROTATING_BYTES / work.bytes.max(1.0)).ceil().clamp(1.0, 32.0) as usize;
        let mut prepared = (op.prepare)(&Setup { name: &name, device: self.device, sets })?;
        let (error, limit) = (prepared.error, ops::tolerance(&name.precision));
        anyhow::ensure!(error <= limit, "wrong: off by {error:.2e}, the limit is {limit:.0e}");
        let launched = prepared.launched()?;
        let mut ours = Ours::new(self.device, prepared, sets);
        let request = Peer::request(&name, sets);
        let times = self.compare(&mut ours, &name.text, &request, peer)?;
        let (case, precision, error) = (case.clone(), name.precision, Some(error));
        let (shapes, alone, is_view) = (None, None, false);
        Ok(Row { case, precision, times, work, launched, error, shapes, alone, is_view })
    }

    /// Prepares and times a case of the op table.
    fn op(&self, case: &Case, peer: &mut Option<Peer>) -> anyhow::Result<Row> {
        let scope = Scope { device: self.device, is_quick: self.options.quick };
        let call = sweep::calls(scope)
            .get(&case.name)
            .ok_or_else(|| anyhow::anyhow!("{} is no case", case.name))?;
        let mut ready = sweep::prepare(call, self.device)?;
        // The first call: its result is kept, the only memory that is new.
        let before = memory_allocated(self.device)?;
        let launched = ready.prepared.launched()?;
        let is_view = launched.count == 0 && memory_allocated(self.device)? <= before;
        let mut ours = Ours::new(self.device, ready.prepared, ready.sets);
        // What launches nothing is host code alone, and has nothing to record. A peer that fails to record
        // has to begin anew, which takes seconds: it does not try what we can't.
        let is_known = lock(&self.unrecorded).contains(call.row);
        let is_recorded = launched.count > 0 && !is_known && ours.is_recordable()?;
        let (times, alone) = match (ready.request, peer.as_mut()) {
            (Ok(mut request), Some(peer)) => {
                request["graphs"] = json!(is_recorded);
                self.beside(&mut ours, call, &ready.result, &mut request, peer)?
            }
            (Err(reason), _) => {
                (compare(&mut ours, None, self.plan(), is_recorded)?, Some(reason.to_owned()))
            }
            (Ok(_), None) => (compare(&mut ours, None, self.plan(), is_recorded)?, None),
        };
        Ok(Row {
            case: case.clone(),
            precision: call.dtype.to_string(),
            times,
            work: ready.work,
            launched,
            error: None,
            shapes: Some(call.shapes_text()),
            alone,
            is_view,
        })
    }

    /// Times a call of the op table beside the peer's; alone, and why, where that can't run it.
    fn beside(
        &self,
        ours: &mut Ours,
        call: &sweep::Call,
        result: &sweep::Result,
        request: &mut Value,
        peer: &mut Peer,
    ) -> anyhow::Result<(Times, Option<String>)> {
        let is_wanted = request["graphs"] == true;
        loop {
            let graphs = request["graphs"] == true;
            let (best, answer) = match peer.prepare(request) {
                Ok((mut candidates, answer)) => (candidates.swap_remove(0), answer),
                // It may be the recording that failed.
                Err(_) if graphs => {
                    request["graphs"] = json!(false);
                    continue;
                }
                Err(error) => {
                    let times = compare(ours, None, self.plan(), graphs)?;
                    return Ok((times, Some(format!("{error:#}"))));
                }
            };
            result.check(&answer["result"])?;
            // What has nothing to record on our side was not tried.
            if is_wanted && !graphs {
                lock(&self.unrecorded).insert(call.row);
            }
            let side = Some((&mut *peer, best.name.as_str(), best.estimate));
            match compare(ours, side, self.plan(), graphs) {
                Err(error) if error.is::<PeerFailed>() && graphs => {
                    request["graphs"] = json!(false)
                }
                outcome => return Ok((outcome?, None)),
            }
        }
    }

    /// Times both sides. Where the peer's calls can't be recorded, both run without graphs; where they
    /// fail, ours runs alone, and the table says why.
    fn compare(
        &self,
        ours: &mut Ours,
        name: &str,
        request: &Value,
        peer: &mut Option<Peer>,
    ) -> anyhow::Result<Times> {
        for graphs in [true, false] {
            let Some((candidate, estimate)) = self.prepare_peer(name, request, peer) else { break };
            let side = peer.as_mut().map(|process| (process, candidate.as_str(), estimate));
            match compare(ours, side, self.plan(), graphs) {
                Err(error) if error.is::<PeerFailed>() => {
                    say(&self.options, &format!("{name}: {error}"));
                }
                outcome => return outcome,
            }
        }
        compare(ours, None, self.plan(), true)
    }

    /// The peer's fastest candidate; none where it has none, which is said.
    fn prepare_peer(
        &self,
        name: &str,
        request: &Value,
        peer: &mut Option<Peer>,
    ) -> Option<(String, f64)> {
        match peer.as_mut()?.prepare(request) {
            Ok((mut candidates, _)) => {
                let best = candidates.swap_remove(0);
                Some((best.name, best.estimate))
            }
            Err(error) => {
                say(&self.options, &format!("{name}: {error:#}"));
                None
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Goes on after a case in a fresh process that takes this one's place; returns only if it can't.
fn restart(
    report: &Mutex<Report>,
    options: &Options,
    started: Instant,
    after: &str,
) -> anyhow::Error {
    // The summary of a sweep comes once, at its end.
    if !options.sweeps() {
        lock(report).finish();
    }
    say(options, "going on in a fresh process");
    let Ok(program) = std::env::current_exe() else {
        return anyhow::anyhow!("this program does not know where it is");
    };
    let mut command = Command::new(program);
    command.args(options.arguments()).args(["--after", after]);
    if let Some(budget) = options.budget {
        let left = (budget - started.elapsed().as_secs_f64()).max(0.0);
        command.args(["--budget", &left.to_string()]);
    }
    anyhow::Error::from(command.exec()).context("no fresh process")
}

impl Options {
    /// Whether no case was chosen: the whole table is meant.
    fn takes_all(&self) -> bool {
        self.cases.is_empty() && self.filter.is_none()
    }

    /// The arguments that say the same, but for budget and start.
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        for case in &self.cases {
            arguments.extend(["--case".to_owned(), case.clone()]);
        }
        arguments.extend(self.filter.clone());
        if let Some(out) = &self.out {
            arguments.extend(["--out".to_owned(), out.display().to_string()]);
        }
        if let Some(peer) = &self.peer {
            arguments.extend(["--peer".to_owned(), peer.display().to_string()]);
        }
        if let Some(device) = &self.device {
            arguments.extend(["--device".to_owned(), device.clone()]);
        }
        arguments.extend(["--limit".to_owned(), self.limit.to_string()]);
        let flags = [
            ("--json", self.json),
            ("--quick", self.quick),
            ("--no-peer", self.no_peer),
            ("--kernels", self.kernels),
        ];
        arguments.extend(flags.iter().filter(|(_, on)| *on).map(|(flag, _)| (*flag).to_owned()));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn cases_are_chosen_by_pattern_name_and_start() {
        let names = |args: &[&str]| -> Vec<String> {
            let options = Options::parse_from([&["bench"], args].concat());
            chosen(&options, Device::Cpu).into_iter().map(|case| case.name).collect()
        };
        assert_eq!(names(&["--case", "adamw/*"]), ["adamw/f32/403M"]);
        assert_eq!(names(&["--case", "add/f32/3x5"]), ["add/f32/3x5"]);
        assert_eq!(names(&["argmax"]), ["argmax/f32/8192x8192"]);
        let after =
            names(&["--case", "gelu/*", "--case", "exp/*", "--after", "gelu/bf16/8192x8192"]);
        assert_eq!(after, ["exp/bf16/8192x8192"]);
        assert!(names(&[]).len() > 90);
    }

    #[test]
    fn a_fresh_process_is_told_the_same() {
        let args = ["bench", "--case", "a/*", "part", "--quick", "--device", "cpu"];
        let options = Options::parse_from(args);
        let again =
            Options::parse_from(["bench".to_owned()].into_iter().chain(options.arguments()));
        assert_eq!(format!("{options:?}"), format!("{again:?}"));
    }
}
