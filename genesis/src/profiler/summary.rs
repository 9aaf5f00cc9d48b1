//! The summary: bottlenecks, in words.

use std::fmt::Write;

use genesis_kernel::trace::{Trace, TransferKind};

use super::averages::{Averages, GroupBy, Row};
use super::results::Profile;
use super::table::{SortBy, scaled, time};
use crate::Device;

/// A kernel that takes less than this share of all kernels' time is not worth words.
const WORTH: f64 = 0.05;

/// A kernel below this share of the roofline is slow.
const LOW: f64 = 0.4;

impl Profile {
    /// What to look at, in words.
    pub fn summary(&self) -> String {
        summary(self)
    }
}

fn summary(profile: &Profile) -> String {
    let trace = profile.events();
    let wall = trace.end_ns - trace.start_ns;
    let mut text = format!("{} of wall time", time(wall));
    if profile.steps() > 0 {
        let each = time(wall / profile.steps() as u64);
        let _ = write!(text, " for {} steps, {each} each", profile.steps());
    }
    let _ = writeln!(text, "; {} launches", trace.launches.len());
    if trace.launches.is_empty() {
        text += "- Nothing was launched: is the work inside of the profiler, and on its thread?\n";
    } else {
        bound(&mut text, trace, wall);
        let ops = profile.key_averages(GroupBy::Name);
        top(&mut text, &ops);
        slow(&mut text, &profile.key_averages(GroupBy::Kernel));
        memory(&mut text, trace, profile.steps());
        transfers(&mut text, trace, wall);
        unknown(&mut text, trace);
        estimated(&mut text, trace);
    }
    if trace.dropped > 0 {
        let _ = writeln!(
            text,
            "- {} events were dropped: the figures above are of the first {}. Record fewer steps by a \
             schedule, or raise max_events.",
            trace.dropped,
            trace.len()
        );
    }
    text
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Nanoseconds in which at least one of the intervals is under way.
fn union(mut intervals: Vec<[u64; 2]>) -> u64 {
    intervals.sort_unstable();
    let (mut busy, mut until) = (0, 0);
    for [start, end] in intervals {
        busy += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    busy
}

/// Who waits for whom.
fn bound(text: &mut String, trace: &Trace, wall: u64) {
    let gpu: Vec<[u64; 2]> = trace.launches.iter().filter_map(|launch| launch.gpu_ns).collect();
    if !gpu.is_empty() {
        let busy = percent(union(gpu), wall);
        let _ = match busy {
            busy if busy < 80.0 => writeln!(
                text,
                "- The GPU worked {busy:.0} % of the time: the host is the bottleneck. Larger batches, a \
                 captured graph, fused ops or fewer copies to the host help; faster kernels do not."
            ),
            busy => writeln!(
                text,
                "- The GPU worked {busy:.0} % of the time: its kernels are the bottleneck."
            ),
        };
        return;
    }
    let on_cpu = trace.launches.iter().filter(|launch| launch.device == Device::Cpu);
    let intervals: Vec<[u64; 2]> = on_cpu.map(|l| [l.start_ns, l.end_ns]).collect();
    if intervals.is_empty() {
        *text += "- No times of the GPU were recorded.\n";
        return;
    }
    let busy = percent(union(intervals), wall);
    let _ = writeln!(
        text,
        "- Kernels ran {busy:.0} % of the time on the CPU; the other {:.0} % went to the program itself and \
         to bookkeeping between them.",
        100.0 - busy
    );
}

fn top(text: &mut String, ops: &Averages) {
    let all: u64 = ops.rows().iter().map(|row| row.device_self_ns).sum();
    let rows = ops.sorted(SortBy::DeviceSelf);
    let row = |row: &&Row| {
        let share = percent(row.device_self_ns, all);
        format!("{} {share:.0} % ({} calls)", row.name, row.calls)
    };
    let worth = rows.iter().take(5).filter(|row| row.device_self_ns > 0).map(row);
    let _ = writeln!(text, "- Most time of kernels: {}.", worth.collect::<Vec<_>>().join(", "));
}

fn slow(text: &mut String, kernels: &Averages) {
    let all: u64 = kernels.rows().iter().map(|row| row.device_self_ns).sum();
    for row in kernels.sorted(SortBy::DeviceSelf) {
        let share = row.device_self_ns as f64 / all.max(1) as f64;
        let Some(roofline) = row.roofline().filter(|&r| r < LOW && share > WORTH) else { continue };
        let each = row.bytes / row.launches.max(1);
        let advice = match each {
            each if each < 1 << 20 => "its launches are too small to fill the device",
            _ => "it may want tuning (`genesis tune`) or another layout of its operands",
        };
        let _ = writeln!(
            text,
            "- Kernel {} takes {:.0} % of the time at {:.0} % of what the device can do: {advice}.",
            row.name,
            share * 100.0,
            roofline * 100.0
        );
    }
}

fn memory(text: &mut String, trace: &Trace, steps: usize) {
    let Some(peak) = trace.memory.iter().map(|memory| memory.allocated).max() else { return };
    let blocks = trace.memory.iter().filter(|memory| memory.change > 0).count();
    let from_system = trace.memory.iter().filter(|memory| memory.change == 0).count();
    let each = match steps {
        0 => String::new(),
        steps => format!(", {} a step", blocks / steps),
    };
    let _ = writeln!(
        text,
        "- {blocks} blocks of memory were asked for{each}, {} at most in use at once.",
        scaled(peak as f64, "B")
    );
    if from_system > 0 {
        let _ = writeln!(
            text,
            "- {from_system} times memory came from the system or went back, which is slow: after some \
             steps of one size that should be over."
        );
    }
}

fn transfers(text: &mut String, trace: &Trace, wall: u64) {
    let of = |kind| trace.transfers.iter().filter(move |transfer| transfer.kind == kind);
    for (kind, what) in
        [(TransferKind::HostToDevice, "to the GPU"), (TransferKind::DeviceToHost, "from the GPU")]
    {
        let (count, bytes) = (of(kind).count(), of(kind).map(|t| t.bytes).sum::<u64>());
        let ns: u64 = of(kind).map(|transfer| transfer.end_ns - transfer.start_ns).sum();
        if count > 0 {
            let share = percent(ns, wall);
            let _ = writeln!(
                text,
                "- {count} copies {what}, {} in {}, {share:.0} % of the time.",
                scaled(bytes as f64, "B"),
                time(ns)
            );
        }
    }
    let waits: u64 =
        of(TransferKind::Wait).map(|transfer| transfer.end_ns - transfer.start_ns).sum();
    if waits > 0 {
        let count = of(TransferKind::Wait).count();
        let share = percent(waits, wall);
        let _ = writeln!(
            text,
            "- {count} waits for the GPU, {}, {share:.0} % of the time.",
            time(waits)
        );
    }
}

fn unknown(text: &mut String, trace: &Trace) {
    let mut names: Vec<&str> = trace
        .launches
        .iter()
        .filter(|launch| launch.work.has_unknown_loops)
        .map(|launch| launch.kernel)
        .collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let _ = writeln!(
            text,
            "- Bytes and FLOP of {} are too low: only the kernel knows how often its loops run.",
            names.join(", ")
        );
    }
}

fn estimated(text: &mut String, trace: &Trace) {
    let count = trace.launches.iter().filter(|launch| launch.is_estimated).count();
    if count > 0 {
        let of_gpu = trace.launches.iter().filter(|launch| launch.device.is_cuda()).count();
        let _ = writeln!(
            text,
            "- {} of {of_gpu} launches on the GPU were timed; the others take the mean of those of the same \
             code and sizes. DeviceTimes::All times each.",
            of_gpu - count
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_overlaps_counts_once() {
        assert_eq!(union(vec![[5, 9], [0, 3], [2, 4], [6, 7]]), 8);
        assert_eq!(union(Vec::new()), 0);
    }
}
