//! A thread's part of a recording: what hooks write into.
//!
//! A lane stands in a thread-local, and the session of one thread owns its lane's events there: to write
//! one down takes no lock and no memory but the record's own 32 to 72 bytes. Where a session records all
//! threads, each thread's events stand behind a lock of their own, which only the session's end contends.
//!
//! ```text
//! thread-local: Lane { open: [step, backward, matmul backward], events: ranges 72 B, launches 32 B, .. }
//! ```

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use super::event::{Memory, RangeKind, Transfer, TransferKind};
use super::gpu::{Timing, Unread};
use super::kinds::{Args, Key, Kind, Kinds};
use super::record::{self, Recorder};
use crate::runtime::{
    Device, HostClock, MemoryEvent, MemoryEventKind, Stream, nvtx_pop, nvtx_push,
};

/// Records for which a session's own thread has memory before it begins: those of some thousand steps of a
/// small model. A page that is touched for the first time costs as much as many records, on a machine
/// that is shared.
const PREPARED: usize = 1 << 16;

/// A range's number has its thread from this bit on.
const THREAD_SHIFT: u32 = 32;

/// What a scope holds of its range has the session from this bit on.
const SESSION_SHIFT: u32 = 48;

/// A range, under way or over.
#[derive(Clone, Debug)]
pub(super) struct RangeRecord {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) kind: RangeKind,
    /// Its name, if that is not in the details.
    pub(super) name: &'static str,
    pub(super) start_ns: u64,
    /// 0 while it is under way.
    pub(super) end_ns: u64,
    pub(super) details: Option<Box<Details>>,
}

/// A range under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    /// The window that it began in, and its place there.
    window: u32,
    index: u32,
}

/// What most ranges have not.
#[derive(Clone, Debug)]
pub(super) struct Details {
    /// A name that the program made.
    pub(super) name: Option<String>,
    pub(super) inputs: Option<String>,
    pub(super) module: Option<Arc<str>>,
}

/// A launch that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchRecord {
    pub(super) range: u64,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) kind: u32,
    pub(super) stream: u32,
}

/// A thread's events.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) ranges: Vec<RangeRecord>,
    pub(super) launches: Vec<LaunchRecord>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) memory: Vec<Memory>,
    pub(super) kinds: Kinds,
    pub(super) dropped: u64,
    /// Events for which the session gave room.
    pub(super) room: usize,
    /// How often the events were taken.
    pub(super) window: u32,
}

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
    number: u32,
    place: Place,
    /// The ranges under way, from the outside in.
    open: Vec<Open>,
    last_id: u64,
    clock: HostClock,
}

