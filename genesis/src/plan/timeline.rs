//! One step of all stages, event by event.
//!
//! A stage's GPU has a stream that computes and one for each group whose collectives run beside it. What a stage does
//! is a list of [`Op`]s, in the order in which the host gives them to the streams:
//!
//! ```text
//! compute    | gather 0 | layer 0 ........ | layer 1 ........ |
//! fsdp       |          | gather 1 ... |   | gather 2 ... |        started before the layer, waited for behind it
//! ```
//!
//! Where the computing stream waits for a collective, or runs one itself, communication is exposed; where a stage waits
//! for its neighbour to begin a transfer, it is a bubble. The rest of a collective's time is hidden.

use std::collections::BTreeMap;

use super::mesh::Axis;
use crate::error::{Error, Result};

/// A transfer between stages, which begins when both are there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The microbatch.
    pub(super) number: usize,
    pub(super) seconds: f64,
}

/// Something that a stage's streams are given; times are in seconds.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Op {
    /// Kernels.
    Compute(f64),
    /// A collective in the order of the compute.
    Inline(Axis, f64),
    /// A collective on the stream of its group, after what the computing stream was given so far and after the last
    /// collective of another group.
    Start { axis: Axis, seconds: f64, after: Option<Axis> },
    /// The computing stream waits for a collective of a group, counted from 0.
    Wait { axis: Axis, number: usize },
    /// Transfers that are done together, as between `ncclGroupStart` and `ncclGroupEnd`.
    Exchange(Vec<Message>),
}

/// What a stage's computing stream did, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Usage {
    pub(super) compute: f64,
    /// Collectives and transfers that the compute waited for, by [`Axis`].
    pub(super) exposed: [f64; 5],
    /// All of them.
    pub(super) communication: [f64; 5],
    /// Waiting for another stage.
    pub(super) bubble: f64,
    /// When it was done.
    pub(super) end: f64,
}

/// When each end of a message was ready, by its stages, number and direction.
type Posts = BTreeMap<(usize, usize, usize), [Option<f64>; 2]>;

/// A stage under way.
#[derive(Default)]
struct Stage {
    next: usize,
    clock: f64,
    /// When each collective of each stream ends.
    ends: [Vec<f64>; 5],
    usage: Usage,
    is_posted: bool,
}

/// Runs the programs of all stages.
///
/// # Errors
/// If stages wait for each other for ever, which is a bug.
pub(super) fn run(programs: &[Vec<Op>]) -> Result<Vec<Usage>> {
    let mut posts = Posts::new();
    let mut stages: Vec<Stage> = programs.iter().map(|_| Stage::default()).collect();
    loop {
        let mut has_moved = false;
        for (number, (stage, program)) in stages.iter_mut().zip(programs).enumerate() {
            while let Some(op) = program.get(stage.next) {
                let (posted, done) = stage.step(number, op, &mut posts);
                has_moved |= posted || done;
                if !done {
                    break;
                }
            }
        }
        if stages.iter().zip(programs).all(|(stage, program)| stage.next == program.len()) {
            break;
        }
        if !has_moved {
            return Err(Error::op("plan", "stages wait for each other, which is a bug in Genesis"));
        }
    }
    Ok(stages.into_iter().map(|stage| Usage { end: stage.clock, ..stage.usage }).collect())
}

impl Stage {
    /// When the newest collective of a group's stream ends.
    fn last(&self, axis: Axis) -> f64 {
        self.ends[axis as usize].last().copied().unwrap_or(0.0)
    }

