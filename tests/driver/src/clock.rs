//! The virtual clock: when work would run on a GPU, in nanoseconds.
//!
//! ```text
//! host      time at which it gives work to a stream; moves only where it waits, for a stream, an event or a copy
//! stream    a piece begins once the piece before has ended and the host has given it, and ends after its cost
//! wait      ends when what it waits for has
//! ```
//!
//! Times follow from what was given to streams and in which order, and not from when this driver happens to run it. The
//! host itself takes no time, and each of its threads has a clock of its own. Costs are in `cost`.

use std::cell::Cell;
use std::collections::BTreeMap;

thread_local! {
    /// When this thread goes on.
    static HOST: Cell<u64> = const { Cell::new(0) };
    /// Whether what this thread gives to streams costs nothing.
    static IS_FREE: Cell<bool> = const { Cell::new(false) };
    /// When the host function that this thread runs ends.
    static CALL: Cell<u64> = const { Cell::new(0) };
}

/// When the pieces of work of each stream end.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// When the first piece of a stream may begin.
    begin: u64,
    ends: BTreeMap<u64, Vec<u64>>,
}

impl Timeline {
    /// Streams that begin at a time.
    pub(crate) fn since(begin: u64) -> Timeline {
        Timeline { begin, ends: BTreeMap::new() }
    }

    /// How many pieces of a stream have run.
    pub(crate) fn count(&self, stream: u64) -> usize {
        self.ends.get(&stream).map_or(0, Vec::len)
    }

    /// When the newest piece of a stream ends.
    pub(crate) fn now(&self, stream: u64) -> u64 {
        self.ends.get(&stream).and_then(|ends| ends.last()).copied().unwrap_or(self.begin)
    }

    /// When a stream has done so many pieces.
    pub(crate) fn end(&self, stream: u64, upto: u64) -> u64 {
        let nth = |ends: &Vec<u64>| ends.get((upto as usize).checked_sub(1)?).copied();
        match upto {
            0 => self.begin,
            _ => self.ends.get(&stream).and_then(nth).unwrap_or_else(|| self.now(stream)),
        }
    }

    /// The next piece of a stream ends at a time.
    pub(crate) fn push(&mut self, stream: u64, end: u64) {
        self.ends.entry(stream).or_default().push(end);
    }
}

/// The host's time.
pub(crate) fn host() -> u64 {
    HOST.get()
}

/// The host waits until a time.
pub(crate) fn wait_until(time: u64) {
    HOST.set(HOST.get().max(time));
}

/// Whether what this thread gives to streams costs nothing.
pub(crate) fn is_free() -> bool {
    IS_FREE.get()
}

/// From now on what this thread gives to streams costs nothing, or something again.
pub(crate) fn set_free(is_free: bool) {
    IS_FREE.set(is_free);
}

/// Runs a function of the host that begins at a time; when it ends.
pub(crate) fn call(start: u64, function: impl FnOnce()) -> u64 {
    CALL.set(start);
    function();
    CALL.get()
}

/// When the host function that runs would end.
pub(crate) fn now_of_call() -> u64 {
    CALL.get()
}

/// Lets the host function that runs end no sooner than at a time.
pub(crate) fn end_call(time: u64) {
    CALL.set(CALL.get().max(time));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_knows_when_each_piece_ended() {
        let mut timeline = Timeline::since(5);
        assert_eq!([timeline.now(1), timeline.end(1, 0), timeline.end(1, 3)], [5, 5, 5]);
        timeline.push(1, 7);
        timeline.push(1, 9);
        assert_eq!([timeline.end(1, 1), timeline.end(1, 2), timeline.now(1)], [7, 9, 9]);
        // What a broken device dropped ended with the rest.
        assert_eq!((timeline.end(1, 4), timeline.count(1), timeline.count(2)), (9, 2, 0));
    }

    #[test]
    fn the_host_only_goes_forward() {
        wait_until(8);
        wait_until(3);
        assert_eq!(host(), 8);
    }

    #[test]
    fn a_function_of_the_host_takes_what_it_says() {
        assert_eq!(call(4, || ()), 4);
        assert_eq!(call(4, || end_call(now_of_call() + 6)), 10);
        assert_eq!(call(4, || end_call(1)), 4);
    }
}
