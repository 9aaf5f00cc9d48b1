//! Successive halving: a few runs of every candidate, many runs of the few that are left.
//!
//! ```text
//! 12 candidates x 3 runs -> the 3 fastest x 20 runs, in turns -> the fastest
//! ```
//!
//! The finalists take turns, so that a card that gets warmer slows all of them alike. It knows nothing
//! of kernels: a [`Contest`] says what is right and how long it takes.

use std::time::{Duration, Instant};

use super::contest::{Contest, median};
use crate::diag::Error;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The most time; when it is over, the best so far wins. One candidate is always timed.
    pub budget: Duration,
    /// Runs of each candidate.
    pub first_runs: usize,
    /// How many are run again.
    pub finalists: usize,
    /// Runs of each finalist.
    pub final_runs: usize,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { budget: Duration::from_secs(30), first_runs: 3, finalists: 3, final_runs: 20 }
    }
}

/// What became of a candidate.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// There was no time for it, or the model put it too far behind.
    Untried,
    /// It does not compile, or spills registers: why.
    Illegal(String),
    /// Its result is wrong: how.
    Wrong(String),
    /// It is right, and takes this long.
    Timed {
        /// Microseconds, the median.
        us: f64,
        /// Of so many runs.
        runs: usize,
    },
}

impl Outcome {
    /// Microseconds, if it was timed.
    pub fn us(&self) -> Option<f64> {
        match self {
            Outcome::Timed { us, .. } => Some(*us),
            _ => None,
        }
    }
}

/// How far the search is, for a progress bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it does, as in "compiling".
    pub stage: &'static str,
    /// Steps done.
    pub done: usize,
    /// Steps of the stage.
    pub total: usize,
}

/// Runs of a finalist in one turn.
const TURN: usize = 4;

/// Tries `n` candidates, the most promising first; what became of each, by its number.
///
/// # Errors
/// If the device fails.
pub fn search(
    contest: &mut dyn Contest,
    n: usize,
    plan: &Plan,
    report: &mut dyn FnMut(Progress),
) -> Result<Vec<Outcome>, Error> {
    let end = Instant::now().checked_add(plan.budget);
    let mut outcomes = vec![Outcome::Untried; n];
    let mut timed = 0;
    for (candidate, outcome) in outcomes.iter_mut().enumerate() {
        report(Progress { stage: "timing", done: candidate, total: n });
        if timed > 0 && end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        *outcome = match contest.check(candidate)? {
            Err(why) => Outcome::Wrong(why),
            Ok(()) => {
                timed += 1;
                let us = contest.time(candidate, plan.first_runs)?;
                Outcome::Timed { us, runs: plan.first_runs }
            }
        };
    }
    let mut order: Vec<usize> = (0..n).filter(|&i| outcomes[i].us().is_some()).collect();
    order.sort_by(|&a, &b| outcomes[a].us().partial_cmp(&outcomes[b].us()).expect("no NaN"));
    order.truncate(plan.finalists);
    let turns = plan.final_runs.div_ceil(TURN);
    let mut times = vec![Vec::new(); order.len()];
    for turn in 0..turns {
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        report(Progress { stage: "finalists", done: turn, total: turns });
        for (times, &candidate) in times.iter_mut().zip(&order) {
            times.push(contest.time(candidate, TURN)?);
        }
    }
    for (mut times, &candidate) in times.into_iter().zip(&order) {
        let runs = times.len() * TURN;
        if let Some(us) = median(&mut times) {
            outcomes[candidate] = Outcome::Timed { us, runs };
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates that take a known time, with a disturbance that grows.
    struct Fake {
        us: Vec<f64>,
        wrong: Vec<usize>,
        timed: Vec<usize>,
    }

    impl Contest for Fake {
        fn check(&mut self, candidate: usize) -> Result<Result<(), String>, Error> {
            Ok(match self.wrong.contains(&candidate) {
                true => Err("off by one".to_owned()),
                false => Ok(()),
            })
        }

        fn time(&mut self, candidate: usize, runs: usize) -> Result<f64, Error> {
            self.timed.extend(std::iter::repeat_n(candidate, runs));
            Ok(self.us[candidate] * (1.0 + self.timed.len() as f64 * 1e-4))
        }
    }

    fn run(us: &[f64], wrong: &[usize], plan: Plan) -> (Vec<Outcome>, Fake) {
        let mut fake = Fake { us: us.to_vec(), wrong: wrong.to_vec(), timed: Vec::new() };
        let outcomes = search(&mut fake, us.len(), &plan, &mut |_| ()).unwrap();
        (outcomes, fake)
    }

    fn best(outcomes: &[Outcome]) -> usize {
        let us = |i: &usize| outcomes[*i].us().unwrap_or(f64::MAX);
        (0..outcomes.len()).min_by(|a, b| us(a).total_cmp(&us(b))).unwrap()
    }

    #[test]
    fn the_fastest_wins() {
        let (outcomes, fake) = run(&[9.0, 5.0, 7.0, 5.1, 8.0], &[], Plan::default());
        assert_eq!(best(&outcomes), 1);
        let runs: Vec<usize> =
            (0..5).map(|i| fake.timed.iter().filter(|&&c| c == i).count()).collect();
        assert_eq!(runs, [3, 23, 23, 23, 3]);
    }

    #[test]
    fn a_fast_candidate_that_is_wrong_is_never_timed() {
        let (outcomes, fake) = run(&[9.0, 1.0, 7.0], &[1], Plan::default());
        assert_eq!(outcomes[1], Outcome::Wrong("off by one".to_owned()));
        assert!(!fake.timed.contains(&1));
        assert_eq!(best(&outcomes), 2);
    }

    #[test]
    fn without_time_the_first_right_one_is_timed() {
        let plan = Plan { budget: Duration::ZERO, ..Plan::default() };
        let (outcomes, _) = run(&[9.0, 1.0, 7.0], &[0], plan);
        assert_eq!(outcomes[1], Outcome::Timed { us: 1.0 * 1.0003, runs: 3 });
        assert_eq!(outcomes[2], Outcome::Untried);
    }

    #[test]
    fn nothing_to_try_is_no_winner() {
        assert!(run(&[], &[], Plan::default()).0.is_empty());
    }
}
