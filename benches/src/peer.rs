//! The peer on the same device: `peer.py`, a process that prepares and times cases on request.
//!
//! It lives as long as the benchmark, holds its own buffers and takes turns with us. A line
//! of JSON goes there, a line comes back; one that does not come in time ends the peer, not us.
//! On the CPU the process is stopped between requests: its threads would spin for a while after each
//! parallel loop, on the cores that we are timed on.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context;
use genesis::Device;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::name::CaseName;

/// The script, which travels in the program.
const SCRIPT: &str = include_str!("../peer.py");

/// How long an answer may take: the first loads torch, others compile Triton's kernels.
const PATIENCE: Duration = Duration::from_secs(90);

/// The process.
pub(crate) struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    /// What it runs, for people.
    pub(crate) versions: String,
    /// Whether it is stopped between requests.
    rests: bool,
    // The script's folder, which goes when the peer goes.
    _folder: Option<tempfile::TempDir>,
}

/// A candidate that is prepared, with the time of one call in ms as first measured.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) estimate: f64,
}

impl Peer {
    /// Starts the script, or another one in its place, for a device.
    ///
    /// # Errors
    /// If there is no Python, no torch or no GPU for it: why.
    pub(crate) fn start(script: Option<&Path>, device: Device) -> anyhow::Result<Peer> {
        let Some(path) = script else { return Peer::start_script("peer.py", SCRIPT, device) };
        let name = device.to_string();
        Peer::spawn(Command::new("python3").arg(path).arg(name), None)?.resting(device)
    }

