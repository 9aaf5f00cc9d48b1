//! A thread's part of a recording: what hooks write into.
//!
//! A lane stands in a thread-local, and the session of one thread owns its lane's events there: to write
//! one down takes no lock and no memory but the record's own 32 or 40 bytes. Where a session records all
//! threads, each thread's events stand behind a lock of their own, which only the session's end contends.
//!
//! ```text
//! thread-local: Lane { open: [step, backward, matmul backward], events: ranges 40 B, launches 32 B, .. }
//! ```

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use super::event::{Memory, RangeKind, Transfer, TransferKind};
use super::gpu::{Timing, Unread};
use super::kinds::{Args, Found, Key, Kind};
use super::log::{Details, Events, LaunchRecord, RangeRecord};
use super::recorder::{self, Recorder};
use crate::runtime::{
    Device, HostClock, MemoryEvent, MemoryEventKind, Queue, Stream, nvtx_pop, nvtx_push,
};

/// Ids of ranges, and what a scope holds of its range, have the thread from this bit on.
const THREAD_SHIFT: u32 = 32;

/// What a scope holds of its range has the session from this bit on.
const SESSION_SHIFT: u32 = 48;

/// Where the events of a lane are.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one, one for each thread")]
enum Place {
    Own(Events),
    Shared(Arc<Mutex<Events>>),
}

/// A thread's part of a recording.
#[derive(Debug)]
struct Lane {
    recorder: Arc<Recorder>,
    /// The thread's number in the session.
    thread: u32,
    /// Session and thread, as scopes hold them.
    tag: u64,
    /// Whether ranges have no details.
    is_plain: bool,
    place: Place,
    /// The numbers of the ranges under way, from the outside in.
    open: Vec<u32>,
    /// The number of the last range.
    last: u32,
    clock: HostClock,
}

/// A launch under way.
#[derive(Debug)]
pub(super) struct Begun {
    record: LaunchRecord,
    timing: Option<Box<Timing>>,
}

/// The number in the session of a thread's range; 0 for none.
pub(super) fn id(thread: u32, number: u32) -> u64 {
    if number == 0 { 0 } else { u64::from(thread) << THREAD_SHIFT | u64::from(number) }
}

thread_local! {
    static LANE: RefCell<Option<Lane>> = const { RefCell::new(None) };
}

/// Does something with this thread's lane, if its session records.
fn with<T>(f: impl FnOnce(&mut Lane) -> T) -> Option<T> {
    // A thread that ends may drop things after its locals.
    let done = LANE.try_with(|lane| {
        let mut lane = lane.try_borrow_mut().ok()?;
        if !lane.as_ref().is_some_and(|lane| lane.recorder.is_recording()) {
            join(&mut lane)?;
        }
        lane.as_mut().map(f)
    });
    done.ok().flatten()
}

/// Takes part in the session that records all threads, if there is one.
#[cold]
fn join(lane: &mut Option<Lane>) -> Option<()> {
    if lane.as_ref().is_some_and(|lane| matches!(lane.place, Place::Own(_))) {
        return None;
    }
    let recorder = recorder::of_everyone().filter(|recorder| recorder.is_recording())?;
    let events = Arc::new(Mutex::new(Events::default()));
    let number = recorder.add_lane(&events);
    *lane = Some(Lane::new(recorder, number, Place::Shared(events)));
    Some(())
}

/// Gives this thread a lane of its own; false if it has one.
pub(super) fn install(recorder: &Arc<Recorder>) -> bool {
    LANE.with_borrow_mut(|lane| {
        if lane.as_ref().is_some_and(|lane| matches!(lane.place, Place::Own(_))) {
            return false;
        }
        if !recorder.options.all_threads {
            let number = recorder.add_thread();
            *lane = Some(Lane::new(recorder.clone(), number, Place::Own(Events::prepared())));
        }
        true
    })
}

/// Takes this thread's lane away.
pub(super) fn remove() {
    LANE.set(None);
}

/// Has this thread's clock not be behind the system's.
pub(super) fn read_clock() {
    LANE.with_borrow_mut(|lane| {
        if let Some(lane) = lane {
            lane.clock.read();
        }
    });
}

/// Does something with the events of this thread's own lane.
pub(super) fn with_own<T>(f: impl FnOnce(&mut Events) -> T) -> Option<T> {
    LANE.with_borrow_mut(|lane| match lane {
        Some(Lane { place: Place::Own(events), .. }) => Some(f(events)),
        _ => None,
    })
}

/// Begins a range; gives what ends it, 0 where nobody records.
pub(super) fn open(kind: RangeKind, name: &'static str, inputs: &dyn Fn() -> String) -> u64 {
    let open = |lane: &mut Lane| {
        let details = if lane.is_plain { None } else { lane.details(name, inputs) };
        lane.open(kind, name, details)
    };
    with(open).unwrap_or(0)
}

