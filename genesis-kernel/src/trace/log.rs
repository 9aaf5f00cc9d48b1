//! What a thread has recorded, until it becomes a part of a trace.
//!
//! Ranges are numbered as they begin, and stand in that order: a range's place follows from its number and
//! that of the first one.

use std::sync::Arc;

use super::event::{Memory, RangeKind, Transfer};
use super::kinds::Kinds;

/// Records for which a session's own thread has memory before it begins: those of some thousand steps of a
/// small model. A page that is touched for the first time costs as much as many records, on a machine
/// that is shared.
const PREPARED: usize = 1 << 16;

/// A range, under way or over.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeRecord {
    /// Its name, if that is not in the details.
    pub(super) name: &'static str,
    pub(super) start_ns: u64,
    /// 0 while it is under way.
    pub(super) end_ns: u64,
    /// The number of the range around it; 0 for none.
    pub(super) parent: u32,
    pub(super) kind: RangeKind,
}

/// What most ranges have not.
#[derive(Debug, Default)]
pub(super) struct Details {
    /// A name that the program made.
    pub(super) name: Option<String>,
    pub(super) inputs: Option<String>,
    pub(super) module: Option<Arc<str>>,
}

/// A launch that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchRecord {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// The number of the range that it was launched in; 0 for none.
    pub(super) range: u32,
    pub(super) kind: u32,
    pub(super) stream: u32,
}

/// A thread's events.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) ranges: Vec<RangeRecord>,
    /// The number of the first of them.
    pub(super) first: u32,
    /// The details of some, by number.
    pub(super) details: Vec<(u32, Box<Details>)>,
    pub(super) launches: Vec<LaunchRecord>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) memory: Vec<Memory>,
    pub(super) kinds: Kinds,
    pub(super) dropped: u64,
    /// Events for which the session gave room.
    pub(super) room: usize,
}

impl Events {
    /// None yet, with memory that was touched: the first steps of a program pay no page faults.
    pub(super) fn prepared() -> Events {
        let mut events = Events::default();
        let (kind, name) = (RangeKind::User, "");
        let range = RangeRecord { name, start_ns: 0, end_ns: 0, parent: 0, kind };
        events.ranges.resize(PREPARED, range);
        let launch = LaunchRecord { start_ns: 0, end_ns: 0, range: 0, kind: 0, stream: 0 };
        events.launches.resize(PREPARED, launch);
        events.ranges.clear();
        events.launches.clear();
        events
    }

    /// Keeps the range of a number, which is larger than those before.
    #[inline]
    pub(super) fn begin(&mut self, number: u32, range: RangeRecord, more: impl FnOnce() -> usize) {
        if !self.has_room(more) {
            return;
        }
        let index = self.ranges.len();
        if index == 0 {
            self.first = number;
        }
        // Another thread may have made room after some were dropped.
        if number.wrapping_sub(self.first) as usize != index {
            self.dropped += 1;
            return;
        }
        self.ranges.push(range);
    }

    /// The range of a number, if it is kept.
    #[inline]
    pub(super) fn range(&mut self, number: u32) -> Option<&mut RangeRecord> {
        self.ranges.get_mut(number.wrapping_sub(self.first) as usize)
    }

    /// Whether there is room for one more; where there is none, `more` says for how many there is now.
    #[inline]
    pub(super) fn has_room(&mut self, more: impl FnOnce() -> usize) -> bool {
        if self.room == 0 && !self.make_room(more()) {
            return false;
        }
        self.room -= 1;
        true
    }

    #[cold]
    fn make_room(&mut self, more: usize) -> bool {
        self.room = more;
        self.dropped += u64::from(self.room == 0);
        self.room > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_stands_where_its_number_says() {
        let (mut events, kind) = (Events::default(), RangeKind::User);
        let mut begin = |number, name| {
            let range = RangeRecord { name, start_ns: 0, end_ns: 0, parent: 0, kind };
            events.begin(number, range, || 100);
        };
        begin(5, "five");
        begin(6, "six");
        // Seven found no room, eight would stand in its place.
        begin(8, "eight");
        assert_eq!(events.range(6).map(|range| range.name), Some("six"));
        assert!([4, 7, 8].iter().all(|&number| events.range(number).is_none()));
        assert_eq!(events.dropped, 1);
    }
}
