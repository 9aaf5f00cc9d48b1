//! Host time of a cached launch with four arguments, beside what the driver alone takes.
//!
//! Two figures for each. *Steady*: 600 launches in a row after 200 that are not timed, as a training
//! step launches; the driver queues 1024, so that the host never waits. *After a wait*: the first 100
//! launches after the GPU went idle, which also pays for waking up what the wait let sleep.

use std::time::Instant;

use genesis::Device;

use crate::driver;
use crate::report::median;
use crate::timing::Times;

/// Launches before the timed ones of the steady figure.
const WARM: usize = 200;
/// Timed launches of the steady figure.
const STEADY: usize = 600;
/// Launches of the figure after a wait.
const WOKEN: usize = 100;
/// How often each is measured.
const ROUNDS: usize = 40;

/// Host times of one launch, in ms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct HostTimes {
    pub(crate) steady: f64,
    pub(crate) woken: f64,
}

/// Median times of a launch, with `wait` until the GPU is idle before each round.
pub(crate) fn host_times(
    wait: impl Fn() -> anyhow::Result<()>,
    mut launch: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<HostTimes> {
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
    Ok(HostTimes { steady: median_of(WARM, STEADY)?, woken: median_of(0, WOKEN)? })
}

/// The case of the steady figure.
const STEADY_CASE: &str = "launch/4 arguments";
/// The case of the figure after a wait.
const WOKEN_CASE: &str = "launch/4 arguments/after a wait";
/// What the cases of the driver alone begin with.
const DRIVER: &str = "launch/driver/";

/// The names of the cases.
pub(crate) fn cases() -> Vec<String> {
    let ours = [STEADY_CASE.to_owned(), WOKEN_CASE.to_owned()];
    ours.into_iter().chain(driver::names().map(|name| format!("{DRIVER}{name}"))).collect()
}

/// The times of a case: ours beside the driver alone, or a way of the driver beside itself after a
/// wait.
pub(crate) fn time(case: &str, device: Device) -> anyhow::Result<Times> {
    let stream = device.stream();
    let launch = crate::kernels::Add::new(&stream)?;
    // The first compiles, and makes the context current.
    launch.run()?;
    if let Some(way) = case.strip_prefix(DRIVER) {
        let times = driver::time(way)?;
        let peer = Some(("after a wait".to_owned(), times.woken));
        return Ok(Times { ours: times.steady, peer, from_graphs: false });
    }
    let pick = |times: HostTimes| if case == WOKEN_CASE { times.woken } else { times.steady };
    let ours = pick(host_times(|| Ok(stream.synchronize()?), || launch.run())?);
    let alone = match (device, driver::names().next()) {
        (Device::Cuda(_), Some(same_call)) => {
            Some(("driver alone".to_owned(), pick(driver::time(same_call)?)))
        }
        _ => None,
    };
    Ok(Times { ours, peer: alone, from_graphs: false })
}
