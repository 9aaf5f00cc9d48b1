//! Giving work to streams, and waiting for it.

use cudarc::driver::sys::CUresult;

use crate::answer::Answer;
use crate::driver::{Driver, OPTIONS, lock};
use crate::run::{finish, wait_for};
use crate::work::{Piece, Work};

/// Work that waits in a stream; a driver that has more waits as well.
const MOST_QUEUED: usize = 1024;

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
    wait_for(stream, upto);
    lock().alive(device)
}

impl Driver {
    fn push(&mut self, stream: u64, work: Work) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.push_back(Piece::now(work));
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
            // What has run already still counts on the clock.
            .filter(|(_, s)| s.done < s.queued || OPTIONS.clock && s.queued > 0)
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
