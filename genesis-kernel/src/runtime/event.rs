//! Marks in a stream: whether they are reached, and the time between two.

use std::time::Instant;

use super::cuda::CudaEvent;
use super::device::Device;
use super::stream::{Queue, Stream};
use crate::diag::Error;

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    mark: Mark,
}

#[derive(Debug)]
enum Mark {
    Cpu(Instant),
    Cuda(CudaEvent),
}

impl Event {
    /// Marks this point of the stream.
    ///
    /// # Errors
    /// If the device fails.
    pub fn record(stream: &Stream) -> Result<Event, Error> {
        Event::on(stream, true)
    }

    /// [`Event::record`] without a time, which takes less of the host.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn mark(stream: &Stream) -> Result<Event, Error> {
        Event::on(stream, false)
    }

    fn on(stream: &Stream, timed: bool) -> Result<Event, Error> {
        let mark = match stream.queue() {
            Queue::Cpu => Mark::Cpu(Instant::now()),
            Queue::Cuda(stream) => Mark::Cuda(stream.record_event(timed)?),
            Queue::Missing(_, error) => return Err(Error::clone(error)),
        };
        Ok(Event { mark })
    }

    /// Whether it is reached; does not wait.
    ///
    /// # Errors
    /// If the device fails.
    pub fn query(&self) -> Result<bool, Error> {
        match &self.mark {
            Mark::Cpu(_) => Ok(true),
            Mark::Cuda(event) => event.query(),
        }
    }

    /// Waits until it is reached.
    ///
    /// # Errors
    /// If something that ran before it failed; the device is then lost.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.mark {
            Mark::Cpu(_) => Ok(()),
            Mark::Cuda(event) => event.synchronize(),
        }
    }

    /// Milliseconds from an earlier mark to this one; waits until both are reached.
    ///
    /// # Errors
    /// If they are marks of different devices.
    pub fn elapsed_ms(&self, since: &Event) -> Result<f64, Error> {
        match (&self.mark, &since.mark) {
            (Mark::Cpu(end), Mark::Cpu(start)) => {
                Ok(end.saturating_duration_since(*start).as_secs_f64() * 1e3)
            }
            (Mark::Cuda(end), Mark::Cuda(start)) => end.elapsed_ms(start),
            _ => Err(Error::launch("elapsed_ms: the events are of different devices")),
        }
    }

    pub(super) fn cuda(&self) -> Option<&CudaEvent> {
        match &self.mark {
            Mark::Cpu(_) => None,
            Mark::Cuda(event) => Some(event),
        }
    }
}

impl Stream {
    /// Lets what is given to it from now on wait for an event of any stream and device; the host does not
    /// wait. An event of the CPU is reached already.
    ///
    /// # Errors
    /// If a device fails.
    pub fn wait_event(&self, event: &Event) -> Result<(), Error> {
        match self.queue() {
            Queue::Cpu => event.synchronize(),
            Queue::Cuda(stream) => match event.cuda() {
                Some(event) => stream.wait_event(event),
                None => Ok(()),
            },
            Queue::Missing(_, error) => Err(Error::clone(error)),
        }
    }

    /// Lets what is given to it from now on wait for what another stream has been given so far.
    ///
    /// # Errors
    /// If a device fails.
    pub fn wait_stream(&self, other: &Stream) -> Result<(), Error> {
        if self == other || other.device() == Device::Cpu {
            return Ok(());
        }
        self.wait_event(&Event::mark(other)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;

    #[test]
    fn time_goes_forward() {
        let stream = Device::Cpu.stream();
        let start = Event::record(&stream).unwrap();
        let end = Event::record(&stream).unwrap();
        assert!(end.elapsed_ms(&start).unwrap() >= 0.0);
        assert_eq!(start.elapsed_ms(&end).unwrap().max(0.0), start.elapsed_ms(&end).unwrap());
    }
}
