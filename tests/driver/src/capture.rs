//! Captures and graphs.
//!
//! A graph is kept as what each stream was given, with the waits between them, and is replayed as streams
//! are run: each piece of work as late as its waits allow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::ThreadId;

use cudarc::driver::sys::{CUresult, CUstreamCaptureMode};

use crate::driver::{Answer, Driver, execute};
use crate::stream::Work;

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The stream where it began.
    pub(crate) origin: u64,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    /// What each stream was given.
    lanes: BTreeMap<u64, Vec<Work>>,
    pub(crate) is_broken: bool,
}

/// What was captured.
#[derive(Debug)]
pub(crate) struct Graph {
    origin: u64,
    lanes: BTreeMap<u64, Vec<Work>>,
}

impl Graph {
    /// Does all of it.
    pub(crate) fn run(&self, device: u32) {
        let done = RefCell::new(BTreeMap::new());
        self.lane(device, self.origin, usize::MAX, &done);
    }

    fn lane(&self, device: u32, stream: u64, upto: usize, done: &RefCell<BTreeMap<u64, usize>>) {
        let work = self.lanes.get(&stream).map_or(&[][..], Vec::as_slice);
        loop {
            let next = done.borrow().get(&stream).copied().unwrap_or(0);
            let Some(work) = work.get(next).filter(|_| next < upto) else { return };
            execute(device, work, &|other, upto| self.lane(device, other, upto as usize, done));
            done.borrow_mut().insert(stream, next + 1);
        }
    }

    /// Whether the end of the stream where it began comes after everything.
    fn is_joined(&self) -> bool {
        let mut known = BTreeMap::from([(self.origin, usize::MAX)]);
        // What a stream waits for, and what that waited for.
        let mut open = vec![(self.origin, usize::MAX)];
        while let Some((stream, upto)) = open.pop() {
            for work in self.lanes.get(&stream).into_iter().flatten().take(upto) {
                if let Work::Wait { stream, upto } = work {
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
        self.lanes.values().flatten().map(std::mem::discriminant).collect()
    }

    /// Pieces of work, waits not counted.
    pub(crate) fn nodes(&self) -> usize {
        let is_node = |work: &&Work| !matches!(work, Work::Wait { .. });
        self.lanes.values().flatten().filter(is_node).count()
    }
}

impl Driver {
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: CUstreamCaptureMode) -> Answer<()> {
        let origin = self.stream(stream)?;
        if stream <= 2 {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_capturing(origin)?;
        let thread = std::thread::current().id();
        let lanes = BTreeMap::from([(origin, Vec::new())]);
        let capture = self.handle();
        self.captures.insert(capture, Capture { origin, mode, thread, lanes, is_broken: false });
        if let Some(stream) = self.streams.get_mut(&origin) {
            stream.capture = Some(capture);
        }
        Ok(())
    }

    pub(crate) fn end_capture(&mut self, stream: u64) -> Answer<Graph> {
        let stream = self.stream(stream)?;
        let handle = self.streams[&stream].capture;
        let handle = handle.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if self.captures.get(&handle).is_none_or(|capture| capture.origin != stream) {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let Some(capture) = self.captures.remove(&handle) else {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        };
        for stream in self.streams.values_mut().filter(|s| s.capture == Some(handle)) {
            stream.capture = None;
        }
        if capture.is_broken {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let graph = Graph { origin: stream, lanes: capture.lanes };
        match graph.is_joined() {
            true => Ok(graph),
            false => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
        }
    }

    /// The lane of a stream in a capture that is whole.
    fn lane(&mut self, capture: u64, stream: u64) -> Answer<&mut Vec<Work>> {
        let capture = self.captures.get_mut(&capture).filter(|capture| !capture.is_broken);
        let capture = capture.ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        Ok(capture.lanes.entry(stream).or_default())
    }

    pub(crate) fn record(&mut self, capture: u64, stream: u64, work: Work) -> Answer<()> {
        if let Work::CopyIn { .. } = work {
            eprintln!("virtual GPU: a graph that copies from pageable memory is not run");
            return self.refuse_capturing(stream);
        }
        self.lane(capture, stream)?.push(work);
        Ok(())
    }

    /// How much a stream was given.
    pub(crate) fn captured(&mut self, capture: u64, stream: u64) -> Answer<usize> {
        self.lane(capture, stream).map(|lane| lane.len())
    }

    /// A stream waits for what was captured, and is captured from then on.
    pub(crate) fn join(
        &mut self,
        capture: u64,
        stream: u64,
        from: u64,
        count: usize,
    ) -> Answer<()> {
        match self.streams[&stream].capture {
            Some(own) if own != capture => {
                self.break_capture(own);
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            _ if !self.captures.contains_key(&capture) => {
                return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
            }
            _ => {}
        }
        self.lane(capture, stream)?.push(Work::Wait { stream: from, upto: count as u64 });
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.capture = Some(capture);
        }
        Ok(())
    }

    /// A capture waits for what is not in it.
    pub(crate) fn isolated(&mut self, capture: u64) -> Answer<()> {
        self.break_capture(capture);
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
    }

    fn break_capture(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_broken = true;
        }
    }

    /// What can't be done with a stream while it is captured.
    pub(crate) fn refuse_capturing(&mut self, stream: u64) -> Answer<()> {
        match self.streams.get(&stream).and_then(|stream| stream.capture) {
            None => Ok(()),
            Some(capture) => {
                self.break_capture(capture);
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// What captures of most modes do not allow, such as allocating.
    pub(crate) fn refuse_unsafe(&mut self) -> Answer<()> {
        let thread = std::thread::current().id();
        let forbids = |capture: &Capture| match capture.mode {
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL => true,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => capture.thread == thread,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => false,
        };
        match self.captures.values_mut().find(|capture| forbids(capture)) {
            None => Ok(()),
            Some(capture) => {
                capture.is_broken = true;
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    pub(crate) fn add_graph(&mut self, graph: Graph) -> u64 {
        let handle = self.handle();
        self.graphs.insert(handle, Arc::new(graph));
        handle
    }
}
