//! The recorder of a session: what hooks write into.
//!
//! A thread's recorder stands in a thread-local, that of all threads in a static. Events are pushed when
//! they end, so that one lock is taken twice for each and held for a moment.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use super::cost::Costs;
use super::event::{Kernel, Launch, Memory, Range, RangeKind, Trace, Transfer, TransferKind};
use super::session::Options;
use crate::kernel::{Hints, KernelDef};
use crate::launch as way;
use crate::runtime::cuda::Mark;
use crate::runtime::{Device, MemoryEvent, MemoryEventKind, Queue, Stream, nvtx_pop, nvtx_push};

/// Launches whose times are not read yet, from which on those that are over are read.
const UNREAD: usize = 1 << 10;

/// Launches after which times are counted from a new mark: the driver's times since a mark are of 24 bits.
const RENEWED: u32 = 512;

/// A session's events so far.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: Instant,
    pub(super) options: Options,
    is_recording: AtomicBool,
    last_id: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    trace: Trace,
    costs: Costs,
    threads: Vec<std::thread::ThreadId>,
    clocks: Vec<Clock>,
    unread: VecDeque<Unread>,
}

/// A launch on a GPU whose times are still to be read.
#[derive(Debug)]
struct Unread {
    /// Its number in the trace.
    index: usize,
    clock: usize,
    start: Mark,
    end: Mark,
}

/// A point of a GPU's time that is known in the host's.
#[derive(Debug)]
struct Clock {
    device: Device,
    mark: Mark,
    ns: f64,
    /// Launches read since.
    reads: u32,
    /// When the last kernel that was read ended, by stream.
    last_ends: BTreeMap<u64, u64>,
}

/// A range under way.
#[derive(Debug)]
pub(super) struct Open {
    range: Option<Range>,
}

/// A launch under way.
#[derive(Debug)]
pub(super) struct Begun {
    launch: Launch,
    start: Option<(&'static str, Mark)>,
    stream: Option<Stream>,
}

/// Where the work of a launch is known from.
pub(super) enum Cost<'c> {
    Known(Kernel),
    Counted {
        def: &'c KernelDef,
        code: usize,
        launch: &'c way::Launch<'c>,
        hints: &'c dyn Fn() -> Hints,
    },
}

thread_local! {
    static OWN: RefCell<Option<Arc<Recorder>>> = const { RefCell::new(None) };
    /// The innermost range of this thread.
    static INNERMOST: Cell<u64> = const { Cell::new(0) };
}

static EVERYONE: RwLock<Option<Arc<Recorder>>> = RwLock::new(None);

/// The recorder that this thread's events go to.
pub(super) fn current() -> Option<Arc<Recorder>> {
    // A thread that ends may drop things after its locals.
    let own = OWN.try_with(|own| own.borrow().clone()).ok().flatten();
    own.or_else(|| EVERYONE.read().unwrap_or_else(PoisonError::into_inner).clone())
        .filter(|recorder| recorder.is_recording.load(Ordering::Relaxed))
}

