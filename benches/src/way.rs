//! A way to launch, timed by the host.

use std::time::Instant;

/// A way to launch.
pub(crate) struct Way<'a> {
    /// Waits until the GPU is idle.
    pub(crate) wait: Box<dyn Fn() -> anyhow::Result<()> + 'a>,
    /// Launches once.
    pub(crate) launch: Box<dyn FnMut() -> anyhow::Result<()> + 'a>,
}

impl Way<'_> {
    /// Host time of one of `timed` launches, in ms.
    pub(crate) fn round(&mut self, warm: usize, timed: usize) -> anyhow::Result<f64> {
        (self.wait)()?;
        (0..warm).try_for_each(|_| (self.launch)())?;
        let start = Instant::now();
        (0..timed).try_for_each(|_| (self.launch)())?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / timed as f64)
    }
}