    /// Starts a script by its text.
    ///
    /// # Errors
    /// As of [`Peer::start`].
    pub(crate) fn start_script(name: &str, text: &str, device: Device) -> anyhow::Result<Peer> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        let mut command = Command::new("python3");
        command.arg(path).arg(device.to_string());
        Peer::spawn(&mut command, Some(folder))?.resting(device)
    }

    /// Stopped between requests, of a processor.
    fn resting(mut self, device: Device) -> anyhow::Result<Peer> {
        self.rests = device == Device::Cpu;
        self.signal(Signal::STOP)?;
        Ok(self)
    }

    /// Stops the process, or lets it go on, if it rests between requests.
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        if !self.rests {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), signal).context("the peer is gone")
    }

    fn spawn(command: &mut Command, folder: Option<tempfile::TempDir>) -> anyhow::Result<Peer> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("python3 does not start")?;
        let requests = child.stdin.take().context("the peer has no stdin")?;
        let lines = BufReader::new(child.stdout.take().context("the peer has no stdout")?).lines();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let versions = String::new();
        let mut peer = Peer { child, requests, answers, versions, rests: false, _folder: folder };
        let hello = peer.answer()?;
        if let Some(missing) = hello["missing"].as_str() {
            anyhow::bail!("{missing}");
        }
        let version = |name: &str| hello[name].as_str().map(|v| format!("{name} {v}"));
        let versions: Vec<String> = ["torch", "triton"].into_iter().filter_map(version).collect();
        peer.versions = versions.join(", ");
        Ok(peer)
    }

    fn answer(&mut self) -> anyhow::Result<Value> {
        let line = self.answers.recv_timeout(PATIENCE).context("the peer does not answer")?;
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => anyhow::bail!("the peer says {error}"),
            None => Ok(answer),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, request: &Value) -> anyhow::Result<Value> {
        self.signal(Signal::CONT)?;
        writeln!(self.requests, "{request}").context("the peer is gone")?;
        self.requests.flush().context("the peer is gone")?;
        let answer = self.answer()?;
        self.signal(Signal::STOP)?;
        Ok(answer)
    }

    /// What is asked to make a case of the table ready.
    pub(crate) fn request(name: &CaseName, sets: usize) -> Value {
        json!({
            "do": "prepare",
            "op": name.op,
            "dtype": name.precision,
            "dims": name.dims,
            "variant": name.variant,
            "sets": sets,
        })
    }

    /// Makes a case ready; its candidates, fastest first, and the whole answer.
    pub(crate) fn prepare(&mut self, request: &Value) -> anyhow::Result<(Vec<Candidate>, Value)> {
        let answer = self.ask(request)?;
        let estimates = answer["estimates"].as_object().context("an answer without estimates")?;
        let mut candidates: Vec<Candidate> = estimates
            .iter()
            .filter_map(|(name, ms)| Some(Candidate { name: name.clone(), estimate: ms.as_f64()? }))
            .collect();
        candidates.sort_by(|a, b| a.estimate.total_cmp(&b.estimate));
        anyhow::ensure!(!candidates.is_empty(), "the peer has no candidate");
        Ok((candidates, answer))
    }

    /// The time in ms of one of `launches` calls in a row.
    pub(crate) fn burst(
        &mut self,
        peer: &str,
        launches: usize,
        graph: bool,
    ) -> anyhow::Result<f64> {
        let request = json!({ "do": "burst", "peer": peer, "launches": launches, "graph": graph });
        self.ask(&request)?["ms"].as_f64().context("an answer without ms")
    }

    /// Triton's whole compilation of a matrix product, cold, in ms.
    pub(crate) fn compile(&mut self, dims: &[usize]) -> anyhow::Result<f64> {
        let answer = self.ask(&json!({ "do": "compile", "dims": dims }))?;
        answer["ms"].as_f64().context("an answer without ms")
    }

    /// A case of the host, in ms.
    pub(crate) fn host(&mut self, case: &str) -> anyhow::Result<f64> {
        let answer = self.ask(&json!({ "do": "host", "case": case }))?;
        answer["ms"].as_f64().context("an answer without ms")
    }

    /// The chain of [`crate::cpu`] on the CPU, the time of one of several in a row, in ms.
    pub(crate) fn cpu_chain(
        &mut self,
        elements: usize,
        repeats: usize,
        threads: usize,
    ) -> anyhow::Result<f64> {
        let what = json!({
            "do": "cpu_chain", "elements": elements, "repeats": repeats, "threads": threads,
        });
        self.ask(&what)?["ms"].as_f64().context("an answer without ms")
    }

    /// Gives the peer's memory back.
    pub(crate) fn release(&mut self) -> anyhow::Result<()> {
        self.ask(&json!({ "do": "drop" })).map(drop)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may be gone already, or hang: either way it ends here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A peer that needs no torch: one candidate of 2 ms, another of 1 ms, an error on `sum`.
    const FAKE: &str = r#"
import json, sys
def say(v): print(json.dumps(v), flush=True)
say({"torch": "fake", "triton": None})
for line in sys.stdin:
    r = json.loads(line)
    if r["do"] == "prepare":
        say({"error": "no sums here"} if r["op"] == "sum" else {"estimates": {"slow": 2.0, "fast": 1.0}})
    elif r["do"] == "burst":
        say({"ms": {"slow": 2.0, "fast": 1.0}[r["peer"]]})
    else:
        say({})
"#;

    /// The fake peer; none where there is no Python.
    pub(crate) fn fake() -> Option<Peer> {
        Peer::spawn(Command::new("python3").args(["-c", FAKE]), None).ok()
    }

    #[test]
    fn requests_and_answers() {
        let Some(mut peer) = fake() else { return println!("skipped: no python3") };
        assert_eq!(peer.versions, "torch fake");
        let name = CaseName::parse("add/f32/4x4").unwrap();
        let (candidates, _) = peer.prepare(&Peer::request(&name, 3)).unwrap();
        assert_eq!(candidates[0], Candidate { name: "fast".to_owned(), estimate: 1.0 });
        assert_eq!(peer.burst("slow", 5, false).unwrap(), 2.0);
        let name = CaseName::parse("sum/f32/4x4/axis=0").unwrap();
        let error = peer.prepare(&Peer::request(&name, 3)).unwrap_err().to_string();
        assert_eq!(error, "the peer says no sums here");
        peer.release().unwrap();
    }

    #[test]
    fn a_peer_of_the_cpu_is_stopped_between_requests() {
        let Some(mut peer) = fake() else { return println!("skipped: no python3") };
        peer.rests = true;
        peer.release().unwrap();
        let path = format!("/proc/{}/stat", peer.child.id());
        let state = || {
            let stat = std::fs::read_to_string(&path).unwrap();
            stat.rsplit(") ").next().unwrap().chars().next().unwrap()
        };
        // The signal takes a moment.
        let stopped = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            state() == 'T'
        });
        assert!(stopped, "its state is {}", state());
        peer.release().unwrap();
    }

    #[test]
    fn a_peer_that_misses_something_says_what() {
        let script = "print('{\"missing\": \"torch\"}')";
        let started = Peer::spawn(Command::new("python3").args(["-c", script]), None);
        let Err(error) = started else { panic!("it can't run") };
        assert!(["torch", "python3 does not start"].contains(&error.to_string().as_str()));
    }
}
