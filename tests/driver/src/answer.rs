//! Answers of the driver.

use cudarc::driver::sys::CUresult;

/// What a driver's function does, or why not.
pub(crate) type Answer<T> = Result<T, CUresult>;
