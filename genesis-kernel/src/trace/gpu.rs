//! When GPUs ran what was launched: marks in their streams, read when they have long passed.
//!
//! A GPU's clock is brought together with the host's once, by a wait, and again by each so many launches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::runtime::cuda::Mark;
use crate::runtime::{Device, Queue, Stream};

/// Launches whose times are not read yet, from which on those that are over are read.
const UNREAD: usize = 1 << 10;

/// Launches after which times are counted from a new mark: the driver's times since a mark are of 24 bits.
const RENEWED: u32 = 512;

/// Marks that are made before the first launch is timed.
const PREPARED: usize = 64;

/// The times of a session.
#[derive(Debug, Default)]
pub(super) struct Gpu(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    clocks: Vec<Clock>,
    unread: VecDeque<Unread>,
    measured: Vec<Measured>,
}

/// A launch under way, and the mark before it.
#[derive(Debug)]
pub(super) struct Timing {
    stream: Stream,
    start: Mark,
}

/// A launch whose times are still to be read.
#[derive(Debug)]
pub(super) struct Unread {
    /// The number of its thread.
    pub(super) lane: u32,
    /// Its number among the launches of the thread.
    pub(super) index: u32,
    pub(super) stream: u32,
    /// When the host began to launch it.
    pub(super) start_ns: u64,
    pub(super) marks: (Device, Mark, Mark),
}

/// A launch that was timed.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) lane: u32,
    pub(super) index: u32,
    /// When it began and ended.
    pub(super) ns: [u64; 2],
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
    last_ends: BTreeMap<u32, u64>,
}

impl Timing {
    /// Marks the point before a launch; none where that can't be.
    pub(super) fn begin(stream: &Stream) -> Option<Timing> {
        Some(Timing { start: mark(stream)?, stream: stream.clone() })
    }

    /// Marks the point after it.
    pub(super) fn end(self) -> Option<(Device, Mark, Mark)> {
        Some((self.stream.device(), self.start, mark(&self.stream)?))
    }
}

fn mark(stream: &Stream) -> Option<Mark> {
    match stream.queue() {
        Queue::Cuda(stream) => stream.device().mark(stream.raw()),
        Queue::Cpu | Queue::Missing(..) => None,
    }
}

impl Gpu {
    fn lock(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the time of a stream's GPU and the host's together, where that was not done yet; waits for
    /// the GPU.
    pub(super) fn set_clock_once(&self, stream: &Stream, now: impl Fn() -> u64) {
        let device = stream.device();
        if self.lock().clocks.iter().any(|clock| clock.device == device) {
            return;
        }
        if let Some((mark, ns)) = point(stream, now) {
            let last_ends = BTreeMap::new();
            self.lock().clocks.push(Clock { device, mark, ns, reads: 0, last_ends });
        }
    }

    /// Takes a launch whose times are to be read.
    pub(super) fn add(&self, unread: Unread) {
        let mut times = self.lock();
        times.unread.push_back(unread);
        if times.unread.len() > UNREAD {
            times.read_past();
        }
    }

    /// Waits for all launches and gives their times.
    pub(super) fn take(&self) -> Vec<Measured> {
        let mut times = self.lock();
        if let Some(last) = times.unread.back() {
            last.marks.2.wait();
        }
        while !times.unread.is_empty() {
            times.read_first();
        }
        std::mem::take(&mut times.measured)
    }
}

/// A mark that the GPU reaches at a time of the host.
fn point(stream: &Stream, now: impl Fn() -> u64) -> Option<(Mark, f64)> {
    let Queue::Cuda(queue) = stream.queue() else { return None };
    queue.device().prepare_marks(PREPARED);
    queue.synchronize().ok()?;
    let before = now();
    let mark = mark(stream)?;
    let after = if mark.wait() { now() } else { return None };
    Some((mark, (before + after) as f64 / 2.0))
}

impl Times {
    /// Reads the times of launches that are over.
    fn read_past(&mut self) {
        while self.unread.front().is_some_and(|unread| unread.marks.2.is_reached()) {
            self.read_first();
        }
    }

    fn read_first(&mut self) {
        let Some(Unread { lane, index, stream, start_ns, marks }) = self.unread.pop_front() else {
            return;
        };
        let (device, start, end) = marks;
        let Some(clock) = self.clocks.iter_mut().find(|clock| clock.device == device) else {
            return;
        };
        end.wait();
        let (Some(since), Some(length)) = (start.nanos_since(&clock.mark), end.nanos_since(&start))
        else {
            return;
        };
        let begin = clock.ns + since;
        // The two clocks agree to some microseconds only: a kernel never begins before its launch.
        // Kernels of one stream follow each other.
        let last_end = clock.last_ends.entry(stream).or_default();
        let begin_ns = (begin.max(0.0) as u64).max(start_ns).max(*last_end);
        *last_end = begin_ns + length.max(0.0) as u64;
        self.measured.push(Measured { lane, index, ns: [begin_ns, *last_end] });
        clock.reads += 1;
        if clock.reads == RENEWED {
            (clock.mark, clock.ns, clock.reads) = (end, begin + length, 0);
        }
    }
}