/// Begins a range of the program with a name that it made.
pub(super) fn open_named(name: String) -> u64 {
    let open = |lane: &mut Lane| {
        let details = lane.details(&name, &String::new);
        let mut details = details.unwrap_or_default();
        details.name = Some(name);
        lane.open(RangeKind::User, "", Some(details))
    };
    with(open).unwrap_or(0)
}

/// Ends a range, also while the session pauses.
pub(super) fn close(token: u64) {
    let _ = LANE.try_with(|lane| {
        if let Ok(mut lane) = lane.try_borrow_mut()
            && let Some(lane) = lane.as_mut()
            && token >> THREAD_SHIFT << THREAD_SHIFT == lane.tag
        {
            lane.close(token as u32);
        }
    });
}

/// Begins a launch of the kind with this key, which `make` describes.
pub(super) fn begin_launch(
    key: Key<'_>,
    make: &dyn Fn(bool) -> (Kind, Args),
    stream: Option<&Stream>,
) -> Option<Begun> {
    with(|lane| lane.begin_launch(key, make, stream))
}

/// Ends a launch.
pub(super) fn end_launch(begun: Begun, is_done: bool) {
    with(|lane| lane.end_launch(begun, is_done));
}

/// Begins a copy or a wait.
pub(super) fn begin_transfer(kind: TransferKind, device: Device, n: usize) -> Option<Transfer> {
    with(|lane| {
        let (range, start_ns) = (id(lane.thread, lane.innermost()), lane.clock.now());
        let (bytes, thread) = (n as u64, lane.thread);
        Transfer { kind, device, bytes, range, thread, start_ns, end_ns: start_ns }
    })
}

/// Ends a copy or a wait.
pub(super) fn end_transfer(mut transfer: Transfer) {
    with(|lane| {
        transfer.end_ns = lane.clock.now();
        lane.write(transfer.start_ns, |events| events.transfers.push(transfer));
    });
}

/// Memory was handed out or came back.
pub(super) fn note_memory(event: &MemoryEvent) {
    let change = match event.kind {
        MemoryEventKind::Alloc => event.bytes as i64,
        MemoryEventKind::Free => -(event.bytes as i64),
        MemoryEventKind::Reserve | MemoryEventKind::Release => 0,
        MemoryEventKind::OutOfMemory => return,
    };
    with(|lane| {
        if !lane.recorder.options.memory {
            return;
        }
        let (device, ns) = (event.device, lane.clock.now());
        let range = id(lane.thread, lane.innermost());
        let (allocated, reserved) = (event.allocated as u64, event.reserved as u64);
        let memory = Memory { ns, device, range, change, allocated, reserved };
        lane.write(ns, |events| events.memory.push(memory));
    });
}

impl Place {
    #[inline]
    fn with<T>(&mut self, f: impl FnOnce(&mut Events) -> T) -> T {
        match self {
            Place::Own(events) => f(events),
            Place::Shared(events) => Place::with_shared(events, f),
        }
    }

