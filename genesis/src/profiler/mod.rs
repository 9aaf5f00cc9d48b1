//! What a program spends its time on: ops, kernels, copies, memory.
//!
//! [`profile`] runs a piece of a program and gives a [`Profile`]: a table of ops and of kernels with their
//! bytes, floating-point operations and share of what the device can do, a trace that Perfetto opens, and a
//! summary in words. With a [`Schedule`] only some steps of a long run are looked at.
//!
//! Off, an op pays one load of a flag. Nothing waits for a GPU while the program runs: some launches of each
//! kind are put between two of the GPU's own time stamps, which are read at the end, and the others of the
//! kind take the mean of those. [`DeviceTimes::All`] measures each.
//!
//! ```
//! use genesis::profiler::{GroupBy, ProfilerOptions, SortBy, profile};
//! use genesis::{Device, Tensor};
//!
//! let x = Tensor::ones(&[64, 64], Device::Cpu)?;
//! let (_, profile) = profile(ProfilerOptions::default(), |profiler| {
//!     for _ in 0..3 {
//!         x.matmul(&x)?.relu()?.sum()?.item()?;
//!         profiler.step()?;
//!     }
//!     Ok(())
//! })?;
//! let ops = profile.key_averages(GroupBy::Name);
//! assert_eq!(ops.row("matmul").expect("there were products").calls, 3);
//! println!("{}", ops.table(SortBy::DeviceTotal, 10));
//! println!("{}", profile.summary());
//! # Ok::<(), genesis::Error>(())
//! ```

mod averages;
mod chrome;
mod peaks;
mod results;
mod rows;
mod run;
mod schedule;
mod summary;
mod table;

use std::borrow::Cow;

pub use genesis_kernel::trace::DeviceTimes;
use genesis_kernel::trace::{self, Scope};

pub use self::averages::{Averages, GroupBy, Row};
pub use self::peaks::Peaks;
pub use self::results::Profile;
pub use self::rows::Rows;
pub use self::run::{Profiler, ProfilerOptions, TraceReady};
pub use self::schedule::Schedule;
pub use self::table::SortBy;
use crate::error::Result;

/// Runs `work` under a profiler; gives its result and what was recorded.
///
/// With a schedule, that is the last window that was complete, or the one that `work` ended in.
///
/// # Errors
/// Those of `work` and of [`Profiler::start`].
pub fn profile<T>(
    options: ProfilerOptions,
    work: impl FnOnce(&mut Profiler) -> Result<T>,
) -> Result<(T, Profile)> {
    let mut profiler = Profiler::start(options)?;
    let result = work(&mut profiler)?;
    Ok((result, profiler.stop()?))
}

/// Names a part of the program, until what it gives is dropped: a row of tables and a bar in traces.
///
/// # Examples
/// ```
/// use genesis::profiler::{GroupBy, ProfilerOptions, profile, record_function};
///
/// let (_, profile) = profile(ProfilerOptions::default(), |_| {
///     let _part = record_function("tokenize");
///     Ok(())
/// })?;
/// assert!(profile.key_averages(GroupBy::Name).row("tokenize").is_some());
/// # Ok::<(), genesis::Error>(())
/// ```
#[must_use = "the part ends when this is dropped"]
pub fn record_function(name: impl Into<Cow<'static, str>>) -> Scope {
    trace::range(name)
}