/// Puts a recorder in its place; false if there is one already.
pub(super) fn install(recorder: &Arc<Recorder>) -> bool {
    if OWN.with_borrow(Option::is_some) {
        return false;
    }
    if !recorder.options.all_threads {
        OWN.set(Some(recorder.clone()));
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
pub(super) fn remove(recorder: &Arc<Recorder>) {
    if recorder.options.all_threads {
        *EVERYONE.write().unwrap_or_else(PoisonError::into_inner) = None;
    } else {
        OWN.set(None);
    }
}

impl Recorder {
    pub(super) fn new(options: Options) -> Recorder {
        Recorder {
            began: Instant::now(),
            options,
            is_recording: AtomicBool::new(false),
            last_id: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the session began.
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Begins to record, or stops.
    pub(super) fn set_recording(&self, on: bool) {
        let now = self.now();
        if on && !self.is_recording.load(Ordering::Relaxed) {
            self.lock().trace.start_ns = now;
        }
        self.is_recording.store(on, Ordering::Relaxed);
    }

    /// What was recorded; nothing of it is left.
    pub(super) fn take(&self) -> Trace {
        let end_ns = self.now();
        let mut state = self.lock();
        state.read_all();
        let threads = state.trace.threads.clone();
        let fresh = Trace { start_ns: end_ns, threads, ..Trace::default() };
        Trace { end_ns, ..std::mem::replace(&mut state.trace, fresh) }
    }

    /// Brings a GPU's time and the host's together; waits for the GPU.
    pub(super) fn set_clock(&self, stream: &Stream) {
        if let Some((mark, ns)) = self.point(stream) {
            self.lock().add_clock(stream.device(), mark, ns);
        }
    }

    fn point(&self, stream: &Stream) -> Option<(Mark, f64)> {
        let Queue::Cuda(queue) = stream.queue() else { return None };
        queue.synchronize().ok()?;
        let before = self.now();
        let mark = mark(stream)?;
        let ns = (before + if mark.wait() { self.now() } else { return None }) as f64 / 2.0;
        Some((mark, ns))
    }

    pub(super) fn open(
        &self,
        kind: RangeKind,
        name: Cow<'static, str>,
        inputs: &dyn Fn() -> String,
    ) -> Open {
        let inputs = self.options.shapes.then(inputs).filter(|inputs| !inputs.is_empty());
        let module = self.options.module.and_then(|module| module()).map(Arc::from);
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        if self.options.nvtx {
            nvtx_push(&name);
        }
        let parent = INNERMOST.replace(id);
        let start_ns = self.now();
        let (thread, end_ns) = (0, start_ns);
        let range = Range { id, parent, kind, name, thread, start_ns, end_ns, inputs, module };
        Open { range: Some(range) }
    }

    pub(super) fn close(&self, open: &mut Open) {
        let Some(mut range) = open.range.take() else { return };
        range.end_ns = self.now();
        INNERMOST.set(range.parent);
        if self.options.nvtx {
            nvtx_pop();
        }
        let mut state = self.lock();
        if state.takes(range.start_ns, self) {
            range.thread = state.thread();
            state.trace.ranges.push(range);
        }
    }

    pub(super) fn begin_launch(
        &self,
        kernel: &'static str,
        device: Device,
        grid: [u32; 3],
        cost: Cost<'_>,
        stream: Option<&Stream>,
    ) -> Begun {
        let programs = grid.iter().map(|&n| u64::from(n)).product();
        let mut state = self.lock();
        let work = match cost {
            Cost::Known(work) => work,
            Cost::Counted { .. } if !self.options.work => Kernel::default(),
            Cost::Counted { def, code, launch, hints } => {
                state.costs.count((def, code), launch, programs, hints)
            }
        };
        let knows_clock = state.clocks.iter().any(|clock| clock.device == device);
        drop(state);
        let stream = stream.filter(|_| device.is_cuda() && self.options.device_times);
        if let Some(stream) = stream
            && !knows_clock
        {
            self.set_clock(stream);
        }
        let start_ns = self.now();
        let start = stream.and_then(|stream| Some((kernel, mark(stream)?)));
        let range = INNERMOST.get();
        let launch = Launch {
            kernel,
            range,
            device,
            stream: stream.map_or(0, Stream::id),
            grid,
            thread: 0,
            start_ns,
            end_ns: start_ns,
            gpu_ns: None,
            work,
        };
        Begun { launch, start, stream: stream.cloned() }
    }

    pub(super) fn end_launch(&self, begun: Begun, is_done: bool) {
        let Begun { mut launch, start, stream } = begun;
        let end = start.as_ref().and(stream.as_ref()).and_then(mark);
        launch.end_ns = self.now();
        let mut state = self.lock();
        if !is_done || !state.takes(launch.start_ns, self) {
            return;
        }
        launch.thread = state.thread();
        let clock = state.clocks.iter().position(|clock| clock.device == launch.device);
        let index = state.trace.launches.len();
        state.trace.launches.push(launch);
        if let (Some((_, start)), Some(end), Some(clock)) = (start, end, clock) {
            state.unread.push_back(Unread { index, clock, start, end });
            if state.unread.len() > UNREAD {
                state.read_past();
            }
        }
    }

    /// Memory was handed out or came back.
    pub(super) fn note_memory(&self, event: &MemoryEvent) {
        let change = match event.kind {
            MemoryEventKind::Alloc => event.bytes as i64,
            MemoryEventKind::Free => -(event.bytes as i64),
            MemoryEventKind::Reserve | MemoryEventKind::Release => 0,
            MemoryEventKind::OutOfMemory => return,
        };
        let (device, range, ns) = (event.device, INNERMOST.get(), self.now());
        let (allocated, reserved) = (event.allocated as u64, event.reserved as u64);
        let mut state = self.lock();
        if state.takes(ns, self) {
            state.trace.memory.push(Memory { ns, device, range, change, allocated, reserved });
        }
    }

    pub(super) fn begin_transfer(&self, kind: TransferKind, device: Device, n: usize) -> Transfer {
        let (range, start_ns) = (INNERMOST.get(), self.now());
        Transfer { kind, device, bytes: n as u64, range, thread: 0, start_ns, end_ns: start_ns }
    }

    pub(super) fn end_transfer(&self, mut transfer: Transfer) {
        transfer.end_ns = self.now();
        let mut state = self.lock();
        if state.takes(transfer.start_ns, self) {
            transfer.thread = state.thread();
            state.trace.transfers.push(transfer);
        }
    }
}

fn mark(stream: &Stream) -> Option<Mark> {
    match stream.queue() {
        Queue::Cuda(stream) => stream.device().mark(stream.raw()),
        Queue::Cpu | Queue::Missing(..) => None,
    }
}

impl State {
    /// Whether an event that began then is kept.
    fn takes(&mut self, start_ns: u64, of: &Recorder) -> bool {
        if !of.is_recording.load(Ordering::Relaxed) || start_ns < self.trace.start_ns {
            return false;
        }
        let has_room = self.trace.len() < of.options.max_events;
        self.trace.dropped += u64::from(!has_room);
        has_room
    }

    /// The number of this thread.
    fn thread(&mut self) -> u32 {
        let thread = std::thread::current();
        match self.threads.iter().position(|&id| id == thread.id()) {
            Some(number) => number as u32,
            None => {
                let number = self.threads.len();
                self.threads.push(thread.id());
                let name = thread.name().map_or_else(|| format!("thread {number}"), str::to_owned);
                self.trace.threads.push(name);
                number as u32
            }
        }
    }

    fn add_clock(&mut self, device: Device, mark: Mark, ns: f64) {
        match self.clocks.iter_mut().find(|clock| clock.device == device) {
            Some(known) => (known.mark, known.ns, known.reads) = (mark, ns, 0),
            None => {
                self.clocks.push(Clock { device, mark, ns, reads: 0, last_ends: BTreeMap::new() });
            }
        }
    }

    /// Reads the times of launches that are over.
    fn read_past(&mut self) {
        while self.unread.front().is_some_and(|unread| unread.end.is_reached()) {
            self.read_first();
        }
    }

    /// Waits for all launches and reads their times.
    fn read_all(&mut self) {
        if let Some(last) = self.unread.back() {
            last.end.wait();
        }
        while !self.unread.is_empty() {
            self.read_first();
        }
    }

    fn read_first(&mut self) {
        let Some(Unread { index, clock, start, end }) = self.unread.pop_front() else { return };
        let clock = &mut self.clocks[clock];
        end.wait();
        let (Some(since), Some(length)) = (start.nanos_since(&clock.mark), end.nanos_since(&start))
        else {
            return;
        };
        let begin = clock.ns + since;
        if let Some(launch) = self.trace.launches.get_mut(index) {
            // The two clocks agree to some microseconds only: a kernel never begins before its launch.
            // Kernels of one stream follow each other.
            let last_end = clock.last_ends.entry(launch.stream).or_default();
            let start = (begin.max(0.0) as u64).max(launch.start_ns).max(*last_end);
            *last_end = start + length.max(0.0) as u64;
            launch.gpu_ns = Some([start, *last_end]);
        }
        clock.reads += 1;
        if clock.reads == RENEWED {
            (clock.mark, clock.ns, clock.reads) = (end, begin + length, 0);
        }
    }
}
