//! What is given to streams: work that waits in a queue, that a capture takes, and that a graph replays.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;
use std::thread::ThreadId;

use cudarc::driver::sys::CUstreamCaptureMode;
use genesis_emulator::RawLaunch;

use crate::clock;
use crate::code::Code;

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Kernel(Arc<Code>, Arc<RawLaunch>),
    /// `count` times the pattern.
    Fill {
        to: u64,
        pattern: Vec<u8>,
        count: usize,
    },
    /// Bytes of pageable memory, copied aside.
    CopyIn {
        to: u64,
        bytes: Arc<[u8]>,
    },
    /// Between devices and pinned memory.
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Record {
        event: u64,
        version: u64,
    },
    /// Until another stream has done as much.
    Wait {
        stream: u64,
        upto: u64,
    },
    /// A function of the host.
    Call {
        function: unsafe extern "C" fn(*mut c_void),
        data: u64,
    },
    Graph(Arc<Graph>),
}

/// A piece of work with what the virtual clock needs of it.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) work: Work,
    /// When the host gave it; 0 in a graph.
    pub(crate) issued: u64,
    /// Whether it takes no time.
    pub(crate) is_free: bool,
}

impl Piece {
    /// Work that this thread gives to a stream now.
    pub(crate) fn now(work: Work) -> Piece {
        Piece { work, issued: clock::host(), is_free: clock::is_free() }
    }

    /// Work that this thread gives to a capture.
    pub(crate) fn captured(work: Work) -> Piece {
        Piece { work, issued: 0, is_free: clock::is_free() }
    }
}

/// Where and when a piece of work runs, in ns of the virtual clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) device: u32,
    pub(crate) start: u64,
    /// What a launch takes.
    pub(crate) latency: u64,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: u32,
    /// Whether it waits for the stream that each device has without asking, and that one for it.
    pub(crate) blocks: bool,
    pub(crate) queue: VecDeque<Piece>,
    /// Pieces of work it has had, and has done.
    pub(crate) queued: u64,
    pub(crate) done: u64,
    /// The capture that takes its work.
    pub(crate) capture: Option<u64>,
}

impl Stream {
    pub(crate) fn new(device: u32, blocks: bool) -> Stream {
        Stream { device, blocks, queue: VecDeque::new(), queued: 0, done: 0, capture: None }
    }
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) device: u32,
    pub(crate) is_timed: bool,
    /// How often it was recorded.
    pub(crate) version: u64,
    /// The stream, and its work up to and with the mark.
    pub(crate) mark: Option<(u64, u64)>,
    /// The same in a capture: which one, the stream, and how much of its work.
    pub(crate) captured: Option<(u64, u64, usize)>,
    /// When it was passed, in ns: by the virtual clock, or since the driver was first used.
    pub(crate) time: Option<u64>,
}

impl Event {
    pub(crate) fn new(device: u32, is_timed: bool) -> Event {
        Event { device, is_timed, version: 0, mark: None, captured: None, time: None }
    }
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The stream where it began.
    pub(crate) origin: u64,
    pub(crate) mode: CUstreamCaptureMode,
    pub(crate) thread: ThreadId,
    /// What each stream was given.
    pub(crate) lanes: BTreeMap<u64, Vec<Piece>>,
    pub(crate) is_broken: bool,
}

/// What was captured.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) origin: u64,
    pub(crate) lanes: BTreeMap<u64, Vec<Piece>>,
}

impl Graph {
    /// Whether the end of the stream where it began comes after everything.
    pub(crate) fn is_joined(&self) -> bool {
        let mut known = BTreeMap::from([(self.origin, usize::MAX)]);
        // What a stream waits for, and what that waited for.
        let mut open = vec![(self.origin, usize::MAX)];
        while let Some((stream, upto)) = open.pop() {
            for piece in self.lanes.get(&stream).into_iter().flatten().take(upto) {
                if let Work::Wait { stream, upto } = &piece.work {
                    let upto = *upto as usize;
                    let before = known.entry(*stream).or_insert(0);
                    if *before < upto {
                        *before = upto;
                        open.push((*stream, upto));
                    }
                }
            }
        }
        self.lanes.iter().all(|(stream, work)| known.get(stream).is_some_and(|&n| n >= work.len()))
    }

    /// Kinds of work in order, for comparing with another graph.
    pub(crate) fn shape(&self) -> Vec<std::mem::Discriminant<Work>> {
        self.lanes.values().flatten().map(|piece| std::mem::discriminant(&piece.work)).collect()
    }

    /// Pieces of work, waits not counted.
    pub(crate) fn nodes(&self) -> usize {
        let is_node = |piece: &&Piece| !matches!(piece.work, Work::Wait { .. });
        self.lanes.values().flatten().filter(is_node).count()
    }
}
