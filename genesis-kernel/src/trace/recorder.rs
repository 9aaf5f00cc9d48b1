//! The recorder of a session: what its threads share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use super::gpu::Gpu;
use super::log::Events;
use super::options::Options;
use crate::runtime::HostClock;

/// Events that a thread gets room for at once, where there are others.
const ROOM: usize = 256;

/// A session.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Its number, to tell the ranges of sessions apart; from 1, of 16 bits.
    pub(super) number: u64,
    pub(super) options: Options,
    pub(super) gpu: Gpu,
    pub(super) began: Instant,
    pub(super) is_recording: AtomicBool,
    /// When the recording began: events from before it are not of it.
    pub(super) start_ns: AtomicU64,
    /// Events for which there is room yet.
    pub(super) room: AtomicUsize,
    pub(super) threads: Mutex<Vec<Thread>>,
}

/// A thread that is recorded.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) name: String,
    /// Its events, where they are not in its own lane.
    pub(super) events: Option<Arc<Mutex<Events>>>,
}

static SESSIONS: AtomicU64 = AtomicU64::new(0);

pub(super) static EVERYONE: RwLock<Option<Arc<Recorder>>> = RwLock::new(None);

/// The recorder of all threads.
pub(super) fn of_everyone() -> Option<Arc<Recorder>> {
    EVERYONE.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Recorder {
    pub(super) fn new(options: Options) -> Recorder {
        Recorder {
            number: SESSIONS.fetch_add(1, Ordering::Relaxed) % 0xffff + 1,
            gpu: Gpu::default(),
            began: Instant::now(),
            is_recording: AtomicBool::new(false),
            start_ns: AtomicU64::new(0),
            room: AtomicUsize::new(options.max_events),
            threads: Mutex::default(),
            options,
        }
    }

    pub(super) fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the session began.
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// A thread's own clock of the same time.
    pub(super) fn clock(&self) -> HostClock {
        HostClock::new(self.began)
    }

    /// Whether events are recorded now.
    #[inline]
    pub(super) fn is_recording(&self) -> bool {
        self.is_recording.load(Ordering::Relaxed)
    }

    /// Whether an event that began then is of the recording.
    #[inline]
    pub(super) fn wants(&self, start_ns: u64) -> bool {
        self.is_recording() && start_ns >= self.start_ns.load(Ordering::Relaxed)
    }

    /// Room for more events of a thread; 0 if there is none.
    pub(super) fn more_room(&self) -> usize {
        let each = if self.options.all_threads { ROOM } else { usize::MAX };
        let less = |room: usize| Some(room.saturating_sub(each));
        let before = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or(0).min(each)
    }

    /// The number of this thread, which is new.
    pub(super) fn add_thread(&self) -> u32 {
        self.add(None)
    }

    /// The same, of a thread whose events are there.
    pub(super) fn add_lane(&self, events: &Arc<Mutex<Events>>) -> u32 {
        self.add(Some(events.clone()))
    }

    fn add(&self, events: Option<Arc<Mutex<Events>>>) -> u32 {
        let mut threads = self.threads();
        let number = threads.len();
        let name = std::thread::current().name().map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("thread {number}"));
        threads.push(Thread { name, events });
        number as u32
    }
}
