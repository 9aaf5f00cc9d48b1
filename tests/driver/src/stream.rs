//! Streams, events, and what is queued.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use genesis_kernel::emulate::RawLaunch;

use crate::capture::Graph;
use crate::code::Code;
use crate::driver::{Answer, Driver, OPTIONS, finish, lock};

/// Work that waits in a stream; a driver that has more waits as well.
const MOST_QUEUED: usize = 1024;

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

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: u32,
    /// Whether it waits for the stream that each device has without asking, and that one for it.
    pub(crate) blocks: bool,
    pub(crate) queue: VecDeque<Work>,
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
    pub(crate) time: Option<Instant>,
}

impl Event {
    pub(crate) fn new(device: u32, is_timed: bool) -> Event {
        Event { device, is_timed, version: 0, mark: None, captured: None, time: None }
    }
}

/// Gives work to a stream, or to the capture that takes it.
pub(crate) fn enqueue(handle: u64, work: Work) -> Answer<()> {
    let oldest = {
        let mut driver = lock();
        let stream = driver.stream(handle)?;
        if let Some(capture) = driver.streams[&stream].capture {
            return driver.record(capture, stream, work);
        }
        driver.meet_default(stream);
        driver.push(stream, work);
        let of = &driver.streams[&stream];
        (of.queue.len() > MOST_QUEUED).then(|| (stream, of.queued - MOST_QUEUED as u64 / 2))
    };
    if let Some((stream, upto)) = oldest {
        finish(stream, upto);
    }
    Ok(())
}

/// Waits for all of a stream.
pub(crate) fn synchronize(handle: u64) -> Answer<()> {
    let (stream, upto, device) = {
        let mut driver = lock();
        let stream = driver.stream(handle)?;
        driver.refuse_capturing(stream)?;
        driver.meet_default(stream);
        let of = &driver.streams[&stream];
        (stream, of.queued, of.device)
    };
    finish(stream, upto);
    lock().alive(device)
}

impl Driver {
    fn push(&mut self, stream: u64, work: Work) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.push_back(work);
            stream.queued += 1;
        }
    }

    /// Work of the stream that a device has without asking comes after all that its other streams were
    /// given before, and theirs after its, but for streams that were made not to.
    fn meet_default(&mut self, stream: u64) {
        let is_default = stream <= u64::from(OPTIONS.devices);
        let of = &self.streams[&stream];
        if !of.blocks {
            return;
        }
        let device = of.device;
        let others = self.streams.iter().filter(|(other, s)| {
            **other != stream
                && s.device == device
                && s.blocks
                && (is_default || **other <= u64::from(OPTIONS.devices))
        });
        let waits: Vec<Work> = others
            .filter(|(_, s)| s.done < s.queued)
            .map(|(&stream, s)| Work::Wait { stream, upto: s.queued })
            .collect();
        waits.into_iter().for_each(|wait| self.push(stream, wait));
    }

    /// Marks a point of a stream.
    pub(crate) fn mark(&mut self, handle: u64, stream: u64, external: bool) -> Answer<()> {
        let stream = self.stream(stream)?;
        let capture = self.streams[&stream].capture;
        let event = self.events.get_mut(&handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if event.device != self.streams[&stream].device {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        event.version += 1;
        (event.time, event.captured) = (None, None);
        let record = Work::Record { event: handle, version: event.version };
        match capture {
            Some(capture) if external => self.record(capture, stream, record),
            Some(capture) => {
                let count = self.captured(capture, stream)?;
                if let Some(event) = self.events.get_mut(&handle) {
                    event.captured = Some((capture, stream, count));
                }
                Ok(())
            }
            None => {
                self.push(stream, record);
                let upto = self.streams[&stream].queued;
                if let Some(event) = self.events.get_mut(&handle) {
                    event.mark = Some((stream, upto));
                }
                Ok(())
            }
        }
    }

    /// Makes a stream wait for an event.
    pub(crate) fn wait_event(&mut self, stream: u64, handle: u64) -> Answer<()> {
        let stream = self.stream(stream)?;
        let event = self.events.get(&handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if let Some((capture, from, count)) = event.captured {
            return self.join(capture, stream, from, count);
        }
        let mark = event.mark;
        if let Some(capture) = self.streams[&stream].capture {
            // Work from before the capture.
            let is_new = mark.is_some();
            return if is_new { self.isolated(capture) } else { Ok(()) };
        }
        if let Some((other, upto)) = mark {
            self.push(stream, Work::Wait { stream: other, upto });
        }
        Ok(())
    }
}
