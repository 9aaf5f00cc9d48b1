//! What a profiler recorded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use genesis_kernel::trace::Trace;

use super::averages::{Averages, GroupBy};
use super::peaks::Peaks;
use super::{averages, chrome};
use crate::Device;
use crate::error::{Error, Result};

/// What a profiler recorded in one window.
#[derive(Debug)]
pub struct Profile {
    trace: Trace,
    steps: usize,
    given: Option<Peaks>,
    peaks: OnceLock<BTreeMap<Device, Peaks>>,
}

impl Profile {
    pub(super) fn new(trace: Trace, steps: usize, given: Option<Peaks>) -> Profile {
        Profile { trace, steps, given, peaks: OnceLock::new() }
    }

    /// Every event, as recorded.
    pub fn events(&self) -> &Trace {
        &self.trace
    }

    /// Steps of the window; 0 where nobody called [`Profiler::step`](super::Profiler::step).
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Milliseconds from the beginning of the window to its end.
    pub fn wall_ms(&self) -> f64 {
        (self.trace.end_ns - self.trace.start_ns) as f64 / 1e6
    }

    /// Totals of events that have something in common.
    pub fn key_averages(&self, group_by: GroupBy) -> Averages {
        averages::group(&self.trace, group_by, self.peaks(), self.wall_ms())
    }

    /// Writes the events in the format that Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing`
    /// open: host threads, GPU streams with arrows from each launch to its kernel, and memory.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn export_chrome_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let refused =
            |error| Error::op("export_chrome_trace", format!("{}: {error}", path.display()));
        chrome::export(&self.trace, path).map_err(refused)
    }

    /// What each device can do at best.
    pub(super) fn peaks(&self) -> &BTreeMap<Device, Peaks> {
        self.peaks.get_or_init(|| {
            let mut peaks = BTreeMap::new();
            for device in self.trace.launches.iter().map(|launch| launch.device) {
                if !peaks.contains_key(&device)
                    && let Some(found) = self.given.or_else(|| Peaks::of(device).ok())
                {
                    peaks.insert(device, found);
                }
            }
            peaks
        })
    }
}
