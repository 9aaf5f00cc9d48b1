//! What goes wrong on purpose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Faults of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// A rank, and the collective at which it ends.
    pub(crate) dead: Option<(usize, u64)>,
    /// A rank, and how late it comes.
    pub(crate) late: Option<(usize, Duration)>,
}

static COUNT: AtomicU64 = AtomicU64::new(0);

/// What a rank does before a collective runs.
pub(crate) fn before_collective(faults: &Faults, rank: usize) {
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if faults.dead == Some((rank, number)) {
        // Nothing is told to anybody, and nothing is cleaned up.
        std::process::abort();
    }
    if let Some((late, by)) = faults.late
        && late == rank
    {
        std::thread::sleep(by);
    }
}

impl Faults {
    /// Takes a word of the options; whether it is known.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> bool {
        let Some((rank, value)) = value.split_once(':') else { return false };
        let (Ok(rank), Ok(value)) = (rank.parse(), value.parse()) else { return false };
        match name {
            "dead" => self.dead = Some((rank, value)),
            "late" => self.late = Some((rank, Duration::from_millis(value))),
            _ => return false,
        }
        true
    }
}
