//! The launches of a device that came last, to say what it ran when it broke.
//!
//! A ring of fixed records. A launch takes the next number and writes the record of that number; it never
//! waits: where another thread is just writing or reading that one record, it leaves nothing.
//!
//! ```text
//! launches 0 1 2 .. 63   ->  records 0 1 2 .. 63
//! launch   64            ->  record  0
//! ```

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::runtime::origin::{Origin, origin};

/// Records of one device.
const SLOTS: usize = 64;

/// Records that an error shows.
const SHOWN: usize = 8;

/// One launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Launched {
    /// Its number; the first is 1, and 0 is a record that was never written.
    number: u64,
    kernel: &'static str,
    grid: [u32; 3],
    origin: Origin,
}

const NONE: Launched = Launched {
    number: 0,
    kernel: "",
    grid: [0; 3],
    origin: Origin { op: "", is_backward: false, place: None },
};

/// The launches of a device that came last.
#[derive(Debug)]
pub(super) struct Recent {
    count: AtomicU64,
    slots: [Mutex<Launched>; SLOTS],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { count: AtomicU64::new(0), slots: [const { Mutex::new(NONE) }; SLOTS] }
    }
}

impl Recent {
    /// Notes a launch.
    #[inline]
    pub(super) fn note(&self, kernel: &'static str, grid: [u32; 3]) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut slot) = self.slots[number as usize % SLOTS].try_lock() {
            *slot = Launched { number: number + 1, kernel, grid, origin: origin() };
        }
    }

    /// The launches that are still known, newest first.
    pub(super) fn newest(&self) -> Vec<Launched> {
        let read = |slot: &Mutex<Launched>| *slot.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Launched> = self.slots.iter().map(read).collect();
        all.retain(|launched| launched.number > 0);
        all.sort_unstable_by_key(|launched| std::cmp::Reverse(launched.number));
        all
    }

    /// What an error says of them: the one that failed where each launch was waited for, else the last
    /// ones. Empty if nothing was launched.
    pub(super) fn describe(&self, waited: bool) -> String {
        let newest = self.newest();
        let Some(first) = newest.first() else { return String::new() };
        if waited {
            return format!("; it was {first}");
        }
        let mut text = "; launched last, newest first:".to_owned();
        for launched in newest.iter().take(SHOWN) {
            let _ = write!(text, "\n  {launched}");
        }
        text + "\nGENESIS_SYNC=1 names the exact one"
    }
}

impl std::fmt::Display for Launched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [x, y, z] = self.grid;
        write!(f, "kernel `{}` of {x} x {y} x {z} programs", self.kernel)?;
        match self.origin {
            Origin { op: "", place: None, .. } => Ok(()),
            Origin { op: "", place: Some(place), .. } => {
                write!(f, ", at {}:{}", place.file(), place.line())
            }
            origin => write!(f, ", for {origin}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::origin::enter;

    #[test]
    fn nothing_was_launched() {
        assert_eq!(Recent::default().describe(false), "");
        assert_eq!(Recent::default().describe(true), "");
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_are_forgotten() {
        let recent = Recent::default();
        for x in 0..SLOTS as u32 + 3 {
            recent.note("add", [x, 1, 1]);
        }
        let newest = recent.newest();
        assert_eq!(newest.len(), SLOTS);
        assert_eq!((newest[0].grid[0], newest[SLOTS - 1].grid[0]), (66, 3));
    }

    #[test]
    fn an_error_names_op_kernel_and_line() {
        let recent = Recent::default();
        recent.note("fill", [7, 1, 1]);
        let place = std::panic::Location::caller();
        {
            let _op = enter(Origin { op: "gather", is_backward: true, place: Some(place) });
            recent.note("index", [2, 3, 1]);
        }
        let line = format!("{}:{}", place.file(), place.line());
        let last = format!("kernel `index` of 2 x 3 x 1 programs, for gather backward at {line}");
        assert_eq!(recent.describe(true), format!("; it was {last}"));
        assert_eq!(
            recent.describe(false),
            format!(
                "; launched last, newest first:\n  {last}\n  kernel `fill` of 7 x 1 x 1 programs\n\
                 GENESIS_SYNC=1 names the exact one"
            )
        );
    }

    #[test]
    fn threads_write_side_by_side() {
        let recent = Recent::default();
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let recent = &recent;
                scope.spawn(move || (0..1000).for_each(|x| recent.note("k", [x, thread, 1])));
            }
        });
        let newest = recent.newest();
        assert_eq!(recent.count.load(Ordering::Relaxed), 4000);
        // A record is whole: its thread counts up, so that a later number is a later point of it.
        for thread in 0..4 {
            let own = newest.iter().filter(|launched| launched.grid[1] == thread);
            let points: Vec<u32> = own.map(|launched| launched.grid[0]).collect();
            assert!(points.is_sorted_by(|a, b| a > b), "{points:?}");
        }
    }
}
