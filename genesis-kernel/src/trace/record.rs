//! A recording's beginning and end: how the events of its threads become one trace.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::event::{Launch, Range, Trace};
use super::gpu::Measured;
use super::kinds::Kinds;
use super::log::{Details, Events, LaunchRecord, RangeRecord};
use super::recorder::{EVERYONE, Recorder, Thread};
use super::{estimate, lane};

/// Puts a recorder in its place; false if there is one already.
pub(super) fn install(recorder: &Arc<Recorder>) -> bool {
    if !lane::install(recorder) {
        return false;
    }
    if !recorder.options.all_threads {
        return true;
    }
    let mut everyone = EVERYONE.write().unwrap_or_else(PoisonError::into_inner);
    let is_free = everyone.is_none();
    if is_free {
        *everyone = Some(recorder.clone());
    }
    is_free
}

/// Takes a recorder away.
pub(super) fn remove(recorder: &Recorder) {
    if recorder.options.all_threads {
        *EVERYONE.write().unwrap_or_else(PoisonError::into_inner) = None;
        // The threads keep their lanes for now, and nothing in them.
        for thread in recorder.threads().iter_mut() {
            if let Some(events) = thread.events.take() {
                *events.lock().unwrap_or_else(PoisonError::into_inner) = Events::default();
            }
        }
    } else {
        lane::remove();
    }
}

impl Recorder {
    /// Begins to record, or stops.
    pub(super) fn set_recording(&self, on: bool) {
        if on && !self.is_recording() {
            self.start_ns.store(self.now(), Ordering::Relaxed);
            lane::read_clock();
        }
        self.is_recording.store(on, Ordering::Relaxed);
    }

    /// What was recorded; nothing of it is left.
    pub(super) fn take(&self) -> Trace {
        let end_ns = self.now();
        let threads = self.threads();
        let names = threads.iter().map(|thread| thread.name.clone()).collect();
        let mut trace = Trace { end_ns, threads: names, ..Trace::default() };
        trace.start_ns = self.start_ns.swap(end_ns, Ordering::Relaxed);
        let mut kinds = Vec::new();
        let mut add = |number: u32, events: &mut Events, measured: &[Measured]| {
            add_thread(&mut trace, &mut kinds, (number, events), measured);
            events.room = 0;
        };
        if !self.options.all_threads {
            let measured = self.gpu.take();
            lane::with_own(|events| add(0, events, &measured));
        } else {
            // All are held before times are read, so that no launch comes between.
            let lock = |thread: &'_ Thread| thread.events.clone();
            let lanes: Vec<_> = threads.iter().map(lock).collect();
            let held: Vec<_> = lanes
                .iter()
                .map(|events| {
                    events.as_ref().map(|e| e.lock().unwrap_or_else(PoisonError::into_inner))
                })
                .collect();
            let measured = self.gpu.take();
            for (number, events) in held.into_iter().enumerate() {
                events.into_iter().for_each(|mut e| add(number as u32, &mut e, &measured));
            }
        }
        self.room.store(self.options.max_events, Ordering::Relaxed);
        lane::read_clock();
        finish(&mut trace, kinds);
        trace
    }
}

/// Moves a thread's events into a trace, and the hashes of its launches' kinds into a list.
fn add_thread(
    trace: &mut Trace,
    kinds: &mut Vec<u64>,
    (thread, events): (u32, &mut Events),
    measured: &[Measured],
) {
    let first = trace.launches.len();
    let mut details = events.details.drain(..).peekable();
    for (index, record) in (0..).zip(events.ranges.drain(..)) {
        let number = events.first.wrapping_add(index);
        let details = details.next_if(|(of, _)| *of == number).map(|(_, details)| *details);
        // What is still under way is of no window.
        if record.end_ns > 0 {
            trace.ranges.push(to_range(record, (thread, number), details.unwrap_or_default()));
        }
    }
    drop(details);
    for record in events.launches.drain(..) {
        if let Some((hash, launch)) = to_launch(record, thread, &events.kinds) {
            kinds.push(hash);
            trace.launches.push(launch);
        }
    }
    for of_thread in measured.iter().filter(|measured| measured.lane == thread) {
        if let Some(launch) = trace.launches.get_mut(first + of_thread.index as usize) {
            launch.gpu_ns = Some(of_thread.ns);
        }
    }
    trace.transfers.append(&mut events.transfers);
    trace.memory.append(&mut events.memory);
    trace.dropped += std::mem::take(&mut events.dropped);
    events.kinds.restart();
}

/// Estimates what was not timed, and puts the events of several threads in order.
fn finish(trace: &mut Trace, kinds: Vec<u64>) {
    let launches = std::mem::take(&mut trace.launches);
    let mut pairs: Vec<(Launch, u64)> = launches.into_iter().zip(kinds).collect();
    pairs.sort_by_key(|(launch, _)| launch.end_ns);
    let kinds: Vec<u64>;
    (trace.launches, kinds) = pairs.into_iter().unzip();
    estimate::fill(&mut trace.launches, &kinds);
    trace.ranges.sort_by_key(|range| range.end_ns);
    trace.transfers.sort_by_key(|transfer| transfer.end_ns);
    trace.memory.sort_by_key(|memory| memory.ns);
}

fn to_range(record: RangeRecord, (thread, number): (u32, u32), details: Details) -> Range {
    let RangeRecord { name, start_ns, end_ns, parent, kind } = record;
    let Details { name: made, inputs, module } = details;
    let name = made.map_or(Cow::Borrowed(name), Cow::Owned);
    let [id, parent] = [number, parent].map(|number| lane::id(thread, number));
    Range { id, parent, kind, name, thread, start_ns, end_ns, inputs, module }
}

fn to_launch(record: LaunchRecord, thread: u32, kinds: &Kinds) -> Option<(u64, Launch)> {
    let LaunchRecord { start_ns, end_ns, range, kind, stream } = record;
    let (hash, kind) = kinds.get(kind)?;
    let launch = Launch {
        kernel: kind.kernel,
        range: lane::id(thread, range),
        device: kind.device,
        stream: u64::from(stream),
        grid: kind.grid,
        thread,
        start_ns,
        end_ns,
        gpu_ns: None,
        is_estimated: false,
        work: kind.work,
    };
    Some((hash, launch))
}
