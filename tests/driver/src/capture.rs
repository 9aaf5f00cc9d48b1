//! Captures and graphs.
//!
//! A graph is kept as what each stream was given, with the waits between them, and is replayed as streams
//! are run: each piece of work as late as its waits allow.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::sys::{CUresult, CUstreamCaptureMode};

use crate::answer::Answer;
use crate::driver::Driver;
use crate::work::{Capture, Graph, Piece, Work};

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
    fn lane(&mut self, capture: u64, stream: u64) -> Answer<&mut Vec<Piece>> {
        let capture = self.captures.get_mut(&capture).filter(|capture| !capture.is_broken);
        let capture = capture.ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        Ok(capture.lanes.entry(stream).or_default())
    }

    pub(crate) fn record(&mut self, capture: u64, stream: u64, work: Work) -> Answer<()> {
        if let Work::CopyIn { .. } = work {
            eprintln!("virtual GPU: a graph that copies from pageable memory is not run");
            return self.refuse_capturing(stream);
        }
        self.lane(capture, stream)?.push(Piece::captured(work));
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
        let wait = Work::Wait { stream: from, upto: count as u64 };
        self.lane(capture, stream)?.push(Piece::captured(wait));
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
