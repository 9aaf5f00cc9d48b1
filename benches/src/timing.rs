//! Ours and the peer's, in turns: A B A B.
//!
//! A power-limited card drifts by more than the differences that count, so both sides run in short
//! bursts that alternate, and the medians are compared. A burst is calls back to back between two
//! events, on sets of buffers that take turns so that nothing is found in the cache. Where a call takes
//! less than [`GRAPH_BELOW`] both sides replay graphs instead, which leaves out the host.

use std::time::Instant;

use genesis::Device;
use genesis_kernel::runtime::{Event, Graph, Stream};

use crate::ops::Prepared;
use crate::peer::Peer;

/// Calls shorter than this, in ms, are timed from graphs.
const GRAPH_BELOW: f64 = 0.05;

/// A call that takes longer than this, in ms, is not called more often to be estimated.
const LONG: f64 = 50.0;

/// Calls recorded in one graph, about: more are replays.
const GRAPH_CALLS: usize = 64;

/// How much time a case is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Bursts of each side.
    pub(crate) rounds: usize,
    /// The length of a burst in ms.
    pub(crate) burst_ms: f64,
    /// The bursts of each side take no longer than about this together, in ms, but for one.
    pub(crate) most_ms: f64,
}

impl Plan {
    /// Long enough for the table.
    pub(crate) const FULL: Plan = Plan { rounds: 11, burst_ms: 15.0, most_ms: f64::INFINITY };
    /// About half of it.
    pub(crate) const QUICK: Plan = Plan { rounds: 7, burst_ms: 8.0, most_ms: f64::INFINITY };
    /// For a case of the op table, of which there are thousands.
    pub(crate) const SWEEP: Plan = Plan { rounds: 5, burst_ms: 8.0, most_ms: 500.0 };
    /// The same where all of them have to be done in minutes.
    pub(crate) const QUICK_SWEEP: Plan = Plan { rounds: 3, burst_ms: 3.0, most_ms: 100.0 };

    /// Rounds of calls of which the slower side's takes so many ms: each burst calls twice to warm up.
    fn rounds_of(&self, slower: f64) -> usize {
        let of_round = 3.0 * slower.max(self.burst_ms / 3.0);
        ((self.most_ms / of_round) as usize).clamp(1, self.rounds)
    }
}

/// What was measured of a case.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Times {
    /// The median of our bursts, in ms a call.
    pub(crate) ours: f64,
    /// The fastest candidate of the peer and its median.
    pub(crate) peer: Option<(String, f64)>,
    /// Whether graphs were replayed.
    pub(crate) from_graphs: bool,
}

/// Turns of each side of a case of the host.
const HOST_TURNS: usize = 7;

/// The medians of what each side of a case of the host says it took, in turns, so that whatever else the
/// machine does slows both down alike. The peer's side is PyTorch.
pub(crate) fn host_turns(
    mut peer: Option<&mut Peer>,
    mut ours: impl FnMut() -> anyhow::Result<f64>,
    mut theirs: impl FnMut(&mut Peer) -> anyhow::Result<f64>,
) -> anyhow::Result<Times> {
    let [mut our_times, mut peer_times] = [const { Vec::new() }; 2];
    for _ in 0..HOST_TURNS {
        our_times.push(ours()?);
        if let Some(peer) = peer.as_deref_mut() {
            peer_times.push(theirs(peer)?);
        }
    }
    let peer = (!peer_times.is_empty()).then(|| ("torch".to_owned(), median(peer_times)));
    Ok(Times { ours: median(our_times), peer, from_graphs: false })
}

/// Our side of a case.
pub(crate) struct Ours {
    stream: Stream,
    prepared: Prepared,
    sets: usize,
    next: usize,
    graph: Option<Graph>,
}

impl Ours {
    pub(crate) fn new(device: Device, prepared: Prepared, sets: usize) -> Ours {
        Ours { stream: device.stream(), prepared, sets, next: 0, graph: None }
    }

    fn call(&mut self, times: usize) -> anyhow::Result<()> {
        for _ in 0..times {
            (self.prepared.run)(self.next)?;
            self.next = (self.next + 1) % self.sets;
        }
        Ok(())
    }

    /// Calls of one graph: whole rounds over the sets.
    fn graph_calls(&self) -> usize {
        self.sets * (GRAPH_CALLS / self.sets).max(1)
    }

    fn record(&mut self) -> anyhow::Result<()> {
        let (stream, calls) = (self.stream.clone(), self.graph_calls());
        self.graph = Some(Graph::capture(&stream, || self.call(calls))?);
        Ok(())
    }

    /// Whether a graph can hold a call; on a CPU nothing is recorded.
    pub(crate) fn is_recordable(&mut self) -> anyhow::Result<bool> {
        if !self.stream.device().is_cuda() {
            return Ok(false);
        }
        self.call(self.sets)?;
        let stream = self.stream.clone();
        Ok(Graph::capture(&stream, || self.call(1)).is_ok())
    }

