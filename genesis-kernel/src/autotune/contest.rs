//! Candidates on a device: whether they are right, and how long they take.

use super::check::{count_differences, tolerance};
use super::example::{Example, move_to};
use crate::configs::{Config, Tuning};
use crate::diag::Error;
use crate::ir::DType;
use crate::kernel::KernelDef;
use crate::runtime::reach::reach;
use crate::runtime::{Arg, Buffer, Event, Stream};

/// What a search asks of its candidates.
pub trait Contest {
    /// Whether a candidate computes what it must; else why not.
    ///
    /// # Errors
    /// If the device fails.
    fn check(&mut self, candidate: usize) -> Result<Result<(), String>, Error>;

    /// Microseconds of a candidate, the median of so many runs.
    ///
    /// # Errors
    /// If the device fails.
    fn time(&mut self, candidate: usize, runs: usize) -> Result<f64, Error>;
}

/// The median; none of nothing.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A kernel's configurations on a device.
pub(super) struct DeviceContest<'a> {
    pub(super) kernel: &'a KernelDef,
    pub(super) tuning: &'a Tuning,
    pub(super) stream: &'a Stream,
    pub(super) dtypes: &'a [DType],
    pub(super) present: &'a [bool],
    pub(super) configs: &'a [Config],
    /// A small problem whose result the CPU computed, and the problem itself.
    pub(super) trials: Vec<Trial>,
    /// What is written before a sample, so that it starts with a cache that knows nothing of it.
    pub(super) flush: Buffer,
    /// Whether each run starts with an empty cache: what memory bounds is measured so.
    pub(super) is_cold: bool,
}

/// Arguments, the results that belong to them, and what keeps their memory.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) args: Vec<Arg>,
    outputs: Vec<Output>,
    /// Results that are right, one for each output, once there are.
    pub(super) expected: Option<Vec<Buffer>>,
    what: &'static str,
    _memory: Option<Example>,
}

#[derive(Debug)]
struct Output {
    buffer: Buffer,
    dtype: DType,
}

impl Trial {
    /// A trial on a caller's arguments: results go to memory of our own.
    pub(super) fn new(what: &'static str, stream: &Stream, args: &[Arg]) -> Result<Trial, Error> {
        let mut args = args.to_vec();
        let mut outputs = Vec::new();
        for arg in &mut args {
            let ptr = match arg {
                Arg::Ptr(ptr) => ptr,
                Arg::View(view) => {
                    if view.strides().iter().any(|&stride| stride < 0) {
                        return Err(Error::launch("tuning needs strides of 0 and more"));
                    }
                    let last = reach(view.dims(), view.strides()).map_or(0, |(_, last)| last);
                    let reach = u64::try_from(last).unwrap_or(u64::MAX).saturating_add(1);
                    // Memory may go on far beyond the view: what it reaches is enough.
                    view.ptr.bytes =
                        view.ptr.bytes.min(reach.saturating_mul(view.ptr.dtype.bytes() as u64));
                    &mut view.ptr
                }
                Arg::Views(all) if all.ptr.mutable => {
                    return Err(Error::launch("tuning does not write to lists of views"));
                }
                Arg::Scalar(_) | Arg::Views(_) => continue,
            };
            if ptr.mutable && !ptr.is_nothing() {
                let (bytes, dtype) = (ptr.bytes as usize, ptr.dtype);
                let buffer = Buffer::zeroed(stream, bytes)?;
                move_to(arg, &buffer);
                outputs.push(Output { buffer, dtype });
            }
        }
        Ok(Trial { args, outputs, expected: None, what, _memory: None })
    }

    /// A trial that keeps the memory of its arguments.
    pub(super) fn owning(
        what: &'static str,
        stream: &Stream,
        example: Example,
    ) -> Result<Trial, Error> {
        let trial = Trial::new(what, stream, example.args())?;
        Ok(Trial { _memory: Some(example), ..trial })
    }

