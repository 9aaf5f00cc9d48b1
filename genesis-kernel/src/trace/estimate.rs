//! When a GPU ran the launches that it was not asked about: between those that it was.
//!
//! A launch takes the mean of those of its kind that were timed; the first is left out where there are
//! others, for it often waits for memory that later ones find in a cache. It begins when the host launched
//! it or the kernel ahead of it ended, and no two kernels of a stream overlap: what lies between two
//! timed ones has no more than the time between them.
//!
//! ```text
//! timed      [ add ]                        [ add ]
//! launches           mul  exp
//! estimated         [mul][exp]
//! ```

use std::collections::BTreeMap;

use super::event::Launch;
use crate::runtime::Device;

/// Fills in the times of launches of GPUs; `kinds` has the hash of each launch's kind.
pub(super) fn fill(launches: &mut [Launch], kinds: &[u64]) {
    let means = means(launches, kinds);
    let mut streams: BTreeMap<(Device, u64), Vec<Slot>> = BTreeMap::new();
    for (index, (launch, kind)) in launches.iter().zip(kinds).enumerate() {
        let length = means.get(kind).copied();
        let Some(length) = length.filter(|_| launch.device.is_cuda()) else { continue };
        let slot = Slot { index, earliest: launch.start_ns, length, ns: launch.gpu_ns };
        streams.entry((launch.device, launch.stream)).or_default().push(slot);
    }
    for slots in streams.values_mut() {
        place(slots);
        for slot in slots {
            let launch = &mut launches[slot.index];
            launch.is_estimated = launch.gpu_ns.is_none();
            launch.gpu_ns = slot.ns;
        }
    }
}

/// The mean time of each kind, in ns.
fn means(launches: &[Launch], kinds: &[u64]) -> BTreeMap<u64, u64> {
    /// The first time, the sum of the others, and how many these are.
    struct Sum(u64, u64, u64);
    let mut sums: BTreeMap<u64, Sum> = BTreeMap::new();
    for (launch, &kind) in launches.iter().zip(kinds) {
        let Some([start, end]) = launch.gpu_ns else { continue };
        let length = end - start;
        let add = |sum: &mut Sum| (sum.1, sum.2) = (sum.1 + length, sum.2 + 1);
        sums.entry(kind).and_modify(add).or_insert(Sum(length, 0, 0));
    }
    let mean = |Sum(first, others, n)| others.checked_div(n).unwrap_or(first);
    sums.into_iter().map(|(kind, sum)| (kind, mean(sum))).collect()
}

/// A launch on a stream.
#[derive(Clone, Debug)]
struct Slot {
    index: usize,
    /// When it may begin.
    earliest: u64,
    /// How long it takes.
    length: u64,
    /// When it began and ended, where that is known.
    ns: Option<[u64; 2]>,
}

/// Gives each launch of a stream its time.
fn place(slots: &mut [Slot]) {
    let (mut first, mut from) = (0, 0);
    for next in 0..slots.len() {
        if let Some([start, end]) = slots[next].ns {
            lay(&mut slots[first..next], from, start);
            (first, from) = (next + 1, end);
        }
    }
    lay(&mut slots[first..], from, u64::MAX);
}

/// Lays launches one after the other between two points of time.
fn lay(slots: &mut [Slot], from: u64, until: u64) {
    let (room, total) =
        (until.saturating_sub(from), slots.iter().map(|slot| slot.length).sum::<u64>());
    let mut end = from;
    for slot in slots.iter_mut() {
        if total > room {
            slot.length = (u128::from(slot.length) * u128::from(room) / u128::from(total)) as u64;
        }
        let start = slot.earliest.max(end).min(until);
        end = start.saturating_add(slot.length);
        slot.ns = Some([start, end]);
    }
    // Those that reach too far move towards the front, as far as their launches let them.
    let mut latest = until;
    for slot in slots.iter_mut().rev() {
        let Some([start, end]) = &mut slot.ns else { return };
        if *end <= latest {
            return;
        }
        *end = latest;
        *start = latest.saturating_sub(slot.length).max(slot.earliest.min(latest)).max(from);
        latest = *start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::event::Kernel;

    /// The times of launches: `(earliest, length)`, or `(start, end)` of one that was timed.
    fn placed(slots: &[(bool, u64, u64)]) -> Vec<[u64; 2]> {
        let slot = |(index, &(is_timed, a, b)): (usize, &(bool, u64, u64))| match is_timed {
            true => Slot { index, earliest: a, length: b - a, ns: Some([a, b]) },
            false => Slot { index, earliest: a, length: b, ns: None },
        };
        let mut slots: Vec<Slot> = slots.iter().enumerate().map(slot).collect();
        place(&mut slots);
        slots.into_iter().filter_map(|slot| slot.ns).collect()
    }

    #[test]
    fn launches_follow_each_other() {
        let times = placed(&[(true, 10, 20), (false, 12, 5), (false, 13, 5), (false, 50, 5)]);
        assert_eq!(times, [[10, 20], [20, 25], [25, 30], [50, 55]]);
    }

    #[test]
    fn none_reaches_into_one_that_was_timed() {
        let times = placed(&[(true, 0, 10), (false, 5, 8), (false, 20, 7), (true, 25, 30)]);
        assert_eq!(times, [[0, 10], [10, 18], [20, 25], [25, 30]]);
        let times = placed(&[(true, 0, 10), (false, 12, 8), (false, 13, 4), (true, 22, 30)]);
        assert_eq!(times, [[0, 10], [12, 18], [18, 22], [22, 30]]);
    }

    #[test]
    fn what_has_no_room_is_shorter() {
        let times = placed(&[(true, 0, 10), (false, 1, 30), (false, 2, 10), (true, 30, 31)]);
        assert_eq!(times, [[0, 10], [10, 25], [25, 30], [30, 31]]);
    }

    #[test]
    fn the_first_time_of_several_does_not_count() {
        let launch = |gpu_ns| Launch {
            kernel: "add",
            range: 0,
            device: Device::Cuda(0),
            stream: 0,
            grid: [1; 3],
            thread: 0,
            start_ns: 0,
            end_ns: 0,
            gpu_ns,
            is_estimated: false,
            work: Kernel::default(),
        };
        let times = [Some([0, 90]), None, Some([100, 110]), Some([110, 130]), None];
        let mut launches = times.map(launch);
        let kinds = [1, 2, 1, 1, 1];
        fill(&mut launches, &kinds);
        let times = launches.each_ref().map(|launch| (launch.device_ns(), launch.is_estimated));
        let timed = |ns| (Some(ns), false);
        assert_eq!(times, [timed(90), (None, false), timed(10), timed(20), (Some(15), true)]);
    }
}