    /// The time in ms of one of `launches` calls in a row, after two to warm up.
    fn burst(&mut self, launches: usize) -> anyhow::Result<f64> {
        if self.graph.is_some() {
            return self.replay(launches);
        }
        self.call(2)?;
        let start = Event::record(&self.stream)?;
        self.call(launches)?;
        let end = Event::record(&self.stream)?;
        Ok(end.elapsed_ms(&start)? / launches as f64)
    }

    fn replay(&self, launches: usize) -> anyhow::Result<f64> {
        let Some(graph) = &self.graph else { return Ok(f64::NAN) };
        let calls = self.graph_calls();
        let replays = (launches / calls).max(1);
        // SAFETY: the operands of the calls are the case's, which lives on.
        unsafe { graph.launch()? };
        let start = Event::record(&self.stream)?;
        for _ in 0..replays {
            // SAFETY: as above.
            unsafe { graph.launch()? };
        }
        let end = Event::record(&self.stream)?;
        Ok(end.elapsed_ms(&start)? / (replays * calls) as f64)
    }

    /// The time of one call in ms, roughly, after everything was compiled.
    fn estimate(&mut self) -> anyhow::Result<f64> {
        let warm = self.sets + 1;
        self.call(warm)?;
        self.stream.synchronize()?;
        let once = self.burst(1)?;
        if once > LONG {
            return Ok(once);
        }
        let more = (2.0 / once.max(1e-3)).clamp(1.0, 200.0) as usize;
        Ok(self.burst(more)?.min(self.burst(more)?))
    }
}

/// Times ours and, where it is there, the peer's fastest candidate; short calls from graphs where
/// `graphs` allows it.
pub(crate) fn compare(
    ours: &mut Ours,
    peer: Option<(&mut Peer, &str, f64)>,
    plan: Plan,
    graphs: bool,
) -> anyhow::Result<Times> {
    ours.graph = None;
    let estimate = ours.estimate()?;
    let of_peer = peer.as_ref().map_or(f64::INFINITY, |&(_, _, estimate)| estimate);
    let is_short = estimate.min(of_peer) < GRAPH_BELOW;
    // What waits for the device can't be recorded: it is timed as it runs.
    let is_recorded = graphs && is_short && ours.stream.device().is_cuda();
    let from_graphs = is_recorded && ours.record().is_ok();
    let launches = |estimate: f64| (plan.burst_ms / estimate.max(1e-4)).clamp(1.0, 1e5) as usize;
    let (mut times, mut of_peer) = (Vec::new(), Vec::new());
    let mut peer = peer;
    let slower = peer.as_ref().map_or(estimate, |&(_, _, other)| estimate.max(other));
    for _ in 0..plan.rounds_of(slower) {
        times.push(ours.burst(launches(estimate))?);
        if let Some((process, name, estimate)) = &mut peer {
            let burst = process.burst(name, launches(*estimate), from_graphs);
            of_peer.push(burst.map_err(PeerFailed)?);
        }
    }
    let peer = peer.map(|(_, name, _)| (name.to_owned(), median(of_peer)));
    Ok(Times { ours: median(times), peer, from_graphs })
}

/// The peer could not run its side, for this reason.
#[derive(Debug)]
pub(crate) struct PeerFailed(anyhow::Error);

impl std::fmt::Display for PeerFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for PeerFailed {}

/// The median time of a piece of host code in ms, after one run to warm up.
pub(crate) fn host_ms(
    repeats: usize,
    mut work: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    work()?;
    let mut times = Vec::new();
    for _ in 0..repeats {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

/// The median.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns() {
        let Some(mut peer) = crate::peer::tests::fake() else {
            return println!("skipped: no python3");
        };
        let name = crate::name::CaseName::parse("add/f32/4x4").unwrap();
        let best = peer.prepare(&Peer::request(&name, 2)).unwrap().0.remove(0);
        let run = |set: usize| {
            assert!(set < 2);
            std::thread::sleep(std::time::Duration::from_micros(100));
            Ok(())
        };
        let prepared = Prepared { run: Box::new(run), error: 0.0 };
        let mut ours = Ours::new(Device::Cpu, prepared, 2);
        let plan = Plan { rounds: 3, burst_ms: 1.0, most_ms: f64::INFINITY };
        let times =
            compare(&mut ours, Some((&mut peer, &best.name, best.estimate)), plan, true).unwrap();
        assert!(times.ours > 0.1 && times.ours < 50.0, "{}", times.ours);
        assert_eq!((times.peer, times.from_graphs), (Some(("fast".to_owned(), 1.0)), false));
    }

    #[test]
    fn long_calls_have_fewer_rounds() {
        let plan = Plan { rounds: 5, burst_ms: 8.0, most_ms: 500.0 };
        assert_eq!(plan.rounds_of(0.01), 5);
        assert_eq!(plan.rounds_of(50.0), 3);
        assert_eq!(plan.rounds_of(1e4), 1);
        assert_eq!(Plan::FULL.rounds_of(1e4), 11);
    }
}