    /// Apart, so that an own lane has no part in it.
    #[cold]
    fn with_shared<T>(events: &Mutex<Events>, f: impl FnOnce(&mut Events) -> T) -> T {
        f(&mut events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lane {
    fn new(recorder: Arc<Recorder>, thread: u32, place: Place) -> Lane {
        // The last bits of the thread's number tell enough threads apart.
        let tag = recorder.number << SESSION_SHIFT | u64::from(thread as u16) << THREAD_SHIFT;
        let options = &recorder.options;
        let is_plain = !options.shapes && options.module.is_none() && !options.nvtx;
        let (open, clock) = (Vec::with_capacity(32), recorder.clock());
        Lane { recorder, thread, tag, is_plain, place, open, last: 0, clock }
    }

    #[inline]
    fn innermost(&self) -> u32 {
        self.open.last().copied().unwrap_or(0)
    }

    /// Keeps an event that began then, if the session still wants it.
    #[inline]
    fn write(&mut self, start_ns: u64, put: impl FnOnce(&mut Events)) {
        let recorder = &*self.recorder;
        if recorder.wants(start_ns) {
            self.place.with(move |events| {
                if events.has_room(|| recorder.more_room()) {
                    put(events);
                }
            });
        }
    }

    /// What the options ask of a range; other profilers hear of it.
    #[cold]
    fn details(&self, name: &str, inputs: &dyn Fn() -> String) -> Option<Box<Details>> {
        let options = &self.recorder.options;
        if options.nvtx {
            nvtx_push(name);
        }
        let inputs = options.shapes.then(inputs).filter(|inputs| !inputs.is_empty());
        let module = options.module.and_then(|module| module()).map(Arc::from);
        let has_any = inputs.is_some() || module.is_some();
        has_any.then(|| Box::new(Details { name: None, inputs, module }))
    }

    #[inline]
    fn open(&mut self, kind: RangeKind, name: &'static str, details: Option<Box<Details>>) -> u64 {
        let parent = self.innermost();
        self.last = self.last.checked_add(1).unwrap_or(1);
        let (number, start_ns) = (self.last, self.clock.now());
        let range = RangeRecord { name, start_ns, end_ns: 0, parent, kind };
        let recorder = &*self.recorder;
        self.place.with(move |events| events.begin(number, range, || recorder.more_room()));
        if let Some(details) = details {
            self.keep(number, details);
        }
        self.open.push(number);
        self.tag | u64::from(number)
    }

    #[cold]
    fn keep(&mut self, number: u32, details: Box<Details>) {
        self.place.with(|events| {
            if events.range(number).is_some() {
                events.details.push((number, details));
            }
        });
    }

    #[inline]
    fn close(&mut self, number: u32) {
        let end_ns = self.clock.now();
        // Nearly always the last one; parts that a program names may end in any order.
        if self.open.last() == Some(&number) {
            self.open.pop();
        } else if let Some(at) = self.open.iter().position(|&open| open == number) {
            self.open.remove(at);
        } else {
            return;
        }
        let recorder = &*self.recorder;
        if recorder.options.nvtx {
            nvtx_pop();
        }
        self.place.with(move |events| {
            if let Some(range) = events.range(number)
                && recorder.wants(range.start_ns)
            {
                range.end_ns = end_ns;
            }
        });
    }

    fn begin_launch(
        &mut self,
        key: Key<'_>,
        make: &dyn Fn(bool) -> (Kind, Args),
        stream: Option<&Stream>,
    ) -> Begun {
        let (recorder, range) = (&*self.recorder, self.innermost());
        let options = &recorder.options;
        let of_gpu = stream.filter(|stream| matches!(stream.queue(), Queue::Cuda(_)));
        let (is_gpu, times) = (of_gpu.is_some(), options.device_times);
        let (found, is_due) = self.place.with(|events| {
            let found = events.kinds.find(key, &|| make(options.work));
            (found, is_gpu && events.kinds.is_due(found, times))
        });
        let (start_ns, timing) = match of_gpu {
            Some(stream) if is_due => self.begin_timing(stream, found),
            _ => (self.clock.now(), None),
        };
        let stream = stream.map_or(0, Stream::id) as u32;
        let record = LaunchRecord { start_ns, end_ns: 0, range, kind: found.number, stream };
        Begun { record, timing }
    }

    /// Marks where a launch begins on its stream.
    #[cold]
    fn begin_timing(&mut self, stream: &Stream, found: Found) -> (u64, Option<Box<Timing>>) {
        let recorder = &*self.recorder;
        recorder.gpu.set_clock_once(stream, || recorder.now());
        let start_ns = self.clock.now();
        let timing = Timing::begin(stream).map(Box::new);
        if timing.is_some() {
            self.place.with(|events| events.kinds.set_timed(found));
        }
        (start_ns, timing)
    }

    #[inline]
    fn end_launch(&mut self, begun: Begun, is_done: bool) {
        let Begun { mut record, timing } = begun;
        if let Some(timing) = timing {
            return self.end_timed(record, *timing, is_done);
        }
        record.end_ns = self.clock.now();
        if is_done {
            self.write(record.start_ns, move |events| events.launches.push(record));
        }
    }

    /// Ends a launch, and marks where it ends on its stream.
    #[cold]
    fn end_timed(&mut self, mut record: LaunchRecord, timing: Timing, is_done: bool) {
        let timed = timing.end();
        record.end_ns = self.clock.now();
        if !is_done {
            return;
        }
        let (recorder, lane) = (self.recorder.clone(), self.thread);
        let LaunchRecord { stream, start_ns, .. } = record;
        self.write(start_ns, |events| {
            let index = events.launches.len() as u32;
            events.launches.push(record);
            // Before the events may be taken, for a place is one of those until then.
            if let Some(marks) = timed {
                recorder.gpu.add(Unread { lane, index, stream, start_ns, marks });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::{Options, Session, Trace, range};

    fn names(trace: &Trace) -> Vec<(&str, u64, u64)> {
        trace.ranges.iter().map(|range| (&*range.name, range.id, range.parent)).collect()
    }

    #[test]
    fn ranges_keep_their_numbers_from_window_to_window() {
        let session = Session::start(Options::default()).unwrap();
        session.set_recording(true);
        let outer = range("outer");
        drop(range("inner".to_owned()));
        // What is under way at the end of a window is of none.
        assert_eq!(names(&session.take()), [("inner", 2, 1)]);
        let again = range("again");
        drop(outer);
        let last = range("last");
        drop(again);
        drop(last);
        assert_eq!(names(&session.take()), [("again", 3, 1), ("last", 4, 3)]);
    }

    #[test]
    fn ranges_that_find_no_room_are_counted() {
        let session = Session::start(Options { max_events: 2, ..Options::default() }).unwrap();
        session.set_recording(true);
        for _ in 0..2 {
            ["a", "b", "c", "d"].into_iter().for_each(|name| drop(range(name)));
            let trace = session.take();
            assert_eq!((trace.ranges.len(), trace.dropped), (2, 2));
        }
    }
}