    /// Does an op; whether a message was posted, and whether it is done.
    fn step(&mut self, own: usize, op: &Op, posts: &mut Posts) -> (bool, bool) {
        match *op {
            Op::Compute(seconds) => {
                self.clock += seconds;
                self.usage.compute += seconds;
            }
            Op::Inline(axis, seconds) => {
                // A communicator does one thing at a time, whatever streams it is given.
                let waited = (self.last(axis) - self.clock).max(0.0) + seconds;
                self.clock += waited;
                self.usage.exposed[axis as usize] += waited;
                self.usage.communication[axis as usize] += seconds;
            }
            Op::Start { axis, seconds, after } => {
                let earlier = after.map_or(0.0, |axis| self.last(axis));
                let begin = self.clock.max(self.last(axis)).max(earlier);
                self.ends[axis as usize].push(begin + seconds);
                self.usage.communication[axis as usize] += seconds;
            }
            Op::Wait { axis, number } => {
                let end = self.ends[axis as usize].get(number).copied().unwrap_or(0.0);
                let waited = (end - self.clock).max(0.0);
                self.clock += waited;
                self.usage.exposed[axis as usize] += waited;
            }
            Op::Exchange(ref messages) => return self.exchange(own, messages, posts),
        }
        self.next += 1;
        (false, true)
    }

    fn exchange(&mut self, own: usize, messages: &[Message], posts: &mut Posts) -> (bool, bool) {
        let key = |message: &Message| (message.from, message.to, message.number);
        let posted = !std::mem::replace(&mut self.is_posted, true);
        if posted {
            for message in messages {
                let side = usize::from(message.to == own);
                posts.entry(key(message)).or_default()[side] = Some(self.clock);
            }
        }
        let (mut begun, mut end) = (self.clock, self.clock);
        for message in messages {
            let Some([Some(sent), Some(taken)]) = posts.get(&key(message)).copied() else {
                return (posted, false);
            };
            let begin = sent.max(taken);
            if begin + message.seconds > end {
                (begun, end) = (begin, begin + message.seconds);
            }
        }
        self.usage.bubble += begun - self.clock;
        self.usage.exposed[Axis::Pp as usize] += end - begun;
        self.usage.communication[Axis::Pp as usize] += end - begun;
        (self.clock, self.is_posted) = (end, false);
        self.next += 1;
        (posted, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_beside_the_compute_is_hidden_until_it_is_waited_for() {
        let start = |seconds| Op::Start { axis: Axis::Fsdp, seconds, after: None };
        let wait = Op::Wait { axis: Axis::Fsdp, number: 1 };
        let program = vec![start(3.0), Op::Compute(2.0), start(1.0), Op::Compute(1.0), wait];
        let usage = run(&[program]).unwrap()[0];
        // The first ends at 3, the second at 4; the compute at 3.
        assert_eq!(usage.end, 4.0);
        assert_eq!(usage.exposed[Axis::Fsdp as usize], 1.0);
        assert_eq!(usage.communication[Axis::Fsdp as usize], 4.0);
        assert_eq!(usage.compute + usage.exposed.iter().sum::<f64>(), usage.end);
    }

    #[test]
    fn a_collective_waits_for_the_one_of_another_group() {
        let start = |axis, after| Op::Start { axis, seconds: 2.0, after };
        let wait = Op::Wait { axis: Axis::Dp, number: 0 };
        let program =
            vec![start(Axis::Fsdp, None), start(Axis::Dp, Some(Axis::Fsdp)), wait.clone()];
        assert_eq!(run(&[program]).unwrap()[0].end, 4.0);
        let program = vec![start(Axis::Fsdp, None), start(Axis::Dp, None), wait];
        assert_eq!(run(&[program]).unwrap()[0].end, 2.0);
    }

    #[test]
    fn transfers_begin_when_both_are_there() {
        let message = Message { from: 0, to: 1, number: 0, seconds: 0.5 };
        let usage = run(&[
            vec![Op::Compute(2.0), Op::Exchange(vec![message])],
            vec![Op::Compute(1.0), Op::Exchange(vec![message]), Op::Compute(1.0)],
        ]);
        let usage = usage.unwrap();
        assert_eq!([usage[0].end, usage[1].end], [2.5, 3.5]);
        assert_eq!([usage[0].bubble, usage[1].bubble], [0.0, 1.0]);
        assert_eq!(usage[1].exposed[Axis::Pp as usize], 0.5);
    }

    #[test]
    fn stages_that_wait_for_ever_are_told() {
        let message = Message { from: 0, to: 1, number: 0, seconds: 0.5 };
        assert!(run(&[vec![Op::Exchange(vec![message])], vec![]]).is_err());
    }
}
