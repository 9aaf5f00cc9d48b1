//! Marks in a stream, to measure the time between two.

use std::time::Instant;

use super::cuda::CudaEvent;
use super::device::{Queue, Stream};
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
    pub fn record(stream: &Stream) -> Result<Event, Error> {
        let mark = match stream.queue() {
            Queue::Cpu => Mark::Cpu(Instant::now()),
            Queue::Cuda(device) => Mark::Cuda(device.record_event()?),
            Queue::Missing(_, error) => return Err(error.clone()),
        };
        Ok(Event { mark })
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
