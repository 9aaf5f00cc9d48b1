//! A profiler at work.

use std::mem;

use genesis_kernel::trace::{self, DeviceTimes, Options, Scope, Session};

use super::Peaks;
use super::results::Profile;
use super::schedule::{Action, Schedule};
use crate::error::Result;
use crate::nn;

/// What is recorded.
pub struct ProfilerOptions {
    /// Which steps are recorded; all of them without it.
    pub schedule: Option<Schedule>,
    /// Called with each window of the schedule that is complete, and with what was recorded at the end where
    /// there is no schedule.
    pub on_trace_ready: Option<TraceReady>,
    /// Dtypes and shapes of the inputs of ops.
    pub record_shapes: bool,
    /// Memory in use, at each allocation.
    pub profile_memory: bool,
    /// The layer that each op is of: its dotted name where [`nn::observe`] names it, else types of layers.
    pub with_modules: bool,
    /// Bytes and floating-point operations of launches.
    pub with_flops: bool,
    /// When GPUs begin and end kernels: of which launches that is measured.
    pub device_times: DeviceTimes,
    /// All threads of the process, instead of the one that starts the profiler.
    pub all_threads: bool,
    /// Ranges for NVIDIA's own profilers too, where `libnvToolsExt` is installed.
    pub nvtx: bool,
    /// Events that are kept; later ones are counted only.
    pub max_events: usize,
    /// What the device can do at best, where that is known better than [`Peaks::of`] knows it.
    pub peaks: Option<Peaks>,
}

/// What is done with a profile that is complete.
pub type TraceReady = Box<dyn FnMut(&Profile) -> Result<()>>;

impl Default for ProfilerOptions {
    fn default() -> ProfilerOptions {
        ProfilerOptions {
            schedule: None,
            on_trace_ready: None,
            record_shapes: false,
            profile_memory: false,
            with_modules: false,
            with_flops: true,
            device_times: DeviceTimes::Sampled,
            all_threads: false,
            nvtx: false,
            max_events: 1_000_000,
            peaks: None,
        }
    }
}

/// A profiler at work on the thread that started it. Dropping it ends the recording.
///
/// # Examples
/// ```
/// use genesis::profiler::{Profiler, ProfilerOptions, Schedule};
/// use genesis::{Device, Tensor};
///
/// let schedule = Schedule { wait: 1, warmup: 1, active: 2, ..Schedule::default() };
/// let options = ProfilerOptions { schedule: Some(schedule), ..ProfilerOptions::default() };
/// let mut profiler = Profiler::start(options)?;
/// for _ in 0..10 {
///     Tensor::ones(&[4], Device::Cpu)?.exp()?;
///     profiler.step()?;
/// }
/// assert_eq!(profiler.stop()?.steps(), 2);
/// # Ok::<(), genesis::Error>(())
/// ```
pub struct Profiler {
    session: Session,
    schedule: Option<Schedule>,
    on_trace_ready: Option<TraceReady>,
    peaks: Option<Peaks>,
    /// The number of the step at work.
    step: usize,
    /// Steps in the window so far.
    recorded: usize,
    range: Option<Scope>,
    done: Option<Profile>,
}

impl std::fmt::Debug for Profiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiler").field("step", &self.step).finish_non_exhaustive()
    }
}

impl Profiler {
    /// Starts a profiler: on this thread, with the first step of the schedule.
    ///
    /// # Errors
    /// If one is at work on this thread.
    pub fn start(options: ProfilerOptions) -> Result<Profiler> {
        let session = Session::start(Options {
            shapes: options.record_shapes,
            work: options.with_flops,
            device_times: options.device_times,
            memory: options.profile_memory,
            nvtx: options.nvtx,
            module: options.with_modules.then_some(nn::module_path),
            all_threads: options.all_threads,
            max_events: options.max_events,
        })?;
        let ProfilerOptions { schedule, on_trace_ready, peaks, .. } = options;
        let mut profiler = Profiler {
            session,
            schedule,
            on_trace_ready,
            peaks,
            step: 0,
            recorded: 0,
            range: None,
            done: None,
        };
        profiler.begin_step();
        Ok(profiler)
    }

    /// Says that a step of the program is over.
    ///
    /// # Errors
    /// Those of `on_trace_ready`.
    pub fn step(&mut self) -> Result<()> {
        self.range = None;
        let action = self.action();
        if matches!(action, Action::Record | Action::RecordLast) {
            self.recorded += 1;
        }
        if action == Action::RecordLast {
            self.session.set_recording(false);
            self.finish()?;
        }
        self.step += 1;
        self.begin_step();
        Ok(())
    }

    /// Ends the recording: the last window that was complete, or the one that it ended in.
    ///
    /// # Errors
    /// Those of `on_trace_ready`.
    pub fn stop(mut self) -> Result<Profile> {
        self.range = None;
        let is_recording = matches!(self.action(), Action::Record | Action::RecordLast);
        self.session.set_recording(false);
        if is_recording && (self.done.is_none() || self.recorded > 0) {
            self.finish()?;
        }
        let empty = || Profile::new(self.session.take(), 0, self.peaks);
        Ok(self.done.take().unwrap_or_else(empty))
    }

    fn action(&self) -> Action {
        self.schedule.map_or(Action::Record, |schedule| schedule.action(self.step))
    }

    fn begin_step(&mut self) {
        let action = self.action();
        self.session.set_recording(action != Action::Wait);
        if action == Action::Wait {
            return;
        }
        if self.recorded == 0 && self.schedule.is_some() {
            // What warmed up is not part of the window.
            drop(self.session.take());
        }
        self.range = Some(trace::range(format!("ProfilerStep#{}", self.step)));
    }

    fn finish(&mut self) -> Result<()> {
        let steps = mem::take(&mut self.recorded);
        let profile = Profile::new(self.session.take(), steps, self.peaks);
        if let Some(ready) = &mut self.on_trace_ready {
            ready(&profile)?;
        }
        self.done = Some(profile);
        Ok(())
    }
}
