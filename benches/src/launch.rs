//! Host time of a cached launch with four arguments, beside what the driver alone takes.
//!
//! Two figures for each. *Steady*: 600 launches in a row after 200 that are not timed, as a training
//! step launches; the driver queues 1024, so that the host never waits. *After a wait*: the first 100
//! launches after the GPU went idle, which also pays for waking up what the wait let sleep.

use std::time::Instant;

use genesis::Device;

use crate::driver;
use crate::report::{Report, Row, median};

/// Launches before the timed ones of the steady figure.
const WARM: usize = 200;
/// Timed launches of the steady figure.
const STEADY: usize = 600;
/// Launches of the figure after a wait.
const WOKEN: usize = 100;
/// How often each is measured.
const ROUNDS: usize = 40;

/// Host times of one launch, in ms.
pub(crate) struct Times {
    pub(crate) steady: f64,
    pub(crate) woken: f64,
}

/// Median times of a launch, with `wait` until the GPU is idle before each round.
pub(crate) fn host_times(
    wait: impl Fn() -> anyhow::Result<()>,
    mut launch: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Times> {
    let mut round = |warm: usize, timed: usize| -> anyhow::Result<f64> {
        wait()?;
        (0..warm).try_for_each(|_| launch())?;
        let start = Instant::now();
        (0..timed).try_for_each(|_| launch())?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / timed as f64)
    };
    let mut median_of = |warm: usize, timed: usize| -> anyhow::Result<f64> {
        let times =
            (0..ROUNDS).map(|_| round(warm, timed)).collect::<anyhow::Result<Vec<f64>>>()?;
        Ok(median(times))
    };
    Ok(Times { steady: median_of(WARM, STEADY)?, woken: median_of(0, WOKEN)? })
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let case = "launch/4 arguments";
    let woken_case = "launch/4 arguments/after a wait";
    let is_wanted = report.wants(case) || report.wants(woken_case) || report.wants(DRIVER);
    if !is_wanted {
        return Ok(());
    }
    let stream = Device::Cuda(0).stream();
    let launch = crate::kernels::Add::new(&stream)?;
    launch.run()?;
    let variants = driver::variants()?;
    let ours = host_times(|| Ok(stream.synchronize()?), || launch.run())?;
    let alone = |pick: fn(&Times) -> f64| {
        let same_call = variants.first().map(|(_, times)| pick(times));
        same_call.map(|ms| ("driver alone".to_owned(), ms))
    };
    let rows = [
        (case, ours.steady, alone(|times| times.steady)),
        (woken_case, ours.woken, alone(|times| times.woken)),
    ];
    for (case, ours, peer) in rows {
        if report.wants(case) {
            report.add(Row { case: case.to_owned(), ours, peer, bytes: None })?;
        }
    }
    for (name, times) in &variants {
        let woken = Some(("after a wait".to_owned(), times.woken));
        let case = format!("{DRIVER}/{name}");
        if report.wants(&case) {
            report.add(Row { case, ours: times.steady, peer: woken, bytes: None })?;
        }
    }
    Ok(())
}

/// What the cases of the driver alone begin with.
const DRIVER: &str = "launch/driver";
