//! Flight recorder: the last collectives of a rank.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Event;

/// Collectives that are kept.
const KEPT: usize = 64;

/// What a collective is, as all ranks must say it alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) op: String,
    pub(super) shape: Vec<usize>,
    pub(super) dtype: DType,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?} {}", self.op, self.shape, self.dtype)
    }
}

/// A collective that was called.
#[derive(Debug)]
struct Record {
    number: u64,
    call: Call,
    at: &'static Location<'static>,
    since: Instant,
    /// The mark behind it; none before it was given to the stream, and where a graph records it.
    end: Option<Event>,
    is_done: bool,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, call, at) = (self.number, &self.call, self.at);
        write!(f, "number {number}, {call}, at {}:{}", at.file(), at.line())
    }
}

/// The ring of collectives of one group.
#[derive(Debug, Default)]
pub(super) struct Recorder(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Record>,
    next: u64,
}

impl Recorder {
    /// Notes a call that begins; gives its number, the first of which is 1.
    pub(super) fn begin(&self, call: Call, at: &'static Location<'static>) -> u64 {
        let mut ring = self.lock();
        ring.next += 1;
        let number = ring.next;
        if ring.records.len() == KEPT {
            ring.records.pop_front();
        }
        let (since, end, is_done) = (Instant::now(), None, false);
        ring.records.push_back(Record { number, call, at, since, end, is_done });
        number
    }

    /// Notes that a call was given to a stream, with the mark behind it; without one nobody watches its end.
    pub(super) fn given(&self, number: u64, end: Option<Event>) {
        if let Some(record) = self.lock().records.iter_mut().find(|r| r.number == number) {
            record.is_done = end.is_none();
            record.end = end;
        }
    }

    /// The number, the words and the age in seconds of the oldest collective that has not ended.
    pub(super) fn oldest_open(&self) -> Option<(u64, String, f64)> {
        let mut ring = self.lock();
        for record in &mut ring.records {
            // A device that failed has ended it too; who waits for it hears that.
            record.is_done |= record.end.as_ref().is_some_and(|end| end.query().unwrap_or(true));
        }
        let open = ring.records.iter().find(|record| !record.is_done)?;
        Some((open.number, open.to_string(), open.since.elapsed().as_secs_f64()))
    }

    /// The number of the last call, and where this rank stands.
    pub(super) fn stands(&self) -> (u64, String) {
        let open = self.oldest_open();
        let ring = self.lock();
        let text = match (open, ring.records.back()) {
            (Some((_, words, seconds)), _) => format!("waits for {words}, for {seconds:.1} s"),
            (None, Some(last)) => format!("has ended all it called; the last was {last}"),
            (None, None) => "has called no collective".to_owned(),
        };
        (ring.next, text)
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: &str) -> Call {
        Call { op: op.to_owned(), shape: vec![2, 3], dtype: DType::F32 }
    }

    #[test]
    fn a_rank_says_where_it_stands() {
        let recorder = Recorder::default();
        assert_eq!(recorder.stands(), (0, "has called no collective".to_owned()));
        let here = Location::caller();
        let first = recorder.begin(call("all_reduce"), here);
        let (number, text) = recorder.stands();
        assert_eq!((first, number), (1, 1));
        assert!(text.starts_with("waits for number 1, all_reduce of [2, 3] f32, at "), "{text}");
        recorder.given(first, None);
        let (_, text) = recorder.stands();
        assert!(text.starts_with("has ended all it called; the last was number 1, "), "{text}");
    }

    #[test]
    fn old_records_are_dropped() {
        let recorder = Recorder::default();
        for _ in 0..KEPT + 3 {
            let number = recorder.begin(call("barrier"), Location::caller());
            recorder.given(number, None);
        }
        assert_eq!(recorder.lock().records.len(), KEPT);
        assert_eq!(recorder.stands().0, KEPT as u64 + 3);
    }
}
