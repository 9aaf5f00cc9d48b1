//! Random numbers in the place of a tensor's values, from the default generator; of another one by
//! [`Tensor::copy_`] of what it draws.

use crate::error::Result;
use crate::random::{Generator, default_generator};
use crate::tensor::{Creation, Tensor};

impl Tensor {
    /// Puts what a distribution gives into the place of the values.
    #[track_caller]
    fn redraw(
        &self,
        draw: impl FnOnce(&Generator, &[usize], Creation) -> Result<Tensor>,
    ) -> Result<()> {
        let at = Creation { dtype: self.dtype(), device: self.device() };
        self.copy_(&draw(default_generator(), self.shape(), at)?)
    }

    /// Uniform in `[low, high)`; see [`Generator::uniform`].
    ///
    /// # Errors
    /// As [`Generator::uniform`], or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn uniform_(&self, low: f64, high: f64) -> Result<()> {
        self.redraw(|g, shape, at| g.uniform(shape, low, high, at))
    }

    /// Normal with this mean and standard deviation; see [`Generator::normal`].
    ///
    /// # Errors
    /// As [`Generator::normal`], or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn normal_(&self, mean: f64, std: f64) -> Result<()> {
        self.redraw(|g, shape, at| g.normal(shape, mean, std, at))
    }

    /// e to the power of normal numbers; see [`Generator::log_normal`].
    ///
    /// # Errors
    /// As [`Generator::log_normal`], or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn log_normal_(&self, mean: f64, std: f64) -> Result<()> {
        self.redraw(|g, shape, at| g.log_normal(shape, mean, std, at))
    }

    /// Exponential with this rate; see [`Generator::exponential`].
    ///
    /// # Errors
    /// As [`Generator::exponential`], or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn exponential_(&self, rate: f64) -> Result<()> {
        self.redraw(|g, shape, at| g.exponential(shape, rate, at))
    }

    /// Of Cauchy's distribution; see [`Generator::cauchy`].
    ///
    /// # Errors
    /// As [`Generator::cauchy`], or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn cauchy_(&self, median: f64, sigma: f64) -> Result<()> {
        self.redraw(|g, shape, at| g.cauchy(shape, median, sigma, at))
    }

    /// Numbers of trials until one succeeds; see [`Generator::geometric`].
    ///
    /// # Errors
    /// As [`Generator::geometric`], or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn geometric_(&self, p: f64) -> Result<()> {
        self.redraw(|g, shape, at| g.geometric(shape, p, at))
    }

    /// Uniform among the integers `low..high`; see [`Generator::randint`].
    ///
    /// # Errors
    /// As [`Generator::randint`], or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn random_(&self, low: i64, high: i64) -> Result<()> {
        self.redraw(|g, shape, at| g.randint(low, high, shape, at))
    }

    /// 1 with probability `p`, else 0.
    ///
    /// # Errors
    /// If the dtype is for storage only, or this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn bernoulli_(&self, p: f64) -> Result<()> {
        self.redraw(|g, shape, at| {
            g.bernoulli(&Tensor::full(shape, p, (genesis_kernel::ir::DType::F32, at.device))?)
        })
    }
}
