//! Host time of a cached launch with four arguments, beside what the driver alone takes.
//!
//! Two figures for each. *Steady*: 600 launches in a row after 200 that are not timed, as a training
//! step launches; the driver queues 1024, so that the host never waits. *After a wait*: the first 100
//! launches after the GPU went idle, which also pays for waking up what the wait let sleep.

use genesis::Device;

use crate::driver;
use crate::timing::{Times, median};
use crate::way::Way;

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

/// Median times of a launch by each way. The ways take turns, so that what else the host does meets
/// them alike.
pub(crate) fn host_times<const N: usize>(
    ways: &mut [Way<'_>; N],
) -> anyhow::Result<[HostTimes; N]> {
    let mut medians = |warm, timed| -> anyhow::Result<[f64; N]> {
        let mut times = [const { Vec::new() }; N];
        for _ in 0..ROUNDS {
            for (way, times) in ways.iter_mut().zip(&mut times) {
                times.push(way.round(warm, timed)?);
            }
        }
        Ok(times.map(median))
    };
    let (steady, woken) = (medians(WARM, STEADY)?, medians(0, WOKEN)?);
    Ok(std::array::from_fn(|i| HostTimes { steady: steady[i], woken: woken[i] }))
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
        let [times] = host_times(&mut [driver::way(way)?])?;
        let peer = Some(("after a wait".to_owned(), times.woken));
        return Ok(Times { ours: times.steady, peer, from_graphs: false });
    }
    let ours =
        Way { wait: Box::new(|| Ok(stream.synchronize()?)), launch: Box::new(|| launch.run()) };
    let pick = |times: HostTimes| if case == WOKEN_CASE { times.woken } else { times.steady };
    let (ours, peer) = match (device, driver::names().next()) {
        (Device::Cuda(_), Some(same_call)) => {
            let [ours, alone] = host_times(&mut [ours, driver::way(same_call)?])?.map(pick);
            (ours, Some(("driver alone".to_owned(), alone)))
        }
        _ => (pick(host_times(&mut [ours])?[0]), None),
    };
    Ok(Times { ours, peer, from_graphs: false })
}