    /// Zeros where the results go.
    fn reset(&self) -> Result<(), Error> {
        self.outputs.iter().try_for_each(|output| output.buffer.fill(0))
    }

    /// A copy of the results.
    pub(super) fn results(&self, stream: &Stream) -> Result<Vec<Buffer>, Error> {
        self.outputs.iter().map(|output| output.buffer.to_stream(stream)).collect()
    }

    /// How the results differ from what is expected; nothing if they do not.
    fn differs(&self, relative: Option<f64>) -> Result<Option<String>, Error> {
        let pairs = self.outputs.iter().zip(self.expected.iter().flatten());
        for (output, expected) in pairs {
            let limit = relative.unwrap_or_else(|| tolerance(output.dtype));
            let (wrong, all) = count_differences(&output.buffer, expected, output.dtype, limit)?;
            if wrong > 0 {
                return Ok(Some(format!("{wrong} of {all} elements differ on {}", self.what)));
            }
        }
        Ok(None)
    }
}

/// Launches in one sample take about this long in all, so that a kernel of 4 us is timed to 1 %.
const SAMPLE_US: f64 = 100.0;

/// More launches than this are not queued before the device is done with the flush.
const MAX_LAUNCHES: usize = 16;

impl DeviceContest<'_> {
    /// Runs a candidate on one of the trials.
    pub(super) fn run(&self, candidate: usize, trial: &Trial) -> Result<(), Error> {
        let config = &self.configs[candidate];
        let grid = (self.tuning.grid)(&config.consts, &trial.args);
        let (consts, options) = (config.consts_with(self.present), config.options);
        let (kernel, stream, dtypes) = (self.kernel, self.stream, self.dtypes);
        // SAFETY: results go to buffers of the trial, which are as large as what the arguments reach;
        // what is read is the caller's, who promised as much as for a launch, or an example's.
        unsafe { kernel.launch_with(stream, grid, dtypes, &consts, options, &trial.args) }
    }

    /// Microseconds of one of some launches, which are queued while the device still fills the flush
    /// buffer: the gaps that the host would leave between short kernels are not there.
    fn sample(&self, candidate: usize, launches: usize) -> Result<f64, Error> {
        let trial = self.trials.last().expect("the problem itself is a trial");
        if self.is_cold || launches > 1 {
            self.flush.fill(0)?;
        }
        if launches > 1 {
            // The first run after a flush fills the cache; the next ones are timed.
            self.run(candidate, trial)?;
        }
        let start = Event::record(self.stream)?;
        for _ in 0..launches {
            self.run(candidate, trial)?;
        }
        let end = Event::record(self.stream)?;
        Ok(end.elapsed_ms(&start)? * 1e3 / launches as f64)
    }
}

impl Contest for DeviceContest<'_> {
    fn check(&mut self, candidate: usize) -> Result<Result<(), String>, Error> {
        for i in 0..self.trials.len() {
            let trial = &self.trials[i];
            trial.reset()?;
            let ran = self.run(candidate, trial).and_then(|()| self.stream.synchronize());
            if let Err(error) = ran {
                return if error.is_device_lost() {
                    Err(error)
                } else {
                    Ok(Err(error.to_string()))
                };
            }
            if trial.expected.is_none() {
                // Right on the small problem: on this one the others are compared with it.
                let results = trial.results(self.stream)?;
                self.trials[i].expected = Some(results);
            } else if let Some(why) = trial.differs(self.tuning.tolerance)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    fn time(&mut self, candidate: usize, runs: usize) -> Result<f64, Error> {
        let first = self.sample(candidate, 1)?.max(0.1);
        let launches = match self.is_cold {
            true => 1,
            false => ((SAMPLE_US / first).ceil() as usize).clamp(1, MAX_LAUNCHES),
        };
        let mut times = Vec::with_capacity(runs);
        for _ in 0..runs {
            times.push(self.sample(candidate, launches)?);
        }
        Ok(median(&mut times).unwrap_or(first))
    }
}