/// A launch under way.
#[derive(Debug)]
pub(super) struct Begun {
    range: u64,
    start_ns: u64,
    kind: u32,
    stream: u32,
    timing: Option<Box<Timing>>,
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
    let recorder = record::of_everyone().filter(|recorder| recorder.is_recording())?;
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
pub(super) fn open(kind: RangeKind, name: Cow<'static, str>, inputs: &dyn Fn() -> String) -> u64 {
    let open = |lane: &mut Lane| lane.open(kind, name, inputs) | lane.session();
    with(open).unwrap_or(0)
}

/// Ends a range, also while the session pauses.
pub(super) fn close(token: u64) {
    let _ = LANE.try_with(|lane| {
        if let Ok(mut lane) = lane.try_borrow_mut()
            && let Some(lane) = lane.as_mut()
            && token >> SESSION_SHIFT << SESSION_SHIFT == lane.session()
        {
            lane.close(token ^ lane.session());
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
        let (range, start_ns) = (lane.innermost(), lane.clock.now());
        let (bytes, thread) = (n as u64, lane.number);
        Transfer { kind, device, bytes, range, thread, start_ns, end_ns: start_ns }
    })
}

/// Ends a copy or a wait.
pub(super) fn end_transfer(mut transfer: Transfer) {
    with(|lane| {
        transfer.end_ns = lane.clock.now();
        lane.write(transfer.start_ns, |events, _| events.transfers.push(transfer));
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
        let (device, range, ns) = (event.device, lane.innermost(), lane.clock.now());
        let (allocated, reserved) = (event.allocated as u64, event.reserved as u64);
        let memory = Memory { ns, device, range, change, allocated, reserved };
        lane.write(ns, |events, _| events.memory.push(memory));
    });
}

impl Place {
    #[inline]
    fn with<T>(&mut self, f: impl FnOnce(&mut Events) -> T) -> T {
        match self {
            Place::Own(events) => f(events),
            Place::Shared(events) => f(&mut events.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

impl Events {
    /// None yet, with memory that was touched: the first steps of a program pay no page faults.
    fn prepared() -> Events {
        let mut events = Events::default();
        let (kind, name) = (RangeKind::User, "");
        let range =
            RangeRecord { id: 0, parent: 0, kind, name, start_ns: 0, end_ns: 0, details: None };
        events.ranges.resize(PREPARED, range);
        let launch = LaunchRecord { range: 0, start_ns: 0, end_ns: 0, kind: 0, stream: 0 };
        events.launches.resize(PREPARED, launch);
        events.ranges.clear();
        events.launches.clear();
        events
    }

    /// Whether there is room for one more.
    fn has_room(&mut self, of: &Recorder) -> bool {
        if self.room == 0 {
            self.room = of.more_room();
        }
        let has_room = self.room > 0;
        self.room -= usize::from(has_room);
        self.dropped += u64::from(!has_room);
        has_room
    }
}

impl Lane {
    fn new(recorder: Arc<Recorder>, number: u32, place: Place) -> Lane {
        // No two threads have a range of one number.
        let last_id = u64::from(number) << THREAD_SHIFT;
        let clock = recorder.clock();
        Lane { recorder, number, place, open: Vec::with_capacity(32), last_id, clock }
    }

    fn session(&self) -> u64 {
        self.recorder.number << SESSION_SHIFT
    }

    fn innermost(&self) -> u64 {
        self.open.last().map_or(0, |range| range.id)
    }

    /// Keeps an event that began then, if the session still wants it.
    #[inline]
    fn write(&mut self, start_ns: u64, put: impl FnOnce(&mut Events, &Recorder)) {
        let recorder = &*self.recorder;
        if recorder.wants(start_ns) {
            self.place.with(|events| {
                if events.has_room(recorder) {
                    put(events, recorder);
                }
            });
        }
    }

    fn open(
        &mut self,
        kind: RangeKind,
        name: Cow<'static, str>,
        inputs: &dyn Fn() -> String,
    ) -> u64 {
        let options = &self.recorder.options;
        if options.nvtx {
            nvtx_push(&name);
        }
        let (name, made) = match name {
            Cow::Borrowed(name) => (name, None),
            Cow::Owned(name) => ("", Some(name)),
        };
        let has_details = options.shapes || options.module.is_some() || made.is_some();
        let details = has_details.then(|| {
            let inputs = options.shapes.then(inputs).filter(|inputs| !inputs.is_empty());
            let module = options.module.and_then(|module| module()).map(Arc::from);
            Box::new(Details { name: made, inputs, module })
        });
        let parent = self.innermost();
        self.last_id += 1;
        let (id, start_ns) = (self.last_id, self.clock.now());
        let recorder = &*self.recorder;
        let (window, index) = self.place.with(|events| {
            let index = events.ranges.len();
            if events.has_room(recorder) {
                let end_ns = 0;
                events.ranges.push(RangeRecord {
                    id,
                    parent,
                    kind,
                    name,
                    start_ns,
                    end_ns,
                    details,
                });
            }
            (events.window, index as u32)
        });
        self.open.push(Open { id, window, index });
        id
    }

    fn close(&mut self, id: u64) {
        // Nearly always the last one; parts that a program names may end in any order.
        let end_ns = self.clock.now();
        let open = match self.open.last() {
            Some(open) if open.id == id => self.open.pop(),
            _ => self.open.iter().position(|open| open.id == id).map(|at| self.open.remove(at)),
        };
        let Some(open) = open else { return };
        if self.recorder.options.nvtx {
            nvtx_pop();
        }
        let recorder = &*self.recorder;
        self.place.with(|events| {
            let is_same_window = events.window == open.window;
            let range = events.ranges.get_mut(open.index as usize).filter(|_| is_same_window);
            if let Some(range) = range.filter(|range| range.id == id)
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
        let gpu = stream.filter(|stream| stream.device().is_cuda());
        let (kind, is_due) = self.place.with(|events| {
            let kind = events.kinds.find(key, &|| make(options.work));
            (kind, gpu.is_some() && events.kinds.is_due(kind, options.device_times))
        });
        if let Some(stream) = gpu.filter(|_| is_due) {
            recorder.gpu.set_clock_once(stream, || recorder.now());
        }
        let start_ns = self.clock.now();
        let timing = gpu.filter(|_| is_due).and_then(Timing::begin).map(Box::new);
        if timing.is_some() {
            self.place.with(|events| events.kinds.set_timed(kind));
        }
        Begun { range, start_ns, kind, stream: stream.map_or(0, Stream::id) as u32, timing }
    }

    fn end_launch(&mut self, begun: Begun, is_done: bool) {
        let Begun { range, start_ns, kind, stream, timing } = begun;
        let timed = timing.and_then(|timing| timing.end());
        let (end_ns, lane) = (self.clock.now(), self.number);
        if !is_done {
            return;
        }
        self.write(start_ns, |events, recorder| {
            let index = events.launches.len() as u32;
            events.launches.push(LaunchRecord { range, start_ns, end_ns, kind, stream });
            if let Some(marks) = timed {
                recorder.gpu.add(Unread { lane, index, stream, start_ns, marks });
            }
        });
    }
}
